/* How many drafts are tried: measured round costs, a stream's measured luck, and a guard that sends a stream
 * whose drafts lose time back to plain rounds. Nothing here decides which token wins; no clock is read here.
 */
#ifndef LW_LANE_DEPTH_H
#define LW_LANE_DEPTH_H

#include "lane/draft.h"

/* What a round of so many rows takes. */
typedef struct lw_cost {
    uint32_t rows;
    double ns;
} lw_cost;

typedef struct lw_costs {
    double *ns;            /* [rows_max + 1]; index 0 is unused */
    bool *is_assumed;      /* [rows_max + 1] neither given nor measured */
    bool has_unit;         /* something was given or measured, so that ns are nanoseconds */
    uint32_t rows_max;
} lw_costs;

/* Given costs stand; between two of them lines, below the first its value, past the last proportional to the
 * rows. With none given, a row past the first costs a sixteenth of a round. rows ascending; allocates. */
lw_status lw_costs_init(lw_costs *costs, const lw_cost *given, uint32_t given_count, uint32_t rows_max,
                        lw_diag *d) LW_MUST_USE;
void lw_costs_deinit(lw_costs *costs);
double lw_costs_at(const lw_costs *costs, uint32_t rows);
/* A round of this many rows took ns: its cost moves a fifth of the way, to at most twice what it was; an
 * assumed one all of it; the first of all tells what the assumed ones are worth. What fewer rows were thought
 * to take beyond that is forgotten: rounds that are not tried could not show that they were timed in a bad
 * moment. */
void lw_costs_measure(lw_costs *costs, uint32_t rows, double ns);

/* One stream's luck with one source, and the guard. The guard is an account in tokens, which a plain round
 * draws one of: a round with drafts adds those that were kept and takes what its longer time would have drawn
 * plainly. Nothing is tried that the account could not pay if it all were wrong. It begins with
 * LW_DEPTH_GRANT, so over n tokens drafts cost at most LW_DEPTH_GRANT + n * LW_DEPTH_INCOME tokens' time
 * (below 2 of 100), as far as costs are what they are thought to be; what drafts have won may be staked too.
 */
typedef struct lw_depth {
    float chances[LW_DRAFTS_MAX];   /* that draft j equals its draw, given that those before it did */
    float first;                    /* what they go back to while they are not tried */
    float account;
    uint32_t untried;               /* rounds since a draft was tried */
} lw_depth;

#define LW_DEPTH_GRANT 1.125f
#define LW_DEPTH_INCOME 0.0078125f /* by each token of the stream, until the grant is there again */

/* What a source's drafts cost in the coming round. */
typedef struct lw_draft_prices {
    const lw_costs *rounds;
    uint32_t rows;                  /* of the round without them, 1 at least */
    uint32_t streams;               /* that wait for it, 1 at least */
    double step_ns;                 /* for the source to make one more draft */
} lw_draft_prices;

/* chance: what is thought of a draft before any was tried. */
void lw_depth_init(lw_depth *depth, float chance);
/* What a stream with this source begins with when an earlier one ended with luck of its own: its chances
 * go half of the way, its account is handed on up to the grant, so that many short replies cost no more than
 * a long one. */
void lw_depth_learn(lw_depth *luck, const lw_depth *ended);
/* Drafts up to most that the account could pay and that would win were all of them right. */
uint32_t lw_depth_limit(const lw_depth *depth, const lw_draft_prices *prices, uint32_t most);
/* Tokens in the time of a plain round's one, with that many drafts up to most of which most is expected; 1
 * where plain rounds are better. */
double lw_depth_gain(const lw_depth *depth, const lw_draft_prices *prices, uint32_t most);
/* Whether it is time to try a draft whatever luck and costs say: what is never tried cannot show that they
 * are wrong. */
bool lw_depth_is_due(const lw_depth *depth);
/* A round went by without its drafts. */
void lw_depth_plain(lw_depth *depth);
/* offered drafts were in a round, kept of them equalled the draw; the round took extra plain rounds longer
 * than without them, of each of which streams drew a token. */
void lw_depth_drafted(lw_depth *depth, uint32_t offered, uint32_t kept, double extra, uint32_t streams);

#endif

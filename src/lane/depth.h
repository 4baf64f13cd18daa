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

/* One stream's luck with one source. */
typedef struct lw_depth {
    float chances[LW_DRAFTS_MAX];   /* that draft j equals its draw, given that those before it did */
    float first;                    /* what they begin with, and go back to while they are not tried */
    float gain; /* tokens a plain round's time brought in rounds with drafts; plain is 1 */
    uint32_t rest, backoff;         /* plain rounds to go, and how many there are after the next loss */
} lw_depth;

/* chance: what is thought of a draft before any was tried. */
void lw_depth_init(lw_depth *depth, float chance);
/* Drafts that may be tried in the coming round: most; none while the guard rests; one when it probes. */
uint32_t lw_depth_limit(const lw_depth *depth, uint32_t most);
/* A round went by without its drafts. */
void lw_depth_plain(lw_depth *depth);
/* offered drafts were in a round that took ns, kept of them equalled the draw; without them it takes
 * plain_ns. */
void lw_depth_drafted(lw_depth *depth, uint32_t offered, uint32_t kept, double ns, double plain_ns);

#endif

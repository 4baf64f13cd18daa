/* What the files of the lane core share: core.c (open, submit, cancel), round.c (the round's order, and
 * rounds ahead), seat.c (which waiting request takes which lane, and how it leaves), propose.c, head.c,
 * choose.c, draws.c, verify.c, commit.c. Tests alone include it beside them.
 */
#ifndef LW_LANE_CORE_INTERNAL_H
#define LW_LANE_CORE_INTERNAL_H

#include "lane/draws.h"
#include "lane/lane.h"

enum { LW__PASSED_MAX = 8 };  /* times that a filling prompt may be passed over */

/* What one lane brings to a round: known rows, then drafts below the last of them. */
typedef struct lw__share {
    uint32_t lane;
    uint32_t known;
    uint32_t drafts;
    uint32_t row_begin;
    uint32_t wanted_begin;   /* index among the wanted rows of its last known row; its drafts' follow */
    bool draws;              /* its known rows end the known tokens, and a token is drawn after them */
} lw__share;

typedef struct lw__round {
    lw__share shares[LW_CORE_LANES_MAX];
    uint32_t share_count;
    uint32_t row_count;
    uint32_t prompt_rows;
    uint32_t running;        /* shares of running lanes; they stand first */
    /* once it is submitted */
    bool is_open;            /* it was not waited for yet */
    bool is_ahead;           /* it was submitted while the one before was open */
    lw_ticket ticket;
    uint64_t begin_ns;       /* since when the device has nothing else to do */
    bool is_untimed;         /* nobody was there when it ended */
    lw_status status;        /* of its submission */
    lw_diag diag;            /* of status */
} lw__round;

typedef struct lw__head {
    uint32_t steps_max;      /* of one chain; 0: there is no head, or it is off */
    lw_costs costs;          /* of one step of so many chains */
    /* of the round in hand */
    const lw_draft_ask *asks[LW_CORE_LANES_MAX];   /* of each row */
    lw_row rows[LW_CORE_LANES_MAX];
    uint32_t steps[LW_CORE_LANES_MAX];
    uint32_t row_count;
    uint32_t step_count;     /* of all chains */
    double ns;               /* that they took */
} lw__head;

struct lw_core {
    lw_core_device device;
    lw_core_options options;
    bool recurs;             /* the plan has recurrences */
    lw__lane *lanes;         /* [options.lanes] */
    lw__job *queue;          /* [options.queue_max], a ring */
    uint32_t queue_begin, queue_count;
    uint64_t job_count;      /* ids given so far */
    lw_cache cache;
    lw_costs costs;
    lw_copies *copies;
    lw__head head;
    lw_draft_source sources[LW__SOURCES];   /* propose NULL: there is none */
    lw_depth luck[LW__SOURCES];             /* of the streams so far; a new one begins with it */
    lw__draws draws;
    lw_row *rows;            /* [rows_max] */
    lw__round round;         /* the one in hand; open between rounds if it was submitted ahead */
    lw__round ahead;         /* the one after it */
    uint64_t left_ns;        /* when a call left a round open */
    bool is_in_round;
    lw_core_counts counts;
};

uint64_t lw__core_now(const lw_core *core);
/* ---- seat.c ---- */

/* Pages of group g that a request may hold at once; pure. */
uint32_t lw__seat_pages(const lw_core *core, const lw_request *request, uint32_t g);
/* Seats waiting requests in their order, as long as lanes and pages last. */
void lw__seats_fill(lw_core *core);
/* Tells the request, and frees the lane once no open round has rows of it. text is read before anything is
 * freed. */
void lw__seat_leave(lw_core *core, lw__lane *lane, lw_status status, lw_finish finish, const char *text);

/* Frees a lane that is leaving. */
void lw__lane_free(lw_core *core, lw__lane *lane);

/* ---- round.c ---- */

/* Ends the round that is under way, if one is: nothing of it is kept. */
void lw__round_drop(lw_core *core);
/* Takes pages for the lane's slots below end; entries yield. */
void lw__pages_cover(lw_core *core, lw__lane *lane, uint32_t end);
/* The lanes as a batch names them: [options.lanes]. */
void lw__lanes_fill(const lw_core *core, lw_batch_lane *lanes);

/* ---- head.c ---- */

lw_status lw__head_init(lw_core *core, lw_diag *d) LW_MUST_USE;
void lw__head_deinit(lw_core *core);
lw_draft_source lw__head_source(lw_core *core);
/* One step of so many chains. */
double lw__head_step_ns(const lw_core *core, uint32_t chains);

/* ---- propose.c ---- */

/* What drafts of this source cost in the coming round, whose known rows are all that is certain yet. */
lw_draft_prices lw__draft_prices(const lw_core *core, uint32_t source);
/* Asks the sources for the coming round's drafts. */
void lw__drafts_make(lw_core *core);
/* Forgets what was drafted. */
void lw__drafts_clear(lw_core *core);
/* Whether some lane would bring drafts to the coming round, so that its tokens have to be known first. Leaves
 * no drafts. */
bool lw__drafts_are_due(lw_core *core);

/* ---- choose.c ---- */

/* Which rows of which lanes; pure but for *round. */
void lw__round_choose(const lw_core *core, lw__round *round);

/* ---- verify.c ---- */

/* Draws along the windows of all shares: appends to the lanes' ids, fills what commit of the same round
 * reads.
 */
void lw__round_sample(lw_core *core, const lw__round *round);
/* Whether the request's draws take the device's likeliest tokens in place of logits. */
static inline bool lw__reads_best(const lw_core *core, const lw_request *request)
{
    return core->device.table->read_best != NULL && request->logprobs < 0 && lw__is_plain_greedy(request);
}

/* Whether this token ends the reply of which it is a part. */
bool lw__is_end_id(const lw_request *request, int32_t id);

/* ---- commit.c ---- */

void lw__round_commit(lw_core *core, const lw__round *round, uint64_t round_ns);

#endif

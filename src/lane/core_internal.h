/* What the files of the lane core share: core.c (open, submit, cancel, the round's order), seat.c (which
 * waiting request takes which lane, and how it leaves), propose.c, head.c, choose.c, draws.c, verify.c,
 * commit.c. Tests alone include it beside them.
 */
#ifndef LW_LANE_CORE_INTERNAL_H
#define LW_LANE_CORE_INTERNAL_H

#include "lane/draws.h"

enum { LW__PASSED_MAX = 8 };  /* times that a filling prompt may be passed over */

typedef struct lw__job {
    const lw_request *request;
    uint64_t id;
    uint64_t submitted_ns;
    bool is_paused;
} lw__job;

typedef enum lw__lane_state { LW__LANE_FREE, LW__LANE_FILLING, LW__LANE_RUNNING } lw__lane_state;

/* A token that sample drew and commit has not told yet. */
typedef struct lw__drawn {
    int32_t id;
    double logprob;
    lw_logprob top[LW_LOGPROBS_MAX];
    uint32_t top_count;
} lw__drawn;

/* Where drafts come from; of equal gains who stands first is asked first. */
enum { LW__SOURCE_COPIES, LW__SOURCE_GIVEN, LW__SOURCE_HEAD, LW__SOURCES }; /* the head is the last */

typedef struct lw__lane {
    lw__lane_state state;
    lw__job job;
    lw_page_table pages;
    uint32_t reserved[LW_PLAN_REACHES_MAX];  /* pages that it may hold at once, by group */
    int32_t *ids;                            /* [context] prompt and reply */
    uint32_t count, committed;
    uint32_t next_mark;                      /* index of the first of the request's marks that lies ahead */
    uint32_t passed_over;
    lw_seen seen;                            /* counted only for requests with penalties */
    lw_depth depths[LW__SOURCES];
    lw_draft draft;                          /* for the coming round */
    uint32_t drafted_by;                     /* index of its source */
    uint32_t asked;                          /* a bit for each source that was asked in this round */
    uint32_t head_steps;                     /* of its chain in this round */
    uint64_t seated_ns, filled_ns;
    lw_request_counts counts;

    /* What sample found; commit of the same round reads it. */
    lw__drawn *drawn;                        /* [drafts_max + 1] */
    uint32_t drawn_count;
    uint32_t kept;                           /* drafts that equalled their draws */
    uint32_t placed; /* rows from the window's first on that stand at slot == position */
    lw_status drawn_status;
    lw_diag diag;                            /* of drawn_status */
} lw__lane;

/* Whether the lane's reply wants rows. */
static inline bool lw__lane_runs(const lw__lane *lane)
{
    return lane->state == LW__LANE_RUNNING && !lane->job.is_paused;
}

/* Whether a stream draws the likeliest token of raw logits: then a device may find it. */
static inline bool lw__is_plain_greedy(const lw_request *request)
{
    return request->sampling.temperature <= 0.0 && lw_penalties_are_off(&request->penalties);
}

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
    lw__round round;
    bool is_in_round;
    lw_core_counts counts;
};

uint64_t lw__core_now(const lw_core *core);
/* ---- seat.c ---- */

/* Pages of group g that a request may hold at once; pure. */
uint32_t lw__seat_pages(const lw_core *core, const lw_request *request, uint32_t g);
/* Seats waiting requests in their order, as long as lanes and pages last. */
void lw__seats_fill(lw_core *core);
/* Frees the lane and tells the request. text is read before anything is freed. */
void lw__seat_leave(lw_core *core, lw__lane *lane, lw_status status, lw_finish finish, const char *text);

/* ---- core.c ---- */

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

/* One seat in the rounds: the request that sits in it, its tokens and pages, what of it is under way, and
 * what the last draws found. Part of core_internal.h, for the files of the lane core alone.
 */
#ifndef LW_LANE_LANE_H
#define LW_LANE_LANE_H

#include "lane/core.h"

typedef struct lw__job {
    const lw_request *request;
    uint64_t id;
    uint64_t submitted_ns;
    bool is_paused;
} lw__job;

/* LEAVING: its request has ended, but a round that is under way has rows of it, which may use its pages. */
typedef enum lw__lane_state {
    LW__LANE_FREE,
    LW__LANE_FILLING,
    LW__LANE_RUNNING,
    LW__LANE_LEAVING
} lw__lane_state;

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
    /* of rounds under way: its known rows, from committed on; the tokens that they draw, from count on; the
     * index of the row that draws among the wanted ones of the newest */
    uint32_t open_rows, open_tokens, open_wanted;
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

/* Known tokens, those that a round under way draws among them, without rows: the coming round's, once what is
 * under way went well. */
static inline uint32_t lw__lane_rows(const lw__lane *lane)
{
    return lane->count + lane->open_tokens - lane->committed - lane->open_rows;
}

/* Whether the lane's prompt wants rows in the coming round. */
static inline bool lw__lane_fills(const lw__lane *lane)
{
    return lane->state == LW__LANE_FILLING
           && lane->committed + lane->open_rows < lane->job.request->prompt_count;
}

/* Whether the lane's reply does: none past its limit. */
static inline bool lw__lane_runs(const lw__lane *lane)
{
    const bool is_filled = lane->state == LW__LANE_RUNNING
                           || (lane->state == LW__LANE_FILLING && !lw__lane_fills(lane));
    return is_filled && !lane->job.is_paused
           && lane->counts.tokens + lane->open_tokens < lane->job.request->tokens_max;
}

/* Whether a stream draws the likeliest token of raw logits: then a device may find it. */
static inline bool lw__is_plain_greedy(const lw_request *request)
{
    return request->sampling.temperature <= 0.0 && lw_penalties_are_off(&request->penalties);
}

#endif

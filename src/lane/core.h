/* The lane core: many requests answered over one device in rounds. One thread owns a core and calls
 * everything here; the server puts a queue in front of it. Rounds are transactions:
 *
 *     admit -> draft -> choose (pure) -> forward (may fail) -> sample -> commit (cannot fail)
 *
 * On a device that goes ahead, the next round is chosen and submitted while one is under way, where it wants
 * nothing of that one but tokens that the device draws (round.c); the rest of it comes in its turn.
 *
 * A request, and the function that makes each move:
 *
 *     lw_core_submit -> WAITING
 *     WAITING -> FILLING          lw__seats_fill: a lane is free and its pages can be promised
 *     FILLING -> RUNNING          lw__round_commit: the prompt's last row is kept
 *     RUNNING -> ended            lw__round_commit: end id, limit, or false from token()
 *     RUNNING -> ended            lw_core_finish: its reader has what it wants
 *     FILLING -> ended            lw__round_commit: a prompt without a reply
 *     any     -> ended (error)    lw_core_cancel; a forward that failed; logits that are not finite
 *
 * Invariants
 * 1. A lane's ids[0, committed) are exactly what its pages hold below committed; ids[committed, count) are
 * known and have no kept row yet: the rest of a prompt, the pending token, or what a kept tree path left to
 *    recompute.
 * 2. Every reply is a function of its request alone: rounds, drafts, lanes, entries and clocks choose when,
 *    never what.
 * 3. In a group without a reach: the pages that lanes hold, each counted once, and those that each lane may
 *    still take never exceed the pool. In a group with one: what each lane may hold at most, summed, never
 *    exceeds it. So a running reply finds its pages, at worst by evicting entries.
 * 4. Rounds allocate nothing; all memory is taken at open.
 * 5. Requests are seated in the order of submission.
 * 6. A filling prompt that was passed over 8 times goes before the others; else the fewest rows left go
 * first.
 *
 * Marks need no chunk boundary: states are pages, and an entry at p shares the pages below p however the
 * forward that wrote them was cut. A recurrence's state at an anchor is a page too: the row at the anchor
 * makes it, again if that row was a draft that was not kept.
 *
 * A kept tree path whose rows do not stand at slot == position keeps the rows that do; the tokens after them
 * stay, and their rows are computed once more as a chain. Where the plan has recurrences, a tree ends before
 * the next anchor: two of its branches would make one page.
 */
#ifndef LW_LANE_CORE_H
#define LW_LANE_CORE_H

#include "base/pool.h"
#include "device/device.h"
#include "lane/cache.h"
#include "lane/depth.h"
#include "lane/draft.h"
#include "lane/finish.h"
#include "lane/penalty.h"
#include "lane/sample.h"

enum { LW_LOGPROBS_MAX = 20, LW_CORE_LANES_MAX = 64 };

/* What callers that know no better put into lw_core_options. */
enum {
    LW_COPY_MATCH_DEFAULT = 8,    /* shorter agreements are indentation and set phrases */
    LW_DRAFTS_DEFAULT = 15,       /* a window of 16 rows */
    LW_HEAD_DRAFTS_DEFAULT = 5,   /* what luck and costs choose among */
    LW_MARK_ROWS_DEFAULT = 1024,
    LW_CACHE_ENTRIES_DEFAULT = 64,
};

typedef struct lw_core lw_core;

/* What a core runs on; borrowed until close. Nobody else takes pages of the pool meanwhile. */
typedef struct lw_core_device {
    const lw_device_table *table;
    lw_exec *exec;               /* compiled for rows_max rows, lanes * (drafts_max + 1) of them wanted */
    const lw_plan *plan;
    lw_page_pool *pool;
    lw_pool *threads;       /* that idle between submissions: they draw; NULL: the caller's alone does */
    uint64_t page_bytes[LW_PLAN_REACHES_MAX];
    bool goes_ahead;        /* a round may be submitted before the last one is waited for */
} lw_core_device;

typedef struct lw_core_options {
    uint32_t lanes;              /* streams at once */
    uint32_t context;            /* positions of one stream */
    uint32_t rows_max;           /* rows of one round; more than lanes */
    uint32_t queue_max;          /* waiting requests; 0: 256 */
    uint64_t cache_bytes;        /* of pages that prefix entries may hold; 0: off */
    uint32_t cache_entries;      /* 0: LW_CACHE_ENTRIES_DEFAULT */
    uint32_t mark_rows;          /* in long prompts an entry every so many rows; 0: none */
    uint64_t round_ns;           /* of a round with prompt rows beside replies; 0: 4 plain rounds' */
    uint32_t copy_match;         /* tokens that agree before a copy is tried; 0: no copies */
    uint32_t drafts_max;         /* of one window; 0: none */
    uint32_t head_drafts; /* of those, at most so many by the plan's draft head, if it has one; 0: none */
    const lw_draft_source *source;       /* beside copies and head; may be NULL */
    const lw_cost *costs;                /* measured at load, ascending; may be NULL */
    uint32_t cost_count;
    const lw_cost *head_costs;           /* of one step of so many chains; may be NULL */
    uint32_t head_cost_count;
    uint64_t (*clock)(void *context);    /* nanoseconds */
    void *clock_context;
} lw_core_options;

typedef struct lw_logprob {
    int32_t id;
    double value;                /* of the raw logits at temperature 1, before penalties */
} lw_logprob;

typedef struct lw_token_event {
    int32_t id;
    uint32_t position;           /* absolute */
    double logprob;              /* of id; 0 unless asked for */
    const lw_logprob *top;       /* [top_count] by logit, then id; valid during the call */
    uint32_t top_count;
} lw_token_event;

typedef struct lw_request_counts {
    uint32_t prompt_tokens;
    uint32_t cached_tokens;      /* prompt tokens that were resumed */
    uint32_t prompt_rows;        /* prompt rows that were computed */
    uint32_t tokens;             /* of the reply */
    uint32_t rounds;             /* that drew a token */
    uint32_t drafted, kept;      /* drafts that were in windows, and those that equalled the draw */
    uint64_t wait_ns, prompt_ns, decode_ns;
} lw_request_counts;

typedef struct lw_end_event {
    lw_status status;            /* LW_OK: finish says why it ended */
    lw_finish finish;
    const char *text;            /* what went wrong; "" when nothing did; valid during the call */
    lw_request_counts counts;
} lw_end_event;

/* Borrowed from submit until end() is called. The callbacks run inside lw_core_round, lw_core_cancel
 * and lw_core_finish, and call no function of the core. */
typedef struct lw_request {
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens_max;                 /* 0: the prompt only, for its entries */
    lw_sampling sampling;
    lw_penalties penalties;
    const int32_t *end_ids;              /* tokens that end the reply; they are part of it */
    uint32_t end_id_count;
    bool ignore_end;
    bool draft;                          /* false: one row a round */
    int32_t logprobs;                    /* most likely ids told with each token; -1: no log-probabilities */
    const uint32_t *marks;               /* ascending positions where an entry is worth keeping */
    uint32_t mark_count;
    /* Each token in order; false ends the reply after it. May be NULL. */
    bool (*token)(void *context, const lw_token_event *event);
    /* Prompt rows computed so far, of those that were not resumed. May be NULL. */
    void (*filled)(void *context, uint32_t rows_done, uint32_t rows);
    /* Once for each request that was taken; nothing follows it. */
    void (*end)(void *context, const lw_end_event *event);
    void *context;
} lw_request;

typedef struct lw_core_counts {
    uint64_t rounds, rounds_ahead, rows, prompt_rows, tokens, drafted, kept;
    uint64_t head_rounds, head_steps, head_drafted, head_kept;   /* of the draft head; it is in the sums */
    uint64_t submitted, finished, failed, cancelled, rounds_failed;
    uint64_t prompt_tokens, cached_tokens;
    uint32_t waiting, filling, running;
    uint32_t cache_entries;
    uint64_t cache_bytes;
    lw_cache_counts cache;
} lw_core_counts;

/* What the drawing of a round's rows takes on these threads, wanted_max rows of a vocabulary at most. */
uint64_t lw_core_draw_bytes(const lw_pool *threads, uint32_t wanted_max, uint32_t vocab);

lw_status lw_core_open(const lw_core_device *device, const lw_core_options *options, lw_core **out,
                       lw_diag *d) LW_MUST_USE;
/* Cancels what is left. */
void lw_core_close(lw_core *core);

/* Queues a request. Refuses (and never calls its callbacks) what could not be served even alone, and when the
 * queue is full. */
lw_status lw_core_submit(lw_core *core, const lw_request *request, uint64_t *id, lw_diag *d) LW_MUST_USE;

/* Ends a request between rounds; its lane is free at once, or with the round under way. False: it has ended
 * already. */
bool lw_core_cancel(lw_core *core, uint64_t id);

/* Ends a running request between rounds like one that ended by itself: its lane is free as by a cancel, and
 * what is kept for later prompts is its prompt and the first `kept` tokens of its reply, as far as they have
 * rows. False: it does not run. */
bool lw_core_finish(lw_core *core, uint64_t id, uint32_t kept);

/* A paused request keeps its lane and brings no rows once its prompt is filled: its reader is behind. A round
 * under way may still bring it a token. Between rounds; false: it has ended already. */
bool lw_core_pause(lw_core *core, uint64_t id, bool is_paused);

/* Ends one round; the next may be under way then. False: there was nothing to do. */
bool lw_core_round(lw_core *core);

lw_core_counts lw_core_read_counts(const lw_core *core);

#endif

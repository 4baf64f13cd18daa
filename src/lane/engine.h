/* An engine: one model compiled for one device, with the memory of its lanes. It owns device, compiled plan
 * and pools; who uses the pools is one of two at a time:
 *
 * - streams: one lane's timeline of tokens each, driven row by row; for checks, benchmarks and single
 * replies. lw_generate is the plain form of a reply: one stream, one row a round, no drafts. The core is
 * tested against it.
 * - a core (lane/core.h), to which lw_engine_lend gives all lanes; for serving.
 *
 * One thread owns the engine and all that uses it.
 *
 * A forward writes rows at slots past the committed ones only; lw_stream_commit keeps a prefix of them. So a
 * rejected, cancelled or failed forward is one case: no commit.
 */
#ifndef LW_LANE_ENGINE_H
#define LW_LANE_ENGINE_H

#include "device/device.h"
#include "lane/admit.h"
#include "lane/core.h"
#include "lane/finish.h"
#include "lane/sample.h"
#include "model/checkpoint.h"

typedef struct lw_engine lw_engine;
typedef struct lw_stream lw_stream;

typedef struct lw_engine_options {
    const char *device;          /* NULL: cpu; "xpu:1" names one of several */
    lw_device_options device_options;
    uint32_t lanes;              /* streams at once; 0: as many as fit, at most 8 */
    uint32_t context;            /* positions of one stream; 0: the smaller of the model's and 32,768 */
    uint32_t chunk_rows;         /* rows of the largest forward; 0: 512 */
    uint32_t wanted_rows;        /* of those, rows with logits that one lane may want: for a core 1 and its
                                    largest window of drafts; 0: all, which takes rows x vocabulary floats */
    uint64_t cache_bytes;        /* pages for a core's prefix entries beside the lanes'; 0: none;
                                    LW_ADMIT_CACHE_AUTO: what is left, within reason */
    uint64_t memory_bytes;       /* all of it, weights too; 0: what the device has free, less a reserve */
    bool head;                   /* record the draft head too, where the checkpoint has one */
    bool act_int8;               /* linears take their inputs in int8, where their weights do */
    bool kv_int8;                /* keys and values are kept in int8 */
    lw_progress progress;
    lw_trace trace;
} lw_engine_options;

/* Loads the checkpoint's weights onto the device. Borrows checkpoint, which must outlive the engine. */
lw_status lw_engine_open(const lw_checkpoint *checkpoint, const lw_engine_options *options, lw_engine **out,
                         lw_diag *d) LW_MUST_USE;

/* The same for a plan that somebody else made (synthetic weights); takes it, and deinits it at close. */
lw_status lw_engine_open_plan(lw_plan *plan, uint32_t context_model, const lw_engine_options *options,
                              lw_engine **out, lw_diag *d) LW_MUST_USE;
void lw_engine_close(lw_engine *engine);

const lw_plan *lw_engine_plan(const lw_engine *engine);
uint32_t lw_engine_context(const lw_engine *engine);
uint32_t lw_engine_chunk_rows(const lw_engine *engine);
uint32_t lw_engine_vocab(const lw_engine *engine);
/* Seconds after which a wait for the device gives it up; 0: it cannot hang. */
uint32_t lw_engine_wait_s(const lw_engine *engine);
/* What the device was given to do so far; false: it has no launches to count. */
bool lw_engine_read_counts(const lw_engine *engine, lw_device_counts *counts);
/* "cpu (avx2, 2 threads)". */
void lw_engine_describe(const lw_engine *engine, char *text, size_t text_bytes);

/* Gives all lanes and the pool to a core until lw_engine_return; LW_BAD_INPUT while a stream is open. */
lw_status lw_engine_lend(lw_engine *engine, lw_core_device *out, lw_diag *d) LW_MUST_USE;
void lw_engine_return(lw_engine *engine);
/* Options of a core that uses the engine's lanes, context, rows and cache, the defaults of core.h (drafts: as
 * many as its wanted rows allow) and this machine's clock. */
lw_core_options lw_engine_core_options(const lw_engine *engine);
uint32_t lw_engine_lanes(const lw_engine *engine);
/* Rows with logits of the largest forward. */
uint32_t lw_engine_wanted_max(const lw_engine *engine);

/* Takes a free lane. LW_NO_ROOM when none is left. */
lw_status lw_stream_open(lw_engine *engine, lw_stream **out, lw_diag *d) LW_MUST_USE;
void lw_stream_close(lw_stream *stream);
void lw_stream_reset(lw_stream *stream);             /* back to position 0; all pages are given back */
uint32_t lw_stream_committed(const lw_stream *stream);

typedef enum lw_wanted { LW_WANTED_NONE, LW_WANTED_LAST, LW_WANTED_ALL } lw_wanted;

/* Rows for ids[0, count) at positions committed, committed + 1, ...; count <= chunk_rows, <= wanted_max where
 * all are wanted, and within the context. Ids out of the vocabulary: LW_BAD_INPUT. */
lw_status lw_stream_forward(lw_stream *stream, const int32_t *ids, uint32_t count, lw_wanted wanted,
                            lw_diag *d) LW_MUST_USE;

/* The same run of another entry of the plan, of which nothing can be kept. The draft head (LW_ENTRY_HEAD) at
 * rows that a forward just computed reads the hidden rows that it left and overwrites them: what is to be
 * kept is forwarded again. */
lw_status lw_stream_forward_entry(lw_stream *stream, uint32_t entry, const int32_t *ids, uint32_t count,
                                  lw_wanted wanted, lw_diag *d) LW_MUST_USE;

/* Logits of the index-th wanted row of the last forward, [vocab]; valid until the engine's next forward. */
lw_status lw_stream_logits(lw_stream *stream, uint32_t index, const float **logits, lw_diag *d) LW_MUST_USE;

/* Keeps the first kept rows of the last forward; cannot fail. */
void lw_stream_commit(lw_stream *stream, uint32_t kept);

/* ---- one reply from start to end ---- */

typedef struct lw_generate_options {
    lw_sampling sampling;
    uint32_t tokens_max;             /* of the reply; 0: none */
    const int32_t *end_ids;          /* tokens that end the reply (they are part of its ids) */
    size_t end_id_count;
    bool ignore_end;
    uint32_t chunk_rows; /* prompt rows a forward; 0: the engine's; larger is cut to the engine's */
    /* Called for each token of the reply in order; false stops (LW_FINISH_STOPPED). May be NULL. */
    bool (*token)(void *context, int32_t id);
    /* Called between prompt chunks; false stops. May be NULL. */
    bool (*prompt)(void *context, uint32_t rows_done, uint32_t rows);
    void *context;
} lw_generate_options;

typedef struct lw_generate_result {
    uint32_t tokens;                 /* written to reply */
    lw_finish finish;
    uint32_t prompt_rows; /* rows that were computed: the prompt less what the stream already held */
    uint64_t prompt_ns, decode_ns;
} lw_generate_result;

/* Makes stream equal to prompt[0, prompt_count) (keeping what it already holds when that is a prefix), then
 * draws up to tokens_max tokens into reply (room for tokens_max). Prompt and reply together
 * have at most context tokens, as everywhere: a reply that reaches it finishes with LENGTH, and a prompt that
 * leaves no room for one token is LW_BAD_INPUT. On failure *result says how far it
 * came. */
lw_status lw_generate(lw_stream *stream, const int32_t *prompt, uint32_t prompt_count,
                      const lw_generate_options *options, int32_t *reply, lw_generate_result *result,
                      lw_diag *d) LW_MUST_USE;

#endif

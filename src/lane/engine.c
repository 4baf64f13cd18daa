/* Engines and streams; see engine.h. A stream's forward is one batch of one lane; rounds of many lanes build
 * on the same page tables and commits.
 */
#include "lane/engine.h"

#include "base/clock.h"
#include "family/family.h"
#include "lane/pages.h"

#include <stdlib.h>

enum {
    CHUNK_ROWS_DEFAULT = 512,
    DRAW_THREADS = 8,        /* at most, beside a device without threads of its own */
    RESERVE_SHARE = 16,      /* of the free bytes, one part in so many is left alone */
};

/* What is small or passes: buffers of the repacking, tables of pages, ids of entries. */
static const uint64_t small_bytes = (uint64_t)64 << 20;

struct lw_engine {
    const lw_device_table *table;
    lw_device *device;
    lw_exec *exec;
    lw_plan plan;
    lw_pool *threads;           /* that draw; the device's, or own_threads */
    lw_pool *own_threads;
    lw_page_pool pool;
    uint32_t context, chunk_rows;
    uint32_t wanted_rows, wanted_max; /* rows with logits: of one lane, and of a forward */
    uint32_t lanes, lanes_used;
    uint64_t cache_bytes;
    bool is_lent;
    lw_sampler *sampler;
    lw_row *rows;               /* [chunk_rows] of the forward in hand */
};

struct lw_stream {
    lw_engine *engine;
    lw_page_table pages;
    int32_t *ids;               /* [context]: what the committed positions hold */
    uint32_t committed;
    uint32_t open;              /* rows of the last forward that are not committed yet */
    uint32_t wanted;            /* its rows with logits */
};

void lw_engine_close(lw_engine *engine)
{
    if (engine == NULL) return;
    LW_ASSERT(engine->lanes_used == 0);
    lw_pool_close(engine->own_threads);
    if (engine->exec != NULL) engine->table->exec_close(engine->exec);
    if (engine->device != NULL) engine->table->close(engine->device);
    lw_page_pool_deinit(&engine->pool);
    lw_sampler_free(engine->sampler);
    free(engine->rows);
    lw_plan_deinit(&engine->plan);
    free(engine);
}

/* Rounds as admission asks for them. */
typedef struct round_sizes {
    const lw_engine *engine;
    lw_status status;        /* of the first that could not be counted: then nothing was chosen well */
    lw_diag *d;
} round_sizes;

static uint64_t round_bytes(void *context, uint32_t rows_max, uint32_t wanted_max)
{
    round_sizes *sizes = context;
    const lw_engine *engine = sizes->engine;
    const lw_scratch_rows rows = { .rows_max = rows_max, .wanted_max = wanted_max };
    uint64_t bytes;
    if (sizes->status == LW_OK)
        sizes->status = engine->table->scratch_bytes(engine->device, &engine->plan, &rows, &bytes, sizes->d);
    return sizes->status == LW_OK ? bytes : UINT64_MAX;
}

/* What the device has free and what everything takes; weights are counted as the checkpoint stores them. */
static lw_admit sizes_ask(const lw_engine *engine, uint32_t context_model, const lw_engine_options *options)
{
    const lw_plan *plan = &engine->plan;
    const uint64_t there = engine->table->free_bytes(engine->device), asked = options->memory_bytes;
    const uint32_t rows = options->chunk_rows != 0 ? options->chunk_rows : CHUNK_ROWS_DEFAULT;
    lw_admit in = { .free_bytes = asked != 0 && asked < there ? asked : there,
                    /* Who names the memory has left his own reserve. */
                    .reserve_bytes = asked != 0 ? 0 : there / RESERVE_SHARE,
                    .fixed_bytes = small_bytes,
                    .lane_host_bytes = (uint64_t)plan->vocab * 2 * sizeof(uint32_t),
                    .wanted_rows = options->wanted_rows != 0 ? options->wanted_rows : rows,
                    .group_count = plan->reach_count,
                    .rows_max = rows,
                    .context_model = context_model,
                    .context = options->context,
                    .lanes = options->lanes,
                    .cache_bytes = options->cache_bytes };
    in.fixed_bytes += lw_core_draw_bytes(engine->threads, rows, plan->vocab);
    for (uint32_t i = 0; i < plan->weight_count; i++) in.fixed_bytes += lw_weight_bytes(&plan->weights[i]);
    for (uint32_t g = 0; g < plan->reach_count; g++) {
        in.reaches[g] = plan->reaches[g];
        in.page_bytes[g] = engine->table->page_bytes(engine->device, plan, g);
    }
    return in;
}

static lw_status sizes_choose(lw_engine *engine, uint32_t context_model, const lw_engine_options *options,
                              lw_diag *d)
{
    lw_diag uncounted = { "" };
    round_sizes rounds = { .engine = engine, .d = &uncounted };
    lw_admit in = sizes_ask(engine, context_model, options);
    in.round_bytes = round_bytes;
    in.round_context = &rounds;
    lw_admitted chosen;
    const lw_status status = lw_admit_choose(&in, &chosen, d);
    if (rounds.status != LW_OK) return lw_fail(d, rounds.status, "%s", uncounted.text);
    if (status != LW_OK) return status;
    engine->context = chosen.context;
    engine->lanes = chosen.lanes;
    engine->cache_bytes = chosen.cache_bytes;
    engine->chunk_rows = chosen.rows_max;
    engine->wanted_rows = in.wanted_rows;
    engine->wanted_max = chosen.wanted_max;
    return lw_page_pool_init_counts(&engine->pool, &engine->plan, chosen.page_counts, chosen.context, d);
}

static lw_status threads_find(lw_engine *engine, unsigned asked, lw_diag *d)
{
    if (engine->table->threads != NULL) {
        engine->threads = engine->table->threads(engine->device);
        return LW_OK;
    }
    const unsigned count = asked != 0 ? asked : lw_pool_threads_worth();
    const lw_status status =
        lw_pool_open(count < DRAW_THREADS ? count : DRAW_THREADS, NULL, &engine->own_threads, d);
    engine->threads = engine->own_threads;
    return status;
}

static lw_status compile(lw_engine *engine, const lw_checkpoint *checkpoint, uint32_t context_model,
                         const lw_engine_options *options, lw_diag *d)
{
    const char *name = options->device != NULL ? options->device : "cpu";
    lw_device_options device_options = options->device_options;
    engine->table = lw_device_find(name, &device_options.which);
    if (engine->table == NULL)
        return lw_fail(d, LW_BAD_INPUT,
                       "device \"%s\" is not one of this build; `lanewise devices` lists them", name);
    lw_status status = engine->table->open(&device_options, &engine->device, d);
    if (status == LW_OK) status = threads_find(engine, device_options.threads, d);
    if (status == LW_OK) status = sizes_choose(engine, context_model, options, d);
    if (status == LW_OK) status = lw_sampler_make(engine->plan.vocab, &engine->sampler, d);
    if (status != LW_OK) return status;
    engine->rows = calloc(engine->chunk_rows, sizeof *engine->rows);
    if (engine->rows == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u rows", engine->chunk_rows);
    lw_exec_options exec = { .rows_max = engine->chunk_rows,
                             .wanted_max = engine->wanted_max,
                             .checkpoint = checkpoint,
                             .progress = options->progress,
                             .trace = options->trace };
    for (uint32_t g = 0; g < engine->pool.group_count; g++)
        exec.page_counts[g] = engine->pool.groups[g].count;
    return engine->table->compile(engine->device, &engine->plan, &exec, &engine->exec, d);
}

/* Takes plan's contents into the engine in every case. */
static lw_status engine_make(lw_plan *plan, const lw_checkpoint *checkpoint, uint32_t context_model,
                             const lw_engine_options *options, lw_engine **out, lw_diag *d)
{
    *out = NULL;
    lw_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        lw_plan_deinit(plan);
        return lw_fail(d, LW_NO_ROOM, "no memory for the engine");
    }
    engine->plan = *plan;
    *plan = (lw_plan){ 0 };
    if (options->act_int8) lw_plan_take_int8(&engine->plan);
    if (options->kv_int8) lw_plan_keep_kv(&engine->plan, LW_KV_INT8);
    const lw_status status = compile(engine, checkpoint, context_model, options, d);
    if (status != LW_OK) {
        lw_engine_close(engine);
        return status;
    }
    *out = engine;
    return LW_OK;
}

lw_status lw_engine_open_plan(lw_plan *plan, uint32_t context_model, const lw_engine_options *options,
                              lw_engine **out, lw_diag *d)
{
    return engine_make(plan, NULL, context_model, options, out, d);
}

lw_status lw_engine_open(const lw_checkpoint *checkpoint, const lw_engine_options *options, lw_engine **out,
                         lw_diag *d)
{
    const lw_family *family = NULL;
    *out = NULL;
    lw_status status = lw_family_find(checkpoint, &family, d);
    if (status != LW_OK) return status;
    lw_plan plan;
    status = lw_plan_init(&plan, d);
    if (status != LW_OK) return status;
    status = family->record(checkpoint, &(lw_record_options){ .head = options->head }, &plan, d);
    if (status != LW_OK) {
        lw_plan_deinit(&plan);
        return status;
    }
    return engine_make(&plan, checkpoint, lw_family_context(checkpoint), options, out, d);
}

const lw_plan *lw_engine_plan(const lw_engine *engine) { return &engine->plan; }
uint32_t lw_engine_context(const lw_engine *engine) { return engine->context; }
uint32_t lw_engine_chunk_rows(const lw_engine *engine) { return engine->chunk_rows; }
uint32_t lw_engine_wanted_max(const lw_engine *engine) { return engine->wanted_max; }
uint32_t lw_engine_vocab(const lw_engine *engine) { return engine->plan.vocab; }

bool lw_engine_read_counts(const lw_engine *engine, lw_device_counts *counts)
{
    if (engine->table->read_counts == NULL) return false;
    engine->table->read_counts(engine->device, counts);
    return true;
}

void lw_engine_describe(const lw_engine *engine, char *text, size_t text_bytes)
{
    engine->table->describe(engine->device, text, text_bytes);
}

uint32_t lw_engine_wait_s(const lw_engine *engine)
{
    return engine->table->wait_s != NULL ? engine->table->wait_s(engine->device) : 0;
}

uint32_t lw_engine_lanes(const lw_engine *engine)
{
    return engine->lanes;
}

lw_status lw_engine_lend(lw_engine *engine, lw_core_device *out, lw_diag *d)
{
    if (engine->lanes_used > 0) {
        return lw_fail(d, LW_BAD_INPUT, "%u of the engine's lanes are in use", engine->lanes_used);
    }
    *out = (lw_core_device){ .table = engine->table, .exec = engine->exec, .plan = &engine->plan,
                             .pool = &engine->pool, .threads = engine->threads };
    out->goes_ahead = engine->table->goes_ahead != NULL && engine->table->goes_ahead(engine->device);
    for (uint32_t g = 0; g < engine->pool.group_count; g++) {
        out->page_bytes[g] = engine->table->page_bytes(engine->device, &engine->plan, g);
    }
    engine->is_lent = true;
    engine->lanes_used = engine->lanes;
    return LW_OK;
}

void lw_engine_return(lw_engine *engine)
{
    LW_ASSERT(engine->is_lent);
    engine->is_lent = false;
    engine->lanes_used = 0;
}

static uint64_t clock_ns(void *context)
{
    (void)context;
    return lw_clock_ns();
}

lw_core_options lw_engine_core_options(const lw_engine *engine)
{
    const uint32_t drafts = engine->wanted_rows - 1;
    return (lw_core_options){ .lanes = engine->lanes,
                              .context = engine->context,
                              .rows_max = engine->chunk_rows,
                              .cache_bytes = engine->cache_bytes,
                              .mark_rows = lw_cache_mark_rows(&engine->plan, LW_MARK_ROWS_DEFAULT),
                              .copy_match = LW_COPY_MATCH_DEFAULT,
                              .drafts_max = drafts < LW_DRAFTS_DEFAULT ? drafts : LW_DRAFTS_DEFAULT,
                              .head_drafts = LW_HEAD_DRAFTS_DEFAULT,
                              .clock = clock_ns };
}

/* ---- streams ---- */

lw_status lw_stream_open(lw_engine *engine, lw_stream **out, lw_diag *d)
{
    *out = NULL;
    if (engine->lanes_used == engine->lanes) {
        return lw_fail(d, LW_NO_ROOM, "all %u lanes are taken", engine->lanes);
    }
    lw_stream *stream = calloc(1, sizeof *stream);
    int32_t *ids = calloc(engine->context, sizeof *ids);
    if (stream == NULL || ids == NULL) {
        free(stream);
        free(ids);
        return lw_fail(d, LW_NO_ROOM, "no memory for a stream of %u positions", engine->context);
    }
    *stream = (lw_stream){ .engine = engine, .ids = ids };
    const lw_status status = lw_page_table_init(&stream->pages, &engine->pool, d);
    if (status != LW_OK) {
        free(ids);
        free(stream);
        return status;
    }
    engine->lanes_used++;
    *out = stream;
    return LW_OK;
}

void lw_stream_reset(lw_stream *stream)
{
    lw_pages_clear(&stream->engine->pool, &stream->pages);
    stream->committed = stream->open = stream->wanted = 0;
}

void lw_stream_close(lw_stream *stream)
{
    if (stream == NULL) return;
    lw_stream_reset(stream);
    stream->engine->lanes_used--;
    lw_page_table_deinit(&stream->pages);
    free(stream->ids);
    free(stream);
}

uint32_t lw_stream_committed(const lw_stream *stream) { return stream->committed; }

static lw_status rows_fill(lw_stream *stream, const int32_t *ids, uint32_t count, lw_wanted wanted,
                           lw_diag *d)
{
    const lw_engine *engine = stream->engine;
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= engine->plan.vocab) {
            return lw_fail(d, LW_BAD_INPUT, "token id %d is not in the vocabulary of %u", ids[i],
                           engine->plan.vocab);
        }
        const uint32_t position = stream->committed + i;
        const bool wants = wanted == LW_WANTED_ALL || (wanted == LW_WANTED_LAST && i + 1 == count);
        engine->rows[i] = (lw_row){ .token = ids[i], .position = position, .slot = position,
                                    .parent = (int32_t)i - 1, .wanted = wants };
        stream->ids[position] = ids[i];
    }
    return LW_OK;
}

lw_status lw_stream_forward_entry(lw_stream *stream, uint32_t entry, const int32_t *ids, uint32_t count,
                                  lw_wanted wanted, lw_diag *d)
{
    lw_engine *engine = stream->engine;
    LW_ASSERT(entry < engine->plan.entry_count);
    LW_ASSERT(count > 0 && count <= engine->chunk_rows);
    LW_ASSERT(wanted != LW_WANTED_ALL || count <= engine->wanted_max);
    stream->open = stream->wanted = 0;
    if (count > engine->context - stream->committed) {
        return lw_fail(d, LW_BAD_INPUT, "%u tokens more do not fit: %u of the context's %u are taken", count,
                       stream->committed, engine->context);
    }
    lw_status status = rows_fill(stream, ids, count, wanted, d);
    if (status == LW_OK) status = lw_pages_cover(&engine->pool, &stream->pages, stream->committed + count, d);
    if (status != LW_OK) return status;
    lw_batch_lane lane = { .committed = stream->committed, .page_count = engine->pool.table_pages };
    for (uint32_t g = 0; g < engine->pool.group_count; g++) lane.pages[g] = stream->pages.ids[g];
    const lw_batch batch = { .rows = engine->rows, .row_count = count, .lanes = &lane, .lane_count = 1 };
    lw_ticket ticket;
    status = engine->table->submit(engine->exec, entry, &batch, &ticket, d);
    if (status == LW_OK) status = engine->table->wait(engine->exec, ticket, d);
    if (status != LW_OK) {
        lw_pages_trim(&engine->pool, &stream->pages, stream->committed, stream->committed);
        return status;
    }
    stream->open = entry == LW_ENTRY_MAIN ? count : 0;
    stream->wanted = wanted == LW_WANTED_ALL ? count : wanted == LW_WANTED_LAST;
    return LW_OK;
}

lw_status lw_stream_forward(lw_stream *stream, const int32_t *ids, uint32_t count, lw_wanted wanted,
                            lw_diag *d)
{
    return lw_stream_forward_entry(stream, LW_ENTRY_MAIN, ids, count, wanted, d);
}

lw_status lw_stream_logits(lw_stream *stream, uint32_t index, const float **logits, lw_diag *d)
{
    LW_ASSERT(index < stream->wanted);
    return stream->engine->table->read_logits(stream->engine->exec, index, logits, d);
}

void lw_stream_commit(lw_stream *stream, uint32_t kept)
{
    LW_ASSERT(kept <= stream->open);
    stream->committed += kept;
    stream->open = 0;
    lw_pages_trim(&stream->engine->pool, &stream->pages, stream->committed, stream->committed);
}

/* ---- one reply ---- */

static uint32_t common_prefix(const lw_stream *stream, const int32_t *prompt, uint32_t prompt_count)
{
    uint32_t count = 0;
    while (count < stream->committed && count < prompt_count && stream->ids[count] == prompt[count]) count++;
    return count;
}

/* Fills the prompt; the last row's logits are wanted. False in *goes_on: the caller asked to stop. */
static lw_status prompt_fill(lw_stream *stream, const int32_t *prompt, uint32_t prompt_count,
                             const lw_generate_options *options, bool *goes_on, lw_diag *d)
{
    const uint32_t limit = stream->engine->chunk_rows;
    const uint32_t chunk =
        options->chunk_rows == 0 || options->chunk_rows > limit ? limit : options->chunk_rows;
    const uint32_t first = stream->committed;
    while (stream->committed < prompt_count) {
        const uint32_t left = prompt_count - stream->committed;
        const uint32_t count = left < chunk ? left : chunk;
        const lw_wanted wanted = count == left ? LW_WANTED_LAST : LW_WANTED_NONE;
        const lw_status status = lw_stream_forward(stream, prompt + stream->committed, count, wanted, d);
        if (status != LW_OK) return status;
        lw_stream_commit(stream, count);
        const uint32_t done = stream->committed - first, rows = prompt_count - first;
        *goes_on = options->prompt == NULL || options->prompt(options->context, done, rows);
        if (!*goes_on) return LW_OK;
    }
    return LW_OK;
}

static bool is_end(const lw_generate_options *options, int32_t id)
{
    if (options->ignore_end) return false;
    for (size_t i = 0; i < options->end_id_count; i++) {
        if (options->end_ids[i] == id) return true;
    }
    return false;
}

/* Draws, tells, and feeds each token back until something ends the reply; the last one is not committed, but
 * counts against the context as the others do. */
static lw_status reply_draw(lw_stream *stream, const lw_generate_options *options, int32_t *reply,
                            lw_generate_result *result, lw_diag *d)
{
    lw_engine *engine = stream->engine;
    while (result->tokens < options->tokens_max) {
        const float *logits = NULL;
        int32_t id = 0;
        lw_status status = lw_stream_logits(stream, 0, &logits, d);
        if (status == LW_OK) {
            status = lw_sampler_draw(engine->sampler, &options->sampling, logits, engine->plan.vocab,
                                     stream->committed, &id, d);
        }
        if (status != LW_OK) return status;
        reply[result->tokens++] = id;
        result->finish = is_end(options, id) ? LW_FINISH_END : LW_FINISH_LENGTH;
        if (options->token != NULL && !options->token(options->context, id)) {
            result->finish = result->finish == LW_FINISH_END ? LW_FINISH_END : LW_FINISH_STOPPED;
            return LW_OK;
        }
        if (result->finish == LW_FINISH_END || result->tokens == options->tokens_max) return LW_OK;
        if (stream->committed + 1 == engine->context) return LW_OK;
        status = lw_stream_forward(stream, &id, 1, LW_WANTED_LAST, d);
        if (status != LW_OK) return status;
        lw_stream_commit(stream, 1);
    }
    return LW_OK;
}

lw_status lw_generate(lw_stream *stream, const int32_t *prompt, uint32_t prompt_count,
                      const lw_generate_options *options, int32_t *reply, lw_generate_result *result,
                      lw_diag *d)
{
    *result = (lw_generate_result){ .finish = LW_FINISH_LENGTH };
    if (prompt_count == 0) return lw_fail(d, LW_BAD_INPUT, "the prompt has no tokens");
    const uint32_t context = stream->engine->context, least = options->tokens_max > 0;
    if (prompt_count > context || least > context - prompt_count) {
        return lw_fail(d, LW_BAD_INPUT,
                       "the prompt has %u tokens and the reply wants at least %u, but the context has %u; "
                       "--context N sets it",
                       prompt_count, least, context);
    }
    /* The last prompt row is always computed: its logits are needed. */
    if (common_prefix(stream, prompt, prompt_count) < stream->committed ||
        stream->committed == prompt_count) {
        lw_stream_reset(stream);
    }
    bool goes_on = true;
    const uint64_t begin = lw_clock_ns();
    const uint32_t first = stream->committed;
    lw_status status = prompt_fill(stream, prompt, prompt_count, options, &goes_on, d);
    const uint64_t filled = lw_clock_ns();
    result->prompt_rows = stream->committed - first;
    result->prompt_ns = filled - begin;
    if (status == LW_OK && goes_on) status = reply_draw(stream, options, reply, result, d);
    if (!goes_on) result->finish = LW_FINISH_STOPPED;
    result->decode_ns = lw_clock_ns() - filled;
    return status;
}

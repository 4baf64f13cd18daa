/* What a model's lanes stand on: an engine, the lane core over it, and what rounds cost on this machine. */
#include "api/api_lanes.h"

#include "lane/costs.h"

#include <stdlib.h>

enum { CHUNK_ROWS_USUAL = 512 };

void lw__lanes_close(lw__lanes *lanes)
{
    lw_core_close(lanes->core);
    if (lanes->device.exec != NULL) lw_engine_return(lanes->engine);
    lw_engine_close(lanes->engine);
}

static uint32_t drafts_of(const lw_model_options *options)
{
    return options->drafts_off ? 0 : options->drafts_max;
}

/* A prompt has to go on beside running replies. */
static uint32_t chunk_rows_of(const lw_model_options *options)
{
    const uint32_t rows = options->chunk_rows != 0 ? options->chunk_rows : CHUNK_ROWS_USUAL;
    const uint32_t least = 1 + (options->lanes != 0 ? options->lanes : LW__API_LANES_USUAL);
    return rows > least ? rows : least;
}

/* Without drafts of its own making a model is loaded without its head. */
static uint32_t head_drafts(const lw_model_options *options)
{
    return options->drafts_off ? 0 : (uint32_t)options->mtp_drafts;
}

static lw_status engine_open(lw__lanes *lanes, const lw_model *model, lw_diag *d)
{
    const lw_model_options *options = &model->options;
    const lw_engine_options engine = {
        .device = options->device,
        .device_options = { .threads = options->threads, .isa = options->isa,
                            .ze_loader = options->ze_loader, .xpu_kernels = options->xpu_kernels,
                            .xpu_images = options->xpu_images, .wait_s = options->device_wait_s },
        .lanes = options->lanes,
        .context = options->context,
        .chunk_rows = chunk_rows_of(options),
        .wanted_rows = 1 + drafts_of(options),
        .cache_bytes = options->cache_bytes < 0 ? LW_ADMIT_CACHE_AUTO : (uint64_t)options->cache_bytes,
        .memory_bytes = options->memory_bytes,
        .head = head_drafts(options) > 0,
        .act_int8 = options->act_int8,
        .kv_int8 = options->kv_int8,
        .progress = { .step = options->progress, .context = options->progress_context },
    };
    const lw_status status = lw_engine_open(model->checkpoint, &engine, &lanes->engine, d);
    return status == LW_OK ? lw_engine_lend(lanes->engine, &lanes->device, d) : status;
}

/* From the folder of costs, else timed now and left there. A folder that cannot be written is no failure: the
 * next load times them again. */
static lw_status costs_find(const lw__lanes *lanes, const char *dir, lw_timings *timings, lw_diag *d)
{
    char key[LW_COSTS_KEY_CHARS + 1], text[LW_DEVICE_TEXT_BYTES];
    const uint32_t rows = lw_engine_chunk_rows(lanes->engine), context = lw_engine_context(lanes->engine);
    const uint32_t rows_max = rows < context ? rows : context;
    const uint32_t wanted_max = lw_engine_wanted_max(lanes->engine);
    lw_engine_describe(lanes->engine, text, sizeof text);
    lw_costs_key(text, lanes->device.plan, rows_max, wanted_max, key);
    if (dir != NULL && lw_costs_read(dir, key, timings, NULL) == LW_OK) return LW_OK;
    const lw_status status = lw_costs_time(&lanes->device, rows_max, wanted_max, timings, d);
    if (status != LW_OK || dir == NULL) return status;
    const lw_status saved = lw_costs_save(dir, key, timings, NULL);
    (void)saved;
    return LW_OK;
}

/* Time that stands still says nothing of what rows or drafts cost. */
static uint64_t stopped(void *context)
{
    (void)context;
    return 0;
}

lw_status lw__lanes_open(lw__lanes *lanes, const lw_model *model, lw_diag *d)
{
    const lw_model_options *options = &model->options;
    lw_timings timings = { .rounds = { .count = 0 } };
    *lanes = (lw__lanes){ .engine = NULL };
    lw_status status = engine_open(lanes, model, d);
    if (status == LW_OK && !options->timing_off) status = costs_find(lanes, options->costs_dir, &timings, d);
    if (status != LW_OK) return status;
    lw_core_options core = lw_engine_core_options(lanes->engine);
    core.costs = timings.rounds.items;
    core.cost_count = timings.rounds.count;
    core.head_costs = timings.steps.items;
    core.head_cost_count = timings.steps.count;
    if (options->timing_off) core.clock = stopped;
    core.queue_max = options->queue;
    core.round_ns = (uint64_t)options->round_ms * 1000000u;
    if (options->draft_match != 0) core.copy_match = options->draft_match;
    core.drafts_max = drafts_of(options);
    core.head_drafts = head_drafts(options);
    lanes->cache_bytes = core.cache_bytes;
    return lw_core_open(&lanes->device, &core, &lanes->core, d);
}

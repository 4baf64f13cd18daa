/* What a model's lanes stand on: the device, the compiled plan, the pages, and the lane core over them. Sizes
 * are chosen before anything is allocated; the choice is lane/admit's.
 */
#include "api/api_lanes.h"

#include "base/clock.h"
#include "base/limits.h"
#include "lane/admit.h"
#include "lane/costs.h"

#include <stdlib.h>

enum {
    CHUNK_ROWS_USUAL = 512,
    CACHE_ENTRIES = 64,
    RESERVE_SHARE = 16,      /* of the free bytes, one part in so many is left alone */
};

/* Scratch beside weights and logits: activations of the largest batch, the repacking's buffers. */
static const uint64_t scratch_bytes = (uint64_t)64 << 20;
static const uint64_t cache_bytes_max = (uint64_t)16 << 30;

void lw__lanes_close(lw__lanes *lanes)
{
    lw_core_close(lanes->core);
    if (lanes->exec != NULL) lanes->table->exec_close(lanes->exec);
    if (lanes->device != NULL) lanes->table->close(lanes->device);
    lw_page_pool_deinit(&lanes->pool);
    lw_plan_deinit(&lanes->plan);
}

static uint64_t clock_read(void *context)
{
    (void)context;
    return lw_clock_ns();
}

/* ---- sizes ---- */

static void sizes_ask(const lw__lanes *lanes, const lw_model_options *options, uint32_t context_model,
                      lw_admit *in)
{
    const uint64_t there = lanes->table->free_bytes(lanes->device);
    const uint64_t free_bytes =
        options->memory_bytes != 0 && options->memory_bytes < there ? options->memory_bytes : there;
    uint64_t weight_bytes = 0;
    for (uint32_t i = 0; i < lanes->plan.weight_count; i++)
        weight_bytes += lw_weight_bytes(&lanes->plan.weights[i]);
    *in = (lw_admit){
        .free_bytes = free_bytes,
        /* Who names the memory has left his own reserve. */
        .reserve_bytes = options->memory_bytes != 0 ? 0 : free_bytes / RESERVE_SHARE,
        .fixed_bytes =
            weight_bytes + scratch_bytes + (uint64_t)lanes->plan.vocab * lanes->rows_max * sizeof(float),
        .lane_host_bytes = (uint64_t)lanes->plan.vocab * 2 * sizeof(uint32_t),
        .group_count = lanes->plan.reach_count,
        .rows_max = lanes->rows_max,
        .context_model = context_model,
        .context = options->context,
        .lanes = options->lanes,
    };
    for (uint32_t g = 0; g < in->group_count; g++) {
        in->reaches[g] = lanes->plan.reaches[g];
        in->page_bytes[g] = lanes->table->page_bytes(lanes->device, &lanes->plan, g);
    }
}

/* More than all entries could hold is never taken. */
static uint64_t cache_limit(const lw_admit *in, const lw_admitted *chosen)
{
    const uint64_t left =
        in->free_bytes - in->fixed_bytes - in->reserve_bytes - chosen->lanes * chosen->lane_bytes;
    uint64_t useful;
    if (__builtin_mul_overflow(chosen->lane_bytes, (uint64_t)CACHE_ENTRIES, &useful)) useful = UINT64_MAX;
    const uint64_t most = useful < cache_bytes_max ? useful : cache_bytes_max;
    return left < most ? left : most;
}

static lw_status sizes_choose(lw__lanes *lanes, const lw_model_options *options, uint32_t context_model,
                              lw_diag *d)
{
    lw_admit in;
    lw_admitted chosen;
    lanes->rows_max = options->chunk_rows != 0 ? options->chunk_rows : CHUNK_ROWS_USUAL;
    /* A prompt has to go on beside running replies. */
    const uint32_t least = 1 + (options->lanes != 0 ? options->lanes : LW__API_LANES_USUAL);
    if (lanes->rows_max < least) lanes->rows_max = least;
    sizes_ask(lanes, options, context_model, &in);
    lw_status status = lw_admit_choose(&in, &chosen, d);
    if (status != LW_OK) return status;
    in.lanes = chosen.lanes;
    in.cache_bytes = options->cache_bytes < 0 ? cache_limit(&in, &chosen) : (uint64_t)options->cache_bytes;
    status = lw_admit_choose(&in, &chosen, d);
    lanes->lane_count = chosen.lanes;
    lanes->context = chosen.context;
    lanes->cache_bytes = chosen.cache_bytes;
    for (uint32_t g = 0; g < in.group_count; g++) {
        lanes->page_counts[g] = chosen.page_counts[g];
        lanes->page_bytes[g] = in.page_bytes[g];
    }
    return status;
}

/* ---- opening ---- */

/* Without drafts of its own making a model is loaded without its head. */
static uint32_t head_drafts(const lw_model_options *options)
{
    return options->drafts_off ? 0 : (uint32_t)options->mtp_drafts;
}

static uint32_t wanted_max(const lw__lanes *lanes, const lw_model_options *options)
{
    const uint32_t drafts = options->drafts_off ? 0 : options->drafts_max;
    const uint64_t wanted = (uint64_t)lanes->lane_count * (1 + drafts);
    return wanted < lanes->rows_max ? (uint32_t)wanted : lanes->rows_max;
}

static lw_status compile(lw__lanes *lanes, const lw_model *model, lw_diag *d)
{
    const lw_model_options *options = &model->options;
    lw_exec_options exec = {
        .rows_max = lanes->rows_max,
        .wanted_max = wanted_max(lanes, options),
        .checkpoint = model->checkpoint,
        .progress = { .step = options->progress, .context = options->progress_context },
    };
    for (uint32_t g = 0; g < lanes->plan.reach_count; g++) exec.page_counts[g] = lanes->page_counts[g];
    return lanes->table->compile(lanes->device, &lanes->plan, &exec, &lanes->exec, d);
}

/* From the folder of costs, else timed now and left there. A folder that cannot be written is no failure: the
 * next load times them again. */
static lw_status costs_find(lw__lanes *lanes, const lw_core_device *device, const lw_model_options *options,
                            lw_timings *timings, lw_diag *d)
{
    char key[LW_COSTS_KEY_CHARS + 1], text[128];
    const uint32_t rows_max = lanes->rows_max < lanes->context ? lanes->rows_max : lanes->context;
    lanes->table->describe(lanes->device, text, sizeof text);
    lw_costs_key(text, &lanes->plan, rows_max, key);
    if (options->costs_dir != NULL && lw_costs_read(options->costs_dir, key, timings, NULL) == LW_OK)
        return LW_OK;
    const lw_status status =
        lw_costs_time(device, rows_max, wanted_max(lanes, options), timings, d);
    if (status != LW_OK || options->costs_dir == NULL) return status;
    const lw_status saved = lw_costs_save(options->costs_dir, key, timings, NULL);
    (void)saved;
    return LW_OK;
}

static lw_status core_open(lw__lanes *lanes, const lw_model_options *options, lw_diag *d)
{
    lw_core_device device = {
        .table = lanes->table, .exec = lanes->exec, .plan = &lanes->plan, .pool = &lanes->pool
    };
    for (uint32_t g = 0; g < lanes->plan.reach_count; g++) device.page_bytes[g] = lanes->page_bytes[g];
    const uint32_t drafts = options->drafts_off ? 0 : options->drafts_max;
    lw_timings timings;
    const lw_status status = costs_find(lanes, &device, options, &timings, d);
    if (status != LW_OK) return status;
    const lw_core_options core = {
        .costs = timings.rounds.items,
        .cost_count = timings.rounds.count,
        .head_costs = timings.steps.items,
        .head_cost_count = timings.steps.count,
        .lanes = lanes->lane_count,
        .context = lanes->context,
        .rows_max = lanes->rows_max,
        .queue_max = options->queue,
        .cache_bytes = lanes->cache_bytes,
        .cache_entries = CACHE_ENTRIES,
        .mark_rows = lw_cache_mark_rows(&lanes->plan, LW_MARK_ROWS_DEFAULT),
        .round_ns = (uint64_t)options->round_ms * 1000000u,
        .copy_match = options->draft_match != 0 ? options->draft_match : LW_COPY_MATCH_DEFAULT,
        .drafts_max = drafts,
        .head_drafts = head_drafts(options),
        .clock = clock_read,
    };
    return lw_core_open(&device, &core, &lanes->core, d);
}

lw_status lw__lanes_open(lw__lanes *lanes, const lw_model *model, const lw_family *family, lw_diag *d)
{
    const lw_model_options *options = &model->options;
    const lw_device_options device = { .threads = options->threads, .isa = options->isa };
    const char *name = options->device != NULL ? options->device : "cpu";
    *lanes = (lw__lanes){ .table = lw_device_find(name) };
    if (lanes->table == NULL) return lw_fail(d, LW_BAD_INPUT, "device \"%s\" is not one of this build", name);
    lw_status status = lw_plan_init(&lanes->plan, d);
    if (status == LW_OK) {
        const lw_record_options record = { .head = head_drafts(options) > 0 };
        status = family->record(model->checkpoint, &record, &lanes->plan, d);
    }
    if (status == LW_OK) status = lanes->table->open(&device, &lanes->device, d);
    if (status == LW_OK) status = sizes_choose(lanes, options, lw_family_context(model->checkpoint), d);
    if (status == LW_OK)
        status = lw_page_pool_init_counts(&lanes->pool, &lanes->plan, lanes->page_counts, lanes->context, d);
    if (status == LW_OK) status = compile(lanes, model, d);
    if (status == LW_OK) status = core_open(lanes, options, d);
    return status;
}

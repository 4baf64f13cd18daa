/* The fake model; see fake_model.h. */
#include "fake_model.h"

#include "lane/core_internal.h"
#include "ops/record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_REACH = LW_ANCHOR_POSITIONS + 1 };

static float numbers[FAKE_VOCAB * 8];
static const lw_tensor tensor = { .name = "w", .file = "memory", .dtype = LW_DTYPE_F32, .dim_count = 2,
                                  .dims = { FAKE_VOCAB, 8 }, .bytes = (const uint8_t *)numbers,
                                  .byte_count = sizeof numbers };
static const lw_weight weight = { .name = "w",
                                  .stack_count = 1,
                                  .rows = FAKE_VOCAB,
                                  .cols = 8,
                                  .map = LW_MAP_FP32,
                                  .code_bits = 32,
                                  .global_scale = 1.0f,
                                  .codes = &tensor };

static void violate(fake_model *fake, const char *format, ...) LW_PRINTF(2, 3);

static void violate(fake_model *fake, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (fake->violations++ == 0) vsnprintf(fake->violation, sizeof fake->violation, format, args);
    va_end(args);
}

/* ---- the model ---- */

uint64_t fake_history(uint64_t before, int32_t token)
{
    return lw_rng_mix(before * 0x9E3779B97F4A7C15u + (uint64_t)token + 1);
}

int32_t fake_peak(uint64_t history, int32_t token)
{
    if (lw_rng_mix(history ^ 1) % 10 == 0) return (int32_t)(lw_rng_mix(history ^ 2) % FAKE_POISON);
    return (token & ~7) | ((token + 1) & 7); /* short cycles, so that copies find something */
}

void fake_logits(uint64_t history, int32_t token, float *logits)
{
    for (uint32_t id = 0; id < FAKE_VOCAB; id++) {
        logits[id] = (float)(lw_rng_mix(history ^ (id << 8)) >> 40) * 0x1p-23f - 1.0f;
    }
    logits[fake_peak(history, token)] += 5.0f;
    logits[FAKE_POISON] -= 3.0f;
    if (token == FAKE_POISON) logits[history % FAKE_VOCAB] = NAN;
}

static fake_cell *cell_of(fake_model *fake, uint32_t g, const uint32_t *pages, uint32_t slot)
{
    const uint32_t page = pages[slot / LW_PAGE_POSITIONS];
    if (page >= fake->pool.groups[g].count) return NULL;
    return &fake->cells[g][(size_t)page * LW_PAGE_POSITIONS + slot % LW_PAGE_POSITIONS];
}

/* Position of the anchor whose state a row at position > 0 reads: at an anchor itself the one before it. */
static uint32_t anchor_read(uint32_t position)
{
    return (position - 1) / LW_ANCHOR_POSITIONS * LW_ANCHOR_POSITIONS;
}

static bool is_anchor_group(const fake_model *fake, uint32_t g)
{
    return fake->plan.reach_is_anchor[g];
}

/* The state that a row at position > 0 reads has to be that of `history`. */
static void read_anchor(fake_model *fake, const uint32_t *const *pages, uint32_t position, uint64_t history)
{
    const uint32_t at = anchor_read(position);
    for (uint32_t g = 0; g < fake->pool.group_count; g++) {
        if (!is_anchor_group(fake, g)) continue;
        const fake_cell *cell = cell_of(fake, g, pages[g], at);
        if (cell == NULL || cell->position != at || cell->history != history)
            violate(fake, "the row at %u does not find the state of the anchor at %u", position, at);
    }
}

static fake_cell *head_cell_of(fake_model *fake, const uint32_t *pages, uint32_t slot)
{
    const fake_cell *full = cell_of(fake, 0, pages, slot);
    return full != NULL ? fake->head_cells + (full - fake->cells[0]) : NULL;
}

/* What the head keeps of a committed position has to be the forward's. */
static void read_head(fake_model *fake, const uint32_t *const *pages, uint32_t p)
{
    const fake_cell *full = cell_of(fake, 0, pages[0], p), *head = head_cell_of(fake, pages[0], p);
    if (full == NULL || memcmp(head, full, sizeof *full) != 0)
        violate(fake, "the head does not keep the true row of position %u", p);
}

/* The history of positions [0, end) as a row at `position` reads them; *anchored: that at the last anchor up
 * to position. */
static uint64_t read_back(fake_model *fake, const uint32_t *const *pages, uint32_t end, uint32_t position,
                          uint64_t *anchored)
{
    uint64_t history = 0;
    *anchored = 0;
    for (uint32_t p = 0; p < end; p++) {
        if (p % LW_ANCHOR_POSITIONS == 0) *anchored = history;
        if (fake->head_cells != NULL) read_head(fake, pages, p);
        const fake_cell *full = cell_of(fake, 0, pages[0], p);
        if (full == NULL || full->position != p || full->history != fake_history(history, full->token)) {
            violate(fake, "position %u does not hold what was written there", p);
            return history;
        }
        history = full->history;
        for (uint32_t g = 1; g < fake->pool.group_count; g++) {
            if (is_anchor_group(fake, g) || p + fake->pool.groups[g].reach <= position) continue;
            const fake_cell *cell = cell_of(fake, g, pages[g], p);
            if (cell == NULL || memcmp(cell, full, sizeof *cell) != 0) {
                violate(fake, "group %u does not hold position %u in reach of %u", g, p, position);
            }
        }
    }
    if (position > 0) read_anchor(fake, pages, position, *anchored);
    if (position % LW_ANCHOR_POSITIONS == 0) *anchored = history;
    return history;
}

static void cell_write(const fake_model *fake, fake_cell *to, const fake_cell *from)
{
    const bool is_of_head = to->writer == fake->forwards + 1 && to->position == from->position;
    if (fake->fault == FAKE_KEEPS_HEAD_ROWS && is_of_head) return;
    *to = *from;
}

/* The row at an anchor makes its state, in a page of its lane alone. */
static void write_anchor(fake_model *fake, const lw_batch *batch, uint32_t r, uint32_t g)
{
    const lw_row *row = &batch->rows[r];
    const uint32_t *pages = batch->lanes[row->lane].pages[g];
    if (row->position % LW_ANCHOR_POSITIONS != 0) {
        const uint32_t page = pages[row->position / LW_PAGE_POSITIONS];
        const bool is_shared =
            fake->pool.groups[g].lane_refs[page] + fake->pool.groups[g].entry_refs[page] > 1;
        if (is_shared && fake->fault == FAKE_WRITES_ANCHORS)
            cell_of(fake, g, pages, anchor_read(row->position))->history = fake->histories[r];
        return;
    }
    const uint32_t page = pages[row->slot / LW_PAGE_POSITIONS];
    if (row->slot != row->position) violate(fake, "a tree stands at the anchor at %u", row->position);
    if (fake->pool.groups[g].seals[page] != 0) violate(fake, "the anchor at %u is below a mark", row->slot);
    if (fake->pool.groups[g].lane_refs[page] != 1) violate(fake, "the anchor at %u is shared", row->slot);
    *cell_of(fake, g, pages, row->slot) = (fake_cell){ .position = row->position,
                                                       .history = fake->anchored[r] };
}

static void write_row(fake_model *fake, const lw_batch *batch, uint32_t r)
{
    const lw_row *row = &batch->rows[r];
    const fake_cell cell = { .token = row->token, .position = row->position, .history = fake->histories[r] };
    for (uint32_t g = 0; g < fake->pool.group_count; g++) {
        const uint32_t page = batch->lanes[row->lane].pages[g][row->slot / LW_PAGE_POSITIONS];
        const lw_page_group *group = &fake->pool.groups[g];
        if (is_anchor_group(fake, g)) {
            write_anchor(fake, batch, r, g);
            continue;
        }
        if (row->slot % LW_PAGE_POSITIONS < group->seals[page])
            violate(fake, "slot %u is below a mark", row->slot);
        if (group->lane_refs[page] != 1) violate(fake, "slot %u is written to a shared page", row->slot);
        cell_write(fake, cell_of(fake, g, batch->lanes[row->lane].pages[g], row->slot), &cell);
    }
    if (fake->head_cells != NULL)
        cell_write(fake, head_cell_of(fake, batch->lanes[row->lane].pages[0], row->slot), &cell);
}

static void check_written(fake_model *fake, const lw_batch *batch, uint32_t r)
{
    const lw_row *row = &batch->rows[r];
    for (uint32_t g = 0; g < fake->pool.group_count; g++) {
        if (is_anchor_group(fake, g)) continue;
        const fake_cell *cell = cell_of(fake, g, batch->lanes[row->lane].pages[g], row->slot);
        if (fake->fault != FAKE_KEEPS_HEAD_ROWS && cell->history != fake->histories[r])
            violate(fake, "two rows were written to slot %u", row->slot);
    }
}

static void scribble(fake_model *fake)
{
    const lw_page_group *group = &fake->pool.groups[0];
    for (uint32_t page = 0; page < group->count; page++) {
        if (group->seals[page] == 0) continue;
        fake->cells[0][(size_t)page * LW_PAGE_POSITIONS].token ^= 1;
        return;
    }
}

static void forward(void *context, const lw_batch *batch, float *logits)
{
    fake_model *fake = context;
    uint32_t wanted = 0;
    if (fake->fault == FAKE_WRITES_BELOW_MARKS) scribble(fake);
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        const lw_batch_lane *lane = &batch->lanes[row->lane];
        uint64_t before;
        if (row->parent < 0) {
            if (row->position != lane->committed)
                violate(fake, "an open row at %u has no parent", row->position);
            before = read_back(fake, lane->pages, lane->committed, row->position, &fake->anchored[r]);
        } else {
            const lw_row *parent = &batch->rows[row->parent];
            const bool follows = parent->lane == row->lane && parent->position + 1 == row->position;
            if (!follows) violate(fake, "the row at %u does not follow its parent", row->position);
            before = fake->histories[row->parent];
            read_anchor(fake, lane->pages, row->position, fake->anchored[row->parent]);
            const bool is_anchor = row->position % LW_ANCHOR_POSITIONS == 0;
            fake->anchored[r] = is_anchor ? before : fake->anchored[row->parent];
        }
        fake->histories[r] = fake_history(before, row->token);
        write_row(fake, batch, r);
    }
    for (uint32_t r = 0; r < batch->row_count; r++) {
        check_written(fake, batch, r);
        if (!batch->rows[r].wanted) continue;
        float *out = logits + (size_t)wanted++ * FAKE_VOCAB;
        fake_logits(fake->histories[r], batch->rows[r].token, out);
        const bool has_draft = r + 1 < batch->row_count && batch->rows[r + 1].parent == (int32_t)r;
        if (fake->fault == FAKE_DRAWS_ITS_DRAFT && has_draft) out[batch->rows[r + 1].token] += 50.0f;
    }
    fake->forwards++;
}

/* ---- the draft head ---- */

/* The history that the head reads back for a row at position, through what it keeps of every earlier one: the
 * forward's as far as there is any, then its own of the chain in hand. */
static uint64_t head_read_back(fake_model *fake, const lw_batch_lane *lane, uint32_t position)
{
    uint64_t history = 0;
    bool is_own = false;
    for (uint32_t p = 0; p < position; p++) {
        const fake_cell *cell = head_cell_of(fake, lane->pages[0], p);
        const bool is_known = cell != NULL && (cell->writer == 0 || cell->writer == fake->forwards + 1);
        if (!is_known || (is_own && cell->writer == 0) || cell->position != p ||
            cell->history != fake_history(history, cell->token)) {
            violate(fake, "the head at %u does not find position %u", position, p);
            return history;
        }
        is_own = cell->writer != 0;
        history = cell->history;
    }
    const fake_cell *before = cell_of(fake, fake->hidden, lane->pages[fake->hidden], position - 1);
    const fake_cell *kept = head_cell_of(fake, lane->pages[0], position - 1);
    if (before == NULL || memcmp(before, kept, sizeof *kept) != 0)
        violate(fake, "the head at %u does not find the hidden row before it", position);
    return history;
}

static void head_write(fake_model *fake, const lw_batch *batch, const lw_row *row, const fake_cell *cell)
{
    const lw_batch_lane *lane = &batch->lanes[row->lane];
    const uint32_t groups[] = { 0, fake->hidden };
    for (uint32_t i = 0; i < 2; i++) {
        const lw_page_group *group = &fake->pool.groups[groups[i]];
        const uint32_t page = lane->pages[groups[i]][row->slot / LW_PAGE_POSITIONS];
        if (row->slot % LW_PAGE_POSITIONS < group->seals[page] || group->lane_refs[page] != 1)
            violate(fake, "the head writes slot %u, which is not its lane's alone", row->slot);
    }
    *head_cell_of(fake, lane->pages[0], row->slot) = *cell;
    *cell_of(fake, fake->hidden, lane->pages[fake->hidden], row->slot) = *cell;
}

static void head(void *context, const lw_batch *batch, float *logits)
{
    fake_model *fake = context;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        const lw_batch_lane *lane = &batch->lanes[row->lane];
        if (row->position != lane->committed || row->slot != row->position || row->parent >= 0)
            violate(fake, "the head's row at %u is no next row", row->position);
        const uint64_t history = fake_history(head_read_back(fake, lane, row->position), row->token);
        const fake_cell cell = { .token = row->token, .position = row->position, .history = history,
                                 .writer = fake->forwards + 1 };
        head_write(fake, batch, row, &cell);
        const bool is_right = lw_rng_mix(history ^ 3) % 256 < fake->head_right;
        float *out = logits + (size_t)r * FAKE_VOCAB;
        fake_logits(history, row->token, out);
        for (uint32_t id = 0; !is_right && id < FAKE_VOCAB; id++) out[id] = -out[id];
    }
}

static void page_copy(void *context, uint32_t group, uint32_t from, uint32_t to)
{
    fake_model *fake = context;
    if (is_anchor_group(fake, group)) violate(fake, "an anchor's page is copied");
    if (fake->fault == FAKE_FORGETS_COPIES) return;
    memcpy(fake->cells[group] + (size_t)to * LW_PAGE_POSITIONS,
           fake->cells[group] + (size_t)from * LW_PAGE_POSITIONS, LW_PAGE_POSITIONS * sizeof(fake_cell));
    if (group != 0 || fake->head_cells == NULL) return;
    memcpy(fake->head_cells + (size_t)to * LW_PAGE_POSITIONS,
           fake->head_cells + (size_t)from * LW_PAGE_POSITIONS, LW_PAGE_POSITIONS * sizeof(fake_cell));
}

/* ---- opening ---- */

uint32_t fake_reaches(const fake_options *options, uint32_t reaches[LW_PLAN_REACHES_MAX])
{
    uint32_t count = 0;
    reaches[count++] = 0;
    reaches[count++] = options->reach == STEPS_REACH ? STEPS_REACH + 1 : options->reach;
    reaches[count++] = options->reach == 7 ? 6 : 7;
    if (options->recurs) {
        reaches[count++] = STEPS_REACH;
        reaches[count++] = 2;
    }
    if (options->has_head) reaches[count++] = 2;
    return count;
}

static void head_record(lw_plan *plan, lw_wref w)
{
    const lw_sref kv = lw_plan_state_kv(plan, "head", 1, 8, 0),
                  hidden = lw_plan_state_tail(plan, "hidden", 8, 2);
    lw_plan_entry_begin(plan, "head");
    const lw_ref x = lw_plan_embed(plan, w);
    lw_plan_kv_store(plan, kv, x, x);
    lw_plan_tail_store(plan, hidden, x);
    lw_plan_entry_end(plan, lw_plan_linear(plan, lw_plan_take_wanted(plan, x), w, LW_TYPE_F32));
}

static void plan_record(lw_plan *plan, const fake_options *options)
{
    uint32_t reaches[LW_PLAN_REACHES_MAX];
    const uint32_t count = fake_reaches(options, reaches);
    LW_ASSERT(lw_plan_init(plan, NULL) == LW_OK);
    const lw_wref w = lw_plan_weight(plan, &weight);
    const lw_sref kv = lw_plan_state_kv(plan, "kv", 1, 8, 0);
    lw_plan_state_kv(plan, "sliding", 1, 8, reaches[1]);
    lw_plan_state_tail(plan, "conv", 8, reaches[2]);
    if (options->recurs) lw_plan_recurrence(plan, "recurrence", (lw_heads){ 1, 8 }, (lw_heads){ 1, 8 });
    lw_plan_entry_begin(plan, "main");
    const lw_ref x = lw_plan_embed(plan, w);
    lw_plan_kv_store(plan, kv, x, x);
    lw_plan_entry_end(plan, lw_plan_linear(plan, lw_plan_take_wanted(plan, x), w, LW_TYPE_F32));
    if (options->has_head) head_record(plan, w);
    LW_ASSERT(plan->reach_count == count && memcmp(plan->reaches, reaches, count * sizeof *reaches) == 0);
}

void fake_open(fake_model *fake, const fake_options *options)
{
    *fake = (fake_model){ .fault = FAKE_SOUND, .head_right = options->head_right };
    plan_record(&fake->plan, options);
    fake->hidden = fake->plan.reach_count - 1;
    lw_exec_options exec = { .rows_max = options->rows_max, .wanted_max = options->rows_max };
    LW_ASSERT(options->rows_max <= FAKE_ROWS_MAX);
    LW_ASSERT(lw_device_null.open(&(lw_device_options){ 0 }, &fake->device, NULL) == LW_OK);
    LW_ASSERT(lw_page_pool_init_counts(&fake->pool, &fake->plan, options->page_counts, options->context,
                                       NULL) == LW_OK);
    for (uint32_t g = 0; g < fake->plan.reach_count; g++) {
        exec.page_counts[g] = options->page_counts[g];
        fake->page_bytes[g] = lw_device_null.page_bytes(fake->device, &fake->plan, g);
        fake->cells[g] = calloc((size_t)options->page_counts[g] * LW_PAGE_POSITIONS, sizeof(fake_cell));
        LW_ASSERT(fake->cells[g] != NULL);
    }
    if (options->has_head) {
        fake->head_cells = calloc((size_t)options->page_counts[0] * LW_PAGE_POSITIONS, sizeof(fake_cell));
        LW_ASSERT(fake->head_cells != NULL);
    }
    LW_ASSERT(lw_device_null.compile(fake->device, &fake->plan, &exec, &fake->exec, NULL) == LW_OK);
    const lw_null_model model = { .context = fake, .forward = forward, .head = head, .page_copy = page_copy };
    LW_ASSERT(lw_null_set_model(fake->exec, &model, NULL) == LW_OK);
}

void fake_close(fake_model *fake)
{
    for (uint32_t g = 0; g < fake->pool.group_count; g++) free(fake->cells[g]);
    free(fake->head_cells);
    lw_device_null.exec_close(fake->exec);
    lw_device_null.close(fake->device);
    lw_page_pool_deinit(&fake->pool);
    lw_plan_deinit(&fake->plan);
}

lw_core_device fake_device(fake_model *fake)
{
    lw_core_device device = {
        .table = &lw_device_null, .exec = fake->exec, .plan = &fake->plan, .pool = &fake->pool
    };
    memcpy(device.page_bytes, fake->page_bytes, sizeof device.page_bytes);
    return device;
}

/* ---- checks ---- */

void fake_check_table(fake_model *fake, const lw_page_table *table, const int32_t *ids, uint32_t position)
{
    const uint32_t *pages[LW_PLAN_REACHES_MAX] = { 0 };
    for (uint32_t g = 0; g < fake->pool.group_count; g++) pages[g] = table->ids[g];
    uint64_t history = 0, anchored;
    for (uint32_t p = 0; p < position; p++) history = fake_history(history, ids[p]);
    if (read_back(fake, pages, position, position, &anchored) != history)
        violate(fake, "pages do not spell their %u ids", position);
}

static void count_refs(const lw_page_table *table, uint32_t g, uint32_t *refs)
{
    for (uint32_t i = table->begin[g]; i < table->end[g]; i++) refs[table->ids[g][i]]++;
}

static void check_group(fake_model *fake, const lw_core *core, uint32_t g)
{
    const lw_page_group *group = &fake->pool.groups[g];
    uint32_t *lanes = calloc(group->count, sizeof *lanes), *entries = calloc(group->count, sizeof *entries);
    uint32_t held = 0, lane_held = 0, entry_held = 0, reserved = 0, missing = 0;
    LW_ASSERT(lanes != NULL && entries != NULL);
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        count_refs(&lane->pages, g, lanes);
        if (lane->state == LW__LANE_FREE) continue;
        reserved += lane->reserved[g];
        missing += lane->reserved[g] - (lane->pages.end[g] - lane->pages.begin[g]);
    }
    for (uint32_t i = 0; i < core->cache.entry_max; i++) {
        if (core->cache.entries[i].is_used) count_refs(&core->cache.entries[i].pages, g, entries);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        if (lanes[i] != group->lane_refs[i] || entries[i] != group->entry_refs[i])
            violate(fake, "page %u: wrong refs", i);
        held += lanes[i] + entries[i] > 0;
        lane_held += lanes[i] > 0;
        entry_held += entries[i] > 0;
    }
    for (uint32_t i = 0; i < group->free_count; i++) {
        if (lanes[group->free_ids[i]] + entries[group->free_ids[i]] > 0) violate(fake, "a held page is free");
    }
    if (held + group->free_count != group->count)
        violate(fake, "group %u: %u pages are lost", g, group->count - held);
    if (lane_held != group->lane_held || entry_held != group->entry_held)
        violate(fake, "group %u: wrong sums", g);
    if (group->reach == 0 && lane_held + missing > group->count)
        violate(fake, "more pages are promised than there are");
    if (group->reach != 0 && reserved > group->count) violate(fake, "group %u: too much is promised", g);
    free(lanes);
    free(entries);
}

void fake_check_core(fake_model *fake, const lw_core *core)
{
    lw_null_settle(fake->exec);
    for (uint32_t g = 0; g < fake->pool.group_count; g++) check_group(fake, core, g);
    if (lw_cache_bytes(&core->cache) > core->cache.bytes_max) violate(fake, "entries are over their budget");
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        if (lane->state == LW__LANE_FREE) continue;
        if (lane->committed >= lane->count && lane->state != LW__LANE_LEAVING)
            violate(fake, "lane %u has nothing pending", i);
        fake_check_table(fake, &lane->pages, lane->ids, lane->committed);
    }
    for (uint32_t i = 0; i < core->cache.entry_max; i++) {
        const lw_cache_entry *entry = &core->cache.entries[i];
        if (!entry->is_used) continue;
        fake_check_table(fake, &entry->pages, entry->ids, entry->position);
        if (entry->parent == LW_CACHE_NONE) continue;
        const lw_cache_entry *parent = &core->cache.entries[entry->parent];
        const bool extends = parent->is_used && parent->position < entry->position &&
            memcmp(parent->ids, entry->ids, parent->position * sizeof *entry->ids) == 0;
        if (!extends) violate(fake, "entry %u does not extend its parent", i);
    }
}

/* ---- what a reply must be ---- */

/* The definition read literally: counts by looking at every earlier token. */
static void penalise(const lw_request *request, const fake_reply *reply, float *logits)
{
    const lw_penalties *p = &request->penalties;
    for (int32_t id = 0; id < FAKE_VOCAB; id++) {
        uint32_t in_prompt = 0, in_reply = 0;
        for (uint32_t i = 0; i < request->prompt_count; i++) in_prompt += request->prompt[i] == id;
        for (uint32_t i = 0; i < reply->count; i++) in_reply += reply->ids[i] == id;
        if (in_prompt + in_reply > 0 && p->repetition != 0.0f && p->repetition != 1.0f) {
            logits[id] = logits[id] > 0.0f ? logits[id] / p->repetition : logits[id] * p->repetition;
        }
        if (in_reply > 0) logits[id] = logits[id] - p->presence - p->frequency * (float)in_reply;
    }
    for (uint32_t i = 0; i < p->bias_count; i++) logits[p->biases[i].id] += p->biases[i].value;
}

static double logprob_of(const float *logits, int32_t id)
{
    double most = -INFINITY, mass = 0.0;
    for (uint32_t i = 0; i < FAKE_VOCAB; i++) most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < FAKE_VOCAB; i++) mass += exp((double)logits[i] - most);
    return (double)logits[id] - (most + log(mass));
}

static bool is_end(const lw_request *request, int32_t id)
{
    for (uint32_t i = 0; !request->ignore_end && i < request->end_id_count; i++) {
        if (request->end_ids[i] == id) return true;
    }
    return false;
}

void fake_solo(const lw_request *request, uint32_t stop_after, fake_reply *reply)
{
    uint64_t history = 0;
    int32_t last = 0;
    *reply = (fake_reply){ .status = LW_OK, .finish = LW_FINISH_LENGTH };
    LW_ASSERT(request->tokens_max <= FAKE_TOKENS_MAX);
    for (uint32_t i = 0; i < request->prompt_count; i++)
        history = fake_history(history, last = request->prompt[i]);
    while (reply->count < request->tokens_max) {
        float raw[FAKE_VOCAB], logits[FAKE_VOCAB];
        fake_logits(history, last, raw);
        for (uint32_t id = 0; id < FAKE_VOCAB; id++) {
            if (isnan(raw[id])) reply->status = LW_BAD_MODEL;
        }
        if (reply->status != LW_OK) return;
        memcpy(logits, raw, sizeof logits);
        penalise(request, reply, logits);
        reply->status = lw_sampler_draw_plain(&request->sampling, logits, FAKE_VOCAB,
                                              request->prompt_count + reply->count, &last, NULL);
        if (reply->status != LW_OK) return;
        reply->logprobs[reply->count] = logprob_of(raw, last);
        reply->ids[reply->count++] = last;
        history = fake_history(history, last);
        if (is_end(request, last)) {
            reply->finish = LW_FINISH_END;
            return;
        }
        if (reply->count == stop_after) {
            reply->finish = LW_FINISH_STOPPED;
            return;
        }
    }
}

/* ---- drafts ---- */

static void drafter_reset(void *context, uint32_t lane)
{
    (void)context;
    (void)lane;
}

static void drafter_judge(void *context, uint32_t lane, uint32_t offered, uint32_t kept)
{
    (void)context;
    (void)lane;
    LW_ASSERT(kept <= offered);
}

static void draft_make(fake_drafter *drafter, const lw_draft_ask *ask)
{
    lw_draft *out = ask->out;
    uint64_t histories[LW_DRAFTS_MAX + 1] = { 0 };
    int32_t tokens[LW_DRAFTS_MAX + 1];
    for (uint32_t i = 0; i < ask->count; i++) histories[0] = fake_history(histories[0], ask->ids[i]);
    tokens[0] = ask->ids[ask->count - 1];
    out->count = (uint32_t)lw_rng_below(&drafter->rng, ask->room + 1u);
    for (uint32_t i = 0; i < out->count; i++) {
        const bool branches = drafter->trees && lw_rng_below(&drafter->rng, 2) == 0;
        const uint32_t parent =
            branches ? (uint32_t)lw_rng_below(&drafter->rng, i + 1u) : i; /* 0: the pending token */
        const bool is_right = lw_rng_below(&drafter->rng, 256) < drafter->right_share;
        out->parents[i] = (int32_t)parent - 1;
        out->tokens[i] = is_right ? fake_peak(histories[parent], tokens[parent])
                                  : (int32_t)lw_rng_below(&drafter->rng, FAKE_VOCAB);
        tokens[i + 1] = out->tokens[i];
        histories[i + 1] = fake_history(histories[parent], out->tokens[i]);
    }
}

static void drafter_propose(void *context, const lw_draft_ask *asks, uint32_t ask_count)
{
    for (uint32_t i = 0; i < ask_count; i++) draft_make(context, &asks[i]);
}

void fake_drafter_init(fake_drafter *drafter, uint64_t seed, uint32_t right_share, bool trees)
{
    *drafter = (fake_drafter){ .rng = lw_rng_make(seed), .right_share = right_share, .trees = trees };
    drafter->source = (lw_draft_source){
        .context = drafter, .reset = drafter_reset, .propose = drafter_propose, .judge = drafter_judge
    };
}

/* Which waiting request takes a lane, with how many pages promised and from which entry; and how a request
 * leaves. Invariant 3 of core.h is kept here.
 */
#include "lane/core_internal.h"

#include <string.h>

static uint32_t positions_of(const lw_request *request)
{
    /* The last token of a reply gets no row. */
    return request->prompt_count + (request->tokens_max > 0 ? request->tokens_max - 1 : 0);
}

uint32_t lw__seat_pages(const lw_core *core, const lw_request *request, uint32_t g)
{
    return lw_pages_needed(core->device.pool->groups[g].reach, positions_of(request), core->options.rows_max);
}

/* Pages of group g promised to lanes: in a group with a reach all that they may hold, else what they have not
 * got. */
static uint64_t promised(const lw_core *core, uint32_t g)
{
    uint64_t pages = 0;
    const bool has_reach = core->device.pool->groups[g].reach != 0;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        if (lane->state == LW__LANE_FREE) continue;
        const uint32_t held = lane->pages.end[g] - lane->pages.begin[g];
        LW_ASSERT(held <= lane->reserved[g]);
        pages += has_reach ? lane->reserved[g] : lane->reserved[g] - held;
    }
    return pages;
}

/* Whether the request's pages can be promised when it resumes from entry (or LW_CACHE_NONE). */
static bool fits(const lw_core *core, const lw_request *request, int32_t entry)
{
    for (uint32_t g = 0; g < core->device.pool->group_count; g++) {
        const lw_page_group *group = &core->device.pool->groups[g];
        uint64_t pages = promised(core, g) + lw__seat_pages(core, request, g);
        if (group->reach == 0) {
            pages += group->lane_held;
            const lw_cache_entry *from = entry != LW_CACHE_NONE ? &core->cache.entries[entry] : NULL;
            const uint32_t whole = from != NULL ? from->position / LW_PAGE_POSITIONS : 0;
            /* Shared with another lane: counted there already. */
            for (uint32_t i = 0; i < whole; i++) pages -= group->lane_refs[from->pages.ids[g][i]] != 0;
        }
        if (pages > group->count) return false;
    }
    return true;
}

/* A resumer's own last pages must come from elsewhere than the entry. */
static bool has_spare_page(lw_core *core, int32_t entry)
{
    const uint32_t position = core->cache.entries[entry].position;
    for (uint32_t g = 0; g < core->device.pool->group_count; g++) {
        const bool copies = lw_pages_copies(&core->device.pool->groups[g], position);
        if (copies && !lw_cache_yield(&core->cache, g, 1, entry)) return false;
    }
    return true;
}

static lw_status resume(lw_core *core, lw__lane *lane, int32_t entry, lw_diag *d)
{
    const lw_cache_entry *from = &core->cache.entries[entry];
    const uint32_t page = from->position / LW_PAGE_POSITIONS;
    lw_pages_resume(core->device.pool, &lane->pages, &from->pages, from->position);
    lane->committed = lane->counts.cached_tokens = from->position;
    lw_status status = LW_OK;
    for (uint32_t g = 0; status == LW_OK && g < core->device.pool->group_count; g++) {
        if (!lw_pages_copies(&core->device.pool->groups[g], from->position)) continue;
        status = core->device.table->page_copy(core->device.exec, g, from->pages.ids[g][page],
                                               lane->pages.ids[g][page], d);
    }
    return status;
}

static void seat(lw_core *core, lw__lane *lane, const lw__job *job, int32_t entry)
{
    const lw_request *request = job->request;
    const uint32_t index = (uint32_t)(lane - core->lanes);
    lane->state = LW__LANE_FILLING;
    lane->job = *job;
    lane->count = request->prompt_count;
    lane->committed = lane->next_mark = lane->passed_over = 0;
    LW_ASSERT(lane->open_rows == 0 && lane->open_tokens == 0);
    lane->draft.count = 0;
    lane->seated_ns = lane->filled_ns = lw__core_now(core);
    lane->counts = (lw_request_counts){ .prompt_tokens = request->prompt_count,
                                        .wait_ns = lane->seated_ns - job->submitted_ns };
    memcpy(lane->ids, request->prompt, request->prompt_count * sizeof *lane->ids);
    lw_seen_clear(&lane->seen);
    for (uint32_t i = 0; !lw_penalties_are_off(&request->penalties) && i < request->prompt_count; i++) {
        lw_seen_add(&lane->seen, request->prompt[i], false);
    }
    for (uint32_t source = 0; source < LW__SOURCES; source++) {
        lane->depths[source] = core->luck[source];
        const lw_draft_source *s = &core->sources[source];
        if (s->propose != NULL) s->reset(s->context, index);
    }
    for (uint32_t g = 0; g < core->device.pool->group_count; g++)
        lane->reserved[g] = lw__seat_pages(core, request, g);
    lw_status status = LW_OK;
    if (entry != LW_CACHE_NONE) {
        lw_cache_touch(&core->cache, entry);
        core->cache.counts.hits++;
        status = resume(core, lane, entry, &lane->diag);
    } else {
        core->cache.counts.misses++;
    }
    core->counts.prompt_tokens += request->prompt_count;
    core->counts.cached_tokens += lane->counts.cached_tokens;
    if (status != LW_OK) lw__seat_leave(core, lane, status, LW_FINISH_STOPPED, lane->diag.text);
}

/* Seats the oldest waiting request; false: no lane or no pages for it. */
static bool seat_next(lw_core *core)
{
    lw__lane *lane = NULL;
    for (uint32_t i = 0; lane == NULL && i < core->options.lanes; i++) {
        if (core->lanes[i].state == LW__LANE_FREE) lane = &core->lanes[i];
    }
    if (lane == NULL || core->queue_count == 0) return false;
    const lw__job job = core->queue[core->queue_begin];
    const lw_request *request = job.request;
    int32_t entry = lw_cache_find(&core->cache, request->prompt, request->prompt_count);
    const bool resumes = entry != LW_CACHE_NONE && fits(core, request, entry) && has_spare_page(core, entry);
    if (!resumes) entry = LW_CACHE_NONE;
    if (!resumes && !fits(core, request, LW_CACHE_NONE)) return false;
    core->queue_begin = (core->queue_begin + 1) % core->options.queue_max;
    core->queue_count--;
    seat(core, lane, &job, entry);
    return true;
}

void lw__seats_fill(lw_core *core)
{
    while (seat_next(core)) {}
}

void lw__lane_free(lw_core *core, lw__lane *lane)
{
    LW_ASSERT(lane->state == LW__LANE_LEAVING && lane->open_rows == 0);
    lw_pages_clear(core->device.pool, &lane->pages);
    lane->state = LW__LANE_FREE;
}

void lw__seat_leave(lw_core *core, lw__lane *lane, lw_status status, lw_finish finish, const char *text)
{
    LW_ASSERT(lane->state == LW__LANE_FILLING || lane->state == LW__LANE_RUNNING);
    const lw_request *request = lane->job.request;
    const uint64_t now = lw__core_now(core);
    const bool is_filling = lane->state == LW__LANE_FILLING;
    lane->counts.prompt_ns = (is_filling ? now : lane->filled_ns) - lane->seated_ns;
    lane->counts.decode_ns = is_filling ? 0 : now - lane->filled_ns;
    const lw_end_event event = { .status = status, .finish = finish, .text = text, .counts = lane->counts };
    for (uint32_t source = 0; source < LW__SOURCES && request->draft && !is_filling; source++)
        lw_depth_learn(&core->luck[source], &lane->depths[source]);
    lane->state = LW__LANE_LEAVING;
    if (lane->open_rows == 0) lw__lane_free(core, lane);
    if (status == LW_OK) {
        core->counts.finished++;
    } else if (status == LW_CANCELLED) {
        core->counts.cancelled++;
    } else {
        core->counts.failed++;
    }
    request->end(request->context, &event);
}

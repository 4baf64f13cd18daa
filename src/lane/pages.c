/* Page tables and who holds their pages; see pages.h. */
#include "lane/pages.h"

#include <stdlib.h>

uint32_t lw_pages_of(uint32_t positions)
{
    return positions / LW_PAGE_POSITIONS + (positions % LW_PAGE_POSITIONS != 0);
}

uint32_t lw_pages_first(uint32_t reach, uint32_t position)
{
    return reach == 0 || position < reach ? 0 : (position - reach + 1) / LW_PAGE_POSITIONS;
}

uint32_t lw_pages_needed(uint32_t reach, uint32_t context, uint32_t rows_max)
{
    const uint32_t all = lw_pages_of(context);
    if (reach == 0) return all;
    /* What the first open row reads, itself and the other open rows; at worst a page has one of them alone.
     */
    const uint64_t span = (uint64_t)reach + rows_max - 1;
    const uint64_t pages = (span + LW_PAGE_POSITIONS - 2) / LW_PAGE_POSITIONS + 1;
    return pages < all ? (uint32_t)pages : all;
}

static bool group_init(lw_page_group *group, const lw_plan *plan, uint32_t g, uint32_t count)
{
    *group = (lw_page_group){
        .reach = plan->reaches[g], .is_anchor = plan->reach_is_anchor[g], .count = count, .free_count = count
    };
    group->free_ids = calloc(count, sizeof *group->free_ids);
    group->lane_refs = calloc(count, sizeof *group->lane_refs);
    group->entry_refs = calloc(count, sizeof *group->entry_refs);
    group->seals = calloc(count, sizeof *group->seals);
    if (group->free_ids == NULL || group->lane_refs == NULL || group->entry_refs == NULL ||
        group->seals == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) group->free_ids[i] = count - 1 - i;
    return true;
}

lw_status lw_page_pool_init_counts(lw_page_pool *pool, const lw_plan *plan, const uint32_t *counts,
                                   uint32_t context, lw_diag *d)
{
    *pool = (lw_page_pool){ .group_count = plan->reach_count, .table_pages = lw_pages_of(context) };
    for (uint32_t g = 0; g < pool->group_count; g++) {
        if (group_init(&pool->groups[g], plan, g, counts[g])) continue;
        lw_page_pool_deinit(pool);
        return lw_fail(d, LW_NO_ROOM, "no memory for a table of %u pages", counts[g]);
    }
    return LW_OK;
}

void lw_page_pool_deinit(lw_page_pool *pool)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        free(pool->groups[g].free_ids);
        free(pool->groups[g].lane_refs);
        free(pool->groups[g].entry_refs);
        free(pool->groups[g].seals);
    }
    *pool = (lw_page_pool){ 0 };
}

lw_status lw_page_table_init(lw_page_table *table, const lw_page_pool *pool, lw_diag *d)
{
    *table = (lw_page_table){ 0 };
    for (uint32_t g = 0; g < pool->group_count; g++) {
        table->ids[g] = calloc(pool->table_pages, sizeof *table->ids[g]);
        if (table->ids[g] == NULL) {
            lw_page_table_deinit(table);
            return lw_fail(d, LW_NO_ROOM, "no memory for a table of %u pages", pool->table_pages);
        }
        for (uint32_t i = 0; i < pool->table_pages; i++) table->ids[g][i] = LW_PAGE_NONE;
    }
    return LW_OK;
}

void lw_page_table_deinit(lw_page_table *table)
{
    for (uint32_t g = 0; g < LW_PLAN_REACHES_MAX; g++) free(table->ids[g]);
    *table = (lw_page_table){ 0 };
}

/* ---- references ---- */

static void page_free_if_unheld(lw_page_group *group, uint32_t id)
{
    if (group->lane_refs[id] != 0 || group->entry_refs[id] != 0) return;
    LW_ASSERT(group->free_count < group->count);
    group->seals[id] = 0;
    group->free_ids[group->free_count++] = id;
}

static void lane_ref(lw_page_group *group, uint32_t id)
{
    LW_ASSERT(id < group->count);
    if (group->lane_refs[id]++ == 0) group->lane_held++;
}

static uint32_t page_take(lw_page_group *group)
{
    LW_ASSERT(group->free_count > 0);
    const uint32_t id = group->free_ids[--group->free_count];
    lane_ref(group, id);
    return id;
}

static void page_give(lw_page_group *group, lw_page_table *table, uint32_t g, uint32_t index)
{
    const uint32_t id = table->ids[g][index];
    LW_ASSERT(id < group->count && group->lane_refs[id] > 0);
    table->ids[g][index] = LW_PAGE_NONE;
    if (--group->lane_refs[id] == 0) group->lane_held--;
    page_free_if_unheld(group, id);
}

/* ---- lanes ---- */

uint32_t lw_pages_wanted(const lw_page_table *table, uint32_t g, uint32_t end)
{
    const uint32_t end_page = lw_pages_of(end);
    return end_page > table->end[g] ? end_page - table->end[g] : 0;
}

lw_status lw_pages_cover(lw_page_pool *pool, lw_page_table *table, uint32_t end, lw_diag *d)
{
    const uint32_t end_page = lw_pages_of(end);
    LW_ASSERT(end_page <= pool->table_pages);
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const uint32_t wanted = lw_pages_wanted(table, g, end);
        if (wanted > pool->groups[g].free_count) {
            return lw_fail(d, LW_NO_ROOM, "%u pages of 64 positions are wanted and %u are free", wanted,
                           pool->groups[g].free_count);
        }
    }
    for (uint32_t g = 0; g < pool->group_count; g++) {
        while (table->end[g] < end_page) table->ids[g][table->end[g]++] = page_take(&pool->groups[g]);
    }
    return LW_OK;
}

void lw_pages_trim(lw_page_pool *pool, lw_page_table *table, uint32_t committed, uint32_t end)
{
    LW_ASSERT(committed <= end);
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        const uint32_t keep_end = lw_pages_of(end);
        while (table->end[g] > keep_end && table->end[g] > table->begin[g]) {
            page_give(group, table, g, --table->end[g]);
        }
        const uint32_t first = lw_pages_first(group->reach, committed);
        while (table->begin[g] < table->end[g] && table->begin[g] < first) {
            page_give(group, table, g, table->begin[g]++);
        }
    }
}

void lw_pages_clear(lw_page_pool *pool, lw_page_table *table)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        while (table->end[g] > table->begin[g]) page_give(&pool->groups[g], table, g, --table->end[g]);
        table->begin[g] = table->end[g] = 0;
    }
}

bool lw_pages_copies(const lw_page_group *group, uint32_t position)
{
    return position % LW_PAGE_POSITIONS != 0 && !group->is_anchor;
}

void lw_pages_resume(lw_page_pool *pool, lw_page_table *lane, const lw_page_table *entry, uint32_t position)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        LW_ASSERT(lane->begin[g] == lane->end[g]);
        LW_ASSERT(entry->end[g] == lw_pages_of(position));
        lane->begin[g] = entry->begin[g];
        lane->end[g] = entry->end[g];
        const uint32_t shared_end = entry->end[g] - lw_pages_copies(group, position);
        for (uint32_t i = entry->begin[g]; i < entry->end[g]; i++) {
            if (i < shared_end) lane_ref(group, entry->ids[g][i]);
            lane->ids[g][i] = i < shared_end ? entry->ids[g][i] : page_take(group);
        }
    }
}

bool lw_pages_may_write(const lw_page_pool *pool, const lw_page_table *table, uint32_t slot)
{
    const uint32_t index = slot / LW_PAGE_POSITIONS;
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const lw_page_group *group = &pool->groups[g];
        if (index < table->begin[g] || index >= table->end[g]) return false;
        if (group->is_anchor && slot % LW_PAGE_POSITIONS != 0) continue;
        const uint32_t id = table->ids[g][index];
        if (group->lane_refs[id] != 1 || slot % LW_PAGE_POSITIONS < group->seals[id]) return false;
    }
    return true;
}

/* ---- prefix entries ---- */

void lw_pages_hold(lw_page_pool *pool, lw_page_table *entry, const lw_page_table *lane, uint32_t position)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        const uint32_t slots_max = group->is_anchor ? 1 : LW_PAGE_POSITIONS;
        LW_ASSERT(entry->begin[g] == entry->end[g]);
        entry->begin[g] = lw_pages_first(group->reach, position);
        entry->end[g] = lw_pages_of(position);
        LW_ASSERT(lane->begin[g] <= entry->begin[g] && lane->end[g] >= entry->end[g]);
        for (uint32_t i = entry->begin[g]; i < entry->end[g]; i++) {
            const uint32_t id = lane->ids[g][i], below = position - i * LW_PAGE_POSITIONS;
            const uint8_t seal = (uint8_t)(below < slots_max ? below : slots_max);
            entry->ids[g][i] = id;
            if (group->entry_refs[id]++ == 0) group->entry_held++;
            if (seal > group->seals[id]) group->seals[id] = seal;
        }
    }
}

void lw_pages_drop(lw_page_pool *pool, lw_page_table *entry)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        for (uint32_t i = entry->begin[g]; i < entry->end[g]; i++) {
            const uint32_t id = entry->ids[g][i];
            entry->ids[g][i] = LW_PAGE_NONE;
            if (id == LW_PAGE_NONE) continue;
            LW_ASSERT(id < group->count && group->entry_refs[id] > 0);
            if (--group->entry_refs[id] == 0) group->entry_held--;
            page_free_if_unheld(group, id);
        }
        entry->begin[g] = entry->end[g] = 0;
    }
}

/* Page tables; see pages.h. */
#include "lane/pages.h"

#include <stdlib.h>

static uint32_t pages_of(uint32_t positions)
{
    return positions / LW_PAGE_POSITIONS + (positions % LW_PAGE_POSITIONS != 0);
}

uint32_t lw_pages_needed(uint32_t reach, uint32_t context, uint32_t rows_max)
{
    const uint32_t all = pages_of(context);
    if (reach == 0) return all;
    const uint64_t span = (uint64_t)reach + rows_max; /* read positions and open rows; both ends may cut a page */
    const uint64_t pages = span / LW_PAGE_POSITIONS + 2;
    return pages < all ? (uint32_t)pages : all;
}

lw_status lw_page_pool_init(lw_page_pool *pool, const lw_plan *plan, uint32_t lanes, uint32_t context,
                            uint32_t rows_max, lw_diag *d)
{
    *pool = (lw_page_pool){ .group_count = plan->reach_count, .table_pages = pages_of(context) };
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        group->reach = plan->reaches[g];
        group->count = lanes * lw_pages_needed(group->reach, context, rows_max);
        group->free_ids = calloc(group->count, sizeof *group->free_ids);
        if (group->free_ids == NULL) {
            lw_page_pool_deinit(pool);
            return lw_fail(d, LW_NO_ROOM, "no memory for a table of %u pages", group->count);
        }
        group->free_count = group->count;
        for (uint32_t i = 0; i < group->count; i++) group->free_ids[i] = group->count - 1 - i;
    }
    return LW_OK;
}

void lw_page_pool_deinit(lw_page_pool *pool)
{
    for (uint32_t g = 0; g < pool->group_count; g++) free(pool->groups[g].free_ids);
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

lw_status lw_pages_cover(lw_page_pool *pool, lw_page_table *table, uint32_t end, lw_diag *d)
{
    const uint32_t end_page = pages_of(end);
    LW_ASSERT(end_page <= pool->table_pages);
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const uint32_t wanted = end_page > table->end[g] ? end_page - table->end[g] : 0;
        if (wanted > pool->groups[g].free_count) {
            return lw_fail(d, LW_NO_ROOM, "%u pages of 64 positions are wanted and %u are free", wanted,
                           pool->groups[g].free_count);
        }
    }
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        while (table->end[g] < end_page) table->ids[g][table->end[g]++] = group->free_ids[--group->free_count];
    }
    return LW_OK;
}

static void page_give(lw_page_group *group, lw_page_table *table, uint32_t g, uint32_t index)
{
    LW_ASSERT(table->ids[g][index] < group->count && group->free_count < group->count);
    group->free_ids[group->free_count++] = table->ids[g][index];
    table->ids[g][index] = LW_PAGE_NONE;
}

void lw_pages_trim(lw_page_pool *pool, lw_page_table *table, uint32_t committed)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        lw_page_group *group = &pool->groups[g];
        const uint32_t keep_end = pages_of(committed);
        while (table->end[g] > keep_end && table->end[g] > table->begin[g]) {
            page_give(group, table, g, --table->end[g]);
        }
        if (group->reach == 0 || committed < group->reach) continue;
        /* The oldest position that the row at `committed` reads. */
        const uint32_t oldest = committed - group->reach + 1;
        while (table->begin[g] < table->end[g] && (table->begin[g] + 1) * LW_PAGE_POSITIONS <= oldest) {
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

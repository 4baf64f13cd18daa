/* Page tables of lanes over the pools of one engine: which page holds which 64 positions, per reach group.
 * Host bookkeeping only; the pages themselves live on the device. Memory is taken once, when the pool is made.
 *
 * Invariants
 * 1. A page id is in one table at most, or free.
 * 2. After pages_cover(lane, end) every slot in [first kept page, end) has a page in every group.
 * 3. A group of reach R keeps a page as long as a row at the committed position or later may read it.
 */
#ifndef LW_LANE_PAGES_H
#define LW_LANE_PAGES_H

#include "device/device.h"

typedef struct lw_page_group {
    uint32_t reach;              /* 0: everything */
    uint32_t count;              /* pages in the pool */
    uint32_t *free_ids;          /* [count], a stack */
    uint32_t free_count;
} lw_page_group;

typedef struct lw_page_pool {
    lw_page_group groups[LW_PLAN_REACHES_MAX];
    uint32_t group_count;
    uint32_t table_pages;        /* entries of one lane's table: its context in pages */
} lw_page_pool;

/* One lane's tables; made for one pool. */
typedef struct lw_page_table {
    uint32_t *ids[LW_PLAN_REACHES_MAX];    /* [table_pages]; LW_PAGE_NONE where there is no page */
    uint32_t begin[LW_PLAN_REACHES_MAX];   /* first page index still held */
    uint32_t end[LW_PLAN_REACHES_MAX];     /* one past the last page index held */
} lw_page_table;

/* Pages of one group that a lane of this context needs at most, with windows of rows_max open rows. Pure. */
uint32_t lw_pages_needed(uint32_t reach, uint32_t context, uint32_t rows_max);

lw_status lw_page_pool_init(lw_page_pool *pool, const lw_plan *plan, uint32_t lanes, uint32_t context,
                            uint32_t rows_max, lw_diag *d) LW_MUST_USE;
void lw_page_pool_deinit(lw_page_pool *pool);

lw_status lw_page_table_init(lw_page_table *table, const lw_page_pool *pool, lw_diag *d) LW_MUST_USE;
void lw_page_table_deinit(lw_page_table *table);

/* Takes pages so that slots below end have one. LW_NO_ROOM: nothing was taken. */
lw_status lw_pages_cover(lw_page_pool *pool, lw_page_table *table, uint32_t end, lw_diag *d) LW_MUST_USE;

/* Gives back what no row at `committed` or later can read, and what lies past `committed`'s own page. */
void lw_pages_trim(lw_page_pool *pool, lw_page_table *table, uint32_t committed);

/* Gives back everything. */
void lw_pages_clear(lw_page_pool *pool, lw_page_table *table);

#endif

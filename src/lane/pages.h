/* Pages: which page of a pool holds which 64 positions, per reach group, and who holds the page. Lanes and
 * prefix entries share pages by reference; host bookkeeping only, the pages themselves live on the device.
 * Memory is taken once, when the pool and its tables are made.
 *
 * Invariants
 * 1. A page is free, or at least one lane or entry holds it; free and held pages together are the pool.
 * 2. After lw_pages_cover(lane, end) every slot in [first kept page, end) has a page in every group.
 * 3. A group of reach R keeps a page as long as a row at the committed position or later may read it.
 * 4. Slots of a page below its seal (the highest mark that was published in it) are never written again, and
 * a page that is written is held by one lane only: lw_pages_may_write asks both.
 * 5. In a group of anchors the first slot of a page stands for all of it: the row at that position makes the
 * page, later rows read it. So such pages are shared whole, also the one that an entry's position lies in.
 */
#ifndef LW_LANE_PAGES_H
#define LW_LANE_PAGES_H

#include "device/device.h"

typedef struct lw_page_group {
    uint32_t reach;              /* 0: everything */
    bool is_anchor;              /* one write makes a page: plan->reach_is_anchor */
    uint32_t count;              /* pages in the pool */
    uint32_t *free_ids;          /* [count], a stack */
    uint32_t free_count;
    uint32_t *lane_refs;         /* [count] lanes that hold the page */
    uint32_t *entry_refs;        /* [count] prefix entries that hold it */
    uint8_t *seals;              /* [count] slots of the page below a published mark */
    uint32_t lane_held;          /* pages with a lane reference, each counted once */
    uint32_t entry_held;         /* pages with an entry reference, each counted once */
} lw_page_group;

typedef struct lw_page_pool {
    lw_page_group groups[LW_PLAN_REACHES_MAX];
    uint32_t group_count;
    uint32_t table_pages;        /* entries of one table: a context in pages */
} lw_page_pool;

/* The tables of one lane or one prefix entry; made for one pool. */
typedef struct lw_page_table {
    uint32_t *ids[LW_PLAN_REACHES_MAX];    /* [table_pages]; LW_PAGE_NONE where there is no page */
    uint32_t begin[LW_PLAN_REACHES_MAX];   /* first page index still held */
    uint32_t end[LW_PLAN_REACHES_MAX];     /* one past the last page index held */
} lw_page_table;

/* Pages that hold this many positions from 0 on. */
uint32_t lw_pages_of(uint32_t positions);

/* Index of the first page that a row at `position` or later reads in a group of this reach. */
uint32_t lw_pages_first(uint32_t reach, uint32_t position);

/* Pages of one group that a lane of this context needs at most, with windows of rows_max open rows. Pure. */
uint32_t lw_pages_needed(uint32_t reach, uint32_t context, uint32_t rows_max);

/* Pools of given sizes, for lanes of this context. */
lw_status lw_page_pool_init_counts(lw_page_pool *pool, const lw_plan *plan, const uint32_t *counts,
                                   uint32_t context, lw_diag *d) LW_MUST_USE;
void lw_page_pool_deinit(lw_page_pool *pool);

lw_status lw_page_table_init(lw_page_table *table, const lw_page_pool *pool, lw_diag *d) LW_MUST_USE;
void lw_page_table_deinit(lw_page_table *table);

/* ---- lanes ---- */

/* Takes pages so that slots below end have one. LW_NO_ROOM: nothing was taken. */
lw_status lw_pages_cover(lw_page_pool *pool, lw_page_table *table, uint32_t end, lw_diag *d) LW_MUST_USE;

/* Pages of group g that lw_pages_cover would take. */
uint32_t lw_pages_wanted(const lw_page_table *table, uint32_t g, uint32_t end);

/* Gives back what no row at `committed` or later can read, and the pages whose slots all lie from `end` on:
 * `committed`, or past the open rows. */
void lw_pages_trim(lw_page_pool *pool, lw_page_table *table, uint32_t committed, uint32_t end);

/* Gives back everything. */
void lw_pages_clear(lw_page_pool *pool, lw_page_table *table);

/* Fills an empty lane's table with what an entry at `position` holds. Its partial last page is not shared but
 * in groups of anchors: the lane gets a page of its own, and the caller copies entry page -> lane page (both
 * at index position / 64). One free page a group is there when a copy is needed. */
void lw_pages_resume(lw_page_pool *pool, lw_page_table *lane, const lw_page_table *entry, uint32_t position);
/* Whether resuming at position takes a page of the group for a copy. */
bool lw_pages_copies(const lw_page_group *group, uint32_t position);

/* Whether the lane of this table may run a row at slot: its pages are there, and those that the row writes no
 * other lane has, and no mark lies above slot in them. */
bool lw_pages_may_write(const lw_page_pool *pool, const lw_page_table *table, uint32_t slot);

/* ---- prefix entries ---- */

/* Fills an empty entry's table with what a row at `position` reads out of a lane's, and seals it there. The
 * lane has not given back anything that such a row reads. */
void lw_pages_hold(lw_page_pool *pool, lw_page_table *entry, const lw_page_table *lane, uint32_t position);
void lw_pages_drop(lw_page_pool *pool, lw_page_table *entry);

#endif

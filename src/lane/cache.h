/* Prefix entries: what an earlier stream left behind that a later prompt may resume from. Owned by the core's
 * thread.
 *
 * An entry at position p is the ids of [0, p) and references to every page that a row at p reads, in every
 * reach group: keys and values, the tails of convolutions, a recurrence's steps and its anchor, a draft
 * head's share of each. Entries form a tree by their ids.
 *
 * Invariants
 * 1. An entry keeps no page from a lane that was promised it: whoever needs pages evicts entries until there
 * are enough.
 * 2. lw_cache_bytes counts every page that entries hold once, however many hold it, and never exceeds
 * bytes_max.
 * 3. parent is the longest entry whose ids are a proper prefix; no two entries have the same ids.
 * 4. An entry that lacks any component is not found.
 */
#ifndef LW_LANE_CACHE_H
#define LW_LANE_CACHE_H

#include "lane/pages.h"

enum { LW_CACHE_NONE = -1 };

typedef struct lw_cache_entry {
    bool is_used;
    uint32_t position;
    int32_t *ids;                /* [context] */
    lw_page_table pages;
    int32_t parent;              /* entry index or LW_CACHE_NONE */
    uint64_t last_use;           /* the cache's count of uses, no clock */
    uint64_t turn;               /* which request published it */
} lw_cache_entry;

typedef struct lw_cache_counts {
    uint64_t hits, misses, kept, evicted, refused;
} lw_cache_counts;

typedef struct lw_cache {
    lw_page_pool *pool;
    lw_cache_entry *entries;     /* [entry_max] */
    uint32_t entry_max;
    uint64_t page_bytes[LW_PLAN_REACHES_MAX];
    uint64_t bytes_max;
    uint64_t uses;
    lw_cache_counts counts;
} lw_cache;

/* Borrows pool. bytes_max 0 or entry_max 0: keeps nothing. */
lw_status lw_cache_init(lw_cache *cache, lw_page_pool *pool, const uint64_t *page_bytes, uint64_t bytes_max,
                        uint32_t entry_max, lw_diag *d) LW_MUST_USE;
void lw_cache_deinit(lw_cache *cache);

/* Bytes of the pages that entries hold. */
uint64_t lw_cache_bytes(const lw_cache *cache);
uint32_t lw_cache_entries(const lw_cache *cache);

/* The longest complete entry that is a prefix of ids[0, count) and shorter than it; LW_CACHE_NONE. Pure. */
int32_t lw_cache_find(const lw_cache *cache, const int32_t *ids, uint32_t count);

/* Marks an entry and what it extends as used now: a prefix is as recent as the latest of what hangs on it. */
void lw_cache_touch(lw_cache *cache, int32_t entry);

/* Keeps ids[0, position) and what lane holds for it; evicts others for the budget.
 * Refuses (false) what is larger than the whole budget. An entry with the same ids is touched instead. */
bool lw_cache_publish(lw_cache *cache, const int32_t *ids, uint32_t position, const lw_page_table *lane,
                      uint64_t turn);

/* Which entry goes first: one that a longer entry extends, is no shared prefix and not of its conversation's
 * last two turns; else the least recently used. Of equally recent ones: what one longer entry extends, the
 * longest of them; then what nothing extends; a shared prefix last. `spared` never goes. LW_CACHE_NONE:
 * nothing is left. Pure. */
int32_t lw_cache_victim(const lw_cache *cache, int32_t spared);

/* Drops one entry. */
void lw_cache_drop(lw_cache *cache, int32_t entry);

/* Evicts entries, never `spared`, until group g has count free pages; false when that is not enough. */
bool lw_cache_yield(lw_cache *cache, uint32_t g, uint32_t count, int32_t spared);

/* Rows between two entries of a long prompt: as many as have keys and values of the weight of one recurrent
 * state, in whole pages; `usual` for a plan without recurrences. */
uint32_t lw_cache_mark_rows(const lw_plan *plan, uint32_t usual);

#endif

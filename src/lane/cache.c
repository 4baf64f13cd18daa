/* Prefix entries; see cache.h. */
#include "lane/cache.h"

#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS_KEPT = 2 };

lw_status lw_cache_init(lw_cache *cache, lw_page_pool *pool, const uint64_t *page_bytes, uint64_t bytes_max,
                        uint32_t entry_max, lw_diag *d)
{
    const uint32_t context = pool->table_pages * LW_PAGE_POSITIONS;
    *cache = (lw_cache){ .pool = pool, .bytes_max = bytes_max };
    memcpy(cache->page_bytes, page_bytes, pool->group_count * sizeof *page_bytes);
    if (bytes_max == 0 || entry_max == 0) return LW_OK;
    lw_status status = LW_OK;
    cache->entries = calloc(entry_max, sizeof *cache->entries);
    if (cache->entries == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u prefix entries", entry_max);
    for (; status == LW_OK && cache->entry_max < entry_max; cache->entry_max++) {
        lw_cache_entry *entry = &cache->entries[cache->entry_max];
        entry->ids = calloc(context, sizeof *entry->ids);
        if (entry->ids == NULL)
            status = lw_fail(d, LW_NO_ROOM, "no memory for prefix entries of %u ids", context);
        if (status == LW_OK) status = lw_page_table_init(&entry->pages, pool, d);
    }
    if (status != LW_OK) lw_cache_deinit(cache);
    return status;
}

void lw_cache_deinit(lw_cache *cache)
{
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        if (cache->entries[i].is_used) lw_pages_drop(cache->pool, &cache->entries[i].pages);
        lw_page_table_deinit(&cache->entries[i].pages);
        free(cache->entries[i].ids);
    }
    free(cache->entries);
    *cache = (lw_cache){ 0 };
}

uint64_t lw_cache_bytes(const lw_cache *cache)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; cache->entry_max > 0 && g < cache->pool->group_count; g++) {
        bytes += cache->page_bytes[g] * cache->pool->groups[g].entry_held;
    }
    return bytes;
}

uint32_t lw_cache_entries(const lw_cache *cache)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cache->entry_max; i++) count += cache->entries[i].is_used;
    return count;
}

/* ---- finding ---- */

static bool is_prefix(const lw_cache_entry *entry, const int32_t *ids, uint32_t count)
{
    return entry->is_used && entry->position <= count &&
           memcmp(entry->ids, ids, entry->position * sizeof *ids) == 0;
}

static bool is_complete(const lw_cache *cache, const lw_cache_entry *entry)
{
    for (uint32_t g = 0; g < cache->pool->group_count; g++) {
        const lw_page_table *pages = &entry->pages;
        if (pages->begin[g] > lw_pages_first(cache->pool->groups[g].reach, entry->position)) return false;
        if (pages->end[g] < lw_pages_of(entry->position)) return false;
        for (uint32_t i = pages->begin[g]; i < pages->end[g]; i++) {
            if (pages->ids[g][i] == LW_PAGE_NONE) return false;
        }
    }
    return true;
}

/* The longest entry that is a prefix of ids[0, count), count itself included. */
static int32_t longest(const lw_cache *cache, const int32_t *ids, uint32_t count, bool only_complete)
{
    int32_t best = LW_CACHE_NONE;
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        const lw_cache_entry *entry = &cache->entries[i];
        if (best != LW_CACHE_NONE && entry->position <= cache->entries[best].position) continue;
        if (!is_prefix(entry, ids, count)) continue;
        if (!only_complete || is_complete(cache, entry)) best = (int32_t)i;
    }
    return best;
}

int32_t lw_cache_find(const lw_cache *cache, const int32_t *ids, uint32_t count)
{
    return count == 0 ? LW_CACHE_NONE : longest(cache, ids, count - 1, true);
}

void lw_cache_touch(lw_cache *cache, int32_t entry)
{
    cache->uses++;
    for (; entry != LW_CACHE_NONE; entry = cache->entries[entry].parent) {
        LW_ASSERT(cache->entries[entry].is_used);
        cache->entries[entry].last_use = cache->uses;
    }
}

/* ---- eviction ---- */

static uint32_t child_count(const lw_cache *cache, int32_t entry)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        count += cache->entries[i].is_used && cache->entries[i].parent == entry;
    }
    return count;
}

/* The only child; the entry has one. */
static int32_t child_of(const lw_cache *cache, int32_t entry)
{
    int32_t child = 0;
    while (!cache->entries[child].is_used || cache->entries[child].parent != entry) child++;
    return child;
}

/* Whether entry belongs to one of the newest turns of the conversation that extends it: down the tree, as
 * long as there is one way to go, fewer than two other turns published something longer. */
static bool is_recent_turn(const lw_cache *cache, int32_t entry)
{
    uint32_t newer_turns = 0;
    uint64_t turn = cache->entries[entry].turn;
    while (child_count(cache, entry) == 1) {
        entry = child_of(cache, entry);
        if (cache->entries[entry].turn != turn) newer_turns++;
        turn = cache->entries[entry].turn;
    }
    return newer_turns < TURNS_KEPT;
}

/* What tells the victim; a lower one goes first. */
typedef struct standing {
    bool is_superseded;    /* later turns of its own conversation stand for it */
    uint64_t last_use;
    uint32_t role;         /* of equally recent ones: extended by one, then a leaf, then a shared prefix */
    uint32_t position;     /* of equals still, the longer goes: what is more general is of more use */
} standing;

static standing standing_of(const lw_cache *cache, int32_t entry)
{
    const uint32_t children = child_count(cache, entry);
    return (standing){ .is_superseded = children == 1 && !is_recent_turn(cache, entry),
                       .last_use = cache->entries[entry].last_use,
                       .role = children == 1 ? 0 : children == 0 ? 1 : 2,
                       .position = cache->entries[entry].position };
}

static bool goes_before(const standing *a, const standing *b)
{
    if (a->is_superseded != b->is_superseded) return a->is_superseded;
    if (a->last_use != b->last_use) return a->last_use < b->last_use;
    if (a->role != b->role) return a->role < b->role;
    return a->position > b->position;
}

int32_t lw_cache_victim(const lw_cache *cache, int32_t spared)
{
    int32_t victim = LW_CACHE_NONE;
    standing first = { 0 };
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        if (!cache->entries[i].is_used || (int32_t)i == spared) continue;
        const standing own = standing_of(cache, (int32_t)i);
        if (victim != LW_CACHE_NONE && !goes_before(&own, &first)) continue;
        victim = (int32_t)i;
        first = own;
    }
    return victim;
}

void lw_cache_drop(lw_cache *cache, int32_t entry)
{
    lw_cache_entry *dropped = &cache->entries[entry];
    LW_ASSERT(dropped->is_used);
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        if (cache->entries[i].is_used && cache->entries[i].parent == entry)
            cache->entries[i].parent = dropped->parent;
    }
    lw_pages_drop(cache->pool, &dropped->pages);
    dropped->is_used = false;
}

static bool evict_one(lw_cache *cache, int32_t spared)
{
    const int32_t victim = lw_cache_victim(cache, spared);
    if (victim == LW_CACHE_NONE) return false;
    lw_cache_drop(cache, victim);
    cache->counts.evicted++;
    return true;
}

bool lw_cache_yield(lw_cache *cache, uint32_t g, uint32_t count, int32_t spared)
{
    while (cache->pool->groups[g].free_count < count) {
        if (!evict_one(cache, spared)) return false;
    }
    return true;
}

/* ---- publishing ---- */

static uint64_t entry_bytes(const lw_cache *cache, uint32_t position)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < cache->pool->group_count; g++) {
        const uint32_t first = lw_pages_first(cache->pool->groups[g].reach, position);
        bytes += cache->page_bytes[g] * (lw_pages_of(position) - first);
    }
    return bytes;
}

static int32_t free_entry(lw_cache *cache)
{
    for (;;) {
        for (uint32_t i = 0; i < cache->entry_max; i++) {
            if (!cache->entries[i].is_used) return (int32_t)i;
        }
        LW_ASSERT(evict_one(cache, LW_CACHE_NONE));
    }
}

/* Hangs the new entry between its longest prefix and the entries that extend it. */
static void entry_link(lw_cache *cache, int32_t at)
{
    lw_cache_entry *entry = &cache->entries[at];
    entry->parent = longest(cache, entry->ids, entry->position - 1, false);
    for (uint32_t i = 0; i < cache->entry_max; i++) {
        lw_cache_entry *other = &cache->entries[i];
        if ((int32_t)i == at || !other->is_used || other->parent != entry->parent) continue;
        if (other->position > entry->position && is_prefix(entry, other->ids, other->position))
            other->parent = at;
    }
}

bool lw_cache_publish(lw_cache *cache, const int32_t *ids, uint32_t position, const lw_page_table *lane,
                      uint64_t turn)
{
    if (cache->entry_max == 0 || position == 0) return false;
    const int32_t same = longest(cache, ids, position, false);
    const bool is_known = same != LW_CACHE_NONE && cache->entries[same].position == position;
    if (is_known && is_complete(cache, &cache->entries[same])) {
        lw_cache_touch(cache, same);
        return true;
    }
    if (is_known) lw_cache_drop(cache, same);
    if (entry_bytes(cache, position) > cache->bytes_max) {
        cache->counts.refused++;
        return false;
    }
    const int32_t at = free_entry(cache);
    lw_cache_entry *entry = &cache->entries[at];
    *entry = (lw_cache_entry){
        .is_used = true, .position = position, .ids = entry->ids, .pages = entry->pages, .turn = turn
    };
    memcpy(entry->ids, ids, position * sizeof *ids);
    lw_pages_hold(cache->pool, &entry->pages, lane, position);
    entry_link(cache, at);
    lw_cache_touch(cache, at);
    cache->counts.kept++;
    while (lw_cache_bytes(cache) > cache->bytes_max) LW_ASSERT(evict_one(cache, at));
    return true;
}

uint32_t lw_cache_mark_rows(const lw_plan *plan, uint32_t usual)
{
    uint64_t state_bytes = 0, page_bytes = 0;
    bool recurs = false;
    for (uint32_t i = 0; i < plan->state_count; i++) {
        const lw_state *state = &plan->states[i];
        const bool is_anchor = state->kind == LW_STATE_ANCHOR;
        recurs = recurs || is_anchor;
        if (is_anchor || state->kind == LW_STATE_STEPS) state_bytes += lw_state_page_bytes(state);
        if (state->reach == 0) page_bytes += lw_state_page_bytes(state);
    }
    if (!recurs || page_bytes == 0) return usual;
    const uint64_t pages = state_bytes / page_bytes + (state_bytes % page_bytes != 0);
    return pages < LW_LIMIT_CONTEXT / LW_PAGE_POSITIONS ? (uint32_t)pages * LW_PAGE_POSITIONS
                                                        : LW_LIMIT_CONTEXT;
}

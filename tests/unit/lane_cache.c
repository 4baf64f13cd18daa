/* Prefix entries: the longest match, what is a miss, who is evicted first, that a page is charged once, and
 * that pages are neither lost nor given away while somebody holds them.
 */
#include "lane/cache.h"

#include "base/rng.h"
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 1024, PAGES = 200, ENTRIES = 8, REACH = 100 };

typedef struct bench {
    lw_plan plan;
    lw_page_pool pool;
    lw_page_table lane;
    lw_cache cache;
    int32_t ids[CONTEXT];
} bench;

static void bench_open(bench *b, uint64_t bytes_max)
{
    static const uint32_t counts[] = { PAGES, PAGES };
    static const uint64_t page_bytes[] = { 10, 1 };
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    lw_plan_state_kv(&b->plan, "full", 1, 8, 0);
    lw_plan_state_kv(&b->plan, "sliding", 1, 8, REACH);
    assert_int_equal(lw_page_pool_init_counts(&b->pool, &b->plan, counts, CONTEXT, NULL), LW_OK);
    assert_int_equal(lw_page_table_init(&b->lane, &b->pool, NULL), LW_OK);
    assert_int_equal(lw_cache_init(&b->cache, &b->pool, page_bytes, bytes_max, ENTRIES, NULL), LW_OK);
    for (int32_t i = 0; i < CONTEXT; i++) b->ids[i] = i;
}

/* Every page must come back once lanes and entries are gone. */
static void bench_close(bench *b)
{
    lw_pages_clear(&b->pool, &b->lane);
    lw_cache_deinit(&b->cache);
    for (uint32_t g = 0; g < 2; g++) assert_int_equal(b->pool.groups[g].free_count, PAGES);
    lw_page_table_deinit(&b->lane);
    lw_page_pool_deinit(&b->pool);
    lw_plan_deinit(&b->plan);
}

/* A lane walks to position and publishes there; *lane keeps its pages. */
static void publish(bench *b, uint32_t position, uint64_t turn)
{
    assert_int_equal(lw_pages_cover(&b->pool, &b->lane, position, NULL), LW_OK);
    assert_true(lw_cache_publish(&b->cache, b->ids, position, &b->lane, turn));
    lw_pages_trim(&b->pool, &b->lane, position, position);
}

static uint32_t found(const bench *b, const int32_t *ids, uint32_t count)
{
    const int32_t entry = lw_cache_find(&b->cache, ids, count);
    return entry == LW_CACHE_NONE ? 0 : b->cache.entries[entry].position;
}

/* The lane starts over with other ids from `from` on. */
static void branch(bench *b, uint32_t from, int32_t mark)
{
    lw_pages_clear(&b->pool, &b->lane);
    for (uint32_t i = from; i < CONTEXT; i++) b->ids[i] = mark + (int32_t)i;
}

static void the_longest_match_is_found(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    publish(&b, 10, 1);
    publish(&b, 64, 1);
    publish(&b, 130, 1);
    assert_int_equal(found(&b, b.ids, 500), 130);
    assert_int_equal(found(&b, b.ids, 131), 130);
    assert_int_equal(found(&b, b.ids, 130), 64);  /* the last prompt row is always computed */
    assert_int_equal(found(&b, b.ids, 10), 0);
    assert_int_equal(found(&b, b.ids, 0), 0);
    int32_t other[CONTEXT];
    memcpy(other, b.ids, sizeof other);
    other[100] = 7777;
    assert_int_equal(found(&b, other, 500), 64);  /* an edited last turn */
    other[9] = 7777;
    assert_int_equal(found(&b, other, 500), 0);
    assert_int_equal(b.cache.entries[lw_cache_find(&b.cache, b.ids, 500)].parent,
                     lw_cache_find(&b.cache, b.ids, 130));
    bench_close(&b);
}

static void an_entry_without_a_page_is_a_miss(void **state)
{
    (void)state;
    for (uint32_t g = 0; g < 2; g++) {
        bench b;
        bench_open(&b, 1 << 20);
        publish(&b, 64, 1);
        publish(&b, 300, 1);
        assert_int_equal(found(&b, b.ids, 500), 300);
        lw_cache_entry *entry = &b.cache.entries[lw_cache_find(&b.cache, b.ids, 500)];
        const uint32_t id = entry->pages.ids[g][4];
        entry->pages.ids[g][4] = LW_PAGE_NONE;
        assert_int_equal(found(&b, b.ids, 500), 64);
        publish(&b, 300, 2); /* the whole one takes its place */
        assert_int_equal(found(&b, b.ids, 500), 300);
        assert_int_equal(lw_cache_entries(&b.cache), 2);
        b.pool.groups[g].entry_refs[id]--; /* the reference that this test took out of the table */
        bench_close(&b);
    }
}

static void a_page_is_charged_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    publish(&b, 64, 1);
    assert_true(lw_cache_bytes(&b.cache) == 10 + 1);
    publish(&b, 130, 1);
    assert_true(lw_cache_bytes(&b.cache) == 30 + 3);
    publish(&b, 150, 1);                                    /* the same last page, further on */
    assert_true(lw_cache_bytes(&b.cache) == 30 + 3);
    publish(&b, 320, 1);                                    /* sliding: pages from 221 / 64 on are new */
    assert_true(lw_cache_bytes(&b.cache) == 50 + 5);
    assert_int_equal(lw_cache_entries(&b.cache), 4);
    publish(&b, 320, 2);                                    /* the same ids again */
    assert_int_equal(lw_cache_entries(&b.cache), 4);
    bench_close(&b);
}

static void what_does_not_fit_is_refused_and_evicts_nobody(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 40);
    publish(&b, 64, 1);
    assert_int_equal(lw_pages_cover(&b.pool, &b.lane, 400, NULL), LW_OK);
    assert_false(lw_cache_publish(&b.cache, b.ids, 400, &b.lane, 1));
    assert_int_equal(b.cache.counts.refused, 1);
    assert_int_equal(found(&b, b.ids, 500), 64);
    bench_close(&b);
}

static void the_budget_holds(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 70);
    for (int32_t turn = 1; turn < 20; turn++) {
        branch(&b, 0, turn * 10000);
        publish(&b, 100, (uint64_t)turn);
        assert_true(lw_cache_bytes(&b.cache) <= 70);
        assert_int_equal(found(&b, b.ids, 200), 100);       /* the newest is never the victim */
    }
    assert_int_equal(lw_cache_entries(&b.cache), 3);        /* 22 bytes each */
    assert_int_equal(b.cache.counts.evicted, 16);
    bench_close(&b);
}

static void victims_are(bench *b, const uint32_t *want, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const int32_t victim = lw_cache_victim(&b->cache, LW_CACHE_NONE);
        assert_int_equal(b->cache.entries[victim].position, want[i]);
        lw_cache_drop(&b->cache, victim);
    }
    assert_int_equal(lw_cache_victim(&b->cache, LW_CACHE_NONE), LW_CACHE_NONE);
}

/* A conversation of four turns beside an older single prompt: who goes, one by one. Superseded turns go
 * before anything; a recent one is extended too, but it is what the next prompt resumes from if the reply is
 * edited, so the older prompt goes before it. */
static void superseded_turns_go_before_the_oldest(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    publish(&b, 90, 1);                                     /* an old prompt that nothing extends */
    branch(&b, 0, 50000);
    for (uint32_t turn = 2; turn < 6; turn++) publish(&b, turn * 64, turn);
    victims_are(&b, (uint32_t[]){ 3 * 64, 2 * 64, 90, 4 * 64, 5 * 64 }, 5);
    bench_close(&b);
}

/* Each request leaves the mark before its generation prompt and the end of its reply, which extends it. */
static void of_equally_recent_ones_the_extended_goes_first(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    for (uint32_t turn = 1; turn < 4; turn++) {
        branch(&b, 0, 10000 * (int32_t)turn);
        publish(&b, 100 + turn, turn);
        publish(&b, 200 + turn, turn);
    }
    branch(&b, 0, 10000);
    lw_cache_touch(&b.cache, lw_cache_find(&b.cache, b.ids, 102));  /* the first mark alone is resumed */
    victims_are(&b, (uint32_t[]){ 201, 102, 202, 103, 203, 101 }, 6);
    bench_close(&b);
}

/* A mark stays findable however many stale replies fill the budget. Its pages are those of the reply that
 * extends it, so that dropping it would make no room at all. */
static void a_fresh_mark_outlives_stale_leaves(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 125);
    for (uint32_t turn = 1; turn < 5 * ENTRIES; turn++) {
        branch(&b, 0, 10000 * (int32_t)turn);
        publish(&b, 100, turn);
        publish(&b, 200, turn);
        b.ids[100] = -1;                                    /* another reply's prompt */
        assert_int_equal(found(&b, b.ids, 300), 100);
    }
    assert_int_equal(lw_cache_entries(&b.cache), 4);        /* two pairs of 44 bytes */
    bench_close(&b);
}

static void shared_prefixes_outlive_what_hangs_on_them(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    publish(&b, 64, 1);
    publish(&b, 200, 1);
    branch(&b, 100, 70000);
    publish(&b, 210, 2);
    lw_cache_touch(&b.cache, lw_cache_find(&b.cache, b.ids, 400));
    for (int i = 0; i < 2; i++) {
        const int32_t victim = lw_cache_victim(&b.cache, LW_CACHE_NONE);
        assert_true(b.cache.entries[victim].position != 64);
        lw_cache_drop(&b.cache, victim);
        if (i == 0) break; /* with one continuation left it is no shared prefix any more */
    }
    assert_int_equal(lw_cache_entries(&b.cache), 2);
    bench_close(&b);
}

static void yielding_frees_pages_that_lanes_do_not_hold(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, 1 << 20);
    publish(&b, 640, 1);                                    /* its pages are the lane's as well */
    branch(&b, 0, 30000);
    publish(&b, 700, 2);
    assert_int_equal(b.pool.groups[0].free_count, PAGES - 10 - 11);
    assert_true(lw_cache_yield(&b.cache, 0, PAGES - 11, LW_CACHE_NONE));
    assert_int_equal(b.pool.groups[0].free_count, PAGES - 11);
    assert_false(lw_cache_yield(&b.cache, 0, PAGES, LW_CACHE_NONE));
    assert_int_equal(lw_cache_entries(&b.cache), 0);
    bench_close(&b);
}

/* A resumer shares whole pages, has a last page of its own, and may write from the mark on; the owner may go
 * on too. */
static void a_resumer_never_writes_below_a_mark(void **state)
{
    (void)state;
    bench b;
    lw_page_table second;
    bench_open(&b, 1 << 20);
    assert_int_equal(lw_page_table_init(&second, &b.pool, NULL), LW_OK);
    publish(&b, 150, 1);
    const lw_cache_entry *entry = &b.cache.entries[lw_cache_find(&b.cache, b.ids, 500)];
    lw_pages_resume(&b.pool, &second, &entry->pages, 150);
    assert_int_equal(second.ids[0][1], entry->pages.ids[0][1]);
    assert_true(second.ids[0][2] != entry->pages.ids[0][2]);
    assert_false(lw_pages_may_write(&b.pool, &b.lane, 149));
    assert_true(lw_pages_may_write(&b.pool, &b.lane, 150));
    assert_true(lw_pages_may_write(&b.pool, &second, 150));
    assert_false(lw_pages_may_write(&b.pool, &second, 127)); /* shared with the owner */
    lw_pages_clear(&b.pool, &b.lane);
    assert_false(lw_pages_may_write(&b.pool, &second, 127)); /* and still below a mark */
    assert_false(lw_pages_may_write(&b.pool, &second, 192)); /* not there yet */
    lw_pages_clear(&b.pool, &second);
    lw_page_table_deinit(&second);
    bench_close(&b);
}

/* A state of 16 heads of 128 x 128 numbers weighs 1 MiB, a page of keys and values of 2 heads of 64 is 32
 * KiB: 32 pages and those of the steps. */
static void marks_stand_as_far_apart_as_a_state_weighs(void **state)
{
    (void)state;
    lw_plan plan;
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    lw_plan_state_kv(&plan, "sliding", 1, 8, 100);
    assert_int_equal(lw_cache_mark_rows(&plan, 1000), 1000);
    lw_plan_recurrence(&plan, "r", (lw_heads){ 1, 128 }, (lw_heads){ 16, 128 });
    assert_int_equal(lw_cache_mark_rows(&plan, 1000), 1000); /* nothing grows with the rows */
    lw_plan_state_kv(&plan, "full", 2, 64, 0);
    const uint64_t steps = (128 + 16 * 128 + 16) * 64 * 4, kv = 32768;
    assert_int_equal(lw_cache_mark_rows(&plan, 1000), (32 + (steps + kv - 1) / kv) * 64);
    for (uint32_t i = 0; i < 50; i++) lw_plan_state_kv(&plan, "more", 8, 256, 0);
    assert_int_equal(lw_cache_mark_rows(&plan, 1000), 64);
    lw_plan_deinit(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_match_is_found),
        cmocka_unit_test(an_entry_without_a_page_is_a_miss),
        cmocka_unit_test(a_page_is_charged_once),
        cmocka_unit_test(what_does_not_fit_is_refused_and_evicts_nobody),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(superseded_turns_go_before_the_oldest),
        cmocka_unit_test(of_equally_recent_ones_the_extended_goes_first),
        cmocka_unit_test(a_fresh_mark_outlives_stale_leaves),
        cmocka_unit_test(shared_prefixes_outlive_what_hangs_on_them),
        cmocka_unit_test(yielding_frees_pages_that_lanes_do_not_hold),
        cmocka_unit_test(a_resumer_never_writes_below_a_mark),
        cmocka_unit_test(marks_stand_as_far_apart_as_a_state_weighs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

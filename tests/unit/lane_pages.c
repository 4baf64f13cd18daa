/* Page tables: what is covered, what is given back and when, and what a full pool says. */
#include "pool_made.h"
#include "lane/pages.h"

#include "base/rng.h"
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 2048, ROWS_MAX = 128 };

static void plan_of(lw_plan *plan, uint32_t reach)
{
    assert_int_equal(lw_plan_init(plan, NULL), LW_OK);
    lw_plan_state_kv(plan, "full", 1, 8, 0);
    lw_plan_state_kv(plan, "sliding", 1, 8, reach);
    lw_plan_state_tail(plan, "conv", 8, 7);
}

static void needed_counts_both_ragged_ends(void **state)
{
    (void)state;
    assert_int_equal(lw_pages_needed(0, 2048, 128), 32);
    assert_int_equal(lw_pages_needed(0, 2049, 128), 33);
    assert_int_equal(lw_pages_needed(7, 2048, 1), 2);
    assert_int_equal(lw_pages_needed(256, 2048, 128), 7);
    assert_int_equal(lw_pages_needed(2, 2048, 64), 2); /* from 63 to 127, or from 0 to 64 */
    assert_int_equal(lw_pages_needed(2, 2048, 65), 3);
    assert_int_equal(lw_pages_needed(4096, 2048, 128), 32); /* never more than the context */
}

/* Every page id is in the table once or free once. */
static void assert_conserved(const lw_page_pool *pool, const lw_page_table *table)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        uint8_t seen[256] = { 0 };
        assert_true(pool->groups[g].count <= sizeof seen);
        for (uint32_t i = 0; i < pool->groups[g].free_count; i++) seen[pool->groups[g].free_ids[i]]++;
        for (uint32_t i = 0; i < pool->table_pages; i++) {
            const bool held = i >= table->begin[g] && i < table->end[g];
            assert_int_equal(held, table->ids[g][i] != LW_PAGE_NONE);
            if (held) seen[table->ids[g][i]]++;
        }
        for (uint32_t i = 0; i < pool->groups[g].count; i++) assert_int_equal(seen[i], 1);
    }
}

/* Everything that the row at `committed` and rows_max open rows after it read or write has a page. */
static bool all_reachable(const lw_page_pool *pool, const lw_page_table *table, uint32_t committed,
                          uint32_t end)
{
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const uint32_t reach = pool->groups[g].reach;
        const uint32_t oldest = reach == 0 || committed < reach ? 0 : committed - reach + 1;
        for (uint32_t p = oldest; p < end; p++) {
            if (table->ids[g][p / LW_PAGE_POSITIONS] == LW_PAGE_NONE) return false;
        }
    }
    return true;
}

static void random_walks_keep_what_rows_can_read(void **state)
{
    (void)state;
    const uint64_t seed = 20;
    print_message("seed %llu\n", (unsigned long long)seed);
    lw_rng rng = lw_rng_make(seed);
    for (uint32_t round = 0; round < 50; round++) {
        lw_plan plan;
        plan_of(&plan, 1 + (uint32_t)lw_rng_below(&rng, 300));
        lw_page_pool pool;
        lw_page_table table;
        assert_int_equal(pool_made(&pool, &plan, 1, CONTEXT, ROWS_MAX), LW_OK);
        assert_int_equal(lw_page_table_init(&table, &pool, NULL), LW_OK);
        uint32_t committed = 0;
        while (committed < CONTEXT) {
            uint32_t rows = 1 + (uint32_t)lw_rng_below(&rng, ROWS_MAX);
            if (rows > CONTEXT - committed) rows = CONTEXT - committed;
            assert_int_equal(lw_pages_cover(&pool, &table, committed + rows, NULL), LW_OK);
            assert_true(all_reachable(&pool, &table, committed, committed + rows));
            committed += (uint32_t)lw_rng_below(&rng, rows + 1);
            lw_pages_trim(&pool, &table, committed, committed);
            assert_conserved(&pool, &table);
        }
        lw_pages_clear(&pool, &table);
        assert_conserved(&pool, &table);
        lw_page_table_deinit(&table);
        lw_page_pool_deinit(&pool);
        lw_plan_deinit(&plan);
    }
}

/* Planted control: trimming for a later position than the committed one must lose a page that is still read.
 */
static void a_trim_too_far_is_seen(void **state)
{
    (void)state;
    lw_plan plan;
    plan_of(&plan, 64);
    lw_page_pool pool;
    lw_page_table table;
    assert_int_equal(pool_made(&pool, &plan, 1, CONTEXT, ROWS_MAX), LW_OK);
    assert_int_equal(lw_page_table_init(&table, &pool, NULL), LW_OK);
    assert_int_equal(lw_pages_cover(&pool, &table, 128, NULL), LW_OK);
    lw_pages_trim(&pool, &table, 126, 126);
    assert_true(all_reachable(&pool, &table, 126, 126));
    lw_pages_trim(&pool, &table, 127, 127);
    assert_false(all_reachable(&pool, &table, 126, 126));
    lw_pages_clear(&pool, &table);
    lw_page_table_deinit(&table);
    lw_page_pool_deinit(&pool);
    lw_plan_deinit(&plan);
}

static void a_full_pool_refuses_and_takes_nothing(void **state)
{
    (void)state;
    lw_plan plan;
    plan_of(&plan, 64);
    lw_page_pool pool;
    lw_page_table one, two;
    lw_diag d = { "" };
    assert_int_equal(pool_made(&pool, &plan, 1, 256, ROWS_MAX), LW_OK);
    assert_int_equal(lw_page_table_init(&one, &pool, NULL), LW_OK);
    assert_int_equal(lw_page_table_init(&two, &pool, NULL), LW_OK);
    assert_int_equal(lw_pages_cover(&pool, &one, 64, NULL), LW_OK);
    assert_int_equal(lw_pages_cover(&pool, &two, 256, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "4 pages"));
    assert_conserved(&pool, &one);
    lw_pages_clear(&pool, &one);
    lw_page_table_deinit(&one);
    lw_page_table_deinit(&two);
    lw_page_pool_deinit(&pool);
    lw_plan_deinit(&plan);
}

/* Two lanes and an entry at 150 share the page of the anchor at 128 whole; slot by slot it is nobody's to
 * write, and the rows after it go on. The next anchor is each lane's own. */
static void an_anchor_is_shared_and_never_copied(void **state)
{
    (void)state;
    lw_plan plan;
    lw_page_pool pool;
    lw_page_table owner, entry, resumer;
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    lw_plan_recurrence(&plan, "r", (lw_heads){ 1, 8 }, (lw_heads){ 1, 8 });
    assert_int_equal(pool_made(&pool, &plan, 2, CONTEXT, ROWS_MAX), LW_OK);
    const uint32_t steps = 0, anchors = 1;
    assert_true(!pool.groups[steps].is_anchor && pool.groups[anchors].is_anchor);
    assert_int_equal(lw_page_table_init(&owner, &pool, NULL), LW_OK);
    assert_int_equal(lw_page_table_init(&entry, &pool, NULL), LW_OK);
    assert_int_equal(lw_page_table_init(&resumer, &pool, NULL), LW_OK);
    assert_int_equal(lw_pages_cover(&pool, &owner, 150, NULL), LW_OK);
    lw_pages_hold(&pool, &entry, &owner, 150);
    assert_int_equal(entry.begin[anchors], 2);
    assert_int_equal(entry.end[anchors], 3);
    assert_int_equal(entry.begin[steps],
                     1); /* the row at 192 is not near, but one at 128 would read from 64 */
    assert_true(lw_pages_copies(&pool.groups[steps], 150) && !lw_pages_copies(&pool.groups[anchors], 150));
    lw_pages_trim(&pool, &owner, 150, 150);
    lw_pages_resume(&pool, &resumer, &entry, 150);
    assert_int_equal(resumer.ids[anchors][2], owner.ids[anchors][2]);
    assert_true(resumer.ids[steps][2] != owner.ids[steps][2]);
    assert_int_equal(pool.groups[anchors].lane_held, 1);
    assert_int_equal(pool.groups[anchors].entry_held, 1);
    assert_false(lw_pages_may_write(&pool, &resumer, 128));
    assert_false(lw_pages_may_write(&pool, &owner, 149));
    assert_true(lw_pages_may_write(&pool, &owner, 150) && lw_pages_may_write(&pool, &resumer, 150));
    assert_false(lw_pages_may_write(&pool, &resumer, 192)); /* not there yet */
    assert_int_equal(lw_pages_cover(&pool, &resumer, 193, NULL), LW_OK);
    assert_true(lw_pages_may_write(&pool, &resumer, 192));
    lw_pages_trim(&pool, &resumer, 193, 193);
    assert_int_equal(resumer.begin[anchors], 3);
    lw_pages_drop(&pool, &entry);
    assert_false(lw_pages_may_write(&pool, &owner, 128)); /* a mark stays as long as the page is held */
    lw_pages_clear(&pool, &owner);
    lw_pages_clear(&pool, &resumer);
    for (uint32_t g = 0; g < 2; g++) assert_int_equal(pool.groups[g].free_count, pool.groups[g].count);
    lw_page_table_deinit(&owner);
    lw_page_table_deinit(&entry);
    lw_page_table_deinit(&resumer);
    lw_page_pool_deinit(&pool);
    lw_plan_deinit(&plan);
}

/* What rows at each committed length read and write is in the anchors' pages, and no lane holds more than two
 * beyond those that its open rows make. */
static void a_lane_holds_the_anchors_that_its_rows_read(void **state)
{
    (void)state;
    assert_int_equal(lw_pages_first(2, 64), 0);
    assert_int_equal(lw_pages_first(2, 65), 1);
    assert_int_equal(lw_pages_first(2, 128), 1);
    assert_int_equal(lw_pages_first(LW_ANCHOR_POSITIONS + 1, 128), 1);
    for (uint32_t p = 1; p < CONTEXT - 1; p++) {
        const uint32_t read = (p - 1) / LW_ANCHOR_POSITIONS, made = p / LW_ANCHOR_POSITIONS;
        assert_int_equal(lw_pages_first(2, p), read);
        assert_int_equal(lw_pages_of(p + 1), made + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needed_counts_both_ragged_ends),
        cmocka_unit_test(random_walks_keep_what_rows_can_read),
        cmocka_unit_test(a_trim_too_far_is_seen),
        cmocka_unit_test(a_full_pool_refuses_and_takes_nothing),
        cmocka_unit_test(an_anchor_is_shared_and_never_copied),
        cmocka_unit_test(a_lane_holds_the_anchors_that_its_rows_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

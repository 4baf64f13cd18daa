/* Page tables: what is covered, what is given back and when, and what a full pool says. */
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
    assert_int_equal(lw_pages_needed(256, 2048, 128), 8);
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
        assert_int_equal(lw_page_pool_init(&pool, &plan, 1, CONTEXT, ROWS_MAX, NULL), LW_OK);
        assert_int_equal(lw_page_table_init(&table, &pool, NULL), LW_OK);
        uint32_t committed = 0;
        while (committed < CONTEXT) {
            uint32_t rows = 1 + (uint32_t)lw_rng_below(&rng, ROWS_MAX);
            if (rows > CONTEXT - committed) rows = CONTEXT - committed;
            assert_int_equal(lw_pages_cover(&pool, &table, committed + rows, NULL), LW_OK);
            assert_true(all_reachable(&pool, &table, committed, committed + rows));
            committed += (uint32_t)lw_rng_below(&rng, rows + 1);
            lw_pages_trim(&pool, &table, committed);
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
    assert_int_equal(lw_page_pool_init(&pool, &plan, 1, CONTEXT, ROWS_MAX, NULL), LW_OK);
    assert_int_equal(lw_page_table_init(&table, &pool, NULL), LW_OK);
    assert_int_equal(lw_pages_cover(&pool, &table, 128, NULL), LW_OK);
    lw_pages_trim(&pool, &table, 126);
    assert_true(all_reachable(&pool, &table, 126, 126));
    lw_pages_trim(&pool, &table, 127);
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
    assert_int_equal(lw_page_pool_init(&pool, &plan, 1, 256, ROWS_MAX, NULL), LW_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needed_counts_both_ragged_ends),
        cmocka_unit_test(random_walks_keep_what_rows_can_read),
        cmocka_unit_test(a_trim_too_far_is_seen),
        cmocka_unit_test(a_full_pool_refuses_and_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

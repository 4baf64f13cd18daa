/* The row law of a whole model: a row's logits are a function of its own stream's tokens, bit for bit. The
 * shipped checkpoint on every instruction set of this CPU: any cut of a prompt, any company, any lane,
 * threads, trees. Rows are compared by a 64-bit hash of their logits' bytes; a planted control shows that the
 * check can fail.
 */
#include "base/rng.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels.h"
#include "device/device.h"
#include "family/family.h"
#include "lane/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Past the sliding window, several pages, a chunk of 512 keys and dropped pages; the long form past two
 * chunks. */
enum { CONTEXT = 1280, ROWS_MAX = 1280, LANES = 4, PROMPT_MAX = 1200, PROMPT_QUICK = 600 };

typedef struct lane {
    lw_page_table pages;
    uint32_t committed;
} lane;

typedef struct bench {
    lw_checkpoint *checkpoint;
    lw_plan plan;
    const lw_device_table *table;
    lw_device *device;
    lw_exec *exec;
    lw_page_pool pool;
    lane lanes[LANES];
    uint64_t hashes[ROWS_MAX];   /* of the last forward's rows, all wanted */
} bench;

static bool is_long(void)
{
    return getenv("LW_TEST_LONG") != NULL;
}

static uint32_t prompt_rows(void)
{
    return is_long() ? PROMPT_MAX : PROMPT_QUICK;
}

static void bench_open(bench *b, const char *isa, uint32_t threads)
{
    lw_diag d = { "" };
    const lw_family *family = NULL;
    *b = (bench){ .table = &lw_device_cpu };
    if (lw_checkpoint_open("models/lfm3-mlx4", &b->checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    if (lw_family_find(b->checkpoint, &family, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_record_options record = { .head = false };
    if (family->record(b->checkpoint, &record, &b->plan, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_device_options options = { .threads = threads, .isa = isa };
    if (b->table->open(&options, &b->device, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(lw_page_pool_init(&b->pool, &b->plan, LANES, CONTEXT, ROWS_MAX, &d), LW_OK);
    lw_exec_options exec = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX };
    for (uint32_t g = 0; g < b->pool.group_count; g++) exec.page_counts[g] = b->pool.groups[g].count;
    if (b->table->compile(b->device, &b->plan, &exec, &b->exec, &d) != LW_OK) fail_msg("%s", d.text);
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(lw_page_table_init(&b->lanes[i].pages, &b->pool, NULL), LW_OK);
    }
}

static void bench_close(bench *b)
{
    for (int i = 0; i < LANES; i++) lw_page_table_deinit(&b->lanes[i].pages);
    lw_page_pool_deinit(&b->pool);
    b->table->exec_close(b->exec);
    b->table->close(b->device);
    lw_plan_deinit(&b->plan);
    lw_checkpoint_close(b->checkpoint);
}

static uint64_t hash_row(const float *logits, uint32_t count)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3u;
    }
    return hash;
}

/* Runs rows (all wanted); pages of every lane are covered up to its largest slot. */
static void forward(bench *b, lw_row *rows, uint32_t count)
{
    lw_diag d = { "" };
    lw_batch_lane views[LANES];
    for (uint32_t r = 0; r < count; r++) {
        rows[r].wanted = true;
        const uint32_t end = rows[r].slot + 1;
        lane *l = &b->lanes[rows[r].lane];
        for (uint32_t g = 0; g < b->pool.group_count; g++) {
            if (l->pages.end[g] * LW_PAGE_POSITIONS >= end) continue;
            assert_int_equal(lw_pages_cover(&b->pool, &l->pages, end, &d), LW_OK);
        }
    }
    for (int i = 0; i < LANES; i++) {
        views[i] = (lw_batch_lane){ .committed = b->lanes[i].committed, .page_count = b->pool.table_pages };
        for (uint32_t g = 0; g < b->pool.group_count; g++) views[i].pages[g] = b->lanes[i].pages.ids[g];
    }
    const lw_batch batch = { .rows = rows, .row_count = count, .lanes = views, .lane_count = LANES };
    lw_ticket ticket;
    assert_int_equal(b->table->submit(b->exec, 0, &batch, &ticket, &d), LW_OK);
    assert_int_equal(b->table->wait(b->exec, ticket, &d), LW_OK);
    for (uint32_t r = 0; r < count; r++) {
        const float *logits;
        assert_int_equal(b->table->read_logits(b->exec, r, &logits, &d), LW_OK);
        b->hashes[r] = hash_row(logits, b->plan.vocab);
    }
}

static void commit(bench *b, uint32_t index, uint32_t kept)
{
    b->lanes[index].committed += kept;
    lw_pages_trim(&b->pool, &b->lanes[index].pages, b->lanes[index].committed);
}

static void restart(bench *b, uint32_t index)
{
    b->lanes[index].committed = 0;
    lw_pages_clear(&b->pool, &b->lanes[index].pages);
}

static uint32_t chain_rows(const bench *b, lw_row *rows, uint32_t at, uint32_t index, const int32_t *ids,
                           uint32_t count)
{
    const uint32_t committed = b->lanes[index].committed;
    for (uint32_t i = 0; i < count; i++) {
        rows[at + i] = (lw_row){ .token = ids[committed + i], .lane = index, .position = committed + i,
                                 .slot = committed + i, .parent = i == 0 ? -1 : (int32_t)(at + i - 1) };
    }
    return at + count;
}

static void random_ids(lw_rng *rng, int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) ids[i] = (int32_t)lw_rng_below(rng, 4096);
}

static uint32_t pick(lw_rng *rng, uint32_t most)
{
    static const uint32_t sizes[] = { 1, 1, 1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 257 };
    const uint32_t size = sizes[lw_rng_below(rng, sizeof sizes / sizeof sizes[0])];
    return size < most ? size : most;
}

/* The prompt in one forward on one thread: what every other way must equal. */
static void whole(bench *b, const int32_t *ids, uint32_t count, uint64_t *hashes)
{
    static lw_row rows[ROWS_MAX];
    restart(b, 0);
    chain_rows(b, rows, 0, 0, ids, count);
    forward(b, rows, count);
    memcpy(hashes, b->hashes, count * sizeof *hashes);
    restart(b, 0);
}

static void check_cuts(bench *b, lw_rng *rng, const int32_t *ids, const uint64_t *want)
{
    static lw_row rows[ROWS_MAX];
    while (b->lanes[0].committed < prompt_rows()) {
        const uint32_t first = b->lanes[0].committed;
        const uint32_t count = pick(rng, prompt_rows() - first);
        chain_rows(b, rows, 0, 0, ids, count);
        forward(b, rows, count);
        for (uint32_t i = 0; i < count; i++) assert_true(b->hashes[i] == want[first + i]);
        commit(b, 0, count - (uint32_t)lw_rng_below(rng, count)); /* often only a part is kept */
    }
    restart(b, 0);
}

static void check_company(bench *b, lw_rng *rng, int32_t ids[LANES][PROMPT_MAX],
                          uint64_t want[LANES][PROMPT_MAX])
{
    static lw_row rows[ROWS_MAX];
    const int rounds = is_long() ? 60 : 8;
    for (int round = 0; round < rounds; round++) {
        uint32_t count = 0, begin[LANES], taken[LANES];
        for (uint32_t k = 0; k < LANES; k++) {
            const uint32_t i = (k + (uint32_t)round) % LANES;
            begin[i] = count;
            taken[i] = lw_rng_below(rng, 4) == 0 ? 0 : pick(rng, prompt_rows() - b->lanes[i].committed);
            count = chain_rows(b, rows, count, i, ids[i], taken[i]);
        }
        if (count == 0) continue;
        forward(b, rows, count);
        for (uint32_t i = 0; i < LANES; i++) {
            for (uint32_t j = 0; j < taken[i]; j++) {
                assert_true(b->hashes[begin[i] + j] == want[i][b->lanes[i].committed + j]);
            }
            if (taken[i] > 0) commit(b, i, 1 + (uint32_t)lw_rng_below(rng, taken[i]));
            if (b->lanes[i].committed >= prompt_rows() - 1) restart(b, i);
        }
    }
    for (uint32_t i = 0; i < LANES; i++) restart(b, i);
}

/* A window of branches: each row equals the row of the chain that its ancestors spell. */
static void check_tree(bench *b, lw_rng *rng, const int32_t *ids, uint32_t committed)
{
    static lw_row rows[ROWS_MAX];
    enum { NODES = 12 };
    lw_row tree[NODES];
    uint64_t hashes[NODES];
    restart(b, 0);
    chain_rows(b, rows, 0, 0, ids, committed);
    forward(b, rows, committed);
    commit(b, 0, committed);
    for (int32_t i = 0; i < NODES; i++) {
        const int32_t parent = i == 0 ? -1 : (int32_t)lw_rng_below(rng, (uint64_t)i);
        tree[i] = (lw_row){ .token = (int32_t)lw_rng_below(rng, 4096), .parent = parent,
                            .position = i == 0 ? committed : tree[parent].position + 1,
                            .slot = committed + (uint32_t)i };
    }
    forward(b, tree, NODES);
    memcpy(hashes, b->hashes, sizeof hashes);
    for (int32_t i = 0; i < NODES; i++) {
        int32_t path[NODES];
        uint32_t depth = 0;
        for (int32_t at = i; at >= 0; at = tree[at].parent) path[depth++] = at;
        for (uint32_t j = 0; j < depth; j++) {
            rows[j] = (lw_row){ .token = tree[path[depth - 1 - j]].token, .position = committed + j,
                                .slot = committed + j, .parent = (int32_t)j - 1 };
        }
        forward(b, rows, depth);
        assert_true(b->hashes[depth - 1] == hashes[i]);
    }
    restart(b, 0);
}

static void the_law_holds_on(const char *isa)
{
    static int32_t ids[LANES][PROMPT_MAX];
    static uint64_t want[LANES][PROMPT_MAX], again[PROMPT_MAX];
    const uint64_t seed = 41;
    print_message("isa %s, seed %llu\n", isa, (unsigned long long)seed);
    lw_rng rng = lw_rng_make(seed);
    bench one, two;
    bench_open(&one, isa, 1);
    bench_open(&two, isa, 2);
    for (uint32_t i = 0; i < LANES; i++) {
        random_ids(&rng, ids[i], prompt_rows());
        whole(i == 0 ? &one : &two, ids[i], prompt_rows(), want[i]);
    }
    whole(&two, ids[0], prompt_rows(), again);
    assert_memory_equal(again, want[0], prompt_rows() * sizeof *again);
    for (uint32_t count = 1; count <= (is_long() ? (uint32_t)PROMPT_MAX : 100u); count += 1 + count / 3) {
        whole(&two, ids[0], count, again);
        assert_memory_equal(again, want[0], count * sizeof *again);
    }
    check_cuts(&two, &rng, ids[1], want[1]);
    if (is_long()) check_cuts(&one, &rng, ids[0], want[0]);
    check_company(&two, &rng, ids, want);
    check_tree(&two, &rng, ids[2], 1);
    check_tree(&two, &rng, ids[2], 60);
    check_tree(&two, &rng, ids[2], 510);
    /* Planted control: one token changed at position 3 must change every later row that we hash and no
     * earlier one. */
    ids[0][3] ^= 1;
    whole(&one, ids[0], 64, again);
    assert_memory_equal(again, want[0], 3 * sizeof *again);
    for (uint32_t i = 3; i < 64; i++) assert_true(again[i] != want[0][i]);
    bench_close(&one);
    bench_close(&two);
}

/* LW_TEST_ISA names one instruction set; without it each that the CPU has is tried. */
static void every_isa_keeps_the_law(void **state)
{
    (void)state;
    const char *only = getenv("LW_TEST_ISA");
    const lw_cpu_kernels *const *all = lw_cpu_available();
    for (size_t i = 0; all[i] != NULL; i++) {
        if (only == NULL || strcmp(only, all[i]->isa) == 0) the_law_holds_on(all[i]->isa);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_isa_keeps_the_law) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The row law of whole models: a row's logits are a function of its own stream's tokens, bit for bit. The
 * shipped checkpoints, with and without their draft heads, on every instruction set of this CPU: any cut of
 * a prompt, any company, any lane, threads, trees, rejected windows over anchors. A head's guesses are rows
 * like others, once the model's own rows have run. Rows are compared by a 64-bit hash of their logits' bytes;
 * a planted control shows that the check can fail.
 */
#include "../unit/pool_made.h"
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

enum { CONTEXT = 1280, ROWS_MAX = 1280, LANES = 4, PROMPT_MAX = 1200 };

/* rows: of a prompt; in long mode all go past two chunks of 512 keys. */
typedef struct subject {
    const char *dir;
    bool head;
    uint32_t rows;
    int rounds; /* of company */
} subject;

static const subject subjects[] = {
    /* Past the sliding window, several pages, a chunk of 512 keys and dropped pages. */
    { "models/lfm3-mlx4", false, 560, 5 },
    /* Past two anchors. */
    { "models/qwen35-mlx4", false, 150, 3 },   { "models/qwen35-mlx4", true, 150, 3 },
    { "models/nemotron-mlx4", false, 150, 3 }, { "models/nemotron-mlx4", true, 150, 3 },
};

/* Hashes of a row's logits and of its head's guess; 0 where there is no head. */
typedef struct bits {
    uint64_t logits, guess;
} bits;

typedef struct lane {
    lw_page_table pages;
    uint32_t committed;
} lane;

typedef struct bench {
    const subject *of;
    lw_checkpoint *checkpoint;
    lw_plan plan;
    const lw_device_table *table;
    lw_device *device;
    lw_exec *exec;
    lw_page_pool pool;
    lane lanes[LANES];
    bool recurs;
    bool skips;                  /* some rows' logits are not wanted */
    bool is_silent;              /* no logits are wanted, nor the head's rows */
    bits rows[ROWS_MAX];         /* of the last forward's wanted rows, at their place in the batch */
} bench;

static bool is_long(void)
{
    return getenv("LW_TEST_LONG") != NULL;
}

static uint32_t prompt_rows(const subject *of)
{
    return is_long() ? PROMPT_MAX : of->rows;
}

static void bench_open(bench *b, const subject *of, const char *isa, uint32_t threads)
{
    lw_diag d = { "" };
    const lw_family *family = NULL;
    *b = (bench){ .of = of, .table = &lw_device_cpu };
    if (lw_checkpoint_open(of->dir, &b->checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    if (lw_family_find(b->checkpoint, &family, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_record_options record = { .head = of->head };
    if (family->record(b->checkpoint, &record, &b->plan, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_device_options options = { .threads = threads, .isa = isa };
    assert_int_equal(b->plan.entry_count, of->head ? 2 : 1);
    if (b->table->open(&options, &b->device, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(pool_made(&b->pool, &b->plan, LANES, CONTEXT, ROWS_MAX), LW_OK);
    lw_exec_options exec = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX };
    for (uint32_t g = 0; g < b->pool.group_count; g++) {
        exec.page_counts[g] = b->pool.groups[g].count;
        b->recurs = b->recurs || b->pool.groups[g].is_anchor;
    }
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

/* Of finite logits. */
static uint64_t hash_row(const float *logits, uint32_t count)
{
    uint64_t hash = 0xCBF29CE484222325u;
    bool broken = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &logits[i], sizeof word);
        broken = broken || (word & 0x7F800000u) == 0x7F800000u;
        hash = (hash ^ word) * 0x100000001B3u;
    }
    assert_false(broken);
    return hash;
}

static void entry_run(bench *b, uint32_t entry, const lw_batch *batch)
{
    lw_diag d = { "" };
    lw_ticket ticket;
    if (b->table->submit(b->exec, entry, batch, &ticket, &d) != LW_OK) fail_msg("%s", d.text);
    if (b->table->wait(b->exec, ticket, &d) != LW_OK) fail_msg("%s", d.text);
    for (uint32_t r = 0, wanted = 0; r < batch->row_count; r++) {
        const float *logits;
        uint64_t *out = entry == LW_ENTRY_MAIN ? &b->rows[r].logits : &b->rows[r].guess;
        *out = 0;
        if (!batch->rows[r].wanted) continue;
        assert_int_equal(b->table->read_logits(b->exec, wanted++, &logits, &d), LW_OK);
        *out = hash_row(logits, b->plan.vocab);
    }
}

/* The head's rows read what the model's own wrote and write over some of it, so the model's run once more;
 * what they say then is what counts. */
static void head_run(bench *b, const lw_batch *batch)
{
    static lw_row rows[ROWS_MAX];
    memcpy(rows, batch->rows, batch->row_count * sizeof *rows);
    for (uint32_t r = 0; r < batch->row_count; r++) rows[r].wanted = false;
    lw_batch silent = *batch;
    silent.rows = rows;
    entry_run(b, LW_ENTRY_MAIN, &silent);
    entry_run(b, LW_ENTRY_HEAD, batch);
}

/* Runs rows; pages of every lane are covered up to its largest slot. */
static void forward(bench *b, lw_row *rows, uint32_t count)
{
    lw_diag d = { "" };
    lw_batch_lane views[LANES];
    for (uint32_t r = 0; r < count; r++) {
        rows[r].wanted = !b->is_silent && (!b->skips || (rows[r].position + count) % 3 != 0);
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
    if (b->of->head && !b->is_silent) head_run(b, &batch);
    entry_run(b, LW_ENTRY_MAIN, &batch);
}

/* Of the last forward, count rows from first on are those of want; what was not wanted is not asked. */
static void expect(const bench *b, const lw_row *rows, uint32_t first, uint32_t count, const bits *want)
{
    for (uint32_t i = 0; i < count; i++) {
        const bits *got = &b->rows[first + i];
        if (!rows[first + i].wanted) continue;
        if (memcmp(got, &want[i], sizeof *got) != 0) {
            fail_msg("%s%s: the row at position %u is not its own", b->of->dir,
                     got->logits == want[i].logits ? ", head" : "", rows[first + i].position);
        }
    }
}

static void commit(bench *b, uint32_t index, uint32_t kept)
{
    b->lanes[index].committed += kept;
    lw_pages_trim(&b->pool, &b->lanes[index].pages, b->lanes[index].committed,
                  b->lanes[index].committed);
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
static void whole(bench *b, const int32_t *ids, uint32_t count, bits *out)
{
    static lw_row rows[ROWS_MAX];
    restart(b, 0);
    chain_rows(b, rows, 0, 0, ids, count);
    forward(b, rows, count);
    memcpy(out, b->rows, count * sizeof *out);
    restart(b, 0);
}

static void check_cuts(bench *b, lw_rng *rng, const int32_t *ids, const bits *want)
{
    static lw_row rows[ROWS_MAX];
    const uint32_t end = prompt_rows(b->of);
    while (b->lanes[0].committed < end) {
        const uint32_t first = b->lanes[0].committed;
        const uint32_t count = pick(rng, end - first);
        chain_rows(b, rows, 0, 0, ids, count);
        forward(b, rows, count);
        expect(b, rows, 0, count, want + first);
        commit(b, 0, count - (uint32_t)lw_rng_below(rng, count)); /* often only a part is kept */
    }
    restart(b, 0);
}

static void check_company(bench *b, lw_rng *rng, int32_t ids[LANES][PROMPT_MAX], bits want[LANES][PROMPT_MAX])
{
    static lw_row rows[ROWS_MAX];
    const int rounds = is_long() ? 60 : IS_SANITIZED ? b->of->rounds / 3 + 1 : b->of->rounds;
    const uint32_t end = prompt_rows(b->of);
    b->skips = true;
    for (int round = 0; round < rounds; round++) {
        uint32_t count = 0, begin[LANES], taken[LANES];
        for (uint32_t k = 0; k < LANES; k++) {
            const uint32_t i = (k + (uint32_t)round) % LANES;
            begin[i] = count;
            taken[i] = lw_rng_below(rng, 4) == 0 ? 0 : pick(rng, end - b->lanes[i].committed);
            count = chain_rows(b, rows, count, i, ids[i], taken[i]);
        }
        if (count == 0) continue;
        forward(b, rows, count);
        for (uint32_t i = 0; i < LANES; i++) {
            expect(b, rows, begin[i], taken[i], want[i] + b->lanes[i].committed);
            if (taken[i] > 0) commit(b, i, 1 + (uint32_t)lw_rng_below(rng, taken[i]));
            if (b->lanes[i].committed >= end - 1) restart(b, i);
        }
    }
    b->skips = false;
    for (uint32_t i = 0; i < LANES; i++) restart(b, i);
}

/* ---- over an anchor ---- */

typedef struct span {
    uint32_t first, end;
} span;

static void reach(bench *b, uint32_t index, const int32_t *ids, uint32_t end)
{
    static lw_row rows[ROWS_MAX];
    restart(b, index);
    chain_rows(b, rows, 0, index, ids, end);
    b->is_silent = true;
    forward(b, rows, end);
    b->is_silent = false;
    commit(b, index, end);
}

/* Windows of width rows (fewer at the end), all kept. */
static void check_windows(bench *b, const int32_t *ids, const bits *want, span at, uint32_t width)
{
    lw_row rows[64];
    reach(b, 0, ids, at.first);
    while (b->lanes[0].committed < at.end) {
        const uint32_t first = b->lanes[0].committed;
        const uint32_t count = width < at.end - first ? width : at.end - first;
        chain_rows(b, rows, 0, 0, ids, count);
        forward(b, rows, count);
        expect(b, rows, 0, count, want + first);
        commit(b, 0, count);
    }
}

/* At each position a window of wrong tokens, of which nothing is kept; then the true ones in the company of
 * another lane, of which one is kept. */
static void check_rejected(bench *b, int32_t ids[LANES][PROMPT_MAX], bits want[LANES][PROMPT_MAX], span at)
{
    enum { WRONG = 6, TRUE_MAX = 6 };
    int32_t wrong[PROMPT_MAX];
    lw_row rows[64];
    reach(b, 2, ids[2], at.first);
    reach(b, 3, ids[3], at.first / 2);
    for (uint32_t p = at.first; p < at.end; p++) {
        for (uint32_t i = 0; i < WRONG; i++) wrong[p + i] = ids[2][p + i] ^ (int32_t)(1 + i);
        chain_rows(b, rows, 0, 2, wrong, WRONG);
        forward(b, rows, WRONG);
        for (uint32_t i = 0; i < WRONG; i++) assert_true(b->rows[i].logits != want[2][p + i].logits);
        const uint32_t left = at.end - p;
        const uint32_t true_rows = chain_rows(b, rows, 0, 2, ids[2], left < TRUE_MAX ? left : TRUE_MAX);
        const uint32_t count = chain_rows(b, rows, true_rows, 3, ids[3], 2);
        forward(b, rows, count);
        expect(b, rows, 0, true_rows, want[2] + p);
        expect(b, rows, true_rows, 2, want[3] + b->lanes[3].committed);
        commit(b, 2, 1);
        commit(b, 3, 1);
    }
    restart(b, 2);
    restart(b, 3);
}

static void check_anchors(bench *b, int32_t ids[LANES][PROMPT_MAX], bits want[LANES][PROMPT_MAX])
{
    static const span spans[] = { { 60, 71 }, { 120, 136 } };
    static const uint32_t widths[] = { 1, 4 };
    for (size_t i = 0; i < 2; i++) {
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            check_windows(b, ids[1], want[1], spans[i], widths[w]);
        check_rejected(b, ids, want, spans[i]);
    }
    restart(b, 0);
}

/* ---- trees ---- */

enum { NODES = 12 };

/* Where a plan has recurrences, no node stands at or past the next anchor: branches would make one page. */
static void tree_make(const bench *b, lw_rng *rng, uint32_t committed, lw_row *tree)
{
    const uint32_t end = b->recurs ? committed / LW_ANCHOR_POSITIONS * LW_ANCHOR_POSITIONS + 64 : CONTEXT;
    for (int32_t i = 0; i < NODES; i++) {
        int32_t parent = i == 0 ? -1 : (int32_t)lw_rng_below(rng, (uint64_t)i);
        while (parent > 0 && tree[parent].position + 1 >= end) parent = tree[parent].parent;
        tree[i] = (lw_row){ .token = (int32_t)lw_rng_below(rng, 4096), .parent = parent,
                            .position = i == 0 ? committed : tree[parent].position + 1,
                            .slot = committed + (uint32_t)i };
    }
}

/* A window of branches: each row equals the row of the chain that its ancestors spell. */
static void check_tree(bench *b, lw_rng *rng, const int32_t *ids, uint32_t committed)
{
    lw_row tree[NODES], rows[NODES];
    bits want[NODES];
    reach(b, 0, ids, committed);
    tree_make(b, rng, committed, tree);
    forward(b, tree, NODES);
    memcpy(want, b->rows, sizeof want);
    for (int32_t i = 0; i < NODES; i++) {
        int32_t path[NODES];
        uint32_t depth = 0;
        for (int32_t at = i; at >= 0; at = tree[at].parent) path[depth++] = at;
        for (uint32_t j = 0; j < depth; j++) {
            rows[j] = (lw_row){ .token = tree[path[depth - 1 - j]].token, .position = committed + j,
                                .slot = committed + j, .parent = (int32_t)j - 1 };
        }
        forward(b, rows, depth);
        expect(b, rows, depth - 1, 1, &want[i]);
    }
    restart(b, 0);
}

/* ---- all of it ---- */

static void check_threads_and_lengths(bench *b, const int32_t *ids, const bits *want)
{
    static bits again[PROMPT_MAX];
    const uint32_t rows = prompt_rows(b->of), most = is_long() ? (uint32_t)PROMPT_MAX : 100u;
    whole(b, ids, rows, again);
    assert_memory_equal(again, want, rows * sizeof *again);
    for (uint32_t count = 1; count <= most; count += 1 + count / (is_long() ? 3 : 1)) {
        whole(b, ids, count, again);
        assert_memory_equal(again, want, count * sizeof *again);
    }
}

/* Planted control: one token changed at position 3 changes every later row, and no earlier one. */
static void check_control(bench *b, int32_t *ids, const bits *want)
{
    bits again[64];
    ids[3] ^= 1;
    whole(b, ids, 64, again);
    ids[3] ^= 1;
    assert_memory_equal(again, want, 3 * sizeof *again);
    for (uint32_t i = 3; i < 64; i++) {
        assert_true(again[i].logits != want[i].logits);
        assert_true(!b->of->head || again[i].guess != want[i].guess);
    }
}

/* first: the bits of the first lane's rows. */
static void the_law_holds_for(const subject *of, const char *isa, bits *first)
{
    static int32_t ids[LANES][PROMPT_MAX];
    static bits want[LANES][PROMPT_MAX];
    static const uint32_t trees[] = { 1, 60, 64 };
    const uint64_t seed = 41;
    print_message("%s%s, isa %s, seed %llu\n", of->dir, of->head ? " and its head" : "", isa,
                  (unsigned long long)seed);
    lw_rng rng = lw_rng_make(seed);
    bench one, two;
    bench_open(&one, of, isa, 1);
    bench_open(&two, of, isa, 2);
    for (uint32_t i = 0; i < LANES; i++) {
        random_ids(&rng, ids[i], prompt_rows(of));
        whole(i == 0 ? &one : &two, ids[i], prompt_rows(of), want[i]);
    }
    check_threads_and_lengths(&two, ids[0], want[0]);
    check_cuts(&two, &rng, ids[1], want[1]);
    if (is_long()) check_cuts(&one, &rng, ids[0], want[0]);
    check_company(&two, &rng, ids, want);
    check_anchors(&one, ids, want);
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) check_tree(&one, &rng, ids[2], trees[i]);
    if (prompt_rows(of) > 520) check_tree(&one, &rng, ids[2], 510);
    check_control(&one, ids[0], want[0]);
    memcpy(first, want[0], prompt_rows(of) * sizeof *first);
    bench_close(&one);
    bench_close(&two);
}

static void the_law_holds_on(const char *isa)
{
    static bits first[PROMPT_MAX], before[PROMPT_MAX];
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        /* A model with a head is two subjects, and slow programs try the second. */
        if (IS_SANITIZED && i + 1 < sizeof subjects / sizeof *subjects && subjects[i + 1].head) continue;
        memcpy(before, first, sizeof before);
        the_law_holds_for(&subjects[i], isa, first);
        /* That a head is recorded changes nothing of the model's own rows. */
        for (uint32_t r = 0; !IS_SANITIZED && subjects[i].head && r < prompt_rows(&subjects[i]); r++)
            assert_true(first[r].logits == before[r].logits);
    }
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

/* The row law of gated_delta and ssm: a row's output, step and anchors are the bits of its stream alone,
 * token by token, whatever cut, company, parts, page order, tree or rejected guess it comes after. Pages are
 * filled with NaN before use. Every check has a twin that is wrong on purpose and must be caught.
 */
#include "cpu_recurrence_rows.h"

enum { OPEN_MAX = 40 };
static const size_t law_lengths[LANES] = { 300, 70, 140 };

/* The law's left side: one token a call, one part, fresh pages in order. */
typedef struct alone {
    store st;
    lw_bf16 *y[LANES];          /* (positions, y_width) */
} alone;

static bool output_matches(const streams *t, const alone *a, const rows *r, size_t row, const lw_bf16 *y)
{
    const lw_bf16 *want = a->y[r->lane[row]] + r->places[row].position * t->y_width;
    return memcmp(y + row * t->y_width, want, t->y_width * sizeof *y) == 0;
}

/* Whether one position's step, which stands at slot, is that of the stream alone. */
static bool step_matches(const streams *t, const alone *a, const store *st, size_t lane, const size_t at[2])
{
    const shape *s = &t->s;
    const float *want = step_page(&a->st, lane, at[0] / STRETCH), *got = step_page(st, lane, at[1] / STRETCH);
    const size_t i = at[0] % STRETCH, j = at[1] % STRETCH;
    bool same = true;
    for (size_t k = 0; k < t->key_floats; k++) {
        same = same && memcmp(want + k * STRETCH + i, got + k * STRETCH + j, sizeof *want) == 0;
    }
    want += t->key_floats * STRETCH;
    got += t->key_floats * STRETCH;
    for (size_t h = 0; h < s->heads; h++) {
        same = same && memcmp(want + i * s->width, got + j * s->width, s->width * sizeof *want) == 0;
        want += (s->width + 1) * STRETCH;
        got += (s->width + 1) * STRETCH;
        same = same && memcmp(want - STRETCH + i, got - STRETCH + j, sizeof *want) == 0;
    }
    return same;
}

/* Whether the steps and anchors of a lane's first positions are those of the stream alone. */
static bool lane_matches(const streams *t, const alone *a, const store *st, size_t lane, size_t length)
{
    bool same = true;
    for (size_t p = 0; p < length; p++) {
        const size_t at[2] = { p, p };
        same = same && step_matches(t, a, st, lane, at);
        if (p % STRETCH != 0) continue;
        const float *want = anchor_page(&a->st, lane, p / STRETCH), *got = anchor_page(st, lane, p / STRETCH);
        same = same && memcmp(want, got, t->y_width * t->s.key_width * sizeof *want) == 0;
    }
    return same;
}

static alone alone_make(const streams *t)
{
    alone a = { .st = store_make(t, NULL) };
    for (size_t lane = 0; lane < LANES; lane++) {
        a.y[lane] = law_make(t->lengths[lane] * t->y_width, sizeof(lw_bf16));
        for (size_t p = 0; p < t->lengths[lane]; p++) {
            rows r = { 0 };
            rows_add(&r, &a.st, lane, p, p);
            lw_bf16 *y = rows_run(t, &a.st, &r, 1);
            memcpy(a.y[lane] + p * t->y_width, y, t->y_width * sizeof *y);
            free(y);
        }
    }
    return a;
}

static void alone_free(alone *a)
{
    store_free(&a->st);
    for (size_t lane = 0; lane < LANES; lane++) free(a->y[lane]);
}

/* All lanes go on at once in random cuts; with stale, one anchor or one step is spoilt on the way. */
typedef enum spoil { SPOIL_NOTHING, SPOIL_ANCHOR, SPOIL_STEP } spoil;

static void store_spoil(const streams *t, const store *st, spoil what, size_t position)
{
    float *page = (float *)(uintptr_t)(what == SPOIL_ANCHOR ? anchor_page(st, 0, position / STRETCH)
                                                            : step_page(st, 0, position / STRETCH));
    if (what == SPOIL_ANCHOR) page[t->y_width * t->s.key_width - 1] += 0.01f;
    if (what == SPOIL_STEP) page[t->key_floats * STRETCH] += 0.01f;
}

static bool cuts_hold(const streams *t, const alone *a, lw_rng *rng, size_t cut_max, spoil what)
{
    store st = store_make(t, rng);
    size_t at[LANES] = { 0 };
    bool same = true, spoilt = false, open = true;
    while (open) {
        rows r = { 0 };
        open = false;
        for (size_t turn = 0, first = lw_rng_below(rng, LANES); turn < LANES; turn++) {
            const size_t lane = (first + turn) % LANES, begin = at[lane];
            const size_t room = size_min(t->lengths[lane] - begin, LAW_ROWS_MAX - r.count);
            const size_t count = size_min(room, lw_rng_below(rng, cut_max + 1));
            while (at[lane] < begin + count) rows_add(&r, &st, lane, at[lane]++, begin);
            open = open || at[lane] < t->lengths[lane];
        }
        if (r.count == 0) continue;
        lw_bf16 *y = rows_run(t, &st, &r, 1 + (unsigned)lw_rng_below(rng, 2 * LAW_PARTS_MAX));
        for (size_t i = 0; i < r.count; i++) same = output_matches(t, a, &r, i, y) && same;
        free(y);
        if (what == SPOIL_NOTHING || spoilt || at[0] < STRETCH + 2 || at[0] % STRETCH == 0) continue;
        store_spoil(t, &st, what, what == SPOIL_STEP ? at[0] / STRETCH * STRETCH : at[0]);
        spoilt = true;
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        same = lane_matches(t, a, &st, lane, t->lengths[lane]) && same;
    }
    store_free(&st);
    return same;
}

/* Commits a lane's first positions in one go. */
static void store_fill(const streams *t, const store *st, size_t length)
{
    for (size_t p = 0; p < length;) {
        rows r = { 0 };
        const size_t begin = p;
        while (p < length && r.count < LAW_ROWS_MAX) rows_add(&r, st, 0, p++, begin);
        free(rows_run(t, st, &r, 2));
    }
}

/* A tree over a committed prefix, shorter than what is left of the stretch: its true branch stands among rows
 * of other branches that bring other tokens. Returns whether the branch has the chain's bits; when wrong,
 * its last row takes a row of another branch for its parent. */
typedef struct tree { size_t committed, depth, rows; bool wrong; } tree;

static bool tree_holds(const streams *t, const alone *a, lw_rng *rng, tree tr)
{
    store st = store_make(t, rng);
    store_fill(t, &st, tr.committed);
    rows r = { 0 };
    bool is_true[OPEN_MAX] = { false };
    uint32_t lineages[OPEN_MAX][OPEN_MAX];
    size_t last = OPEN_MAX, reached = 0;        /* the true branch's newest row, its length */
    for (size_t i = 0; i < tr.rows; i++) {
        const bool due = tr.rows - i <= tr.depth - reached;
        is_true[i] = reached < tr.depth && (due || lw_rng_below(rng, 2) == 0);
        size_t parent = is_true[i] ? last : lw_rng_below(rng, i + 1);
        if (parent < i && !is_true[i] && r.places[parent].position + 1 >= tr.committed + tr.depth) parent = i;
        const bool root = parent >= i;
        const size_t p = root ? tr.committed : r.places[parent].position + 1, depth = p - tr.committed;
        lw_cpu_place *place = rows_add(&r, &st, 0, p, tr.committed);
        if (!root) memcpy(lineages[i], lineages[parent], depth * sizeof lineages[i][0]);
        lineages[i][depth] = place->slot = (uint32_t)(tr.committed + i);
        bool chain = true;
        for (size_t j = 0; j <= depth; j++) chain = chain && lineages[i][j] == tr.committed + j;
        place->lineage = chain ? NULL : lineages[i];
        if (is_true[i]) reached++;
        else r.token[i] = p + OPEN_MAX + i;
        if (is_true[i]) last = i;
        if (is_true[i]) r.token[i] = tr.committed + reached - 1;
    }
    if (tr.wrong) {
        size_t other = 0;
        while (is_true[other]) other++;
        lineages[last][tr.depth - 2] = r.places[other].slot;
        r.places[last].lineage = lineages[last];
    }
    lw_bf16 *y = rows_run(t, &st, &r, 1 + (unsigned)lw_rng_below(rng, LAW_PARTS_MAX));
    bool same = true;
    for (size_t i = 0; i < tr.rows; i++) {
        if (!is_true[i]) continue;
        const size_t at[2] = { r.places[i].position, r.places[i].slot };
        same = output_matches(t, a, &r, i, y) && step_matches(t, a, &st, 0, at) && same;
    }
    free(y);
    store_free(&st);
    return same;
}

/* A lane goes on by windows of which only the first rows bring the stream's tokens; some of those are kept
 * and the rest written over by the next window. When greedy, one wrong row is kept once. */
static bool guesses_hold(const streams *t, const alone *a, lw_rng *rng, size_t window_max, bool greedy)
{
    store st = store_make(t, rng);
    bool same = true;
    const size_t length = t->lengths[0];
    for (size_t committed = 0; committed < length;) {
        rows r = { 0 };
        const size_t count = size_min(1 + lw_rng_below(rng, window_max), length - committed);
        const size_t right = lw_rng_below(rng, count + 1);
        for (size_t i = 0; i < count; i++) {
            rows_add(&r, &st, 0, committed + i, committed);
            if (i >= right) r.token[i] += 17;
        }
        lw_bf16 *y = rows_run(t, &st, &r, 1 + (unsigned)lw_rng_below(rng, LAW_PARTS_MAX));
        for (size_t i = 0; i < right; i++) same = output_matches(t, a, &r, i, y) && same;
        free(y);
        const bool slips = greedy && right < count && committed > STRETCH;
        committed += slips ? right + 1 : lw_rng_below(rng, right + 1);
        greedy = greedy && !slips;
    }
    same = lane_matches(t, a, &st, 0, length) && same;
    store_free(&st);
    return same;
}

static void law_of_shape(const lw_cpu_kernels *kernels, lw_rng *rng, shape s)
{
    static const tree trees[] = { { 0, 7, 12, false },   { 1, 1, 2, false },    { 60, 4, 20, false },
                                  { 64, 15, 40, false }, { 100, 9, 33, false }, { 130, 3, 5, false } };
    static const size_t cuts[] = { 1, 5, 70, 140 };
    streams t = streams_make(kernels, rng, s, law_lengths);
    alone a = alone_make(&t);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        assert_true(cuts_hold(&t, &a, rng, cuts[i], SPOIL_NOTHING));
    }
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        tree tr = trees[i];
        assert_true(tree_holds(&t, &a, rng, tr));
        tr.wrong = true;
        if (tr.depth > 1) assert_false(tree_holds(&t, &a, rng, tr));
    }
    assert_true(guesses_hold(&t, &a, rng, 4, false));
    assert_true(guesses_hold(&t, &a, rng, 90, false));
    assert_false(guesses_hold(&t, &a, rng, 16, true));
    assert_false(cuts_hold(&t, &a, rng, 5, SPOIL_ANCHOR));
    assert_false(cuts_hold(&t, &a, rng, 5, SPOIL_STEP));
    alone_free(&a);
    streams_free(&t);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = {
        { 4, 32, 2, 32, true },  { 3, 40, 1, 24, true }, { 4, 64, 1, 128, false },
        { 2, 24, 2, 40, false }, { 1, 7, 1, 5, true },   { 6, 128, 2, 128, true },
        { 48, 128, 16, 128, true }, { 16, 64, 2, 128, false },
    };
    const size_t count = law_long() ? sizeof shapes / sizeof shapes[0] : 5;
    lw_rng rng = law_rng(0x501);
    for (size_t i = 0; i < count; i++) law_of_shape(kernels, &rng, shapes[i]);
}

static void recurrences_are_the_streams_own(void **state)
{
    (void)state;
    recur_each_isa(law_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recurrences_are_the_streams_own) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

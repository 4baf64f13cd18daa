/* Routing and summing of experts against FP64, exactly where the choice is concerned, and their row law.
 * LW_TEST_ISA names one instruction set; without it each that the CPU has is tried.
 */
#include "cpu_law.h"
#include "../ref/ref_experts.h"
#include "../ref/ref_ops.h"

enum { ROWS = 64, PAD = 5, UNTOUCHED = 0xAB };

static void each_isa(void (*test)(const lw_cpu_kernels *kernels))
{
    const char *only = getenv("LW_TEST_ISA");
    bool found = false;
    for (const lw_cpu_kernels *const *at = lw_cpu_available(); *at != NULL; at++) {
        if (only != NULL && strcmp(only, (*at)->isa) != 0) continue;
        found = true;
        test(*at);
    }
    if (!found) printf("SKIPPED: this CPU has no %s\n", only);
}

/* ---- route ---- */

typedef struct route_case {
    const lw_cpu_kernels *kernels;
    lw_route_params params;
    float *logits;              /* (ROWS, experts) */
    float *bias;                /* [experts] or NULL */
} route_case;

static const lw_route_params routers[] = {
    { LW_ROUTER_SOFTMAX, 256, 8, 1, 1, false, 1.0f },   { LW_ROUTER_SIGMOID, 128, 6, 1, 1, true, 2.5f },
    { LW_ROUTER_SIGMOID, 256, 8, 8, 4, true, 2.5f },    { LW_ROUTER_SIGMOID, 40, 5, 4, 2, false, 1.0f },
    { LW_ROUTER_SOFTMAX, 7, 3, 1, 1, false, 1.0f },     { LW_ROUTER_SOFTMAX, 60, 4, 6, 2, false, 0.5f },
    { LW_ROUTER_SIGMOID, 64, 64, 1, 1, true, 1.0f },    { LW_ROUTER_SIGMOID, 33, 1, 33, 7, true, 1.0f },
};
enum { ROUTERS = sizeof routers / sizeof routers[0] };

static size_t stride_of(const route_case *c) { return 2 * c->params.top + PAD; }

/* Rows [first, first + rows) in parts; what lies between two rows stays as it was. */
static float *route(const route_case *c, size_t first, size_t rows, unsigned parts)
{
    float *const y = law_make(rows * stride_of(c), sizeof *y);
    memset(y, UNTOUCHED, rows * stride_of(c) * sizeof *y);
    float *const scratch = law_make(parts * lw_cpu_route_scratch_floats(c->params.experts), sizeof *scratch);
    memset(scratch, 0xFF, parts * lw_cpu_route_scratch_floats(c->params.experts) * sizeof *scratch);
    const lw_cpu_route_args args = {
        .logits = c->logits + first * c->params.experts, .logits_stride = c->params.experts, .bias = c->bias,
        .y = y, .y_stride = stride_of(c), .scratch = scratch, .rows = (uint32_t)rows, .params = c->params,
    };
    LAW_RUN(c->kernels->route, &args, parts);
    free(scratch);
    const uint8_t *const bytes = (const uint8_t *)y;
    for (size_t i = 0; i < rows * stride_of(c) * sizeof *y; i++)
        if (i / sizeof *y % stride_of(c) >= 2 * c->params.top) assert_int_equal(bytes[i], UNTOUCHED);
    return y;
}

/* Logits on a grid, so that many are equal; a bias on a finer one. */
static route_case route_make(const lw_cpu_kernels *kernels, const lw_route_params *params, lw_rng *rng)
{
    route_case c = { .kernels = kernels, .params = *params };
    c.logits = law_make((size_t)ROWS * params->experts, sizeof *c.logits);
    for (size_t i = 0; i < (size_t)ROWS * params->experts; i++)
        c.logits[i] = roundf(8.0f * lw_rng_normal(rng)) / 4.0f;
    if (params->kind == LW_ROUTER_SIGMOID) {
        c.bias = law_make(params->experts, sizeof *c.bias);
        for (size_t e = 0; e < params->experts; e++) c.bias[e] = roundf(3.0f * lw_rng_normal(rng)) / 16.0f;
    }
    return c;
}

static void route_free(route_case *c)
{
    free(c->logits);
    free(c->bias);
}

typedef struct route_score {
    size_t rows, unclear;      /* rows compared; rows whose choice fp32 cannot be held to */
    size_t other_ids;          /* rows whose ids are not the reference's */
    size_t over;               /* weights beyond their bound */
} route_score;

/* How far a weight may be from FP64, relative to it. A score s: e^-|l| has 4 eps (2 ulp), the sum and the
 * quotient 1 each and the error of e again in the sum, at most half of it. Softmax: l - max is rounded, which
 * e turns into |l - max| eps; the sum over all experts is common to all. Then the sum of the chosen, whose
 * terms are positive, the quotient and the product with scale. */
static double weight_bound(const route_case *c, const float *logits, const size_t *ids)
{
    double spread = 0, largest = -INFINITY;
    for (size_t e = 0; e < c->params.experts; e++) largest = fmax(largest, (double)logits[e]);
    for (size_t i = 0; i < c->params.top; i++) spread = fmax(spread, largest - (double)logits[ids[i]]);
    const double of_score = c->params.kind == LW_ROUTER_SOFTMAX ? spread + 5 : 8;
    return (2 * of_score + c->params.top + 3) * 1.01 * REF_EPS_F32;
}

static void compare_row(const route_case *c, ref_route_mistake mistake, const float *y, size_t row,
                        route_score *score)
{
    const uint32_t experts = c->params.experts, top = c->params.top;
    const float *const logits = c->logits + row * experts;
    double *const wide = law_doubles(logits, experts), weights[REF_EXPERTS_MAX];
    double *const bias = c->bias == NULL ? NULL : law_doubles(c->bias, experts);
    size_t ids[REF_EXPERTS_MAX];
    const ref_router router = {
        .softmax = c->params.kind == LW_ROUTER_SOFTMAX, .experts = experts, .top = top, .bias = bias,
        .groups = c->params.groups, .top_groups = c->params.top_groups, .normalise = c->params.normalise,
        .scale = (double)c->params.scale, .mistake = mistake,
    };
    const double gap = ref_route(&router, wide, ids, weights);
    bool same = true;
    for (size_t i = 0; i < top; i++) same = same && y[i] == (float)ids[i];
    score->rows++;
    if (gap < 1e-6) score->unclear++;
    else if (!same) score->other_ids++;
    for (size_t i = 0; same && i < top; i++) {
        const double bound = weight_bound(c, logits, ids) * fabs(weights[i]);
        if (!(fabs((double)y[top + i] - weights[i]) <= bound)) score->over++;
    }
    free(wide);
    free(bias);
}

static route_score compare(const route_case *c, ref_route_mistake mistake)
{
    route_score score = { 0 };
    float *const y = route(c, 0, ROWS, 2);
    for (size_t row = 0; row < ROWS; row++) compare_row(c, mistake, y + row * stride_of(c), row, &score);
    free(y);
    return score;
}

static bool can_make(const route_case *c, ref_route_mistake mistake)
{
    const lw_route_params *const p = &c->params;
    if (mistake == REF_ROUTE_NO_GROUPS) return p->groups > 1 && p->groups < p->experts;
    if (mistake == REF_ROUTE_BIASED_WEIGHTS) return c->bias != NULL && !(p->normalise && p->top == 1);
    if (mistake == REF_ROUTE_ALL_SHARES) return p->kind == LW_ROUTER_SOFTMAX || p->normalise;
    return true;
}

static void truth_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x301);
    for (size_t i = 0; i < ROUTERS; i++) {
        route_case c = route_make(kernels, &routers[i], &rng);
        const route_score right = compare(&c, REF_ROUTE_RIGHT);
        printf("%s router %zu: %zu rows, %zu unclear\n", kernels->isa, i, right.rows, right.unclear);
        assert_true(right.unclear * 4 <= right.rows);
        assert_int_equal(right.other_ids, 0);
        assert_int_equal(right.over, 0);
        for (ref_route_mistake m = REF_ROUTE_TIES_UP; m < REF_ROUTE_MISTAKE_COUNT; m++) {
            if (!can_make(&c, m)) continue;
            const route_score wrong = compare(&c, m);
            if (wrong.other_ids + wrong.over == 0) fail_msg("router %zu: mistake %d passes", i, (int)m);
        }
        route_free(&c);
    }
}

static void routes_meet_fp64(void **state)
{
    (void)state;
    each_isa(truth_of_isa);
}

/* Softmax ranks logits as they are: neighbouring floats are told apart, whatever their exponentials round
 * to. */
static void neighbours_of_isa(const lw_cpu_kernels *kernels)
{
    route_case c = { .kernels = kernels, .params = routers[4] };
    float logits[7] = { -80.0f, 1.0f, 0.0f, 0.0f, 0.0f, -90.0f, 0.0f };
    c.logits = logits;
    logits[2] = nextafterf(1.0f, 0.0f);
    logits[6] = nextafterf(1.0f, 2.0f);
    float *const y = route(&c, 0, 1, 1);
    assert_true(y[0] == 6.0f && y[1] == 1.0f && y[2] == 2.0f);
    free(y);
}

static void softmax_tells_neighbouring_logits_apart(void **state)
{
    (void)state;
    each_isa(neighbours_of_isa);
}

static void assert_valid_ids(const route_case *c, const float *y)
{
    bool taken[REF_EXPERTS_MAX] = { false };
    for (size_t i = 0; i < c->params.top; i++) {
        assert_true(y[i] >= 0.0f && y[i] < (float)c->params.experts);
        const size_t id = (size_t)y[i];
        assert_true(y[i] == (float)id);
        assert_false(taken[id]);
        taken[id] = true;
    }
}

/* Rows of NaN, of infinities and of both among numbers: ids are experts, each at most once, and such a row
 * leaves the others alone. */
static void odd_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x302);
    for (size_t i = 0; i < ROUTERS; i++) {
        route_case c = route_make(kernels, &routers[i], &rng);
        float *const plain = route(&c, 0, ROWS, 1);
        const float odd[] = { NAN, INFINITY, -INFINITY, -NAN };
        for (size_t row = 0; row < ROWS; row += 2) {
            for (size_t e = 0; e < c.params.experts; e++) {
                const bool here = row % 16 < 8 || lw_rng_below(&rng, 3) == 0;
                const size_t which = row % 8 / 2 == 3 ? lw_rng_below(&rng, 4) : row % 8 / 2;
                if (here) c.logits[row * c.params.experts + e] = odd[which];
            }
        }
        float *const y = route(&c, 0, ROWS, 1);
        for (size_t row = 0; row < ROWS; row++) assert_valid_ids(&c, y + row * stride_of(&c));
        for (size_t row = 1; row < ROWS; row += 2)
            assert_memory_equal(y + row * stride_of(&c), plain + row * stride_of(&c), stride_of(&c) * 4);
        /* A NaN among the logits of a softmax shows in its weights. */
        if (c.params.kind == LW_ROUTER_SOFTMAX) assert_true(isnan(y[c.params.top]));
        free(y);
        free(plain);
        route_free(&c);
    }
}

static void ids_are_experts_whatever_the_logits(void **state)
{
    (void)state;
    each_isa(odd_of_isa);
}

/* True when rows [first, first + rows) in parts have the bits of each row alone; moved: of the next row. */
static bool routes_hold(const route_case *c, size_t first, size_t rows, unsigned parts, size_t moved)
{
    float *const y = route(c, first, rows, parts);
    bool same = true;
    for (size_t row = 0; row < rows; row++) {
        float *const alone = route(c, (first + row + moved) % ROWS, 1, 1);
        same = same && memcmp(alone, y + row * stride_of(c), stride_of(c) * sizeof *y) == 0;
        free(alone);
    }
    free(y);
    return same;
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x303);
    for (size_t i = 0; i < ROUTERS; i++) {
        route_case c = route_make(kernels, &routers[i], &rng);
        for (unsigned parts = 1; parts <= LAW_PARTS_MAX; parts++) {
            const size_t rows = 1 + lw_rng_below(&rng, ROWS), first = lw_rng_below(&rng, ROWS - rows + 1);
            assert_true(routes_hold(&c, first, rows, parts, 0));
        }
        assert_false(routes_hold(&c, 0, ROWS, 1, 1));
        route_free(&c);
    }
}

static void rows_together_are_rows_alone(void **state)
{
    (void)state;
    each_isa(law_of_isa);
}

/* ---- expert_sum ---- */

typedef struct sum_case {
    const lw_cpu_kernels *kernels;
    uint32_t slots, width;
    lw_bf16 *x;                /* (ROWS, slots, width) */
    float *route;              /* (ROWS, ids then weights) */
} sum_case;

static lw_bf16 *sum(const sum_case *c, size_t first, size_t rows, unsigned parts)
{
    const size_t stride = c->width + PAD;
    lw_bf16 *const y = law_make(rows * stride, sizeof *y);
    memset(y, UNTOUCHED, rows * stride * sizeof *y);
    const lw_cpu_expert_sum_args args = {
        .x = c->x + first * c->slots * c->width, .x_stride = c->width,
        .weights = c->route + first * 2 * c->slots + c->slots, .weights_stride = 2 * c->slots,
        .y = y, .y_stride = stride, .rows = (uint32_t)rows, .slots = c->slots, .width = c->width,
    };
    LAW_RUN(c->kernels->expert_sum, &args, parts);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = c->width; i < stride; i++) assert_int_equal(y[row * stride + i], 0xABAB);
    return y;
}

/* Ids in no order; the last slot takes back the first, which is large, so that the order of the sum shows. */
static sum_case sum_make(const lw_cpu_kernels *kernels, uint32_t slots, uint32_t width, lw_rng *rng)
{
    sum_case c = { .kernels = kernels, .slots = slots, .width = width };
    c.x = law_bf(rng, (size_t)ROWS * slots * width, 1.0f);
    c.route = law_floats(rng, (size_t)ROWS * 2 * slots, 1.0f);
    for (size_t row = 0; row < ROWS; row++) {
        float *const ids = c.route + row * 2 * slots, *const weights = ids + slots;
        for (uint32_t s = 0; s < slots; s++) ids[s] = (float)((s * 5 + row) % 64);
        if (slots < 3) continue;
        weights[0] = 4096.0f;
        weights[slots - 1] = -weights[0];
        for (uint32_t i = 0; i < width; i++) {
            lw_bf16 *const x = c.x + row * slots * width + i;
            x[(slots - 1) * width] = x[0];
        }
    }
    return c;
}

static void sum_free(sum_case *c)
{
    free(c->x);
    free(c->route);
}

/* One column by one chain in the order of slots, or (planted) of ids. A set without fma multiplies, then
 * adds. */
static lw_bf16 chain(const sum_case *c, size_t row, size_t column, bool by_id)
{
    const float *const ids = c->route + row * 2 * c->slots, *const weights = ids + c->slots;
    const bool fused = strcmp(c->kernels->isa, "generic") != 0;
    float total = 0.0f, last = -1.0f;
    for (uint32_t i = 0; i < c->slots; i++) {
        uint32_t s = i;
        if (by_id) {
            s = c->slots;
            for (uint32_t j = 0; j < c->slots; j++)
                if (ids[j] > last && (s == c->slots || ids[j] < ids[s])) s = j;
            last = ids[s];
        }
        const float x = lw_float_of_bf16(c->x[(row * c->slots + s) * c->width + column]);
        total = fused ? fmaf(weights[s], x, total) : weights[s] * x + total;
    }
    return lw_bf16_of_float(total);
}

static size_t chains_that_differ(const sum_case *c, const lw_bf16 *y, bool by_id)
{
    size_t count = 0;
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < c->width; i++)
            count += y[row * (c->width + PAD) + i] != chain(c, row, i, by_id);
    return count;
}

/* A term passes its own product and at most every addition: (slots + 1) eps of the sum of |w x|; then one
 * rounding to bf16. planted: each slot takes its neighbour's weight. */
static law_score truth_sum(const sum_case *c, const lw_bf16 *y, bool planted)
{
    law_score score = { 0 };
    for (size_t at = 0; at < (size_t)ROWS * c->width; at++) {
        const size_t row = at / c->width, column = at % c->width;
        double want = 0, size = 0;
        for (uint32_t s = 0; s < c->slots; s++) {
            const uint32_t from = planted ? (s + 1) % c->slots : s;
            const double x = (double)lw_float_of_bf16(c->x[(row * c->slots + s) * c->width + column]);
            const double product = (double)c->route[row * 2 * c->slots + c->slots + from] * x;
            want += product;
            size += fabs(product);
        }
        const double error = (c->slots + 1) * 1.01 * REF_EPS_F32 * size;
        law_compare(&score, y[row * (c->width + PAD) + column], want,
                    error + REF_EPS_BF16 * (fabs(want) + error) + REF_TINY_BF16);
    }
    return score;
}

static void sums_of_isa(const lw_cpu_kernels *kernels)
{
    static const uint32_t shapes[][2] = { { 6, 2688 }, { 8, 131 }, { 22, 64 }, { 1, 7 }, { 2, 200 } };
    lw_rng rng = law_rng(0x304);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        sum_case c = sum_make(kernels, shapes[i][0], shapes[i][1], &rng);
        lw_bf16 *const y = sum(&c, 0, ROWS, 2);
        assert_int_equal(truth_sum(&c, y, false).over, 0);
        assert_int_equal(chains_that_differ(&c, y, false), 0);
        if (c.slots > 1) assert_true(truth_sum(&c, y, true).over > 0);
        if (c.slots > 2) assert_true(chains_that_differ(&c, y, true) > 0);
        for (size_t row = 0; row < ROWS; row++) {
            const size_t stride = c.width + PAD, next = (row + 1) % ROWS;
            lw_bf16 *const alone = sum(&c, row, 1, 1 + (unsigned)(row % LAW_PARTS_MAX));
            assert_memory_equal(alone, y + row * stride, stride * sizeof *y);
            assert_memory_not_equal(alone, y + next * stride, stride * sizeof *y);
            free(alone);
        }
        free(y);
        sum_free(&c);
    }
}

static void sums_are_one_chain_in_the_order_of_choice(void **state)
{
    (void)state;
    each_isa(sums_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_meet_fp64),
        cmocka_unit_test(softmax_tells_neighbouring_logits_apart),
        cmocka_unit_test(ids_are_experts_whatever_the_logits),
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(sums_are_one_chain_in_the_order_of_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

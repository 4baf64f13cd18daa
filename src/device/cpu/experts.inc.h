/* Routing and summing of experts for one instruction set. Included once by each set's experts.c, which names
 * its functions through LW_ROW(name). Contracts in kernels.h, definitions in ops.list.
 *
 * Invariants
 * 1. A row's route is made by one part: sums run over experts ascending, then over the chosen in their order.
 * 2. Every comparison is of numbers: NaN was replaced by -inf. Ids are offered ascending and only a greater
 *    score passes an earlier one, so equal scores stand by id.
 */
#include "device/cpu/row_kernels.h"
#include "device/cpu/simd_math.h"

#include "base/pool.h"
#include "base/size.h"

enum {
    UNIT_COLS = 64,     /* columns that parts of a sum are cut in: whole cache lines of bf16 */
    UNIT_VECTORS = UNIT_COLS / SIMD_WIDTH,
};

/* The best of what was offered, best first. */
typedef struct ranking {
    uint32_t room, count;
    uint32_t ids[LW_TOP_MAX];
    float scores[LW_TOP_MAX];
} ranking;

static void ranking_offer(ranking *r, uint32_t id, float score)
{
    if (r->count == r->room && !(score > r->scores[r->count - 1])) return;
    uint32_t at = r->count < r->room ? r->count++ : r->count - 1;
    for (; at > 0 && score > r->scores[at - 1]; at--) {
        r->ids[at] = r->ids[at - 1];
        r->scores[at] = r->scores[at - 1];
    }
    r->ids[at] = id;
    r->scores[at] = score;
}

static float number_of(float x) { return x != x ? -INFINITY : x; }

/* One row: scores[experts], and choice[experts], which ranks them. */
typedef struct routing {
    const lw_cpu_route_args *args;
    const float *logits;
    float *scores, *choice;
} routing;

static void score_softmax(const routing *r)
{
    const uint32_t experts = r->args->params.experts;
    float largest = -INFINITY, sum = 0.0f;
    for (uint32_t e = 0; e < experts; e++) largest = r->logits[e] > largest ? r->logits[e] : largest;
    for (uint32_t e = 0; e < experts; e += SIMD_WIDTH) {
        const simd_f below = simd_sub(simd_load_some(r->logits + e, experts - e), simd_set(largest));
        simd_store(r->scores + e, simd_exp(below));
    }
    for (uint32_t e = 0; e < experts; e++) sum += r->scores[e];
    for (uint32_t e = 0; e < experts; e += SIMD_WIDTH)
        simd_store(r->scores + e, simd_div(simd_load(r->scores + e), simd_set(sum)));
}

static void score_sigmoid(const routing *r)
{
    const uint32_t experts = r->args->params.experts;
    for (uint32_t e = 0; e < experts; e += SIMD_WIDTH)
        simd_store(r->scores + e, simd_sigmoid(simd_load_some(r->logits + e, experts - e)));
}

/* Without a bias the order of softmax is that of its logits, where no two are made equal by rounding. */
static bool ranks_by_logit(const lw_cpu_route_args *args)
{
    return args->params.kind == LW_ROUTER_SOFTMAX && args->bias == NULL;
}

static void score(const routing *r)
{
    const lw_cpu_route_args *const args = r->args;
    if (args->params.kind == LW_ROUTER_SOFTMAX) score_softmax(r);
    else score_sigmoid(r);
    const float *const ranked = ranks_by_logit(args) ? r->logits : r->scores;
    for (uint32_t e = 0; e < args->params.experts; e++)
        r->choice[e] = number_of(args->bias == NULL ? ranked[e] : ranked[e] + args->bias[e]);
}

/* The sum of the two best choice scores of the experts [begin, end). */
static float group_score(const routing *r, uint32_t begin, uint32_t end)
{
    ranking best = { .room = end - begin < 2 ? end - begin : 2 };
    for (uint32_t e = begin; e < end; e++) ranking_offer(&best, e, r->choice[e]);
    const float *const summed = ranks_by_logit(r->args) ? r->scores : r->choice;
    const float sum = summed[best.ids[0]] + (best.count > 1 ? summed[best.ids[1]] : 0.0f);
    return number_of(sum);
}

static void choose(const routing *r, ranking *chosen)
{
    const lw_route_params *const p = &r->args->params;
    const uint32_t size = p->experts / p->groups;
    bool open[LW_TOP_MAX] = { false };
    ranking groups = { .room = p->top_groups };
    for (uint32_t g = 0; g < p->groups; g++)
        ranking_offer(&groups, g, p->groups == 1 ? 0.0f : group_score(r, g * size, (g + 1) * size));
    for (uint32_t i = 0; i < groups.count; i++) open[groups.ids[i]] = true;
    for (uint32_t e = 0; e < p->experts; e++)
        if (open[e / size]) ranking_offer(chosen, e, r->choice[e]);
}

static void put(const routing *r, const ranking *chosen, float *y)
{
    const lw_route_params *const p = &r->args->params;
    const bool softmax = p->kind == LW_ROUTER_SOFTMAX;
    float sum = 0.0f;
    for (uint32_t i = 0; i < p->top; i++) sum += r->scores[chosen->ids[i]];
    if (!softmax) sum = p->normalise ? sum + 1e-20f : 1.0f;
    for (uint32_t i = 0; i < p->top; i++) {
        y[i] = (float)chosen->ids[i];
        y[p->top + i] = r->scores[chosen->ids[i]] / sum * p->scale;
    }
}

void LW_ROW(route)(const lw_cpu_route_args *args, unsigned part, unsigned parts)
{
    const size_t floats = lw_cpu_route_scratch_floats(args->params.experts);
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const routing r = {
            .args = args,
            .logits = args->logits + row * args->logits_stride,
            .scores = args->scratch + part * floats,
            .choice = args->scratch + part * floats + floats / 2,
        };
        ranking chosen = { .room = args->params.top };
        score(&r);
        choose(&r, &chosen);
        put(&r, &chosen, args->y + row * args->y_stride);
    }
}

/* Up to UNIT_COLS columns of one row, each a chain over the slots. */
static void sum_columns(const lw_cpu_expert_sum_args *args, size_t row, size_t column)
{
    const size_t count = size_min(args->width - column, UNIT_COLS);
    const lw_bf16 *x = args->x + row * args->slots * args->x_stride + column;
    simd_f sums[UNIT_VECTORS];
    for (int v = 0; v < UNIT_VECTORS; v++) sums[v] = simd_set(0.0f);
    for (uint32_t slot = 0; slot < args->slots; slot++, x += args->x_stride) {
        const simd_f weight = simd_set(args->weights[row * args->weights_stride + slot]);
        SIMD_UNROLL
        for (size_t v = 0; v < UNIT_VECTORS; v++) {
            const size_t at = v * SIMD_WIDTH;
            if (at < count) sums[v] = simd_fma(weight, simd_load_bf_some(x + at, count - at), sums[v]);
        }
    }
    lw_bf16 *const y = args->y + row * args->y_stride + column;
    SIMD_UNROLL
    for (size_t v = 0; v < UNIT_VECTORS; v++) {
        const size_t at = v * SIMD_WIDTH;
        if (at < count) simd_store_bf_some(y + at, sums[v], count - at);
    }
}

void LW_ROW(expert_sum)(const lw_cpu_expert_sum_args *args, unsigned part, unsigned parts)
{
    const size_t row_units = size_div_up(args->width, UNIT_COLS);
    size_t begin, end;
    lw_pool_share(args->rows * row_units, 1, part, parts, &begin, &end);
    for (size_t unit = begin; unit < end; unit++)
        sum_columns(args, unit / row_units, unit % row_units * UNIT_COLS);
}

/* What the routers of the running forward chose against what double precision chooses; see lw_check_flips. */
#include "cli/check.h"

#include <math.h>
#include <string.h>

/* Fills routers, unless it is NULL; returns their number. */
static uint32_t routers_find(const lw_plan *plan, lw_check_router *routers)
{
    const lw_entry *entry = &plan->entries[LW_ENTRY_MAIN];
    uint32_t count = 0;
    for (uint32_t i = entry->op_begin; i < entry->op_end; i++) {
        if (plan->ops[i].kind != LW_OP_ROUTE) continue;
        if (routers != NULL) routers[count] = (lw_check_router){ .op = &plan->ops[i] };
        count++;
    }
    return count;
}

static bool router_make(lw_check *check, const lw_plan *plan, lw_check_router *router)
{
    const lw_route_params *params = &router->op->p.route;
    const uint32_t bias_index = router->op->weights[0].index;
    if (bias_index != LW_NONE) {
        const lw_weight *bias = &plan->weights[bias_index];
        float *values = lw_arena_take_array(&check->arena, bias->cols, sizeof *values);
        if (values == NULL) return false;
        lw_weight_dense(bias, 0, 0, values);
        router->bias = values;
    }
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const size_t rows = check->ref.prompts[j].row_count;
        const size_t scores = rows * params->experts, slots = rows * params->top;
        router->choice[j] = lw_arena_take_array(&check->arena, scores, sizeof *router->choice[j]);
        router->chosen[j] = lw_arena_take_array(&check->arena, slots, sizeof *router->chosen[j]);
        if (router->choice[j] == NULL || router->chosen[j] == NULL) return false;
        for (size_t i = 0; i < scores; i++) router->choice[j][i] = (double)NAN;
        for (size_t i = 0; i < slots; i++) router->chosen[j][i] = LW_NONE;
    }
    return true;
}

lw_status lw_check_experts_make(lw_check *check, const lw_plan *plan, lw_diag *d)
{
    const uint32_t count = routers_find(plan, NULL);
    check->has_experts = count > 0;
    if (check->ref.block_count == 0) return LW_OK;
    if (count != check->ref.block_count) {
        return lw_fail(d, LW_BAD_MODEL, "the model has %u blocks with experts and its references %u", count,
                       check->ref.block_count);
    }
    check->routers = lw_arena_take_array(&check->arena, count, sizeof *check->routers);
    if (check->routers == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u routers", count);
    check->router_count = routers_find(plan, check->routers);
    for (uint32_t i = 0; i < count; i++) {
        lw_check_router *router = &check->routers[i];
        if (router->op->p.route.experts != check->ref.experts) {
            return lw_fail(d, LW_BAD_MODEL, "layer %u has %u experts and its references %u",
                           router->op->layer, router->op->p.route.experts, check->ref.experts);
        }
        if (!router_make(check, plan, router)) return lw_fail(d, LW_NO_ROOM, "no memory for a router's rows");
    }
    return LW_OK;
}

/* What ranks expert e. */
static double choice_score(const lw_check_router *router, uint32_t e, double logit)
{
    if (router->op->p.route.kind == LW_ROUTER_SOFTMAX) return logit;
    return 1.0 / (1.0 + exp(-logit)) + (router->bias == NULL ? 0.0 : (double)router->bias[e]);
}

void lw_check_experts_row(lw_check *check, const lw_op *op, uint32_t index, const float *values)
{
    for (uint32_t i = 0; i < check->router_count; i++) {
        lw_check_router *router = &check->routers[i];
        const uint32_t experts = router->op->p.route.experts, top = router->op->p.route.top;
        if (op->out.index == router->op->in[0].index) {
            double *choice = router->choice[check->prompt] + (size_t)index * experts;
            for (uint32_t e = 0; e < experts; e++) choice[e] = choice_score(router, e, (double)values[e]);
        } else if (op == router->op) {
            uint32_t *chosen = router->chosen[check->prompt] + (size_t)index * top;
            for (uint32_t k = 0; k < top; k++) chosen[k] = (uint32_t)values[k];
        }
    }
}

/* ---- comparing ---- */

static bool is_among(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

/* The top ids by score, equal ones in the order of ids. */
static void best_of(const float *scores, uint32_t count, uint32_t top, uint32_t *ids)
{
    for (uint32_t k = 0; k < top; k++) {
        uint32_t best = LW_NONE;
        for (uint32_t e = 0; e < count; e++) {
            if (is_among(ids, k, e)) continue;
            if (best == LW_NONE || scores[e] > scores[best]) best = e;
        }
        ids[k] = best;
    }
}

/* How far the reference puts the experts that only it chose above those that only we chose; -infinity where
 * the sets are equal. */
static double lead_of(const float *scores, const uint32_t *theirs, const uint32_t *ours, uint32_t top)
{
    double worst = (double)INFINITY, best = -(double)INFINITY;
    bool differs = false;
    for (uint32_t k = 0; k < top; k++) {
        if (!is_among(ours, top, theirs[k])) {
            worst = fmin(worst, (double)scores[theirs[k]]);
            differs = true;
        }
        if (!is_among(theirs, top, ours[k])) best = fmax(best, (double)scores[ours[k]]);
    }
    return differs ? worst - best : -(double)INFINITY;
}

/* The largest difference over the experts that are open in the reference. */
static double deviation_of(const double *ours, const float *reference, uint32_t count)
{
    double largest = 0.0;
    for (uint32_t e = 0; e < count; e++) {
        const double apart = fabs(ours[e] - (double)reference[e]);
        if (isfinite(reference[e]) && !(apart <= largest)) largest = apart;
    }
    return largest;
}

/* The lead of a stored row; NaN if it was never seen. */
static double row_lead(const lw_check *check, uint32_t router, uint32_t prompt, uint32_t row)
{
    const lw_check_router *r = &check->routers[router];
    const lw_check_prompt *p = &check->ref.prompts[prompt];
    const uint32_t experts = check->ref.experts, top = r->op->p.route.top;
    const float *reference = p->choice + ((size_t)router * p->row_count + row) * experts;
    const uint32_t *ours = r->chosen[prompt] + (size_t)row * top;
    uint32_t theirs[LW_TOP_MAX];
    for (uint32_t k = 0; k < top; k++) {
        if (ours[k] >= experts) return (double)NAN;
    }
    best_of(reference, experts, top, theirs);
    return lead_of(reference, theirs, ours, top);
}

static double deviation_median(const lw_check *check, uint32_t router)
{
    size_t count = 0;
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        for (uint32_t i = 0; i < p->row_count; i++) {
            const size_t at = (size_t)i * check->ref.experts;
            const float *reference = p->choice + (size_t)router * p->row_count * check->ref.experts + at;
            const double *ours = check->routers[router].choice[j] + at;
            check->sorted[count++] = deviation_of(ours, reference, check->ref.experts);
        }
    }
    return lw_check_median(check->sorted, count);
}

bool lw_check_is_unflipped(const lw_check *check, uint32_t router_end, uint32_t prompt, uint32_t index)
{
    for (uint32_t i = 0; i < router_end; i++) {
        if (row_lead(check, i, prompt, index) != -(double)INFINITY) return false;
    }
    return true;
}

lw_check_flips lw_check_flips_of(const lw_check *check, uint32_t router)
{
    lw_check_flips flips = { .deviation = deviation_median(check, router), .lead_max = -(double)INFINITY };
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        for (uint32_t i = 0; i < check->ref.prompts[j].row_count; i++) {
            const double lead = row_lead(check, router, j, i);
            flips.rows++;
            if (lead == -(double)INFINITY) continue;
            flips.flipped++;
            if (!lw_check_is_unflipped(check, router, j, i)) {
                flips.followed++;
                continue;
            }
            flips.unexplained += !(lead <= LW_CHECK_LEAD_MAX * flips.deviation);
            if (lead <= flips.lead_max) continue;
            flips.lead_max = lead;
            flips.prompt = j;
            flips.row = i;
        }
    }
    return flips;
}

/* What `lanewise check` found, as a table and as JSON. */
#include "cli/check.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>

/* A number, or null where there is none (JSON has no NaN). */
static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The mean, or null of no rows. */
static double logit_distance_mean(const lw_check *check)
{
    return check->logit_distance_sum / (double)check->logit_rows;
}

typedef double ratio_fn(const lw_check *check, uint32_t plane, uint32_t prompt);

/* The draft head's, which has no planes. */
static double draft_ratio(const lw_check *check, uint32_t plane, uint32_t prompt)
{
    (void)plane;
    return lw_check_draft_ratio(check, prompt);
}

/* ---- JSON ---- */

static json_t *tops_object(const lw_check_tops *tops)
{
    return json_pack("{s:i, s:i, s:i}", "same", (int)tops->same, "near_ties", (int)tops->near_ties, "wrong",
                     (int)tops->wrong);
}

static json_t *ratios_object(const lw_check *check, ratio_fn *ratio, uint32_t plane)
{
    json_t *prompts = json_array();
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        json_array_append_new(prompts, real_or_null(ratio(check, plane, j)));
    }
    return json_pack("{s:o, s:o}", "pooled", real_or_null(ratio(check, plane, LW_CHECK_PROMPTS)), "prompts",
                     prompts);
}

static json_t *layers_list(const lw_check *check)
{
    json_t *layers = json_array();
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) {
        json_t *layer = ratios_object(check, lw_check_ratio, plane);
        json_object_set_new(layer, "layer", json_integer(plane - 1));
        json_array_append_new(layers, layer);
    }
    return layers;
}

/* Null where the model has no experts or the references no choice scores. */
static json_t *experts_list(const lw_check *check)
{
    if (check->router_count == 0) return json_null();
    json_t *list = json_array();
    for (uint32_t i = 0; i < check->router_count; i++) {
        const lw_check_flips flips = lw_check_flips_of(check, i);
        json_array_append_new(
            list, json_pack("{s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "layer",
                            (int)check->routers[i].op->layer, "rows", (int)flips.rows, "flipped",
                            (int)flips.flipped, "followed", (int)flips.followed, "unexplained",
                            (int)flips.unexplained, "lead_max", real_or_null(flips.lead_max), "deviation",
                            real_or_null(flips.deviation)));
    }
    return list;
}

/* Null where the model or the references have no head. */
static json_t *head_object(const lw_check *check)
{
    if (!check->head.is_there) return json_null();
    json_t *head = ratios_object(check, draft_ratio, 0);
    json_object_set_new(head, "drafts", tops_object(&check->head.drafts));
    json_object_set_new(head, "unjudged", json_integer(check->head.unjudged));
    return head;
}

json_t *lw_check_object(const lw_check *check, json_t *failures)
{
    json_t *logits = json_pack("{s:i, s:o, s:o, s:o}", "rows", (int)check->logit_rows, "distance_mean",
                               real_or_null(logit_distance_mean(check)), "distance_max",
                               real_or_null(check->logit_distance_max), "tops", tops_object(&check->tops));
    return json_pack("{s:b, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:O}", "passed",
                     json_array_size(failures) == 0, "embedding_rows", (int)check->embed_rows,
                     "embedding_rows_wrong", (int)check->embed_rows_wrong, "ratios_of",
                     check->has_experts ? "medians" : "means", "layers", layers_list(check), "experts",
                     experts_list(check), "logits", logits, "greedy", tops_object(&check->greedy),
                     "draft_head", head_object(check), "failures", failures);
}

/* ---- the table ---- */

static void print_tops(const char *what, const lw_check_tops *tops)
{
    printf("%s: %u as the reference, %u others at near ties, %u wrong\n", what, tops->same,
           tops->near_ties, tops->wrong);
}

static void print_ratios(const lw_check *check, ratio_fn *ratio, uint32_t plane)
{
    printf(" %8.3f", ratio(check, plane, LW_CHECK_PROMPTS));
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) printf(" %8.3f", ratio(check, plane, j));
    printf("\n");
}

static void print_layers(const lw_check *check)
{
    printf("%s of the distance from double precision over that of a run in the same precision\n%-9s %8s",
           check->has_experts ? "median" : "mean", "layer", "pooled");
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) printf("       p%u", j);
    printf("\n%-9s %s\n", "embedding", check->embed_rows_wrong == 0 ? "bit-equal" : "differs");
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) {
        printf("%-9u", plane - 1);
        print_ratios(check, lw_check_ratio, plane);
    }
    if (check->head.is_there) {
        printf("%-9s", "draft");
        print_ratios(check, draft_ratio, 0);
    }
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        const uint32_t rows = check->ref.prompts[j].row_count;
        if (rows >= LW_CHECK_ROWS_MIN) continue;
        printf("p%u has %u stored rows: judged in the pool only\n", j, rows);
    }
}

static void print_experts(const lw_check *check)
{
    if (!check->has_experts) return;
    if (check->router_count == 0) {
        printf("experts: no reference for experts\n");
        return;
    }
    for (uint32_t i = 0; i < check->router_count; i++) {
        const lw_check_flips flips = lw_check_flips_of(check, i);
        printf("experts of layer %u: %u of %u rows chose others", check->routers[i].op->layer, flips.flipped,
               flips.rows);
        if (flips.flipped > 0) {
            printf(": %u at near ties, %u after such a one, %u unexplained; largest lead %.3g, scores are "
                   "off by %.3g",
                   flips.flipped - flips.followed - flips.unexplained, flips.followed, flips.unexplained,
                   flips.lead_max, flips.deviation);
        }
        printf("\n");
    }
}

static void print_head(const lw_check *check)
{
    if (!check->head.is_there) return;
    printf("draft: the draft head's outputs, over the last layer's gap\n");
    print_tops("drafts", &check->head.drafts);
    if (check->head.unjudged == 0) return;
    printf("%u other drafts at rows that took other experts, or may have\n", check->head.unjudged);
}

void lw_check_print(const lw_check *check, const json_t *failures)
{
    print_layers(check);
    print_experts(check);
    printf("logits: %u rows, relative distance %.5f on average, %.5f at most\n", check->logit_rows,
           logit_distance_mean(check), check->logit_distance_max);
    print_tops("logits top tokens", &check->tops);
    print_tops("greedy top tokens", &check->greedy);
    print_head(check);
    for (size_t i = 0; i < json_array_size(failures); i++) {
        printf("broken: %s\n", json_string_value(json_array_get(failures, i)));
    }
    printf("%s\n", json_array_size(failures) == 0 ? "passed" : "failed");
}

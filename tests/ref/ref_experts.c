/* See ref_experts.h. Everything is sorted whole. */
#include "ref_experts.h"

#include <math.h>
#include <stdlib.h>

typedef struct entry { double score, order; size_t id; } entry;

static int best_first(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->score < y->score || x->score > y->score) return x->score < y->score ? 1 : -1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void sort(const ref_router *router, entry *entries, size_t count)
{
    const double sign = router->mistake == REF_ROUTE_TIES_UP ? -1 : 1;
    for (size_t i = 0; i < count; i++) entries[i].order = sign * (double)entries[i].id;
    qsort(entries, count, sizeof *entries, best_first);
}

/* Among the first `taken` and the one after them. */
static double smallest_gap(const entry *sorted, size_t taken, size_t count)
{
    double gap = INFINITY;
    for (size_t i = 0; i < taken && i + 1 < count; i++) {
        const double step = sorted[i].score - sorted[i + 1].score;
        if (step > 0) gap = fmin(gap, step);
    }
    return gap;
}

static void score(const ref_router *router, const double *logits, double *scores)
{
    double largest = -INFINITY, sum = 0;
    for (size_t e = 0; e < router->experts; e++) largest = fmax(largest, logits[e]);
    for (size_t e = 0; e < router->experts; e++) sum += exp(logits[e] - largest);
    for (size_t e = 0; e < router->experts; e++)
        scores[e] = router->softmax ? exp(logits[e] - largest) / sum : 1 / (1 + exp(-logits[e]));
}

/* Marks the experts that may be chosen. */
static double open_groups(const ref_router *router, const double *choice, bool *open)
{
    const size_t size = router->experts / router->groups;
    entry groups[REF_EXPERTS_MAX], members[REF_EXPERTS_MAX];
    for (size_t g = 0; g < router->groups; g++) {
        for (size_t i = 0; i < size; i++) members[i] = (entry){ .score = choice[g * size + i], .id = i };
        sort(router, members, size);
        groups[g] = (entry){ .score = members[0].score + (size > 1 ? members[1].score : 0), .id = g };
    }
    sort(router, groups, router->groups);
    const bool all = router->groups == 1 || router->mistake == REF_ROUTE_NO_GROUPS;
    for (size_t e = 0; e < router->experts; e++) open[e] = all;
    if (all) return INFINITY;
    for (size_t i = 0; i < router->top_groups * size; i++) open[groups[i / size].id * size + i % size] = true;
    return smallest_gap(groups, router->top_groups, router->groups);
}

double ref_route(const ref_router *router, const double *logits, size_t *ids, double *weights)
{
    double scores[REF_EXPERTS_MAX], choice[REF_EXPERTS_MAX], sum = 0;
    bool open[REF_EXPERTS_MAX];
    entry entries[REF_EXPERTS_MAX];
    size_t count = 0;
    score(router, logits, scores);
    for (size_t e = 0; e < router->experts; e++)
        choice[e] = scores[e] + (router->bias == NULL ? 0 : router->bias[e]);
    const double group_gap = open_groups(router, choice, open);
    for (size_t e = 0; e < router->experts; e++)
        if (open[e]) entries[count++] = (entry){ .score = choice[e], .id = e };
    sort(router, entries, count);
    const double *const weighed = router->mistake == REF_ROUTE_BIASED_WEIGHTS ? choice : scores;
    for (size_t i = 0; i < router->top; i++) sum += weighed[entries[i].id];
    const bool divided = (router->softmax || router->normalise) && router->mistake != REF_ROUTE_ALL_SHARES;
    for (size_t i = 0; i < router->top; i++) {
        ids[i] = entries[i].id;
        weights[i] = weighed[ids[i]] / (divided ? sum + (router->softmax ? 0 : 1e-20) : 1) * router->scale;
    }
    return fmin(group_gap, smallest_gap(entries, router->top, count));
}

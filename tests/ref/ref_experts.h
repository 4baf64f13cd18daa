/* Choosing and summing experts in FP64, from the formulas:
 *   softmax: s = e^l / sum of e^l over all experts; sigmoid: s = 1 / (1 + e^-l); choice score c = s + bias
 *   groups > 1: only experts of the top_groups groups with the largest sum of their two best c
 *   chosen: the top largest c, equal ones by id; weight = s / (sum of s over the chosen [+ 1e-20]) * scale
 */
#ifndef LW_TESTS_REF_EXPERTS_H
#define LW_TESTS_REF_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>

/* Deliberate mistakes, for controls that a check must catch. */
typedef enum ref_route_mistake {
    REF_ROUTE_RIGHT,
    REF_ROUTE_TIES_UP,        /* equal scores: the higher id */
    REF_ROUTE_NO_GROUPS,      /* every expert may be chosen */
    REF_ROUTE_BIASED_WEIGHTS, /* weights are of the choice scores */
    REF_ROUTE_ALL_SHARES,     /* weights are not divided by their sum */
    REF_ROUTE_MISTAKE_COUNT
} ref_route_mistake;

enum { REF_EXPERTS_MAX = 512 };

typedef struct ref_router {
    bool softmax;
    size_t experts, top, groups, top_groups;
    const double *bias;        /* [experts] or NULL */
    bool normalise;            /* of sigmoid; softmax is always renormalised */
    double scale;
    ref_route_mistake mistake;
} ref_router;

/* ids and weights: [top]. Returns the smallest gap between two unequal choice scores, or sums of groups, that
 * stand next to one another down to the first that was not chosen: a choice made in fp32 may differ only
 * where it is below fp32's error. */
double ref_route(const ref_router *router, const double *logits, size_t *ids, double *weights);

#endif

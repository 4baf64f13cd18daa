/* Page pools for so many whole lanes, whatever their groups reach. */
#ifndef LW_TESTS_POOL_MADE_H
#define LW_TESTS_POOL_MADE_H

#include "lane/pages.h"

static inline lw_status pool_made(lw_page_pool *pool, const lw_plan *plan, uint32_t lanes, uint32_t context,
                                  uint32_t rows_max)
{
    uint32_t counts[LW_PLAN_REACHES_MAX] = { 0 };
    for (uint32_t g = 0; g < plan->reach_count; g++)
        counts[g] = lanes * lw_pages_needed(plan->reaches[g], context, rows_max);
    return lw_page_pool_init_counts(pool, plan, counts, context, NULL);
}

#endif

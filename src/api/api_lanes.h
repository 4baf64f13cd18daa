/* The device, the compiled plan, the pages and the lane core of one model; api_lanes.c opens them. */
#ifndef LW_API_API_LANES_H
#define LW_API_API_LANES_H

#include "api/api.h"
#include "lane/core.h"
#include "lane/pages.h"

typedef struct lw__lanes {
    const lw_device_table *table;
    lw_device *device;
    lw_exec *exec;
    lw_plan plan;
    lw_page_pool pool;
    lw_core *core;
    uint32_t lane_count, context, rows_max;
    uint64_t cache_bytes;
    uint32_t page_counts[LW_PLAN_REACHES_MAX];
    uint64_t page_bytes[LW_PLAN_REACHES_MAX];
} lw__lanes;

/* Weights are loaded here. A half-open object is closed by lw__lanes_close. */
lw_status lw__lanes_open(lw__lanes *lanes, const lw_model *model, const lw_family *family, lw_diag *d)
    LW_MUST_USE;
void lw__lanes_close(lw__lanes *lanes);

#endif

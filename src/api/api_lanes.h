/* The engine of one model and the lane core that has all its lanes; api_lanes.c opens them. */
#ifndef LW_API_API_LANES_H
#define LW_API_API_LANES_H

#include "api/api.h"
#include "lane/engine.h"

typedef struct lw__lanes {
    lw_engine *engine;
    lw_core_device device;       /* lent by the engine */
    lw_core *core;
    uint64_t cache_bytes;
} lw__lanes;

/* Weights are loaded here. A half-open object is closed by lw__lanes_close. */
lw_status lw__lanes_open(lw__lanes *lanes, const lw_model *model, lw_diag *d) LW_MUST_USE;
void lw__lanes_close(lw__lanes *lanes);

#endif

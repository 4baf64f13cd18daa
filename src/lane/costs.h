/* What a round of so many rows takes on this machine, and a step of so many chains of its draft head: timed
 * when a model is loaded, kept in a small file so that the next load need not. Costs steer how many drafts
 * and prompt rows a round takes; no token depends on them, so a wrong or missing file costs speed only.
 */
#ifndef LW_LANE_COSTS_H
#define LW_LANE_COSTS_H

#include "lane/core.h"

enum {
    LW_COST_CLASSES_MAX = 16,      /* row counts 1, 2, 4, ... */
    LW_COSTS_KEY_CHARS = 64,       /* of a SHA-256 in hex */
};

typedef struct lw_cost_list {
    lw_cost items[LW_COST_CLASSES_MAX];
    uint32_t count;
} lw_cost_list;

typedef struct lw_timings {
    lw_cost_list rounds;
    lw_cost_list steps;            /* none without a draft head */
} lw_timings;

/* Times rounds and steps on device, which nobody else uses meanwhile: row counts 1, 2, 4... up to rows_max,
 * of chains as many as a window has rows, and for as long as one stays short. */
lw_status lw_costs_time(const lw_core_device *device, uint32_t rows_max, uint32_t wanted_max, lw_timings *out,
                        lw_diag *d) LW_MUST_USE;

/* What the costs depend on: the program's own bytes, the device's description, the model's shape. */
void lw_costs_key(const char *device, const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max,
                  char key[LW_COSTS_KEY_CHARS + 1]);

/* Reads what an earlier save left under key. LW_NOT_FOUND: nothing; LW_BAD_INPUT: not what save writes. */
lw_status lw_costs_read(const char *dir, const char *key, lw_timings *out, lw_diag *d) LW_MUST_USE;

/* As lw_kept_save has it. */
lw_status lw_costs_save(const char *dir, const char *key, const lw_timings *timings, lw_diag *d) LW_MUST_USE;

#endif

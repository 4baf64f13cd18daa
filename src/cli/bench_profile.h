/* Where a decode step's time goes: the ops of the model's forward, each timed by the device. */
#ifndef LW_CLI_BENCH_PROFILE_H
#define LW_CLI_BENCH_PROFILE_H

#include "cli/bench_bytes.h"
#include "device/device.h"

#include <jansson.h>

/* One kind of op; the matrix of the logits is a kind of its own. Times are sums over ops of each one's median
 * over the steps. */
typedef struct lw_profile_line {
    const char *name;
    uint32_t ops;
    double ns;
    lw_read_bytes reads;
} lw_profile_line;

typedef struct lw_profile {
    const lw_plan *plan;
    float *ns; /* [steps_max][ops of the forward] */
    uint32_t steps, steps_max;
    bool is_on; /* the forwards that run are decode steps */
} lw_profile;

/* To be set before the model is loaded; the profile is borrowed, and told once it is made. */
lw_trace lw_profile_trace(lw_profile *profile);

lw_status lw_profile_make(lw_profile *profile, const lw_plan *plan, uint32_t steps, lw_diag *d) LW_MUST_USE;
void lw_profile_free(lw_profile *profile);

/* Around each decode step. */
void lw_profile_step_begin(lw_profile *profile);
void lw_profile_step_end(lw_profile *profile);

/* Lines by falling time; returns their number. */
size_t lw_profile_lines(const lw_profile *profile, uint32_t positions,
                        lw_profile_line lines[LW_OP_COUNT + 1]);

/* The time of all ops with each layer's counted scales[layer] times, over that without; 1 without steps. */
double lw_profile_stretch(const lw_profile *profile, const double *scales);

/* A table on standard output; read_bytes_s is what memory gives. */
void lw_profile_print(const lw_profile *profile, uint32_t positions, double read_bytes_s);
json_t *lw_profile_json(const lw_profile *profile, uint32_t positions);

#endif

/* `lanewise check --ops`: every op of ops.list on a device, without a model. A case (check_ops_cases.c) is a
 * small plan around one op, its weights and inputs random of a fixed seed (check_ops_made.c).
 * check_ops_run.c runs it and judges; check_ops.c goes through the cases and reports.
 *
 * A case passes if
 * 1. what a stream's rows give token by token and alone, they give bit for bit beside another stream: all
 *    rows at once, and in changing cuts;
 * 2. they are what the generic kernels of the cpu device give, which the tests hold to double precision,
 *    within the bound of lw_ops_bounds: devices sum in orders of their own;
 * 3. with one number of an input or of a weight planted as another on the cpu's side, they are not; of an
 *    input, the rows before it and the other stream's still are.
 */
#ifndef LW_CLI_CHECK_OPS_H
#define LW_CLI_CHECK_OPS_H

#include "base/rng.h"
#include "cli/load.h"
#include "ops/record.h"

enum {
    LW_OPS_TOKENS = 48,        /* rows of each table that is embedded from */
    LW_OPS_LANES = 2,
    LW_OPS_LENGTH_MAX = 576,   /* positions of a stream: past one chunk of attention */
    LW_OPS_WEIGHTS_MAX = 12,
    LW_OPS_PROBES_MAX = 3,
    LW_OPS_TEXT_BYTES = 256,
};

/* Axes of a weight, as lw_weight has them; global 0: 1. */
typedef struct lw_ops_form {
    lw_map map;
    uint32_t bits, group, group_rows;
    lw_dtype scale_type;
    bool has_bias;
    float bias_per_scale, global;
    bool divides;
} lw_ops_form;

typedef enum lw_ops_part { LW_OPS_CODES, LW_OPS_SCALES, LW_OPS_BIASES, LW_OPS_PARTS } lw_ops_part;

/* A weight in memory; a part that it lacks has no bytes. All of it lives in the plan's arena. */
typedef struct lw_ops_weight {
    lw_tensor parts[LW_OPS_PARTS];
    uint32_t stack_count;
} lw_ops_weight;

/* Random numbers of the form and of shape (stack, rows, cols). After LW_NO_ROOM recording may go on, but
 * nothing may read the weight. */
lw_status lw_ops_weight_make(lw_plan *plan, lw_rng *rng, const lw_ops_form *form, const uint32_t shape[3],
                             lw_ops_weight *made, lw_wref *out, lw_diag *d) LW_MUST_USE;
/* Makes one number of the part another, in every member of a stack: in its second row, where it has one. Of
 * packed codes all in code_bytes bytes. */
void lw_ops_weight_plant(lw_ops_weight *made, lw_ops_part part, lw_map map, size_t code_bytes);

typedef struct lw_ops_case lw_ops_case;

/* A case's plan while it is recorded, and after. */
typedef struct lw_ops_plan {
    lw_plan plan;
    lw_rng rng;
    lw_ops_weight weights[LW_OPS_WEIGHTS_MAX];
    lw_status status;          /* of the weights that were made so far */
    lw_diag *d;
    uint32_t observed;         /* the op whose output is compared */
    /* columns of the first weight, a bf16 table, that reach the op by different inputs */
    uint32_t probes[LW_OPS_PROBES_MAX], probe_count;
} lw_ops_plan;

struct lw_ops_case {
    lw_op_kind op;             /* LW_OP_COUNT: a layer, for the device's fusions */
    const char *form;          /* what tells it from others of the op; NULL: the weight's format */
    void (*record)(lw_ops_plan *p, const lw_ops_case *c);
    uint32_t length;           /* positions of a stream */
    uint32_t a, b, c, e;       /* what record takes them for */
    lw_ops_form weight;
};
extern const lw_ops_case lw_ops_cases[];
extern const uint32_t lw_ops_case_count;
/* "add", or "layer". */
const char *lw_ops_case_name(const lw_ops_case *c);
/* The case's plan, to be closed by lw_plan_deinit also after a failure. */
lw_status lw_ops_plan_make(lw_ops_plan *p, uint32_t index, lw_diag *d) LW_MUST_USE;

/* How far an output may be off: so many steps of bf16 at its size, and a share of the largest output of its
 * row (or, own, of itself). Both 0: not at all. */
typedef struct lw_ops_bound {
    double steps, share;
    bool own;
    const char *reason;
} lw_ops_bound;
extern const lw_ops_bound lw_ops_bounds[LW_OP_COUNT + 1];

/* What came of a case. */
typedef struct lw_ops_result {
    bool passed;
    double worst;              /* error over its bound; 0 where both have the same bits */
    uint32_t planted, caught;
    double seconds;
    char failure[LW_OPS_TEXT_BYTES]; /* empty: none */
} lw_ops_result;

typedef struct lw_ops_devices {
    const lw_device_table *table;
    lw_device *device;
    lw_device *plain;          /* the same without fusions */
    const lw_device_table *cpu_table;
    lw_device *cpu;            /* generic kernels */
    bool act_int8;             /* linears take their inputs in int8, where their weights do */
} lw_ops_devices;

/* A status other than LW_OK: there was no memory, or the cpu failed. What the device does wrong, refusing
 * too, is a result. */
lw_status lw_ops_case_run(const lw_ops_devices *devices, uint32_t index, lw_ops_result *result, lw_diag *d)
    LW_MUST_USE;

/* All cases on the device that the options name, and the report; *object is for --json. */
lw_status lw_ops_check(const lw_term *term, const lw_load_options *load, json_t **object, lw_diag *d)
    LW_MUST_USE;
bool lw_ops_passed(const json_t *object);
void lw_ops_print(const json_t *object);

#endif

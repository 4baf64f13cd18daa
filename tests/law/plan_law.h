/* Running a plan's streams through a whole device: whatever cut, company, order of pages, tree or rejected
 * guess they come in, and what each op gave each position of each stream, as a trace keeps it.
 *
 * The program that includes this defines VOCAB, and LENGTH of a stream, first.
 */
#ifndef LW_TESTS_PLAN_LAW_H
#define LW_TESTS_PLAN_LAW_H

#include "cpu_law.h"

#include "ops/record.h"

enum {
    LANES = 2, OPEN = 9,
    PAGES = LENGTH / LW_PAGE_POSITIONS + 2,
    VALUES_MAX = 96, WEIGHTS_MAX = 64, ROWS_MAX = LANES * LENGTH,
    LANE_NONE = LANES,                         /* of rows that nobody checks */
};

/* A weight in memory. */
typedef struct made {
    lw_tensor codes, scales, biases;
    void *bytes[3];
} made;

typedef float *kept[VALUES_MAX][LANES];        /* (positions, width) of each base value and lane */

typedef struct bench {
    lw_plan plan;
    made weights[WEIGHTS_MAX];
    uint32_t weight_count;
    const lw_device_table *table;
    lw_device_options options;
    lw_device *device;
    lw_exec *exec;
    int32_t tokens[LANES][LENGTH];
    uint32_t pages[LANES][PAGES];
    kept *into;                                /* where the trace writes; NULL: none */
    /* of the batch in flight */
    lw_row rows[ROWS_MAX];
    lw_batch_lane lanes[LANES];
    uint32_t row_count;
    size_t row_lane[ROWS_MAX];
} bench;

/* ---- a plan ---- */

static inline lw_tensor tensor_of(lw_dtype dtype, uint32_t rows, uint32_t cols, void *bytes,
                                  size_t item_bytes)
{
    return (lw_tensor){ .name = "w", .file = "memory", .dtype = dtype, .dim_count = 2, .dims = { rows, cols },
                        .bytes = bytes, .byte_count = (uint64_t)rows * cols * item_bytes };
}

static inline made *weight_slot(bench *b)
{
    assert_true(b->weight_count < WEIGHTS_MAX);
    return &b->weights[b->weight_count++];
}

/* bf16 numbers. */
static inline lw_wref dense(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    made *m = weight_slot(b);
    m->bytes[0] = law_bf(rng, (size_t)rows * cols, 0.3f);
    m->codes = tensor_of(LW_DTYPE_BF16, rows, cols, m->bytes[0], 2);
    return lw_plan_weight(&b->plan, &(lw_weight){ .name = "dense", .stack_count = 1, .rows = rows,
                                                  .cols = cols, .map = LW_MAP_BF16, .code_bits = 16,
                                                  .global_scale = 1.0f, .codes = &m->codes });
}

/* fp32 numbers. */
static inline lw_wref vector(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    made *m = weight_slot(b);
    m->bytes[0] = law_floats(rng, (size_t)rows * cols, 0.7f);
    m->codes = tensor_of(LW_DTYPE_F32, rows, cols, m->bytes[0], 4);
    return lw_plan_weight(&b->plan, &(lw_weight){ .name = "vector", .stack_count = 1, .rows = rows,
                                                  .cols = cols, .map = LW_MAP_FP32, .code_bits = 32,
                                                  .global_scale = 1.0f, .codes = &m->codes });
}

/* Codes with bf16 scales and biases. */
static inline lw_wref affine(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols, uint32_t bits,
                             uint32_t group)
{
    made *m = weight_slot(b);
    const uint32_t words = cols * bits / 32, groups = cols / group;
    uint32_t *codes = law_make((size_t)rows * words, sizeof *codes);
    for (size_t i = 0; i < (size_t)rows * words; i++)
        codes[i] = (uint32_t)lw_rng_below(rng, UINT64_C(1) << 32);
    m->bytes[0] = codes;
    m->bytes[1] = law_bf(rng, (size_t)rows * groups, bits == 4 ? 0.03f : 0.002f);
    m->bytes[2] = law_bf(rng, (size_t)rows * groups, 0.1f);
    m->codes = tensor_of(LW_DTYPE_U32, rows, words, m->bytes[0], 4);
    m->scales = tensor_of(LW_DTYPE_BF16, rows, groups, m->bytes[1], 2);
    m->biases = tensor_of(LW_DTYPE_BF16, rows, groups, m->bytes[2], 2);
    return lw_plan_weight(&b->plan, &(lw_weight){ .name = "affine",
                                                  .stack_count = 1,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .map = LW_MAP_INTEGER,
                                                  .code_bits = bits,
                                                  .group = group,
                                                  .scale_type = LW_DTYPE_BF16,
                                                  .has_bias = true,
                                                  .global_scale = 1.0f,
                                                  .codes = &m->codes,
                                                  .scales = &m->scales,
                                                  .biases = &m->biases });
}

static inline bench *bench_make(void (*record)(bench *b, lw_rng *rng), lw_rng *rng)
{
    bench *b = law_make(1, sizeof *b);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    record(b, rng);
    assert_true(b->plan.value_count <= VALUES_MAX);
    for (size_t i = 0; i < LANES * LENGTH; i++)
        b->tokens[i / LENGTH][i % LENGTH] = (int32_t)lw_rng_below(rng, VOCAB);
    return b;
}

static inline void bench_free(bench *b)
{
    for (uint32_t i = 0; i < b->weight_count; i++) {
        for (int j = 0; j < 3; j++) free(b->weights[i].bytes[j]);
    }
    lw_plan_deinit(&b->plan);
    free(b);
}

/* ---- what ops gave ---- */

static inline size_t value_numbers(const lw_value *v)
{
    return (size_t)v->width * v->slots;
}

static inline kept *kept_make(const bench *b)
{
    kept *k = law_make(1, sizeof *k);
    for (uint32_t v = 0; v < b->plan.value_count; v++) {
        for (size_t l = 0; l < LANES; l++)
            (*k)[v][l] = law_make(LENGTH * value_numbers(&b->plan.values[v]), sizeof(float));
    }
    return k;
}

static inline void kept_free(const bench *b, kept *k)
{
    for (uint32_t v = 0; v < b->plan.value_count; v++) {
        for (size_t l = 0; l < LANES; l++) free((*k)[v][l]);
    }
    free(k);
}

/* Whether every op gave a lane's positions [0, count) the same bits. */
static inline bool kept_same(const bench *b, const kept *a, const kept *c, size_t lane, size_t count)
{
    bool same = true;
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const uint32_t out = b->plan.ops[i].out.index;
        if (out == LW_NONE) continue;
        const size_t bytes = count * value_numbers(&b->plan.values[out]) * sizeof(float);
        same = same && memcmp((*a)[out][lane], (*c)[out][lane], bytes) == 0;
    }
    return same;
}

static inline bool is_wanted(size_t position)
{
    return position % 3 == 0;
}

/* A trace's row: a slot of a row of the batch, or of one whose logits are wanted. */
static inline void on_row(void *context, const lw_op *op, const lw_value *value, uint32_t row,
                          const float *values)
{
    bench *b = context;
    const uint32_t slot = row % value->slots, index = row / value->slots;
    uint32_t at = index;
    if (value->space == LW_SPACE_WANTED) {
        uint32_t wanted = 0;
        for (at = 0; !b->rows[at].wanted || wanted++ < index;) at++;
    }
    if (b->row_lane[at] == LANE_NONE) return;
    float *to = (*b->into)[op->out.index][b->row_lane[at]];
    to += b->rows[at].position * value_numbers(value) + (size_t)slot * value->width;
    memcpy(to, values, value->width * sizeof *to);
}

#include "plan_streams.h"

#endif

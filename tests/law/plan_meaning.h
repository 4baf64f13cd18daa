/* What each op of a plan means, in FP64, from what its inputs held (plan_law.h); how far a device may be off
 * it; and mistakes on purpose that must not pass. Recurrences and experts stand in programs of their own.
 */
#ifndef LW_TESTS_PLAN_MEANING_H
#define LW_TESTS_PLAN_MEANING_H

#include "plan_law.h"

#include "../ref/ref_linear.h"
#include "../ref/ref_ops.h"

enum { MEANING_COLS = 2048, SPOTS = 300 };

/* Which number of a stream is asked for. */
typedef struct spot { size_t lane, position, column; } spot;

typedef enum mistake {
    RIGHT,
    OTHER_STREAM,
    NEXT_ROW,
    OTHER_WINDOW,
    OLDER_TAPS,
    SWAPPED,
    NEXT_COLUMN
} mistake;

/* A number, and how far fp32 may be from it before the output is rounded; exact: the output is it. */
typedef struct meaning {
    double value, slack;
    bool exact;
} meaning;

/* What a value held for a spot's position; views reach into their base. */
static inline const float *held(const bench *b, const kept *k, lw_ref x, spot at)
{
    const lw_value *v = &b->plan.values[x.index];
    return (*k)[v->base][at.lane] + at.position * b->plan.values[v->base].width + v->offset;
}

/* The index-th number of a weight that is one vector. */
static inline double number_of(const bench *b, lw_wref ref, size_t index)
{
    const lw_weight *w = &b->plan.weights[ref.index];
    double row[MEANING_COLS];
    lw_weight_row_f64(w, 0, (uint32_t)(index / w->cols), row);
    return row[index % w->cols];
}

static inline meaning meaning_linear(const bench *b, const lw_op *op, const float *x, size_t column)
{
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    double row[MEANING_COLS], size = 0, sum = 0;
    lw_weight_row_f64(w, 0, (uint32_t)column, row);
    float scales[MEANING_COLS], biases[MEANING_COLS];
    if (w->group > 0) lw_weight_scales(w, 0, (uint32_t)column, scales, biases);
    for (size_t i = 0; i < w->cols; i++) {
        const double bias = w->group == 0 ? 0 : 2 * fabs((double)biases[i / w->group]);
        sum += row[i] * (double)x[i];
        size += (fabs(row[i]) + bias) * fabs((double)x[i]);
    }
    /* A chain of a group, then of groups, then of slices. */
    return (meaning){ sum, (128 + 32 + 3) * REF_EPS_F32 * size, false };
}

/* The inputs of the op that fills a state. */
static inline const lw_op *store_of(const bench *b, lw_sref state, lw_op_kind kind)
{
    const lw_op *store = NULL;
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->kind == kind && op->state.index == state.index) store = op;
    }
    assert_non_null(store);
    return store;
}

static inline meaning meaning_attend(const bench *b, const kept *k, const lw_op *op, spot at, uint32_t window)
{
    const lw_op *store = store_of(b, op->state, LW_OP_KV_STORE);
    const size_t dim = op->p.attend.head_dim, head = at.column / dim, column = at.column % dim;
    const size_t kv = head / (op->p.attend.heads / op->p.attend.heads_kv) * dim;
    size_t first = window != 0 && at.position >= window ? at.position - window + 1 : 0;
    first = size_max(first, op->p.attend.first);
    if (first > at.position) return (meaning){ 0, 0, true };
    const size_t count = at.position + 1 - first;
    double *all = law_make(2 * count * dim, sizeof *all), q[256], y[256], sizes[256];
    for (size_t i = 0; i < count * dim; i++) {
        const spot there = { at.lane, first + i / dim, 0 };
        all[i] = (double)held(b, k, store->in[0], there)[kv + i % dim];
        all[count * dim + i] = (double)held(b, k, store->in[1], there)[kv + i % dim];
    }
    for (size_t i = 0; b->plan.states[op->state.index].kv == LW_KV_INT8 && i < 2 * count; i++)
        ref_int8(all + i * dim, dim, all + i * dim);
    for (size_t i = 0; i < dim; i++) q[i] = (double)held(b, k, op->in[0], at)[head * dim + i];
    const ref_query query = { q, all, all + count * dim, count, dim, (double)op->p.attend.scale };
    ref_attend(&query, y, sizes);
    /* A score that is off by e scales its weight by 1 + e, above and below the line. */
    const double score = 2 * ((double)dim + 8) * REF_EPS_F32 * (1 + ref_score_size(&query));
    const double sums = 2 * (double)(count + 32) * REF_EPS_F32;
    free(all);
    return (meaning){ y[column], (score + sums) * sizes[column], false };
}

static inline meaning meaning_norm(const bench *b, const lw_op *op, const float *x, size_t column)
{
    const size_t segment = op->p.norm.segment, begin = column / segment * segment;
    double squares = 0;
    for (size_t i = 0; i < segment; i++) squares += (double)x[begin + i] * (double)x[begin + i];
    const double r = (double)x[column] / sqrt(squares / (double)segment + (double)op->p.norm.eps);
    const double w = number_of(b, op->weights[0], column - begin);
    const double by = op->p.norm.scale == LW_NORM_UNIT ? 1 + w : w;
    const double twice = op->p.norm.scale == LW_NORM_TWICE ? REF_EPS_BF16 : 0;
    const double slack = fabs(by * r) * (twice * 1.01 + 32 * REF_EPS_F32) + 2 * REF_EPS_F32 * fabs(r);
    return (meaning){ by * r, slack, false };
}

static inline meaning meaning_norm_gate(const bench *b, const lw_op *op, const float *x, const float *gate,
                                        size_t column)
{
    const size_t segment = op->p.norm_gate.segment, begin = column / segment * segment;
    const lw_weight *weight = &b->plan.weights[op->weights[0].index];
    const size_t shared = (size_t)weight->rows * weight->cols == segment ? 0 : begin;
    double in[MEANING_COLS], open[MEANING_COLS], w[MEANING_COLS], out[MEANING_COLS];
    for (size_t j = 0; j < segment; j++) {
        in[j] = (double)x[begin + j];
        open[j] = (double)gate[begin + j];
        w[j] = number_of(b, op->weights[0], shared + j);
    }
    ref_gated_norm(&(ref_norm_gate){ in, open, w, segment, segment, (double)op->p.norm_gate.eps,
                                     op->p.norm_gate.gate_first }, out);
    /* Two sigmoids, of 8 eps each, and the sum of squares. */
    return (meaning){ out[column - begin], 64 * REF_EPS_F32 * fabs(out[column - begin]), false };
}

static inline meaning meaning_rope(const bench *b, const lw_op *op, const float *x, spot at)
{
    const lw_rope_table *table = &b->plan.ropes[op->p.rope.table];
    const size_t half = table->half, i = at.column % op->p.rope.head_dim, begin = at.column - i;
    const size_t pair = i < half ? i : i - half;
    if (i >= 2 * half) return (meaning){ (double)x[at.column], 0, true };
    const double angle = (double)at.position * table->frequency[pair];
    const double left = (double)x[begin + pair], right = (double)x[begin + pair + half];
    const double value =
        i < half ? left * cos(angle) - right * sin(angle) : right * cos(angle) + left * sin(angle);
    return (meaning){ value, 4 * REF_EPS_F32 * (fabs(left) + fabs(right)), false };
}

static inline meaning meaning_conv(const bench *b, const kept *k, const lw_op *op, spot at, size_t older)
{
    const size_t taps = op->p.conv.taps;
    double w[MEANING_COLS], sum = 0, size = 0;
    lw_weight_row_f64(&b->plan.weights[op->weights[0].index], 0, (uint32_t)at.column, w);
    for (size_t tap = 0; tap < taps; tap++) {
        if (at.position + tap < taps - 1 + older) continue;
        const spot there = { at.lane, at.position + tap + 1 - taps - older, 0 };
        const double x = (double)held(b, k, op->in[0], there)[at.column];
        sum += w[tap] * x;
        size += fabs(w[tap] * x);
    }
    if (op->weights[1].index != LW_NONE) {
        const double bias = number_of(b, op->weights[1], at.column);
        sum += bias;
        size += fabs(bias);
    }
    const double slack = ((double)taps + 1) * REF_EPS_F32 * size;
    if (!op->p.conv.silu) return (meaning){ sum, slack, false };
    /* silu is nowhere steeper than 1.1. */
    return (meaning){ ref_silu(sum), 1.1 * slack + 16 * REF_EPS_F32 * fabs(ref_silu(sum)), false };
}

#include "plan_meant.h"

#endif

/* An op's output from its inputs, by kind, and the judgement of a whole plan, for plan_meaning.h, which
 * includes this.
 */
#ifndef LW_TESTS_PLAN_MEANT_H
#define LW_TESTS_PLAN_MEANT_H

static inline meaning rounded(double value)
{
    return (meaning){ value, REF_EPS_F32 * fabs(value), false };
}

static inline meaning copied(float value)
{
    return (meaning){ (double)value, 0, true };
}

/* Ops of one row, column by column; x and y are its inputs. */
static inline meaning meant_each(const bench *b, const lw_op *op, const float *x, const float *y, size_t i)
{
    const bool wide = b->plan.values[op->out.index].type == LW_TYPE_F32;
    const double left = (double)x[i];
    double open, by;
    switch ((int)op->kind) {
    case LW_OP_ADD: return wide ? copied(x[i] + y[i]) : rounded(left + (double)y[i]); /* one fp32 addition */
    case LW_OP_MUL: return rounded(left * (double)y[i]);
    case LW_OP_BIAS: return rounded(left + number_of(b, op->weights[0], i));
    case LW_OP_RELU2: return rounded(left < 0 ? 0 : left * left);
    case LW_OP_SWIGLU:
        open = ref_silu(left);
        by = (double)y[i];
        break;
    case LW_OP_HEAD_GATE:
        open = ref_sigmoid((double)y[i / (b->plan.values[op->out.index].width / op->p.gate.heads)]);
        by = left;
        break;
    default: return copied(x[i]); /* widen, take_wanted */
    }
    return (meaning){ open * by, 16 * REF_EPS_F32 * fabs(open * by), false };
}

/* Ops that move columns or positions. */
static inline meaning meant_moved(const bench *b, const kept *k, const lw_op *op, spot at, bool older)
{
    const float *x = op->in[0].index == LW_NONE ? NULL : held(b, k, op->in[0], at);
    const lw_head_columns *columns = &op->p.columns;
    const size_t i = at.column, width = x == NULL ? 0 : b->plan.values[op->in[0].index].width;
    if (op->kind == LW_OP_CONCAT) return copied(i < width ? x[i] : held(b, k, op->in[1], at)[i - width]);
    if (op->kind == LW_OP_TAKE_HEADS)
        return copied(x[i / columns->width * columns->stride + columns->offset + i % columns->width]);
    const size_t back = older ? 2 : 1;
    if (at.position < back) return copied(0.0f);
    const spot before = { at.lane, at.position - back, 0 };
    return copied(held(b, k, store_of(b, op->state, LW_OP_TAIL_STORE)->in[0], before)[i]);
}

static inline meaning meant(const bench *b, const kept *k, const lw_op *op, spot at, mistake wrong)
{
    if (wrong == NEXT_COLUMN) at.column = (at.column + 1) % b->plan.values[op->out.index].width;
    const float *x = op->in[0].index == LW_NONE ? NULL : held(b, k, op->in[0], at);
    const float *y = op->in[1].index == LW_NONE ? NULL : held(b, k, op->in[1], at);
    const lw_weight *w = op->weights[0].index == LW_NONE ? NULL : &b->plan.weights[op->weights[0].index];
    const float *first = wrong == SWAPPED ? y : x, *second = wrong == SWAPPED ? x : y;
    const size_t i = at.column;
    double row[MEANING_COLS];
    uint32_t window;
    switch ((int)op->kind) {
    case LW_OP_EMBED:
        lw_weight_row_f64(w, 0, (uint32_t)b->tokens[at.lane][at.position], row);
        return (meaning){ row[(i + (wrong == NEXT_ROW)) % w->cols], 0, false };
    case LW_OP_LINEAR: return meaning_linear(b, op, x, (i + (wrong == NEXT_ROW)) % w->rows);
    case LW_OP_ATTEND:
        window = op->p.attend.window;
        return meaning_attend(b, k, op, at, wrong != OTHER_WINDOW ? window : window == 0 ? 9 : window - 9);
    case LW_OP_RMS_NORM: return meaning_norm(b, op, x, i);
    case LW_OP_NORM_GATE: return meaning_norm_gate(b, op, first, second, i);
    case LW_OP_ROPE: return meaning_rope(b, op, x, at);
    case LW_OP_SHORT_CONV: return meaning_conv(b, k, op, at, wrong == OLDER_TAPS);
    case LW_OP_CONCAT:
    case LW_OP_TAKE_HEADS:
    case LW_OP_TAIL_BEFORE: return meant_moved(b, k, op, at, wrong == OLDER_TAPS);
    default: return meant_each(b, op, first, second, i);
    }
}

/* How far an output is off, over its bound. */
static inline double error_of(const lw_value *v, float got, meaning m)
{
    const double off = fabs((double)got - m.value);
    const double stored = v->type == LW_TYPE_F32 ? REF_EPS_F32 : REF_EPS_BF16;
    const double bound = m.slack * 1.01 + stored * (fabs(m.value) + m.slack) + 0x1p-100;
    if (!isfinite(got)) return INFINITY;
    if (m.exact) return off == 0 ? 0 : INFINITY;
    return off / bound;
}

/* The worst error of an op over its bound, at random spots of wanted rows of the first length positions. */
static inline double worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, mistake wrong)
{
    const lw_value *v = &b->plan.values[op->out.index];
    double most = 0;
    for (int n = 0; n < SPOTS; n++) {
        const spot at = { lw_rng_below(rng, LANES), lw_rng_below(rng, LENGTH / 3) * 3,
                          lw_rng_below(rng, v->width) };
        const meaning m = meant(b, k, op, at, wrong);
        const spot from = { wrong == OTHER_STREAM ? 1 - at.lane : at.lane, at.position, at.column };
        const double error = error_of(v, held(b, k, op->out, from)[at.column], m);
        most = error > most ? error : most;
    }
    return most;
}

static inline bool is_elsewhere(lw_op_kind kind)
{
    return kind == LW_OP_GATED_DELTA || kind == LW_OP_SSM || kind == LW_OP_ROUTE ||
           kind == LW_OP_EXPERT_LINEAR || kind == LW_OP_EXPERT_BIAS || kind == LW_OP_EXPERT_SUM;
}

/* Every op meets its meaning; another stream's rows and a mistake of its own kind do not. */
static inline void check_meaning(const bench *b, const kept *k, lw_rng *rng)
{
    static const mistake mistakes[LW_OP_COUNT] = {
        [LW_OP_EMBED] = NEXT_ROW, [LW_OP_LINEAR] = NEXT_ROW, [LW_OP_ATTEND] = OTHER_WINDOW,
        [LW_OP_SHORT_CONV] = OLDER_TAPS, [LW_OP_SWIGLU] = SWAPPED, [LW_OP_NORM_GATE] = SWAPPED,
        [LW_OP_TAIL_BEFORE] = OLDER_TAPS, [LW_OP_BIAS] = NEXT_COLUMN, [LW_OP_RELU2] = NEXT_COLUMN,
        [LW_OP_RMS_NORM] = NEXT_COLUMN, [LW_OP_CONCAT] = NEXT_COLUMN, [LW_OP_TAKE_HEADS] = NEXT_COLUMN,
    };
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->out.index == LW_NONE || is_elsewhere(op->kind)) continue;
        const char *name = lw_op_table[op->kind].name;
        const double error = worst(b, k, op, rng, RIGHT);
        if (!(error <= 1)) fail_msg("op %u, %s: %g of its bound", i, name, error);
        if (!(worst(b, k, op, rng, OTHER_STREAM) > 1))
            fail_msg("op %u, %s: another stream's rows pass", i, name);
        const mistake planted = mistakes[op->kind];
        if (planted != RIGHT && !(worst(b, k, op, rng, planted) > 1))
            fail_msg("op %u, %s: a planted mistake passes", i, name);
    }
}

#endif

/* Finding ops that run as one launch; see fuse.h. Each pattern begins at an op and looks onward; ops that no
 * pattern takes are steps by themselves. Steps then run in the plan's order as far as it goes: each once all
 * that it reads is there, and ops that share a state in the order in which they were recorded. A fused step
 * that would have to wait for itself is taken apart again.
 */
#include "device/xpu/fuse.h"
#include "device/xpu/kargs_fused.h"
#include "device/xpu/matrix.h"

enum { NEAR_OPS = 12 };  /* how far apart heads of one layer may have been recorded */

typedef struct fuser {
    const lw_plan *plan;
    uint32_t end;                        /* of the entry in hand */
    uint32_t *reads; /* [value_count] of each base value, logits that are read among them */
    uint32_t *reader;                    /* [value_count] the last op that reads it */
    uint32_t *writer;                    /* [value_count] the op that makes it */
    uint32_t *step_of;                   /* [op_count] LW_NONE: not taken yet */
} fuser;

static const lw_value *value_of(const fuser *f, lw_ref x)
{
    return &f->plan->values[x.index];
}

static uint32_t base_of(const fuser *f, lw_ref x)
{
    return value_of(f, x)->base;
}

static bool is_free(const fuser *f, uint32_t op, lw_op_kind kind)
{
    return op < f->end && f->plan->ops[op].kind == kind && f->step_of[op] == LW_NONE;
}

/* The op of this kind that alone reads all of what op makes, as its first input; LW_NONE: there is none. */
static uint32_t only_reader(const fuser *f, uint32_t op, lw_op_kind kind)
{
    const lw_ref out = f->plan->ops[op].out;
    const uint32_t reader = f->reader[out.index];
    if (f->reads[out.index] != 1 || !is_free(f, reader, kind)) return LW_NONE;
    return f->plan->ops[reader].in[0].index == out.index ? reader : LW_NONE;
}

static bool is_whole_norm(const fuser *f, const lw_op *op)
{
    return op->kind == LW_OP_RMS_NORM && op->p.norm.segment == value_of(f, op->out)->width
        && value_of(f, op->out)->slots == 1;
}

/* ---- the patterns ---- */

static lw_xpu_step step_of_none(lw_xpu_switch fusion)
{
    lw_xpu_step step = { .fusion = fusion, .sums_of = LW_NONE };
    for (uint32_t i = 0; i < LW_XPU_STEP_OPS_MAX; i++) step.ops[i] = LW_NONE;
    return step;
}

/* The first linear that reads the norm's output and needs its groups' sums. */
static uint32_t sums_of(const fuser *f, const lw_op *norm)
{
    for (uint32_t i = 0; i < f->end; i++) {
        const lw_op *op = &f->plan->ops[i];
        if (op->kind != LW_OP_LINEAR || op->in[0].index != norm->out.index) continue;
        if (lw__xpu_matrix_sums_group(&f->plan->weights[op->weights[0].index]) != 0) return i;
    }
    return LW_NONE;
}

/* The add that alone reads what a branch's norm makes, as its second input. */
static uint32_t add_of_branch(const fuser *f, uint32_t norm)
{
    const lw_op *op = &f->plan->ops[norm];
    const uint32_t add = f->reader[op->out.index];
    if (f->reads[op->out.index] != 1 || !is_free(f, add, LW_OP_ADD)) return LW_NONE;
    if (value_of(f, op->in[0])->type != LW_TYPE_BF16) return LW_NONE;
    return f->plan->ops[add].in[1].index == op->out.index ? add : LW_NONE;
}

/* The norm over all columns of what add makes. */
static uint32_t norm_of_sum(const fuser *f, uint32_t add)
{
    const uint32_t sum = f->plan->ops[add].out.index;
    for (uint32_t i = add + 1; i < f->end; i++) {
        const lw_op *op = &f->plan->ops[i];
        if (is_free(f, i, LW_OP_RMS_NORM) && op->in[0].index == sum && is_whole_norm(f, op)) return i;
    }
    return LW_NONE;
}

/* A residual's sum and the norm over all its columns, behind the norm of what is added, if any; a norm may
 * stand alone where it makes sums. */
static bool match_add_norm(const fuser *f, uint32_t op, lw_xpu_step *step)
{
    const lw_op *first = &f->plan->ops[op];
    uint32_t add = first->kind == LW_OP_ADD ? op : LW_NONE;
    const bool is_norm = is_whole_norm(f, first);
    if (is_norm) add = add_of_branch(f, op);
    const uint32_t norm = add != LW_NONE ? norm_of_sum(f, add) : LW_NONE;
    if (norm != LW_NONE) {
        step->ops[LW_XPU_ADD_NORM_BRANCH] = is_norm ? op : LW_NONE;
        step->ops[LW_XPU_ADD_NORM_ADD] = add;
        step->ops[LW_XPU_ADD_NORM_NORM] = norm;
    } else if (is_norm) {
        step->ops[LW_XPU_ADD_NORM_NORM] = op;
    }
    return norm != LW_NONE || is_norm;
}

/* A heads' norm, if any, and its rotation: the two ops from op on; LW_NONE: not here. */
typedef struct heads { uint32_t norm, rope, store; } heads;

static heads heads_at(const fuser *f, uint32_t op)
{
    const lw_plan *plan = f->plan;
    heads h = { LW_NONE, LW_NONE, LW_NONE };
    const heads none = h;
    if (is_free(f, op, LW_OP_RMS_NORM)) {
        h.norm = op;
        h.rope = only_reader(f, op, LW_OP_ROPE);
    } else if (is_free(f, op, LW_OP_ROPE)) {
        h.rope = op;
    }
    if (h.rope == LW_NONE) return none;
    const lw_op *rope = &plan->ops[h.rope];
    if (value_of(f, plan->ops[op].in[0])->type != LW_TYPE_BF16) return none;
    if (rope->p.rope.head_dim > LW_XPU_HEAD_DIM_MAX) return none;
    if (h.norm != LW_NONE && plan->ops[h.norm].p.norm.segment != rope->p.rope.head_dim) return none;
    h.store = only_reader(f, h.rope, LW_OP_KV_STORE);
    if (h.store != LW_NONE && plan->states[plan->ops[h.store].state.index].width != rope->p.rope.head_dim)
        h.store = LW_NONE;
    return h;
}

static bool are_alike(const fuser *f, heads a, heads b)
{
    const lw_op *left = &f->plan->ops[a.rope], *right = &f->plan->ops[b.rope];
    return left->p.rope.table == right->p.rope.table && left->p.rope.head_dim == right->p.rope.head_dim
        && value_of(f, left->out)->space == value_of(f, right->out)->space
        && (a.store == LW_NONE || b.store == LW_NONE);
}

/* Norm, rotation and storing of a layer's heads: queries and keys in one launch where both are near. */
static bool match_heads(const fuser *f, uint32_t op, lw_xpu_step *step)
{
    heads one = heads_at(f, op), other = { LW_NONE, LW_NONE, LW_NONE };
    if (one.rope == LW_NONE) return false;
    for (uint32_t i = op + 1; other.rope == LW_NONE && i < op + NEAR_OPS && i < f->end; i++) {
        other = heads_at(f, i);
        if (other.rope == LW_NONE || other.rope == one.rope || !are_alike(f, one, other))
            other.rope = LW_NONE;
    }
    if (other.rope == LW_NONE) other = (heads){ LW_NONE, LW_NONE, LW_NONE };
    if (one.norm == LW_NONE && one.store == LW_NONE && other.rope == LW_NONE) return false;
    const bool swaps = one.store != LW_NONE;
    const heads plain = swaps ? other : one, stored = swaps ? one : other;
    step->ops[LW_XPU_HEADS_NORM] = plain.norm;
    step->ops[LW_XPU_HEADS_ROPE] = plain.rope;
    step->ops[LW_XPU_HEADS_STORE_NORM] = stored.norm;
    step->ops[LW_XPU_HEADS_STORE_ROPE] = stored.rope;
    step->ops[LW_XPU_HEADS_STORE] = stored.store;
    return true;
}

static const lw_weight *matrix_of(const fuser *f, uint32_t op)
{
    return &f->plan->weights[f->plan->ops[op].weights[0].index];
}

/* Whether the two linears read the same x with matrices that one kernel reads. */
static bool are_side_by_side(const fuser *f, uint32_t a, uint32_t b)
{
    const lw_op *left = &f->plan->ops[a], *right = &f->plan->ops[b];
    return left->in[0].index == right->in[0].index
        && lw__xpu_matrix_is_like(matrix_of(f, a), matrix_of(f, b));
}

/* The linears of gate and up, and their swiglu, which alone reads them. */
static bool match_swiglu(const fuser *f, uint32_t op, lw_xpu_step *step)
{
    const lw_plan *plan = f->plan;
    if (plan->ops[op].kind != LW_OP_LINEAR || !lw__xpu_form_is_fused(matrix_of(f, op))) return false;
    const uint32_t out = f->reader[plan->ops[op].out.index];
    if (f->reads[plan->ops[op].out.index] != 1 || !is_free(f, out, LW_OP_SWIGLU)) return false;
    uint32_t linears[2];
    for (int i = 0; i < 2; i++) {
        const lw_ref in = plan->ops[out].in[i];
        linears[i] = f->writer[base_of(f, in)];
        if (base_of(f, in) != in.index || f->reads[in.index] != 1) return false;
        if (!is_free(f, linears[i], LW_OP_LINEAR) || value_of(f, in)->type != LW_TYPE_BF16) return false;
    }
    if (linears[0] == linears[1] || !are_side_by_side(f, linears[0], linears[1])) return false;
    step->ops[LW_XPU_SWIGLU_GATE] = linears[0];
    step->ops[LW_XPU_SWIGLU_UP] = linears[1];
    step->ops[LW_XPU_SWIGLU_OUT] = out;
    return true;
}

static bool match_linears(const fuser *f, uint32_t op, lw_xpu_step *step)
{
    uint32_t count = 0;
    if (f->plan->ops[op].kind != LW_OP_LINEAR || !lw__xpu_form_is_fused(matrix_of(f, op))) return false;
    for (uint32_t i = op; i < f->end && count < LW_XPU_LINEARS_MAX; i++) {
        if (is_free(f, i, LW_OP_LINEAR) && are_side_by_side(f, op, i)) step->ops[count++] = i;
    }
    return count > 1;
}

typedef struct pattern {
    lw_xpu_switch fusion;
    bool (*match)(const fuser *f, uint32_t op, lw_xpu_step *step);
} pattern;

static const pattern patterns[] = {
    { LW_XPU_SWITCH_add_norm, match_add_norm },
    { LW_XPU_SWITCH_heads, match_heads },
    { LW_XPU_SWITCH_swiglu, match_swiglu },
    { LW_XPU_SWITCH_linears, match_linears },
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

/* ---- steps ---- */

/* The step that begins at op: the first pattern that matches, or the op by itself. */
static lw_xpu_step step_begin(const fuser *f, uint32_t op, const bool *off)
{
    for (size_t i = 0; i < PATTERNS; i++) {
        lw_xpu_step step = step_of_none(patterns[i].fusion);
        if (off[patterns[i].fusion] || !patterns[i].match(f, op, &step)) continue;
        if (step.fusion != LW_XPU_SWITCH_add_norm) return step;
        if (!off[LW_XPU_SWITCH_sums])
            step.sums_of = sums_of(f, &f->plan->ops[step.ops[LW_XPU_ADD_NORM_NORM]]);
        if (step.ops[LW_XPU_ADD_NORM_ADD] != LW_NONE || step.sums_of != LW_NONE) return step;
    }
    lw_xpu_step step = step_of_none(LW_XPU_SWITCH_COUNT);
    step.ops[0] = op;
    return step;
}

static void step_take(fuser *f, const lw_xpu_step *step, uint32_t index)
{
    for (uint32_t i = 0; i < LW_XPU_STEP_OPS_MAX; i++) {
        if (step->ops[i] != LW_NONE) f->step_of[step->ops[i]] = index;
    }
}

static bool share_state(const lw_op *a, const lw_op *b)
{
    const uint32_t of_a[] = { a->state.index, a->anchor.index };
    bool shared = false;
    for (size_t i = 0; i < 2; i++)
        shared = shared || (of_a[i] != LW_NONE && (of_a[i] == b->state.index || of_a[i] == b->anchor.index));
    return shared;
}

/* Whether all that op needs has run, or runs in its own step. */
static bool op_is_ready(const fuser *f, uint32_t begin, uint32_t op, const bool *has_run)
{
    const lw_op *o = &f->plan->ops[op];
    for (uint32_t i = 0; i < LW_OP_INPUTS_MAX; i++) {
        if (o->in[i].index == LW_NONE) continue;
        const uint32_t writer = f->writer[base_of(f, o->in[i])];
        if (writer >= begin && !has_run[writer] && f->step_of[writer] != f->step_of[op]) return false;
    }
    for (uint32_t i = begin; i < op; i++) {
        if (has_run[i] || f->step_of[i] == f->step_of[op]) continue;
        if (share_state(&f->plan->ops[i], o)) return false;
    }
    return true;
}

static bool step_is_ready(const fuser *f, uint32_t begin, const lw_xpu_step *step, const bool *has_run)
{
    for (uint32_t i = 0; i < LW_XPU_STEP_OPS_MAX; i++) {
        if (step->ops[i] != LW_NONE && !op_is_ready(f, begin, step->ops[i], has_run)) return false;
    }
    return true;
}

/* Scratch of one entry: steps as they were found, by their first ops, and what has run. */
typedef struct found {
    lw_xpu_step *steps;
    uint32_t count;
    bool *is_placed, *has_run;
} found;

static void entry_find(fuser *f, const lw_entry *entry, const bool *off, found *all)
{
    all->count = 0;
    f->end = entry->op_end;
    for (uint32_t op = entry->op_begin; op < entry->op_end; op++) {
        if (f->step_of[op] != LW_NONE) continue;
        all->steps[all->count] = step_begin(f, op, off);
        all->is_placed[all->count] = false;
        step_take(f, &all->steps[all->count], all->count);
        all->count++;
    }
}

/* Takes the first fused step that is not placed apart. */
static void step_split(fuser *f, found *all)
{
    uint32_t at = 0;
    while (all->is_placed[at] || all->steps[at].fusion == LW_XPU_SWITCH_COUNT) at++;
    const lw_xpu_step step = all->steps[at];
    bool is_first = true;
    for (uint32_t i = 0; i < LW_XPU_STEP_OPS_MAX; i++) {
        if (step.ops[i] == LW_NONE) continue;
        const uint32_t to = is_first ? at : all->count++;
        all->steps[to] = step_of_none(LW_XPU_SWITCH_COUNT);
        all->steps[to].ops[0] = step.ops[i];
        all->is_placed[to] = false;
        step_take(f, &all->steps[to], to);
        is_first = false;
    }
}

/* Appends step to the schedule and its ops to the layout's order. */
static void step_place(const lw_xpu_step *step, lw_xpu_schedule *out, bool *has_run)
{
    for (uint32_t i = 0; i < LW_XPU_STEP_OPS_MAX; i++) {
        if (step->ops[i] == LW_NONE) continue;
        has_run[step->ops[i]] = true;
        out->order.ops[out->order.count] = step->ops[i];
        out->order.steps[out->order.count++] = out->count;
    }
    out->steps[out->count] = *step;
    if (lw__xpu_step_has_parts(step)) out->steps[out->count].parts = out->parts_count++;
    out->count++;
}

static void entry_place(fuser *f, const lw_entry *entry, found *all, lw_xpu_schedule *out)
{
    for (uint32_t placed = 0; placed < all->count;) {
        uint32_t at = 0;
        while (at < all->count
               && (all->is_placed[at]
                   || !step_is_ready(f, entry->op_begin, &all->steps[at], all->has_run)))
            at++;
        if (at == all->count) {
            step_split(f, all);
            continue;
        }
        step_place(&all->steps[at], out, all->has_run);
        all->is_placed[at] = true;
        placed++;
    }
}

static void reads_count(fuser *f)
{
    const lw_plan *plan = f->plan;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        f->step_of[i] = LW_NONE;
        if (op->out.index != LW_NONE) f->writer[op->out.index] = i;
        for (uint32_t j = 0; j < LW_OP_INPUTS_MAX; j++) {
            if (op->in[j].index == LW_NONE) continue;
            f->reads[base_of(f, op->in[j])]++;
            f->reader[base_of(f, op->in[j])] = i;
        }
    }
    for (uint32_t i = 0; i < plan->entry_count; i++) f->reads[base_of(f, plan->entries[i].logits)]++;
}

lw_status lw__xpu_schedule_make(const lw_plan *plan, const bool *off, lw_arena *arena, lw_xpu_schedule *out,
                                lw_diag *d)
{
    const size_t ops = plan->op_count, values = plan->value_count;
    fuser f = { .plan = plan, .reads = lw_arena_take_array(arena, values, sizeof *f.reads),
                .reader = lw_arena_take_array(arena, values, sizeof *f.reader),
                .writer = lw_arena_take_array(arena, values, sizeof *f.writer),
                .step_of = lw_arena_take_array(arena, ops, sizeof *f.step_of) };
    found all = { .steps = lw_arena_take_array(arena, ops, sizeof *all.steps),
                  .is_placed = lw_arena_take_array(arena, ops, sizeof *all.is_placed),
                  .has_run = lw_arena_take_array(arena, ops, sizeof *all.has_run) };
    *out = (lw_xpu_schedule){ .steps = lw_arena_take_array(arena, ops, sizeof *out->steps) };
    out->order.ops = lw_arena_take_array(arena, ops, sizeof *out->order.ops);
    out->order.steps = lw_arena_take_array(arena, ops, sizeof *out->order.steps);
    if (f.reads == NULL || f.reader == NULL || f.writer == NULL || f.step_of == NULL || all.steps == NULL
        || all.is_placed == NULL || all.has_run == NULL || out->steps == NULL || out->order.ops == NULL
        || out->order.steps == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory for the order of a plan's %zu ops", ops);
    reads_count(&f);
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        out->begin[i] = out->count;
        entry_find(&f, &plan->entries[i], off, &all);
        entry_place(&f, &plan->entries[i], &all, out);
        out->end[i] = out->count;
    }
    return LW_OK;
}

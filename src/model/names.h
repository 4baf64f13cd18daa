/* Finds a family's weights in a checkpoint under any of the names that exporters use, turns them into
 * descriptors, and remembers what was missing, contradictory and never asked for, so that one error
 * lists all of it.
 *
 * A family asks by its own spelling ("layers.3.conv.in_proj"); the alias table rewrites parts of it, the
 * prefixes ("model.", "model.language_model.", ...) are tried in order, and the first non-empty one that
 * finds anything wins for all. After the winner only its parents are tried ("language_model.model." ->
 * "language_model." -> ""), because heads lie beside the inner model: "lm_head", "mtp.".
 * How a module is stored shows in its tensors: .weight of BF16, F16 or F32 (dense), U32 (MLX affine), F8_E4M3
 * or U8 (FP8, NVFP4); .qweight (GPTQ); .weight_packed (compressed-tensors). The config's word on quantisation
 * must agree with them, never a guess: one file may mix all of these.
 */
#ifndef LW_MODEL_NAMES_H
#define LW_MODEL_NAMES_H

#include "model/checkpoint.h"
#include "model/weight.h"

/* One alternative spelling of one dotted part or run of parts: "self_attn.out_proj" = "self_attn.o_proj". */
typedef struct lw_alias {
    const char *want;
    const char *found;
} lw_alias;

typedef struct lw_names_options {
    const char *const *prefixes;      /* NULL-terminated; "" allowed */
    const lw_alias *aliases;          /* ends with a NULL want; several lines may share one want */
    const char *const *ignored;       /* NULL-terminated prefixes of tensors that are never "unused":
                                         "mtp.", "vision_tower." */
} lw_names_options;

typedef struct lw_names lw_names;

/* Borrows checkpoint and options. */
lw_status lw_names_make(const lw_checkpoint *checkpoint, const lw_names_options *options, lw_names **out,
                        lw_diag *d) LW_MUST_USE;
void lw_names_free(lw_names *names);

/* A matrix under module (no ".weight"): dense or quantised, [rows, cols]. Missing or of a wrong shape: noted,
 * *out zeroed, returns false; the caller goes on and lw_names_finish reports everything at once. */
bool lw_names_matrix(lw_names *names, lw_weight *out, uint32_t rows, uint32_t cols, const char *module, ...)
    LW_PRINTF(5, 6);

/* The same where the number of rows is the file's own (an output gate); rows is never 0 in a found one. */
bool lw_names_matrix_any_rows(lw_names *names, lw_weight *out, uint32_t cols, const char *module, ...)
    LW_PRINTF(4, 5);

/* How a file may hold a stack, as names below one parent module. NULL: not in that way. */
typedef struct lw_stack_names {
    const char *whole;      /* one module of [stack, rows, cols]: "switch_mlp.fc1" */
    const char *fused;      /* one module of [stack, fused_rows, cols]: "experts.gate_up_proj"... */
    uint32_t
        fused_begin; /* ...of which the stack is rows [fused_begin, fused_begin + rows) of every member */
    uint32_t fused_rows;
    const char *each;       /* a module for each member, '*' its index: "experts.*.up_proj" */
} lw_stack_names;

/* A stack of equal matrices [stack, rows, cols] in whichever of those ways the file has it, the first that is
 * there. Members may lie in any format that a matrix has, but all in the same. The gate and up halves of a
 * fused tensor are two calls, and two weights that share it:
 *   lw_names_stack_of(names, &gate, (const uint32_t[]){ experts, width, hidden },
 *                     &(lw_stack_names){ .whole = "switch_mlp.gate_proj", .fused = "experts.gate_up_proj",
 *                                        .fused_begin = 0, .fused_rows = 2 * width,
 *                                        .each = "experts.*.gate_proj" }, "layers.%u.mlp", layer); */
bool lw_names_stack_of(lw_names *names, lw_weight *out, const uint32_t dims[3], const lw_stack_names *stored,
                       const char *parent, ...) LW_PRINTF(5, 6);

/* A stack of equal dense vectors, [stack, cols]: the biases of a stack's members, whose names are those of
 * tensors, as in "switch_mlp.fc1.bias" (whole) and "experts.*.up_proj.bias" (each). out has dims[0] members
 * of one row. has: whether the file holds any of it, be it a single member's. */
bool lw_names_has_vectors(lw_names *names, uint32_t count, const lw_stack_names *stored, const char *parent,
                          ...) LW_PRINTF(4, 5);
bool lw_names_vectors_of(lw_names *names, lw_weight *out, const uint32_t dims[2],
                         const lw_stack_names *stored, const char *parent, ...) LW_PRINTF(5, 6);

/* A dense tensor by its full name with ".weight", ".bias" or nothing; its elements number rows * cols in any
 * arrangement of dims whose non-1 dims multiply to that, kept in file order. */
bool lw_names_dense(lw_names *names, lw_weight *out, uint32_t rows, uint32_t cols, const char *name, ...)
    LW_PRINTF(5, 6);

/* True if the module or tensor exists under some spelling; notes nothing. */
bool lw_names_has(lw_names *names, const char *module, ...) LW_PRINTF(2, 3);

/* Ends the search: LW_BAD_MODEL (or LW_UNSUPPORTED for a mode that is not served) with the list of what is
 * missing or contradictory, each with the names tried, at most 12 and then a count; else LW_OK. */
lw_status lw_names_finish(lw_names *names, lw_diag *d) LW_MUST_USE;

/* Tensors that nothing asked for, in order of name; valid after finish, lives with names. */
size_t lw_names_unused_count(const lw_names *names);
const char *lw_names_unused(const lw_names *names, size_t index);

#endif

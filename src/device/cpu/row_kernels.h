/* The kernels of one instruction set that are no linear op, by name; each set's table.c takes its own.
 * rows.inc.h, attention.inc.h, experts.inc.h and recurrence.inc.h define them; the including file names its
 * set in LW_ROW(name).
 */
#ifndef LW_DEVICE_CPU_ROW_KERNELS_H
#define LW_DEVICE_CPU_ROW_KERNELS_H

#include "device/cpu/kernels.h"

#define LW_ROW_KERNELS(isa)                                                                            \
    void lw__cpu_##isa##_rms_norm(const lw_cpu_norm_args *args, unsigned part, unsigned parts);        \
    void lw__cpu_##isa##_norm_gate(const lw_cpu_norm_gate_args *args, unsigned part, unsigned parts);  \
    void lw__cpu_##isa##_add(const lw_cpu_pair_args *args, unsigned part, unsigned parts);             \
    void lw__cpu_##isa##_mul(const lw_cpu_pair_args *args, unsigned part, unsigned parts);             \
    void lw__cpu_##isa##_swiglu(const lw_cpu_pair_args *args, unsigned part, unsigned parts);          \
    void lw__cpu_##isa##_rope(const lw_cpu_rope_args *args, unsigned part, unsigned parts);            \
    void lw__cpu_##isa##_head_gate(const lw_cpu_gate_args *args, unsigned part, unsigned parts);       \
    void lw__cpu_##isa##_kv_store(const lw_cpu_kv_args *args, unsigned part, unsigned parts);          \
    void lw__cpu_##isa##_attend(const lw_cpu_attend_args *args, unsigned part, unsigned parts);        \
    void lw__cpu_##isa##_short_conv(const lw_cpu_conv_args *args, unsigned part, unsigned parts);      \
    void lw__cpu_##isa##_route(const lw_cpu_route_args *args, unsigned part, unsigned parts);          \
    void lw__cpu_##isa##_expert_sum(const lw_cpu_expert_sum_args *args, unsigned part, unsigned parts); \
    void lw__cpu_##isa##_recur_prepare(const lw_cpu_recur_args *args, unsigned part, unsigned parts);  \
    void lw__cpu_##isa##_recur_run(const lw_cpu_recur_args *args, unsigned part, unsigned parts);

/* The same as members of a table. */
#define LW_ROW_MEMBERS(isa) \
    .rms_norm = lw__cpu_##isa##_rms_norm, \
    .norm_gate = lw__cpu_##isa##_norm_gate, \
    .add = lw__cpu_##isa##_add, \
    .mul = lw__cpu_##isa##_mul, \
    .swiglu = lw__cpu_##isa##_swiglu, \
    .rope = lw__cpu_##isa##_rope, \
    .head_gate = lw__cpu_##isa##_head_gate, \
    .kv_store = lw__cpu_##isa##_kv_store, \
    .attend = lw__cpu_##isa##_attend, \
    .short_conv = lw__cpu_##isa##_short_conv, \
    .route = lw__cpu_##isa##_route, \
    .expert_sum = lw__cpu_##isa##_expert_sum, \
    .recur_prepare = lw__cpu_##isa##_recur_prepare, \
    .recur_run = lw__cpu_##isa##_recur_run

LW_ROW_KERNELS(generic)
#if defined(__x86_64__)
LW_ROW_KERNELS(avx2)
LW_ROW_KERNELS(avx512)
#endif

/* Scratch of attention: dims are padded to whole panels of every set, and a block of rows holds at least this
 * many queries (head of a group x row), more if one row alone has more. */
enum { LW_CPU_DIM_ROUND = 32, LW_CPU_QUERIES_MIN = 64 };
size_t lw__cpu_attend_queries(uint32_t heads, uint32_t heads_kv);

/* Scratch of recurrences: numbers per row and head are padded to whole vectors of every set, widths to whole
 * blocks of the state, and a block of rows is at most one stretch. */
enum { LW_CPU_HEADS_ROUND = 16, LW_CPU_STATE_COLS = 32, LW_CPU_RECUR_GROUP = 6 };

/* Round to nearest, subnormals kept: bits must not depend on the mode that a thread happened to inherit. */
void lw__cpu_thread_setup(void);

#endif

/* What one instruction set of the cpu device provides: a table of kernels, each run as part i of n on the
 * pool. Every kernel obeys the row law by construction: each output element is computed by one chain of
 * operations whose length and order depend on widths and absolute positions only. Tiling over rows and
 * columns is free. Activations are bf16, rows apart by a stride in elements. Parts never share an output
 * element.
 */
#ifndef LW_DEVICE_CPU_KERNELS_H
#define LW_DEVICE_CPU_KERNELS_H

#include "device/cpu/args.h"

/* What a linear call is where x enters in int8; as linear_prepare and linear_blocks below. */
typedef struct lw_cpu_int8_kernels {
    void (*prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    void (*blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);
} lw_cpu_int8_kernels;

typedef struct lw_cpu_kernels {
    const char *isa;
    uint32_t block_cols;                /* output columns that stand side by side in a repacked weight */
    void (*thread_setup)(void);         /* floating-point mode of every engine thread; may be NULL */

    void (*rms_norm)(const lw_cpu_norm_args *args, unsigned part, unsigned parts);
    void (*norm_gate)(const lw_cpu_norm_gate_args *args, unsigned part, unsigned parts);
    void (*add)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*mul)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*swiglu)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*rope)(const lw_cpu_rope_args *args, unsigned part, unsigned parts);
    void (*head_gate)(const lw_cpu_gate_args *args, unsigned part, unsigned parts);
    void (*kv_store)(const lw_cpu_kv_args *args, unsigned part, unsigned parts);
    void (*attend)(const lw_cpu_attend_args *args, unsigned part, unsigned parts);
    void (*short_conv)(const lw_cpu_conv_args *args, unsigned part, unsigned parts);

    void (*route)(const lw_cpu_route_args *args, unsigned part, unsigned parts);
    void (*expert_sum)(const lw_cpu_expert_sum_args *args, unsigned part, unsigned parts);
    /* A recurrence is prepare on all parts, a barrier, then run on all parts. */
    void (*recur_prepare)(const lw_cpu_recur_args *args, unsigned part, unsigned parts);
    void (*recur_run)(const lw_cpu_recur_args *args, unsigned part, unsigned parts);

    /* A linear call is prepare on all parts, a barrier, then run on all parts. Calls that share x and the
     * kind of weight may share one prepare. */
    void (*linear_prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    void (*linear_run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    /* What run does for its part: blocks [begin, end) of the member's columns, begin a whole pair of them. */
    void (*linear_blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);
    const lw_cpu_int8_kernels *int8;    /* which the three take to for weights that read x in int8 */
} lw_cpu_kernels;

/* Floats of scratch that one part of a call needs. */
size_t lw_cpu_route_scratch_floats(uint32_t experts);
size_t lw_cpu_attend_scratch_floats(uint32_t heads, uint32_t heads_kv, uint32_t head_dim);

/* Floats that a recurrence needs for its rows, and that one part of it needs. */
size_t lw_cpu_recur_prepared_floats(uint32_t heads, uint32_t key_heads, uint32_t key_width, uint32_t rows);
size_t lw_cpu_recur_scratch_floats(uint32_t width, uint32_t key_width);

extern const lw_cpu_kernels lw_cpu_generic;
#if defined(__x86_64__)
extern const lw_cpu_kernels lw_cpu_avx2;
extern const lw_cpu_kernels lw_cpu_avx512;      /* isa "avx512f": fp32 fma at every weight */
extern const lw_cpu_kernels lw_cpu_avx512vnni;  /* the same, and the dot of bytes for an int8 x */
extern const lw_cpu_kernels
    lw_cpu_avx512bf16; /* isa "avx512bf16": bf16 dot where the codes are exact in bf16 */
#endif

/* Best first, NULL-terminated: the tables that this CPU can run. */
const lw_cpu_kernels *const *lw_cpu_available(void);

#endif

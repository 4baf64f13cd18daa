/* Which instruction sets this CPU can run, and the sizes that all of them share.
 */
#include "device/cpu/row_kernels.h"

#include "base/size.h"

#include <fenv.h>

size_t lw__cpu_attend_queries(uint32_t heads, uint32_t heads_kv)
{
    return size_round_up(size_max(heads / heads_kv, LW_CPU_QUERIES_MIN), LW_CPU_QUERIES_MIN);
}

size_t lw_cpu_attend_scratch_floats(uint32_t heads, uint32_t heads_kv, uint32_t head_dim)
{
    enum { TILES = 2, QUERY_VECTORS = 3, QUERY_NUMBERS = 6 };
    const size_t dim_pad = size_round_up(head_dim, LW_CPU_DIM_ROUND);
    const size_t queries = lw__cpu_attend_queries(heads, heads_kv);
    const size_t query_floats = QUERY_VECTORS * dim_pad + LW_PAGE_POSITIONS + QUERY_NUMBERS;
    return TILES * LW_PAGE_POSITIONS * (dim_pad + 1) + queries * query_floats;
}

size_t lw_cpu_route_scratch_floats(uint32_t experts)
{
    enum { ARRAYS = 2, LINE_FLOATS = 16 }; /* whole vectors of every set; parts do not share a cache line */
    return ARRAYS * size_round_up(experts, LINE_FLOATS);
}

size_t lw_cpu_recur_prepared_floats(uint32_t heads, uint32_t key_heads, uint32_t key_width, uint32_t rows)
{
    const size_t numbers = size_round_up(heads, LW_CPU_HEADS_ROUND);
    return size_round_up(rows * (numbers + 2 * (size_t)key_heads * key_width), LW_CPU_HEADS_ROUND);
}

size_t lw_cpu_recur_scratch_floats(uint32_t width, uint32_t key_width)
{
    const size_t stretch = LW_ANCHOR_POSITIONS, width_pad = size_round_up(width, LW_CPU_STATE_COLS);
    const size_t row_floats = 2 * (stretch + width_pad) + width_pad + key_width;
    return stretch * (row_floats + LW_CPU_RECUR_GROUP);
}

void lw__cpu_thread_setup(void)
{
    fesetenv(FE_DFL_ENV);
}

const lw_cpu_kernels *const *lw_cpu_available(void)
{
#if defined(__x86_64__)
    static const lw_cpu_kernels *const tables[] = {
        &lw_cpu_avx512bf16, &lw_cpu_avx512vnni, &lw_cpu_avx512, &lw_cpu_avx2, &lw_cpu_generic, NULL,
    };
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                     && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
    return tables + (bf16 ? 0 : vnni ? 1 : avx512 ? 2 : avx2 ? 3 : 4);
#else
    static const lw_cpu_kernels *const tables[] = { &lw_cpu_generic, NULL };
    return tables;
#endif
}

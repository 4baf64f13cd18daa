/* What the attention kernels share. Read by OpenCL C only. */
#ifndef LW_DEVICE_XPU_KERNELS_ATTEND_H
#define LW_DEVICE_XPU_KERNELS_ATTEND_H

#include "device/xpu/kargs_attend.h"
#include "device/xpu/kernels/kv_int8.h"

static inline uint first_key(const lw_xpu_attend_args *a, uint position)
{
    return lw_xpu_first_key(position, a->window, a->first);
}

/* Where a chunk of a row leaves a head's maximum, sum and output. */
static inline global float *part_at(const lw_xpu_attend_args *a, size_t row, uint chunk, uint head)
{
    return (global float *)a->parts + ((row * a->chunks + chunk) * a->heads + head) * (a->head_dim + 2);
}

/* count query heads from first on, all of one KV head; at most `most`, a constant wherever it is passed. */
typedef struct heads {
    uint first, count, most, kv;
} heads;

/* Parts of up to heads_each into which the query heads of a KV head are cut. */
static inline uint heads_parts(const lw_xpu_attend_args *a)
{
    return (a->heads / a->heads_kv + a->heads_each - 1) / a->heads_each;
}

/* The index-th part, counted through all KV heads. */
static inline heads heads_part(const lw_xpu_attend_args *a, uint index, uint most)
{
    const uint sharing = a->heads / a->heads_kv, parts = heads_parts(a),
               begin = index % parts * a->heads_each;
    const heads g = { index / parts * sharing + begin, min(a->heads_each, sharing - begin), most,
                      index / parts };
    return g;
}

#endif

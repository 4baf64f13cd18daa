/* Arguments of the attention kernels; see kargs.h. */
#ifndef LW_DEVICE_XPU_KARGS_ATTEND_H
#define LW_DEVICE_XPU_KARGS_ATTEND_H

#include "device/xpu/kargs.h"

/* A row's chunks are counted from the first one that it sees. Of launches that share chunks out, each leaves
 * chunks [from, from + chunks): parts, fp32 (rows, chunks, heads, 2 + head_dim), are a chunk's maximum, sum
 * and output; carried, (rows, heads, 2 + head_dim), those of all chunks before, merged. */
typedef struct lw_xpu_attend_args {
    lw_xpu_past past;
    lw_xpu_u64 q, y, parts, carried;
    lw_xpu_u32 q_stride, y_stride, heads, heads_kv, head_dim;
    lw_xpu_u32 window, first;
    lw_xpu_u32 heads_each;      /* query heads of one work-group, by DPAS or where chunks are shared out */
    lw_xpu_u32 rows, rows_each; /* by DPAS: of the batch; of one work-group */
    lw_xpu_u32 chunks, from;
    float scale;
} lw_xpu_attend_args;

/* The first key that a row may see; past its own position: it sees none. */
static inline lw_xpu_u32 lw_xpu_first_key(lw_xpu_u32 position, lw_xpu_u32 window, lw_xpu_u32 first)
{
    const lw_xpu_u32 reached = window != 0 && position >= window ? position - window + 1 : 0;
    return first > reached ? first : reached;
}

static inline lw_xpu_u32 lw_xpu_chunks_seen(lw_xpu_u32 position, lw_xpu_u32 window, lw_xpu_u32 first)
{
    const lw_xpu_u32 key = lw_xpu_first_key(position, window, first);
    return key > position ? 0 : position / LW_XPU_CHUNK - key / LW_XPU_CHUNK + 1;
}

#endif

/* One tensor as a checkpoint stores it: a view into a read-only mapping. */
#ifndef LW_MODEL_TENSOR_H
#define LW_MODEL_TENSOR_H

#include "base/limits.h"
#include "base/status.h"

typedef enum lw_dtype {
    LW_DTYPE_BOOL, LW_DTYPE_U8, LW_DTYPE_I8, LW_DTYPE_F8_E4M3, LW_DTYPE_F8_E5M2, LW_DTYPE_F8_E8M0,
    LW_DTYPE_I16, LW_DTYPE_U16, LW_DTYPE_F16, LW_DTYPE_BF16,
    LW_DTYPE_I32, LW_DTYPE_U32, LW_DTYPE_F32,
    LW_DTYPE_I64, LW_DTYPE_U64, LW_DTYPE_F64,
    LW_DTYPE_COUNT
} lw_dtype;

const char *lw_dtype_name(lw_dtype dtype);   /* as safetensors spells it: "BF16" */
size_t lw_dtype_bytes(lw_dtype dtype);
/* False if name is no dtype that is known here. */
bool lw_dtype_find(const char *name, lw_dtype *out);

typedef struct lw_tensor {
    const char *name;                        /* NUL-terminated */
    const char *file;                        /* for texts */
    lw_dtype dtype;
    uint32_t dim_count;
    uint64_t dims[LW_LIMIT_TENSOR_DIMS];     /* slowest first */
    const uint8_t *bytes;                    /* in the mapping; any alignment */
    size_t byte_count;                       /* product of dims times the dtype's bytes, checked when opened */
} lw_tensor;

/* "BF16 [768, 256]" for texts; cut to text_bytes. */
void lw_tensor_shape(const lw_tensor *tensor, char *text, size_t text_bytes);

#endif

/* Facts about element types and the text of a shape. Used by every reader of checkpoints. */
#include "model/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checkpoints are little-endian and read as they lie");

typedef struct dtype_facts {
    const char *name;
    size_t bytes;
} dtype_facts;

static const dtype_facts dtypes[] = {
    [LW_DTYPE_BOOL] = { "BOOL", 1 },
    [LW_DTYPE_U8] = { "U8", 1 },
    [LW_DTYPE_I8] = { "I8", 1 },
    [LW_DTYPE_F8_E4M3] = { "F8_E4M3", 1 },
    [LW_DTYPE_F8_E5M2] = { "F8_E5M2", 1 },
    [LW_DTYPE_F8_E8M0] = { "F8_E8M0", 1 },
    [LW_DTYPE_I16] = { "I16", 2 },
    [LW_DTYPE_U16] = { "U16", 2 },
    [LW_DTYPE_F16] = { "F16", 2 },
    [LW_DTYPE_BF16] = { "BF16", 2 },
    [LW_DTYPE_I32] = { "I32", 4 },
    [LW_DTYPE_U32] = { "U32", 4 },
    [LW_DTYPE_F32] = { "F32", 4 },
    [LW_DTYPE_I64] = { "I64", 8 },
    [LW_DTYPE_U64] = { "U64", 8 },
    [LW_DTYPE_F64] = { "F64", 8 },
};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == LW_DTYPE_COUNT, "the last dtype has a row");

const char *lw_dtype_name(lw_dtype dtype)
{
    LW_ASSERT((unsigned)dtype < LW_DTYPE_COUNT);
    return dtypes[dtype].name;
}

size_t lw_dtype_bytes(lw_dtype dtype)
{
    LW_ASSERT((unsigned)dtype < LW_DTYPE_COUNT);
    return dtypes[dtype].bytes;
}

bool lw_dtype_find(const char *name, lw_dtype *out)
{
    for (int i = 0; i < LW_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        *out = (lw_dtype)i;
        return true;
    }
    return false;
}

void lw_tensor_shape(const lw_tensor *tensor, char *text, size_t text_bytes)
{
    size_t at = 0;
    int added = snprintf(text, text_bytes, "%s [", lw_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->dim_count && added >= 0; i++) {
        at += (size_t)added;
        if (at >= text_bytes) return;
        added = snprintf(text + at, text_bytes - at, "%s%" PRIu64, i == 0 ? "" : ", ", tensor->dims[i]);
    }
    if (added < 0 || at + (size_t)added >= text_bytes) return;
    at += (size_t)added;
    snprintf(text + at, text_bytes - at, "]");
}

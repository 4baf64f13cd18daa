/* See reader.h. */
#include "family/reader.h"

#include <stdarg.h>
#include <stdio.h>

/* Writes the name into text; the longest that a family makes is far below the limit. */
#define NAME_OF(text, format) \
    char text[LW_LIMIT_NAME_BYTES]; \
    va_list text##_args; \
    va_start(text##_args, format); \
    vsnprintf(text, sizeof text, format, text##_args); \
    va_end(text##_args)

static lw_wref taken(lw_reader *reader, bool found, const lw_weight *weight)
{
    if (found) return lw_plan_weight(reader->plan, weight);
    reader->is_complete = false;
    return (lw_wref){ LW_NONE };
}

lw_wref lw_read_matrix(lw_reader *reader, uint32_t rows, uint32_t cols, const char *module, ...)
{
    lw_weight w;
    NAME_OF(name, module);
    return taken(reader, lw_names_matrix(reader->names, &w, rows, cols, "%s", name), &w);
}

lw_wref lw_read_dense(lw_reader *reader, uint32_t rows, uint32_t cols, const char *name, ...)
{
    lw_weight w;
    NAME_OF(full, name);
    return taken(reader, lw_names_dense(reader->names, &w, rows, cols, "%s", full), &w);
}

lw_wref lw_read_stack(lw_reader *reader, const uint32_t dims[3], const lw_stack_names *stored,
                      const char *parent)
{
    lw_weight w;
    return taken(reader, lw_names_stack_of(reader->names, &w, dims, stored, "%s", parent), &w);
}

lw_wref lw_read_vectors(lw_reader *reader, const uint32_t dims[2], const lw_stack_names *stored,
                        const char *parent)
{
    lw_weight w;
    if (!lw_names_has_vectors(reader->names, dims[0], stored, "%s", parent)) return (lw_wref){ LW_NONE };
    return taken(reader, lw_names_vectors_of(reader->names, &w, dims, stored, "%s", parent), &w);
}

lw_status lw_read_attention_dims(const lw_config *config, uint32_t width, lw_attention_dims *out, lw_diag *d)
{
    enum { HEADS_MAX = 4096 };
    lw_status status = lw_config_u32(config, "num_attention_heads", NULL, HEADS_MAX, &out->heads, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "num_key_value_heads", &out->heads, HEADS_MAX, &out->heads_kv, d);
    if (status != LW_OK) return status;
    if (out->heads == 0 || out->heads_kv == 0 || out->heads % out->heads_kv != 0) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       lw_config_name(config), out->heads, out->heads_kv);
    }
    const uint32_t dim_default = width / out->heads;
    status = lw_config_u32(config, "head_dim", &dim_default, 2 * LW_ROPE_HALF_MAX, &out->head_dim, d);
    if (status != LW_OK) return status;
    if (out->head_dim < 2 || out->head_dim % 2 != 0 || out->head_dim > 2 * LW_ROPE_HALF_MAX) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: head_dim %u (hidden_size / num_attention_heads where it is not given) "
                       "must be even and from 2 to %d",
                       lw_config_name(config), out->head_dim, 2 * LW_ROPE_HALF_MAX);
    }
    if ((uint64_t)out->heads * out->head_dim > LW_LIMIT_WIDTH / 2) {
        return lw_fail(d, LW_BAD_MODEL, "%s: num_attention_heads %u of head_dim %u are wider than %d",
                       lw_config_name(config), out->heads, out->head_dim, LW_LIMIT_WIDTH / 2);
    }
    return LW_OK;
}

/* What every family does with names and weights: ask for a tensor, put it into the plan, go on when it is
 * missing so that one error lists all of them.
 */
#ifndef LW_FAMILY_READER_H
#define LW_FAMILY_READER_H

#include "model/names.h"
#include "ops/record.h"

/* Borrows both. */
typedef struct lw_reader {
    lw_plan *plan;
    lw_names *names;
    bool is_complete;     /* everything so far was found; recording ops waits for all of it */
} lw_reader;

/* A matrix [rows, cols] under a module's name; its reference has the index LW_NONE when it is missing. */
lw_wref lw_read_matrix(lw_reader *reader, uint32_t rows, uint32_t cols, const char *module, ...)
    LW_PRINTF(4, 5);

/* A dense tensor of rows * cols elements by its full name. */
lw_wref lw_read_dense(lw_reader *reader, uint32_t rows, uint32_t cols, const char *name, ...) LW_PRINTF(4, 5);

/* A stack of dims[0] matrices [dims[1], dims[2]] under a parent module, in any of the ways that stored names.
 */
lw_wref lw_read_stack(lw_reader *reader, const uint32_t dims[3], const lw_stack_names *stored,
                      const char *parent);

/* The same of vectors, dims[0] of dims[1] elements; the reference of one that the file lacks altogether has
 * the index LW_NONE, and nothing is missing. */
lw_wref lw_read_vectors(lw_reader *reader, const uint32_t dims[2], const lw_stack_names *stored,
                        const char *parent);

/* Of attention: num_attention_heads, num_key_value_heads, head_dim (width / heads where the config has none),
 * checked: kv heads divide heads, head_dim is even and at most 2 * LW_ROPE_HALF_MAX, heads times head_dim at
 * most LW_LIMIT_WIDTH / 4. */
typedef struct lw_attention_dims { uint32_t heads, heads_kv, head_dim; } lw_attention_dims;
lw_status lw_read_attention_dims(const lw_config *config, uint32_t width, lw_attention_dims *out,
                                 lw_diag *d) LW_MUST_USE;

#endif

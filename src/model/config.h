/* config.json and generation_config.json, read with their quirks:
 * values under "text_config" come before those at the top level; {"__float__": "Infinity"} stands for a
 * number; an id may be a number or a list. Keys are given with their aliases, separated by '|':
 * "norm_eps|rms_norm_eps".
 */
#ifndef LW_MODEL_CONFIG_H
#define LW_MODEL_CONFIG_H

#include "base/status.h"

#include <jansson.h>

typedef struct lw_config lw_config;

/* Reads a JSON object from path. *out is NULL on failure. */
lw_status lw_config_open(const char *path, lw_config **out, lw_diag *d) LW_MUST_USE;
lw_status lw_config_parse(const char *json, size_t count, const char *name, lw_config **out,
                          lw_diag *d) LW_MUST_USE;
void lw_config_close(lw_config *config);

/* The raw value under the first of the keys that is present and not null; NULL if none is. Borrowed. */
const json_t *lw_config_get(const lw_config *config, const char *keys);

/* Present and right: *out. Absent: *fallback, or LW_BAD_MODEL naming the key when fallback is NULL.
 * Wrong type, negative, fractional or above max: LW_BAD_MODEL naming file, key and value. */
lw_status lw_config_u32(const lw_config *config, const char *keys, const uint32_t *fallback, uint32_t max,
                        uint32_t *out, lw_diag *d) LW_MUST_USE;
lw_status lw_config_f64(const lw_config *config, const char *keys, const double *fallback, double *out,
                        lw_diag *d) LW_MUST_USE;
lw_status lw_config_bool(const lw_config *config, const char *keys, bool fallback, bool *out,
                         lw_diag *d) LW_MUST_USE;

/* A number as config files write one: integer, real or {"__float__": "Infinity"}. False for anything else. */
bool lw_config_number(const json_t *value, double *out);

/* A string; absent: fallback (may be NULL). Borrowed from config. */
lw_status lw_config_text(const lw_config *config, const char *keys, const char *fallback, const char **out,
                         lw_diag *d) LW_MUST_USE;

/* Token ids: a number or a list of numbers, appended to ids without doubles; absent adds none. */
enum { LW_CONFIG_IDS_MAX = 16 };
lw_status lw_config_ids(const lw_config *config, const char *keys, int32_t *ids, size_t *count,
                        lw_diag *d) LW_MUST_USE;

/* A nested object as a config of its own view (keys read only there; texts name the path
 * "rope_parameters.x"). An absent object gives an empty view, one of another type a view whose readers all
 * fail; so does a view that no memory was left for. Lives with config. Every reader takes NULL as an empty
 * config. */
lw_config *lw_config_child(lw_config *config, const char *keys);

const char *lw_config_name(const lw_config *config);

#endif

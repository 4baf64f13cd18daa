/* A family is one file: it reads its config, names its weights and states, and records its forward as a plan.
 * It never sees a device. This is the table of families and what one provides.
 */
#ifndef LW_FAMILY_FAMILY_H
#define LW_FAMILY_FAMILY_H

#include "model/checkpoint.h"
#include "model/names.h"
#include "ops/plan.h"

/* What is recorded beside the forward itself. */
typedef struct lw_record_options {
    bool head; /* the draft head too, where the checkpoint has one: then the forward keeps for every row
                  what the head reads */
    void (*unused)(void *context, const char *name); /* each tensor that was not asked for; may be NULL */
    void (*note)(void *context, const char *text);   /* what was decided for this checkpoint; may be NULL */
    void *context;
} lw_record_options;

typedef struct lw_family {
    const char *name;                       /* "lfm3" */
    const char *const *model_types;         /* config.json model_type, NULL-terminated */
    /* Records checkpoint's forward into plan (made by lw_plan_init). */
    lw_status (*record)(const lw_checkpoint *checkpoint, const lw_record_options *options, lw_plan *plan,
                        lw_diag *d);
} lw_family;

/* Tells options' unused of what nobody asked names for. For families. */
void lw_record_tell_unused(const lw_record_options *options, const lw_names *names);
void lw_record_note(const lw_record_options *options, const char *format, ...) LW_PRINTF(2, 3);

/* NULL-terminated. */
extern const lw_family *const lw_families[];

/* By the checkpoint's model_type; LW_UNSUPPORTED names it and lists what is served. */
lw_status lw_family_find(const lw_checkpoint *checkpoint, const lw_family **out, lw_diag *d) LW_MUST_USE;

/* Positions that the model was made for (max_position_embeddings); 0 if the config does not say. */
uint32_t lw_family_context(const lw_checkpoint *checkpoint);

/* Ids that end a reply: the union of eos in config.json and generation_config.json. */
enum { LW_FAMILY_END_IDS_MAX = 32 };
lw_status lw_family_end_ids(const lw_checkpoint *checkpoint, int32_t ids[LW_FAMILY_END_IDS_MAX],
                            size_t *count, lw_diag *d) LW_MUST_USE;

#endif

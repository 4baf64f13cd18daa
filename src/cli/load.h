/* What several verbs open: a checkpoint, its texts, and an engine with one stream. Parts are opened in the
 * order that lets a wrong prompt fail before gigabytes are read.
 */
#ifndef LW_CLI_LOAD_H
#define LW_CLI_LOAD_H

#include "cli/options.h"
#include "cli/term.h"
#include "family/family.h"
#include "lane/engine.h"
#include "text/chat.h"
#include "text/tokenizer.h"

typedef struct lw_load_options {
    uint32_t threads, context, chunk; /* 0: the engine's own choice */
    uint32_t lanes;                   /* 0: one */
    uint32_t wanted;                  /* rows of one forward whose logits are read; 0: all */
    const char *isa;                  /* NULL: the best */
    bool head;                        /* the draft head too, where the checkpoint has one */
    const char *device;               /* NULL: cpu */
    bool act_int8;                    /* activations enter linears in int8 */
    bool kv_int8;                     /* keys and values in int8 */
} lw_load_options;

/* Zero it, open parts, close it; closing takes any state. */
typedef struct lw_loaded {
    lw_checkpoint *checkpoint;
    lw_tokenizer *tokenizer; /* NULL, as scratch is: not opened, or the model has none */
    lw_token_scratch *scratch;
    lw_chat_template *chat; /* NULL: the model has none */
    lw_engine *engine;
    lw_stream *stream;
    int32_t end_ids[LW_FAMILY_END_IDS_MAX];
    size_t end_id_count;
} lw_loaded;

/* Options of every verb that computes, written to table; returns their number. */
enum { LW_LOAD_OPTIONS_COUNT = 7 };
size_t lw_load_options_table(lw_load_options *load, lw_option table[LW_LOAD_OPTIONS_COUNT]);

/* What a device is opened with; borrows both. */
lw_device_options lw_load_device_options(const lw_load_options *load, const lw_term *term);

/* The same of an engine; nobody is told of its progress and ops yet. */
lw_engine_options lw_load_engine_options(const lw_load_options *options, const lw_term *term);

lw_status lw_load_checkpoint(lw_loaded *loaded, const char *dir, lw_diag *d) LW_MUST_USE;
/* The ids that end a reply, the tokenizer and its scratch. LW_NOT_FOUND, with the ids read, when there is no
 * tokenizer.json. */
lw_status lw_load_tokenizer(lw_loaded *loaded, lw_diag *d) LW_MUST_USE;
/* The chat template; a model without one is LW_OK with chat == NULL. */
lw_status lw_load_chat(lw_loaded *loaded, lw_diag *d) LW_MUST_USE;
/* The engine and a stream, with a progress line on a terminal. trace may be {NULL}. */
lw_status lw_load_engine(lw_loaded *loaded, const lw_load_options *options, const lw_term *term,
                         lw_trace trace, lw_diag *d) LW_MUST_USE;
void lw_loaded_close(lw_loaded *loaded);

/* dir + "/" + file in text; LW_NO_ROOM if it does not fit. */
enum { LW_PATH_BYTES = 4096 };
lw_status lw_path_join(char text[LW_PATH_BYTES], const char *dir, const char *file, lw_diag *d) LW_MUST_USE;

#endif

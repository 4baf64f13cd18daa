/* What the files of the public C API share. include/lanewise.h is the contract; everything here is behind it.
 *
 *   api_model.c     opening, facts, counts          api_messages.c  a chat request's JSON, judged and evened
 * out api_options.c   limits of every option          api_prompt.c    prompts: text, ids, conversations,
 * marks api_error.c     statuses to results             api_text.c      ids to text api_reply.c     one
 * reply's events              api_rounds.c    who computes next
 *
 * A model is read-only for the text functions; the pool of token scratches is the one thing that they change,
 * behind its own lock.
 */
#ifndef LW_API_API_H
#define LW_API_API_H

#include "device/device.h"
#include "api/api_messages.h"
#include "base/status.h"
#include "family/family.h"
#include "lanewise.h"
#include "text/chat.h"
#include "text/tokenizer.h"

enum {
    LW__API_LANES_USUAL = 8,
    LW__API_CHUNK_ROWS_MAX = 8192,
    LW__API_QUEUE_USUAL = 256,
    LW__API_QUEUE_MAX = 65536,
    LW__API_LANES_MAX = 64,
    LW__API_ROUND_MS_MAX = 60000,
    LW__API_DRAFTS_USUAL = 15,
    LW__API_DRAFTS_MAX = 64,
    LW__API_MTP_DRAFTS_USUAL = 5,
    LW__API_MTP_DRAFTS_MAX = 16,
    LW__API_DRAFT_MATCH_MAX = 1024,
    LW__API_LOGPROBS_MAX = 20,
    LW__API_BIASES_MAX = 1024,
    LW__API_MARKS_FIRST = 8,    /* marks kept from a prompt's beginning: what many conversations share */
    LW__API_MARKS_LAST = 56,    /* and from its end: where the next turn or an edit resumes */
    LW__API_MARKS_MAX = LW__API_MARKS_FIRST + LW__API_MARKS_LAST,
};

/* ---- errors ---- */

/* Fills error (may be NULL) and returns result. field may be NULL. */
lw_result lw__api_fail(lw_error *error, lw_result result, const char *field, const char *format, ...)
    LW_PRINTF(4, 5);
/* The same from what an inner call left in d. */
lw_result lw__api_status(lw_error *error, lw_status status, const char *field, const lw_diag *d);
/* LW_RESULT_TOO_LONG or LW_RESULT_NO_ROOM with its counts. */
lw_result lw__api_counts(lw_error *error, lw_result result, const char *field, uint64_t wanted,
                         uint64_t there);
lw_result lw__api_result_of(lw_status status);

/* ---- options ---- */

/* options (NULL: the defaults) with what an older caller left out filled in, every value within its range. */
lw_result lw__api_model_options(const lw_model_options *options, lw_model_options *out, lw_error *error);
lw_result lw__api_request_options(const lw_model *model, const lw_request_options *options,
                                  lw_request_options *out, lw_error *error);

/* ---- text ---- */

/* Token scratches for whoever encodes now; as many as threads ever did so at once. */
typedef struct lw__scratches lw__scratches;
lw__scratches *lw__scratches_make(void);
void lw__scratches_free(lw__scratches *scratches);

/* How the chat template opens messages, learned from two small conversations when the model is opened. */
typedef struct lw__opening {
    int32_t id;             /* the special token that opens a message; -1: none was seen */
    bool opens_reply;       /* the generation prompt begins with it too */
} lw__opening;

struct lw_prompt {
    lw_ids ids;
    uint32_t marks[LW__API_MARKS_MAX]; /* ascending, each above 0 and below ids.count */
    uint32_t mark_count;
    bool is_thinking;
};

/* Encodes with a scratch of the model's pool. */
lw_status lw__api_encode(const lw_model *model, lw_text text, const lw_encode_options *options, lw_ids *out,
                         lw_diag *d) LW_MUST_USE;
lw_prompt *lw__prompt_make(void);
/* Marks the tokens that open messages; then one place more. */
void lw__prompt_mark_openings(const lw_model *model, lw_prompt *prompt);
void lw__prompt_mark(lw_prompt *prompt, size_t position);
void lw__api_learn_opening(lw_model *model);

/* ---- the model ---- */

typedef struct lw__rounds lw__rounds;

struct lw_model {
    lw_checkpoint *checkpoint;
    lw_tokenizer *tokenizer;
    lw_chat_template *chat;      /* NULL: the model has none */
    const lw_plan *plan;         /* of the rounds */
    lw__scratches *scratches;
    lw__rounds *rounds;
    lw__opening opening;
    lw_model_options options;    /* judged */
    lw_model_facts facts;
    lw_sampling_options sampling;
    int32_t end_ids[LW_FAMILY_END_IDS_MAX];
    size_t end_id_count;
    int32_t think_open_id, think_close_id; /* -1: the vocabulary has none */
    uint32_t token_bytes_max;    /* of the longest token's text */
    char device[LW_DEVICE_TEXT_BYTES], format[32];
};

/* ---- replies ---- */

typedef enum lw__reply_state { LW__REPLY_GOING, LW__REPLY_DONE } lw__reply_state;
typedef struct lw__seat lw__seat;

struct lw_reply {
    lw_model *model;
    lw__seat *seat;              /* its request in the lane core */
    int32_t *prompt;             /* [prompt_count] */
    uint32_t prompt_count;
    uint32_t marks[LW__API_MARKS_MAX];
    uint32_t mark_count;
    lw_request_options options;  /* judged; tokens_max is the true limit */
    lw__reply_state state;
    int32_t *tokens;             /* [tokens_max] */
    float *logprobs;             /* [tokens_max]; NULL: not asked for */
    uint8_t *top_counts;         /* [tokens_max] */
    lw_token_logprob *tops;      /* [tokens_max][top_logprobs] */
    uint32_t drawn, read;        /* tokens drawn, and those told by lw_reply_read */
    uint32_t held_max;
    uint32_t rows_done, rows_told, rows;
    bool has_ended_by_id;        /* the last token is one that ends replies */
    bool is_cut;                 /* its reader ended it */
    bool end_told;
    lw_end end;
    lw_result result;
    lw_diag diag;                /* why a reply failed */
    lw_reply_counts counts;
};

/* Ends a reply for its reader; one that its reader cut keeps the end that the cut gave it. */
void lw__reply_end(lw_reply *reply, lw_end end, lw_result result);
bool lw__reply_is_held(const lw_reply *reply);

/* Opens the lanes and fills in what only they know of the model's facts. */
lw_status lw__rounds_open(lw_model *model, lw_diag *d) LW_MUST_USE;
void lw__rounds_close(lw__rounds *rounds);
/* LW_RESULT_BUSY: the queue is full. */
lw_result lw__rounds_add(lw__rounds *rounds, lw_reply *reply, lw_error *error);
/* Ends reply now; its lane is free. */
void lw__rounds_remove(lw_reply *reply);
/* The same, and later prompts may resume after its first `kept` tokens. */
void lw__rounds_finish(lw_reply *reply, uint32_t kept);
/* Looks again at whether the reply is held. */
void lw__rounds_hold(lw_reply *reply);
lw_result lw__rounds_step(lw__rounds *rounds, bool *worked, lw_error *error);
void lw__rounds_count(const lw__rounds *rounds, lw_model_counts *counts);
void lw__seat_free(lw__seat *seat);

#endif

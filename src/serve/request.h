/* A request's JSON, read by one table of fields (request.c) into what the engine and the reply need. Every
 * value of a known field is judged; unknown fields are other servers' and are left alone. Called by the
 * workers; a request belongs to its job.
 */
#ifndef LW_SERVE_REQUEST_H
#define LW_SERVE_REQUEST_H

#include "base/arena.h"
#include "serve/failure.h"

typedef enum lw_request_kind {
    LW_REQUEST_CHAT = 1,
    LW_REQUEST_COMPLETION = 2,
    LW_REQUEST_TOKENIZE = 4,
    LW_REQUEST_DETOKENIZE = 8,
} lw_request_kind;

/* What the model and the command line say about requests. */
typedef struct lw_request_rules {
    lw_sampling_options sampling;
    uint32_t vocab;
    bool fresh_seeds;
} lw_request_rules;

typedef struct lw_stop_text {
    const char *bytes;
    size_t count;
} lw_stop_text;

typedef struct lw_request {
    lw_request_kind kind;
    lw_arena arena; /* holds what the pointers below point to */
    char *model;    /* as asked for; NULL: not said */
    lw_sampling_options sampling;
    bool has_seed;
    int64_t seed;
    int64_t tokens_max, completion_tokens_max; /* -1: not said; lw_request_tokens_max has the rule */
    int64_t top_k, top_logprobs;
    int64_t logprobs; /* -1: none; else how many of the best */
    bool ignore_end, stream, include_usage, drafts;
    lw_stop_text *stops;
    size_t stop_count;
    lw_token_bias *biases;
    size_t bias_count;

    /* One of these is the prompt. */
    char *chat; /* JSON for lw_prompt_chat */
    size_t chat_count;
    const char *text;
    size_t text_count;
    int32_t *ids;
    size_t id_count;
    bool add_specials, return_texts; /* tokenize */
} lw_request;

/* request is zeroed here; deinit takes any state. False: failure says why. */
bool lw_request_read(lw_request *request, lw_request_kind kind, const lw_request_rules *rules,
                     const char *body, size_t count, lw_failure *failure) LW_MUST_USE;
void lw_request_deinit(lw_request *request);

/* What the client allows at most, or -1. */
int64_t lw_request_tokens_max(const lw_request *request);

/* ---- the parts, one file each (messages.c, fields.c) ---- */

/* The conversation of root for lw_prompt_chat, which judges it; a new text in request->chat. */
bool lw__request_messages(lw_request *request, const json_t *root, lw_failure *failure) LW_MUST_USE;

/* A whole number that JSON spells as one or as a real without a fraction. */
bool lw__json_whole(const json_t *value, int64_t *out) LW_MUST_USE;
/* "a string", "an object", ... */
const char *lw__json_kind(const json_t *value);
/* A copy in the request's arena; failure when there is no room. */
bool lw__request_copy(lw_request *request, const json_t *text, const char **bytes, size_t *count,
                      lw_failure *failure) LW_MUST_USE;
bool lw__request_no_room(lw_failure *failure);
/* An array of token ids below vocab. */
bool lw__request_ids(lw_request *request, const char *name, const json_t *list, uint32_t vocab,
                     lw_failure *failure) LW_MUST_USE;

typedef bool lw_field_read(lw_request *request, const json_t *value, const lw_request_rules *rules,
                           lw_failure *failure);
bool lw__field_stop(lw_request *request, const json_t *value, const lw_request_rules *rules,
                    lw_failure *failure) LW_MUST_USE;
bool lw__field_logit_bias(lw_request *request, const json_t *value, const lw_request_rules *rules,
                          lw_failure *failure) LW_MUST_USE;
bool lw__field_stream_options(lw_request *request, const json_t *value, const lw_request_rules *rules,
                              lw_failure *failure) LW_MUST_USE;
bool lw__field_prompt(lw_request *request, const json_t *value, const lw_request_rules *rules,
                      lw_failure *failure) LW_MUST_USE;
bool lw__field_logprobs(lw_request *request, const json_t *value, const lw_request_rules *rules,
                        lw_failure *failure) LW_MUST_USE;
bool lw__field_response_format(lw_request *request, const json_t *value, const lw_request_rules *rules,
                               lw_failure *failure) LW_MUST_USE;
bool lw__field_tokens(lw_request *request, const json_t *value, const lw_request_rules *rules,
                      lw_failure *failure) LW_MUST_USE;
bool lw__field_modalities(lw_request *request, const json_t *value, const lw_request_rules *rules,
                          lw_failure *failure) LW_MUST_USE;

#endif

/* Lanewise as a library: load a model, hand it requests, step it, read tokens.
 *
 * Every reply is the same bits however it was made: alone or beside others, drafted or not, from a warm cache
 * or cold.
 *
 * Threads. A model has one owner: lw_model_step and all lw_reply_* calls come from one thread. The text
 * functions (lw_prompt_*, lw_text_*) only read the model and may run in any thread at once. Nothing here
 * keeps global state but this: the first call that reads JSON puts itself above jansson's allocation
 * functions (those that the program has set stay in use) to notice failures, so a program whose other
 * threads use jansson opens a model before it starts them.
 *
 * Errors. A function that can fail returns a status and, where it takes an lw_error, a text that names
 * the thing and the value. On failure its outputs are closed (NULL) and its inputs untouched.
 */
#ifndef LANEWISE_H
#define LANEWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LW_API __attribute__((visibility("default")))
#define LW_API_VERSION 1

typedef enum lw_result {
    LW_RESULT_OK = 0,
    LW_RESULT_BAD_INPUT,    /* a request, option or text that cannot be right */
    LW_RESULT_BAD_MODEL,    /* a model file that contradicts itself or its format */
    LW_RESULT_UNSUPPORTED,  /* well formed, but not served */
    LW_RESULT_NOT_FOUND,
    LW_RESULT_NO_ROOM,      /* memory, or a limit that the text names */
    LW_RESULT_TOO_LONG,     /* prompt and reply do not fit the context; the counts are in the error */
    LW_RESULT_IO,
    LW_RESULT_DEVICE_LOST,  /* close the model and open it again */
    LW_RESULT_CANCELLED,
    LW_RESULT_BUSY,         /* the queue is full */
    LW_RESULT_BROKEN,       /* not-a-number or infinite logits */
} lw_result;

typedef struct lw_error {
    char text[2048];        /* NUL-terminated; valid after a result other than LW_RESULT_OK */
    char field[64];         /* the request's field that is at fault: "temperature"; empty if none is */
    uint64_t wanted, there; /* for TOO_LONG and NO_ROOM: what was asked for and what there is; else 0 */
} lw_error;

/* ---- the model ---- */

typedef struct lw_model lw_model;

typedef struct lw_model_options {
    uint32_t struct_bytes;        /* sizeof(lw_model_options), so that later versions can grow it */
    const char *device;           /* NULL: "cpu"; "xpu:1" names one of several */
    const char *isa;              /* NULL: the best that this CPU runs */
    uint32_t threads;             /* 0: one for each fast core that it may use */
    uint32_t lanes;               /* replies at once; 0: as many as fit, at most 8 */
    uint32_t context;             /* tokens of a prompt and its reply together; 0: the model's, at most
                                     32,768 */
    uint32_t chunk_rows;          /* prompt rows of the largest forward; 0: 512 */
    uint32_t queue;               /* requests that may wait for a lane; 0: 256 */
    uint32_t round_ms;            /* of a round that fills a prompt beside replies; 0: three plain rounds */
    uint32_t drafts_max;          /* drafts that a window may carry; 0: 15 */
    bool drafts_off;
    int64_t cache_bytes;          /* prompt cache; negative: what is left, at most 16 GiB; 0: none */
    uint64_t memory_bytes;        /* all of it, weights included; 0: what the device has free */
    bool specials_anywhere; /* added special tokens match in message text too, as other servers have it */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_all);
    void *progress_context;
    uint32_t draft_match;         /* tokens that agree before a copy is drafted, at least 3; 0: 8 */
    const char *costs_dir;        /* keeps what rounds were timed to take; NULL: timed at each open */
    bool timing_off;              /* nothing is timed: drafts are tried as if rows cost little, however slow
                                     they are here, and replies tell no times */
    int32_t mtp_drafts; /* of a window's drafts, those that the model's own draft head (MTP) may make,
                           at most 16; negative: 5; 0: none, and the head is not loaded */
    const char *ze_loader;        /* xpu: the library of Level Zero's loader; NULL: libze_loader.so.1 */
    const char *xpu_kernels;      /* xpu: a module of its kernels; NULL: those of this build */
    const char *xpu_images;       /* xpu: the folder that keeps kernels as its driver built them; NULL: built
                                     at each open */
    bool act_int8;                /* activations enter linears in int8, where weights are integer codes:
                                     prompts are faster; replies are other ones, as equal among themselves */
    bool kv_int8;                 /* keys and values are kept in int8: about half the memory a token; replies
                                     are other ones, and as equal among themselves */
    uint32_t device_wait_s;       /* of devices that can hang: the longest wait, after which the device counts
                                     as lost; 0: 120 */
} lw_model_options;

/* Every option at its default; to be changed member by member. */
LW_API void lw_model_options_init(lw_model_options *options);

/* Opens the folder of a checkpoint. options NULL: the defaults. */
LW_API lw_result lw_model_open(const char *dir, const lw_model_options *options, lw_model **out,
                               lw_error *error);
/* Ends all replies without another event. */
LW_API void lw_model_close(lw_model *model);

/* What a request's sampling is when it says nothing: from generation_config.json, else greedy. */
typedef struct lw_sampling_options {
    double temperature;           /* 0: greedy; at most 100 */
    double top_p;                 /* (0, 1]; 1: off */
    double min_p;                 /* [0, 1]; 0: off */
    uint32_t top_k;               /* 0: off */
    double repetition_penalty;    /* (0, 10]; 1: off: logits of earlier tokens are divided (positive) or
                                     multiplied */
    double presence_penalty;      /* [-2, 2]: taken off once for a token that the reply holds */
    double frequency_penalty;     /* [-2, 2]: taken off for each time that the reply holds it */
} lw_sampling_options;

typedef struct lw_model_facts {
    const char *family;           /* "lfm3" */
    const char *format;           /* "int4 group 64" */
    const char *device;           /* "cpu (avx2, 2 threads)" */
    uint64_t weight_bytes;
    uint32_t vocab, context, context_model, lanes, chunk_rows;
    uint64_t cache_bytes;
    bool has_template;
    const int32_t *end_ids;
    size_t end_id_count;
    lw_sampling_options sampling;
    const char *think_open, *think_close; /* added tokens around reasoning; NULL if the vocabulary has none */
    const char *activations;      /* how they enter linears whose weights are integer codes: "bf16", "int8" */
    const char *kv;               /* how keys and values are kept: "bf16", "int8" */
    uint64_t kv_bytes;            /* of the keys and values of one token, over all layers */
    uint32_t device_wait_s;       /* after which a wait for the device gives it up; 0: it cannot hang */
} lw_model_facts;

LW_API void lw_model_read_facts(const lw_model *model, lw_model_facts *facts);

/* ---- text ---- */

/* A prompt: token ids, and where its messages begin (places from which later prompts may resume). */
typedef struct lw_prompt lw_prompt;

/* Renders a conversation through the model's chat template. request is a JSON object with "messages" and
 * optionally "tools", "chat_template_kwargs" and "add_generation_prompt" (default true); other members are
 * ignored. A null or missing content is empty, text parts are joined by line ends, tool arguments in a string
 * are read as the object that they spell. Text that came in messages never becomes a special token unless the
 * model was opened with specials_anywhere. */
LW_API lw_result lw_prompt_chat(const lw_model *model, const char *request, size_t count, lw_prompt **out,
                                lw_error *error);

typedef enum lw_prompt_flags {
    LW_PROMPT_SPECIALS = 1,       /* the text of special tokens becomes those tokens */
    LW_PROMPT_BOS = 2,            /* apply the tokenizer's post-processor */
} lw_prompt_flags;
LW_API lw_result lw_prompt_text(const lw_model *model, const char *text, size_t count, unsigned flags,
                                lw_prompt **out, lw_error *error);
LW_API lw_result lw_prompt_ids(const lw_model *model, const int32_t *ids, size_t count, lw_prompt **out,
                               lw_error *error);
LW_API void lw_prompt_free(lw_prompt *prompt);
LW_API const int32_t *lw_prompt_read_ids(const lw_prompt *prompt, size_t *count);
/* Ascending positions where messages and the generation prompt begin: the first few and the latest. */
LW_API const uint32_t *lw_prompt_read_marks(const lw_prompt *prompt, size_t *count);
/* True when the prompt ends inside a reasoning block that it opened itself. */
LW_API bool lw_prompt_is_thinking(const lw_prompt *prompt);

/* Text of ids as it becomes complete: never half a code point. */
typedef struct lw_text_reader lw_text_reader;
LW_API lw_result lw_text_reader_open(const lw_model *model, bool show_specials, lw_text_reader **out);
LW_API void lw_text_reader_close(lw_text_reader *reader);
/* The text that id completes; valid until the next call; may be empty. */
LW_API const char *lw_text_reader_push(lw_text_reader *reader, int32_t id, size_t *count);
LW_API const char *lw_text_reader_finish(lw_text_reader *reader, size_t *count);
/* The bytes of one token as they are; borrowed from the model. */
LW_API const char *lw_text_of_id(const lw_model *model, int32_t id, size_t *count);
LW_API bool lw_text_is_special(const lw_model *model, int32_t id);

/* ---- replies ---- */

typedef struct lw_reply lw_reply;

typedef struct lw_token_bias {
    int32_t id;
    float bias;                   /* [-100, 100], or -infinity to forbid */
} lw_token_bias;

typedef struct lw_request_options {
    uint32_t struct_bytes;        /* sizeof(lw_request_options) */
    lw_sampling_options sampling;
    bool has_seed;
    uint64_t seed;                /* below 2^63; without one it comes from the prompt's ids */
    int64_t tokens_max;           /* negative: what the prompt leaves of the context */
    bool ignore_end;
    bool drafts_off;
    int32_t top_logprobs;         /* -1: none; 0 to 20: the drawn token's and that many of the best */
    const lw_token_bias *biases;
    size_t bias_count;
} lw_request_options;

/* The model's own sampling, all the room that is left, no log-probabilities. */
LW_API void lw_request_options_init(const lw_model *model, lw_request_options *options);

typedef enum lw_event_kind {
    LW_EVENT_NONE,                /* nothing to read now */
    LW_EVENT_FILLING,             /* the prompt went on: see rows */
    LW_EVENT_TOKEN,
    LW_EVENT_END,                 /* the last event */
} lw_event_kind;

typedef enum lw_end { LW_END_STOP, LW_END_LENGTH, LW_END_CANCELLED, LW_END_FAILED } lw_end;

typedef struct lw_token_logprob {
    int32_t id;
    float logprob;                /* natural; of raw logits at temperature 1, before penalties and biases */
} lw_token_logprob;

typedef struct lw_event {
    lw_event_kind kind;
    int32_t id;                   /* TOKEN */
    bool is_end_token;            /* TOKEN: one that ends the reply; part of its ids, not of its text */
    float logprob;                /* TOKEN, when asked for */
    const lw_token_logprob *top;  /* valid until the next read of this reply */
    uint32_t top_count;
    uint32_t rows_done, rows;     /* FILLING: of the prompt */
    lw_end end;                   /* END */
    lw_result result;             /* END with FAILED: why; error is its text */
    const char *error;
} lw_event;

typedef struct lw_reply_counts {
    uint32_t prompt_tokens, cached_tokens, reply_tokens;
    uint32_t drafts_offered, drafts_kept, rounds; /* once it has ended */
    uint64_t queued_ns, prompt_ns, decode_ns; /* once it has ended */
    uint64_t seed;
    char token_sha[13];           /* of the reply's ids so far */
} lw_reply_counts;

/* Queues a request; prompt may be freed at once. LW_RESULT_BUSY: the queue is full. */
LW_API lw_result lw_reply_open(lw_model *model, const lw_prompt *prompt, const lw_request_options *options,
                               lw_reply **out, lw_error *error);
/* The next event; events wait inside until they are read. */
LW_API void lw_reply_read(lw_reply *reply, lw_event *event);
/* How many tokens wait to be read; above `held_max` of lw_reply_hold the reply pauses, and only it. */
LW_API uint32_t lw_reply_waiting(const lw_reply *reply);
LW_API void lw_reply_hold(lw_reply *reply, uint32_t held_max);
/* Ends the reply after the token last read: a stop string was found. Tokens drawn past it are forgotten.
 * Later prompts may resume after the prompt and the first `kept` of the tokens that were read: those before
 * the stop string are what a next turn repeats. UINT32_MAX: all but the last, as after a reply's own end. */
LW_API void lw_reply_stop(lw_reply *reply, uint32_t kept);
/* Gives the lane back within a round. */
LW_API void lw_reply_cancel(lw_reply *reply);
LW_API void lw_reply_read_counts(const lw_reply *reply, lw_reply_counts *counts);
/* Cancels if it still runs. */
LW_API void lw_reply_close(lw_reply *reply);

/* One round for all replies; false when there was nothing to do. */
LW_API lw_result lw_model_step(lw_model *model, bool *worked, lw_error *error);

typedef struct lw_model_counts {
    uint32_t replies_running, replies_waiting, lanes;
    uint64_t prompt_tokens, cached_tokens, reply_tokens, rounds, rows;
    uint64_t drafts_offered, drafts_kept;
    uint64_t cache_bytes, cache_entries, cache_hits, cache_misses, cache_evicted;
    uint64_t pages_used, pages;
    uint64_t mtp_drafts_offered, mtp_drafts_kept;   /* by the draft head; in the sums above */
    uint64_t rounds_ahead;   /* of the rounds, those submitted while the one before ran */
} lw_model_counts;
LW_API void lw_model_read_counts(const lw_model *model, lw_model_counts *counts);

LW_API const char *lw_version(void);

#ifdef __cplusplus
}
#endif
#endif

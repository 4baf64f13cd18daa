/* The parts of `lanewise run`: options (run.c), prompts (run_prompt.c), one reply (run_reply.c), turns
 * (run_chat.c). */
#ifndef LW_CLI_RUN_H
#define LW_CLI_RUN_H

#include "cli/load.h"

/* One call of the verb. */
typedef struct lw_run {
    lw_term term;
    lw_load_options load;
    lw_loaded model;

    const char *text, *system, *ids_path; /* NULL: not given */
    bool raw, chat, json, trace, ignore_end, no_think, trust_specials, no_specials;
    uint32_t tokens_max;  /* 0: the default */
    lw_sampling sampling; /* where not given: the model's own, once lw_run_sampling has run */
    bool temperature_given, top_k_given, top_p_given, min_p_given, seed_given;
} lw_run;

/* Fills what no option gave from generation_config.json; without one a reply is greedy. */
lw_status lw_run_sampling(lw_run *run, lw_diag *d) LW_MUST_USE;

/* ---- prompts ---- */

/* Adds {"role": role, "content": text} to messages; LW_BAD_INPUT when the text is not UTF-8. */
lw_status lw_run_add_message(json_t *messages, const char *role, const char *text, size_t count,
                             lw_diag *d) LW_MUST_USE;

/* The messages through the chat template, as ids. out is empty before and owned by the caller. */
lw_status lw_run_chat_ids(lw_run *run, const json_t *messages, lw_ids *out, lw_diag *d) LW_MUST_USE;

/* True if bytes[0, count) are white space alone: no turn, but a slip. */
bool lw_run_is_blank(const char *bytes, size_t count);

/* The prompt that the options and standard input name: --ids, -p or standard input, --raw or the template. */
lw_status lw_run_prompt_ids(lw_run *run, lw_ids *out, lw_diag *d) LW_MUST_USE;

/* ---- replies ---- */

typedef struct lw_reply {
    lw_ids ids;            /* end token included */
    lw_buf text;           /* what was streamed */
    bool opened_by_prompt; /* the prompt ends inside a think block */
    uint64_t seed;
    size_t prompt_tokens;
    lw_generate_result result;
    bool reader_gone; /* standard output was closed */
} lw_reply;

/* Generates and, without --json, streams to standard output. reply is zeroed before; the caller deinits it
 * whatever comes back. Ctrl-C ends it with LW_FINISH_STOPPED. */
lw_status lw_run_reply(lw_run *run, const lw_ids *prompt, lw_reply *reply, lw_diag *d) LW_MUST_USE;
void lw_reply_deinit(lw_reply *reply);

/* One line of timings on stderr, or with --json the object on standard output. */
void lw_run_report(const lw_run *run, const lw_reply *reply);

/* ---- chat ---- */

/* Turns from standard input until its end; returns the exit code. */
int lw_run_chat(lw_run *run);

#endif

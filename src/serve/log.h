/* One line to standard error for each request, as text or as a JSON object; and on a terminal a line that
 * shows what goes on now. Prompts and replies are never written unless asked for. Owned by the event thread.
 */
#ifndef LW_SERVE_LOG_H
#define LW_SERVE_LOG_H

#include "serve/job.h"

typedef struct lw_log {
    bool is_json, shows_prompts, is_terminal;
    bool live_is_shown;
    uint64_t live_ns, live_tokens; /* of the last live line */
} lw_log;

/* A line that is no request's: starts, ends, warnings. */
void lw_log_line(lw_log *log, const char *format, ...) LW_PRINTF(2, 3);

void lw_log_done(lw_log *log, const lw_job *job, const lw_news_end *end, uint64_t taken_ns);
void lw_log_failure(lw_log *log, const lw_job *job, const lw_failure *failure, uint64_t taken_ns);
/* A request without a reply from the engine. */
void lw_log_plain(lw_log *log, const lw_job *job, int code, uint64_t taken_ns);
void lw_log_gone(lw_log *log, const lw_job *job, uint64_t taken_ns);

/* Draws the live line over itself; nothing without a terminal. */
void lw_log_live(lw_log *log, const lw_model_counts *counts, uint64_t now_ns);

#endif

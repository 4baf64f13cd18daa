/* What a client is told when something went wrong: an HTTP status and OpenAI's error object. The one table
 * from the engine's results to HTTP statuses stands in failure.c.
 */
#ifndef LW_SERVE_FAILURE_H
#define LW_SERVE_FAILURE_H

#include "base/status.h"
#include "lanewise.h"

#include <jansson.h>

enum { LW_RETRY_AFTER_S = 1 }; /* said with every 503: a place in the queue is soon free again */

typedef struct lw_failure {
    int code;         /* HTTP status; 0: nothing failed */
    const char *type; /* "invalid_request_error" */
    const char *name; /* the error's "code": "context_length_exceeded"; NULL: null */
    char param[128];  /* the field at fault; empty: null */
    char text[2048];
    uint64_t wanted, there; /* with context_length_exceeded: tokens asked for, and the context */
} lw_failure;

/* Fills failure and returns false, so that `return lw_failure_field(...)` reads well. */
bool lw_failure_set(lw_failure *failure, int code, const char *name, const char *format, ...) LW_PRINTF(4, 5);
/* 400 for the value of a field. */
bool lw_failure_field(lw_failure *failure, const char *param, const char *format, ...) LW_PRINTF(3, 4);
/* From a result other than LW_RESULT_OK. */
bool lw_failure_result(lw_failure *failure, lw_result result, const lw_error *error);

/* {"error": {...}}; NULL when memory ran out. */
json_t *lw_failure_json(const lw_failure *failure) LW_MUST_USE;

#endif

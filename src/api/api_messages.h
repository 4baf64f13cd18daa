/* A chat request in JSON, judged and evened out for templates: the one place that says what a conversation
 * may be. The server's errors come from here, too: each names the JSON path of what is at fault.
 */
#ifndef LW_API_API_MESSAGES_H
#define LW_API_API_MESSAGES_H

#include "lanewise.h"

#include <jansson.h>

/* Contents are strings, tool arguments objects, and what was null is absent. */
typedef struct lw__chat_request {
    json_t *root;          /* owns what the others point into */
    json_t *messages;      /* owned */
    const json_t *tools, *kwargs;
    bool add_generation_prompt;
} lw__chat_request;

lw_result lw__chat_request_read(const char *request, size_t count, lw__chat_request *out, lw_error *error);
void lw__chat_request_deinit(lw__chat_request *request);

#endif

/* JSON that is read whole or not at all. jansson goes on where it gets no memory for a token that is being
 * read: bytes of it are missing then, so that a key or a digit is another one. Here such a text is not read.
 * Every parse of this project is lw_json_load (tools/tidy holds it).
 */
#ifndef LW_BASE_JSON_H
#define LW_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Puts the notes of failures below jansson, once; the first parse does it too. Programs with threads that use
 * jansson call it before they start them, as json_set_alloc_funcs wants it. */
void lw_json_install(void);

/* As json_loadb, but NULL with error->text empty where any memory was lacking; two levels less may be nested
 * than jansson reads. error may be NULL. */
json_t *lw_json_load(const char *bytes, size_t count, size_t flags, json_error_t *error);

/* A JSON string of bytes that may not be UTF-8: what is not becomes U+FFFD. */
json_t *lw_json_text(const char *bytes, size_t count);

/* Whether jansson got no memory on this thread since the last call of lw_json_take_failure or lw_json_load:
 * then what was built since may lack members. */
bool lw_json_has_failed(void);
bool lw_json_take_failure(void);

#endif

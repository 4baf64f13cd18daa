/* Who may ask: API keys, the Host header (a server on loopback must not be driven by a name that some web
 * page made up), and the origins that browsers may call from. Pure functions over headers; made once at
 * start.
 */
#ifndef LW_SERVE_ACCESS_H
#define LW_SERVE_ACCESS_H

#include "base/sha256.h"
#include "serve/failure.h"
#include "serve/http_parse.h"
#include "serve/serve.h"

typedef struct lw_access {
    uint8_t (*keys)[LW_SHA256_BYTES]; /* digests: the keys themselves are not kept */
    size_t key_count;
    bool is_loopback;                 /* what the server is bound to */
    const lw_serve_texts *hosts, *origins; /* borrowed */
} lw_access;

lw_status lw_access_open(lw_access *access, const lw_serve_options *options, bool is_loopback,
                         lw_diag *d) LW_MUST_USE;
void lw_access_close(lw_access *access);

/* 403 for a Host or Origin that is not allowed; the text names the flag that helps. *origin: to be echoed in
 * Access-Control-Allow-Origin, or NULL. */
bool lw_access_place(const lw_access *access, const lw_http_parser *request, const char **origin,
                     lw_failure *failure) LW_MUST_USE;
/* 401 without a known key; every key is compared in constant time. */
bool lw_access_key(const lw_access *access, const lw_http_parser *request, lw_failure *failure) LW_MUST_USE;

#endif

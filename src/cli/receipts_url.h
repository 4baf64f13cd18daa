/* Asking a running server over HTTP, for `lanewise receipts --url`. */
#ifndef LW_CLI_RECEIPTS_URL_H
#define LW_CLI_RECEIPTS_URL_H

#include "cli/http_client.h"
#include "cli/receipts.h"

typedef struct lw_receipt_url {
    lw_http_server server;
    uint32_t tokens;         /* of each reply */
} lw_receipt_url;

/* Borrows url. A server has one way to answer: fresh is what it says when it is asked first and alone,
 * without drafts; its chunks cannot be chosen. */
lw_asker lw_receipt_url_asker(lw_receipt_url *url);

#endif

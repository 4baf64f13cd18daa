/* The one table of routes, and what http.c asks of the server. */
#ifndef LW_SERVE_ROUTES_H
#define LW_SERVE_ROUTES_H

#include "serve/http.h"

/* The head of a request stands: may it go on? False: a refusal was sent. */
bool lw_routes_head(lw_conn *conn) LW_MUST_USE;
/* The request is complete: answers it, or hands it to the workers. */
void lw_routes_request(lw_conn *conn);
/* A connection is no more. */
void lw_routes_conn_freed(lw_server *server);

#endif

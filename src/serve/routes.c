/* Routes; see routes.h. What needs no engine is answered here at once. */
#include "serve/routes.h"

#include "base/clock.h"
#include "serve/answer.h"

#include <event2/listener.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct route {
    const char *method, *path;
    void (*answer)(lw_conn *conn); /* NULL: kind goes to the workers */
    lw_request_kind kind;
    bool is_open;                  /* needs no key */
} route;

/* ---- answers ---- */

/* Half of the time is over after which the device that is waited for counts as lost. */
static bool is_stalled(lw_server *server)
{
    const uint64_t wait_ns = server->engine.facts.device_wait_s * UINT64_C(1000000000);
    return wait_ns > 0 && lw_bridge_round_ns(&server->bridge) > wait_ns / 2;
}

static void answer_health(lw_conn *conn)
{
    lw_server *server = conn->server;
    lw_model_counts counts;
    const lw_engine_state state = lw_bridge_state(&server->bridge, &counts);
    const char *status = server->is_draining ? "shutting down" :
                         state != LW_ENGINE_READY ? "failed" :
                         is_stalled(server) ? "stalled" : "ok";
    const int code = strcmp(status, "ok") == 0 ? 200 : 503;
    json_t *body = json_pack("{s:s}", "status", status);
    lw_failure ignored;
    /* Who has no key learns that the server lives, and no more. */
    if (lw_access_key(&server->access, &conn->parser, &ignored)) {
        json_object_set_new(body, "model", json_string(server->served_name));
        json_object_set_new(body, "lanes", json_integer(counts.lanes));
        json_object_set_new(body, "running", json_integer(counts.replies_running));
        json_object_set_new(body, "waiting", json_integer(counts.replies_waiting));
        json_object_set_new(body, "open", json_integer(server->job_count));
        json_object_set_new(body, "context_length", json_integer(server->engine.facts.context));
    }
    lw_conn_send_json(conn, code, body);
}

static json_t *model_object(const lw_server *server, const char *name)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", name, "object", "model", "created",
                     (json_int_t)server->started, "owned_by", "lanewise", "max_model_len",
                     (json_int_t)server->engine.facts.context);
}

static void answer_models(lw_conn *conn)
{
    const lw_server *server = conn->server;
    const lw_serve_texts *aliases = &server->options->aliases;
    json_t *list = json_array();
    json_array_append_new(list, model_object(server, server->served_name));
    for (uint32_t i = 0; i < aliases->count; i++)
        json_array_append_new(list, model_object(server, aliases->values[i]));
    lw_conn_send_json(conn, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static uint64_t resident_bytes(void)
{
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%*u %" SCNu64, &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void answer_metrics(lw_conn *conn)
{
    lw_server *server = conn->server;
    lw_metrics_now now = { .model = server->served_name, .connections = server->conn_count,
                           .jobs = server->job_count, .bodies_bytes = server->bodies_bytes,
                           .resident_bytes = resident_bytes() };
    lw_bridge_state(&server->bridge, &now.counts);
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_failure failure;
    if (lw_metrics_write(&server->metrics, &now, &text) == LW_OK) {
        lw_conn_send(conn, 200, "", "text/plain; version=0.0.4; charset=utf-8", &text);
    } else {
        lw_failure_set(&failure, 503, "no_room", "no memory for the metrics");
        lw_conn_send_failure(conn, &failure);
    }
    lw_buf_deinit(&text);
}

/* What holds here, so that a client need not try it out. */
static json_t *equalities_object(void)
{
    return json_pack("{s:b, s:b, s:b, s:b, s:b}", "drafted_is_undrafted", 1, "concurrent_is_solo", 1,
                     "resumed_is_fresh", 1, "any_cut_is_whole", 1, "chat_is_completions_of_the_same_ids", 1);
}

static json_t *limits_object(const lw_server *server)
{
    const lw_model_facts *facts = &server->engine.facts;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "context", (json_int_t)facts->context,
                     "context_of_the_model", (json_int_t)facts->context_model, "lanes",
                     (json_int_t)facts->lanes, "max_tokens_default", (json_int_t)server->options->tokens_max,
                     "body_bytes", (json_int_t)server->options->body_bytes_max, "messages",
                     (json_int_t)LW_LIMIT_MESSAGES, "stop_strings", (json_int_t)LW_LIMIT_STOPS,
                     "top_logprobs", (json_int_t)20, "connections",
                     (json_int_t)server->options->connections_max);
}

static json_t *sampling_object(const lw_sampling_options *s)
{
    return json_pack("{s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "temperature", s->temperature, "top_p", s->top_p,
                     "min_p", s->min_p, "top_k", (json_int_t)s->top_k, "repetition_penalty",
                     s->repetition_penalty, "presence_penalty", s->presence_penalty, "frequency_penalty",
                     s->frequency_penalty);
}

static void answer_props(lw_conn *conn)
{
    const lw_server *server = conn->server;
    const lw_model_facts *facts = &server->engine.facts;
    json_t *body =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:s, s:s, s:I, s:s, s:s}", "version",
                  lw_version(), "model", server->served_name, "family", facts->family, "format",
                  facts->format, "device", facts->device, "weight_bytes", (json_int_t)facts->weight_bytes,
                  "vocab", (json_int_t)facts->vocab, "has_chat_template", facts->has_template, "activations",
                  facts->activations, "kv", facts->kv, "kv_bytes", (json_int_t)facts->kv_bytes, "seed",
                  server->options->fresh_seeds ? "drawn for each request" : "from the prompt", "reasoning",
                  facts->think_close == NULL       ? "none"
                  : server->options->raw_reasoning ? "raw"
                                                   : "split");
    if (body != NULL) {
        json_object_set_new(body, "equalities", equalities_object());
        json_object_set_new(body, "limits", limits_object(server));
        json_object_set_new(body, "sampling", sampling_object(&facts->sampling));
    }
    lw_conn_send_json(conn, 200, body);
}

/* ---- the table ---- */

static const route routes[] = {
    { "POST", "/v1/chat/completions", NULL, LW_REQUEST_CHAT, false },
    { "POST", "/v1/completions", NULL, LW_REQUEST_COMPLETION, false },
    { "POST", "/tokenize", NULL, LW_REQUEST_TOKENIZE, false },
    { "POST", "/v1/tokenize", NULL, LW_REQUEST_TOKENIZE, false },
    { "POST", "/detokenize", NULL, LW_REQUEST_DETOKENIZE, false },
    { "POST", "/v1/detokenize", NULL, LW_REQUEST_DETOKENIZE, false },
    { "GET", "/v1/models", answer_models, 0, false },
    { "GET", "/health", answer_health, 0, true },
    { "GET", "/metrics", answer_metrics, 0, false },
    { "GET", "/props", answer_props, 0, false },
};
enum { ROUTE_COUNT = sizeof routes / sizeof routes[0] };

static const route *find_route(const lw_conn *conn, bool *path_is_known)
{
    const char *method = conn->is_head ? "GET" : conn->parser.method;
    *path_is_known = false;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (strcmp(routes[i].path, conn->parser.path) != 0) continue;
        *path_is_known = true;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
    }
    return NULL;
}

static bool is_preflight(const lw_conn *conn)
{
    return strcmp(conn->parser.method, "OPTIONS") == 0 && conn->cors != NULL;
}

static bool judge_route(const lw_conn *conn, lw_failure *failure)
{
    bool path_is_known;
    const route *found = find_route(conn, &path_is_known);
    if (found == NULL && path_is_known)
        return lw_failure_set(failure, 405, "method_not_allowed", "%.20s is not for %.100s; see GET /props",
                              conn->parser.method, conn->parser.path);
    if (found == NULL)
        return lw_failure_set(failure, 404, "unknown_path", "there is no %.100s here", conn->parser.path);
    const bool is_open =
        found->is_open || (found->answer == answer_metrics && conn->server->options->open_metrics);
    if (!is_open && !lw_access_key(&conn->server->access, &conn->parser, failure)) return false;
    if (found->answer != NULL) return true;
    if (conn->server->is_draining)
        return lw_failure_set(failure, 503, "server_shutting_down", "the server is shutting down");
    if (conn->server->job_count >= LW_LIMIT_JOBS)
        return lw_failure_set(failure, 503, "server_busy", "%d requests are waiting or running",
                              LW_LIMIT_JOBS);
    return true;
}

bool lw_routes_head(lw_conn *conn)
{
    lw_failure failure;
    const bool may_come = lw_access_place(&conn->server->access, &conn->parser, &conn->cors, &failure);
    if (may_come && (is_preflight(conn) || judge_route(conn, &failure))) return true;
    /* A refused body is not read: what follows could not be told from a next request. */
    if (conn->parser.bytes_left > 0 || conn->parser.is_chunked) conn->closes = true;
    conn->state = LW_CONN_PENDING;
    lw_conn_send_failure(conn, &failure);
    return false;
}

static void name_job(lw_server *server, lw_job *job)
{
    static const char *const prefixes[] = { [LW_REQUEST_CHAT] = "chatcmpl",
                                            [LW_REQUEST_COMPLETION] = "cmpl",
                                            [LW_REQUEST_TOKENIZE] = "tok",
                                            [LW_REQUEST_DETOKENIZE] = "detok" };
    job->number = ++server->job_number;
    job->created = (int64_t)time(NULL);
    /* Unique over restarts too: clients keep ids. */
    snprintf(job->id, sizeof job->id, "%s-%08" PRIx64 "%08" PRIx64, prefixes[job->kind],
             (uint64_t)server->started & 0xFFFFFFFFu, job->number);
}

static void hand_on(lw_conn *conn, lw_request_kind kind)
{
    lw_failure failure;
    lw_job *job = lw_job_make(kind);
    if (job == NULL || !lw_answer_open(conn, job)) {
        if (job != NULL) lw_job_release(job);
        lw_failure_set(&failure, 503, "no_room", "no memory for the request");
        lw_conn_send_failure(conn, &failure);
        return;
    }
    name_job(conn->server, job);
    job->begun_ns = conn->begun_ns;
    job->body = conn->parser.body;
    lw_buf_init(&conn->parser.body, 0);
    atomic_fetch_add(&job->holders, 1);
    lw_bridge_push_work(&conn->server->bridge, job);
}

void lw_routes_request(lw_conn *conn)
{
    if (is_preflight(conn)) {
        lw_conn_send(conn, 204, "Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"
                     "Access-Control-Allow-Headers: authorization, content-type, x-api-key\r\n"
                     "Access-Control-Max-Age: 600\r\n", NULL, NULL);
        return;
    }
    bool path_is_known;
    const route *found = find_route(conn, &path_is_known);
    LW_ASSERT(found != NULL);
    if (found->answer != NULL) found->answer(conn);
    else hand_on(conn, found->kind);
}

void lw_routes_conn_freed(lw_server *server)
{
    if (server->listener != NULL && !server->is_draining &&
        server->conn_count + 1 == server->options->connections_max)
        evconnlistener_enable(server->listener);
}

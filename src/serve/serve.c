/* Start, signals and the end of the server; see serve.h.
 *
 *   loading -> serving --first signal--> draining --all replies over, or the time is up--> leaving ->
 * returned any of them --second signal--> returned at once
 */
#include "serve/serve.h"

#include "base/clock.h"
#include "serve/answer.h"
#include "serve/routes.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    BACKLOG = 1024,
    FLUSH_S = 2, /* for last bytes to reach clients when the time is up */
};

/* ---- the listener ---- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t socket, struct sockaddr *address,
                      int address_bytes, void *context)
{
    (void)address, (void)address_bytes;
    lw_server *server = context;
    lw_conn_open(server, socket);
    /* The rest waits in the kernel's queue until a connection is over. */
    if (server->conn_count >= server->options->connections_max) evconnlistener_disable(listener);
}

/* Out of descriptors, most likely: the tick tries again. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    (void)context;
    evconnlistener_disable(listener);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int open_socket(const struct addrinfo *info)
{
    const int on = 1;
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void make_url(lw_server *server, int fd)
{
    struct sockaddr_storage own = { .ss_family = AF_UNSPEC };
    socklen_t own_bytes = sizeof own;
    char host[INET6_ADDRSTRLEN] = "", port[16] = "";
    if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0)
        getnameinfo((struct sockaddr *)&own, own_bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    const bool is_any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    const bool is_v6 = strchr(host, ':') != NULL && !is_any;
    snprintf(server->url, sizeof server->url, "http://%s%s%s:%s", is_v6 ? "[" : "",
             is_any ? "localhost" : host, is_v6 ? "]" : "", port);
}

/* Bound before the model is loaded: a port in use is known at once. Nothing is accepted yet. */
static lw_status bind_server(lw_server *server, lw_diag *d)
{
    const lw_serve_options *options = server->options;
    char port[16];
    snprintf(port, sizeof port, "%u", options->port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *info = NULL;
    const int error = getaddrinfo(options->host, port, &hints, &info);
    if (error != 0) return lw_fail(d, LW_BAD_INPUT, "--host %s: %s", options->host, gai_strerror(error));
    const int fd = open_socket(info);
    const int why = errno;
    const bool is_local = is_loopback(info->ai_addr);
    freeaddrinfo(info);
    if (fd < 0 && why == EADDRINUSE)
        return lw_fail(d, LW_IO, "port %u of %s is in use; --port N takes another, --port 0 any free one",
                       options->port, options->host);
    if (fd < 0) return lw_fail(d, LW_IO, "%s port %u: %s", options->host, options->port, strerror(why));
    server->listener = evconnlistener_new(server->base, on_accept, server,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED,
                                          -1, fd);
    if (server->listener == NULL) {
        close(fd);
        return lw_fail(d, LW_NO_ROOM, "no memory for the listener");
    }
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    make_url(server, fd);
    return lw_access_open(&server->access, options, is_local, d);
}

/* Each connection needs a descriptor: the soft limit is often 1024. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- start ---- */

static void print_start(lw_server *server)
{
    const lw_model_facts *facts = &server->engine.facts;
    const bool has_keys = server->access.key_count > 0;
    printf("model     %s (%s, %s)\n", server->served_name, facts->family, facts->format);
    printf("device    %s, %.2f GiB of weights, %.2f GiB of prompt cache\n", facts->device,
           (double)facts->weight_bytes / 0x1p30, (double)facts->cache_bytes / 0x1p30);
    printf("lanes     %u x %u positions, %" PRIu64 " bytes of keys and values each (%s)\n", facts->lanes,
           facts->context, facts->kv_bytes, facts->kv);
    printf("url       %s/v1\n", server->url);
    printf("try       curl %s/v1/chat/completions -H 'Content-Type: application/json' %s"
           "-d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n", server->url,
           has_keys ? "-H 'Authorization: Bearer KEY' " : "");
    fflush(stdout);
    if (!server->access.is_loopback && !has_keys)
        lw_log_line(&server->log,
                    "warning: everyone who reaches %s may use this server; --api-key KEY asks for "
                    "a key",
                    server->options->host);
}

/* The model stands. */
static lw_status begin_serving(lw_server *server, lw_diag *d)
{
    const lw_serve_options *options = server->options;
    const lw_model_facts *facts = &server->engine.facts;
    server->workers = (lw_workers){ .bridge = &server->bridge,
                                    .model = server->engine.model,
                                    .rules = { .sampling = facts->sampling, .vocab = facts->vocab,
                                               .fresh_seeds = options->fresh_seeds },
                                    .context = facts->context };
    const lw_status status = lw_workers_start(&server->workers, d);
    if (status != LW_OK) return status;
    print_start(server);
    evconnlistener_enable(server->listener);
    return LW_OK;
}

/* ---- the end ---- */

static void begin_draining(lw_server *server)
{
    server->is_draining = true;
    server->drain_begun_ns = lw_clock_ns();
    lw_bridge_drain(&server->bridge, LW_DRAIN_QUEUED);
    lw_log_line(&server->log, "shutting down: %u replies go on for at most %u s", server->job_count,
                server->options->drain_s);
}

/* Called on each tick while draining. Ends the loop when every reply is out, or a moment after the time is up
 * and what still ran was told so. */
static void go_on_draining(lw_server *server, uint64_t now_ns)
{
    const uint64_t drain_ns = server->options->drain_s * UINT64_C(1000000000);
    const uint64_t taken_ns = now_ns - server->drain_begun_ns;
    bool is_busy = server->job_count > 0;
    for (const lw_conn *conn = server->conns; conn != NULL && !is_busy; conn = conn->next)
        is_busy = evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0;
    if (taken_ns >= drain_ns) lw_bridge_drain(&server->bridge, LW_DRAIN_RUNNING);
    if (!is_busy || taken_ns >= drain_ns + FLUSH_S * UINT64_C(1000000000)) event_base_loopbreak(server->base);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    (void)number, (void)what;
    lw_server *server = context;
    server->signals++;
    const bool is_loading = lw_bridge_state(&server->bridge, NULL) == LW_ENGINE_LOADING;
    if (server->signals > 1 || is_loading) {
        server->signals = 2;
        event_base_loopbreak(server->base);
        return;
    }
    begin_draining(server);
    go_on_draining(server, lw_clock_ns());
}

/* The keys again: a file that cannot be read now leaves those of before. */
static void on_hangup(evutil_socket_t number, short what, void *context)
{
    (void)number, (void)what;
    lw_server *server = context;
    lw_access fresh;
    lw_diag d;
    if (lw_access_open(&fresh, server->options, server->access.is_loopback, &d) != LW_OK) {
        lw_log_line(&server->log, "the keys stay as they were: %s", d.text);
        return;
    }
    lw_access_close(&server->access);
    server->access = fresh;
    lw_log_line(&server->log, "the keys were read again: %zu of them", fresh.key_count);
}

/* ---- events ---- */

static void fail_start(lw_server *server, const char *text)
{
    lw_log_line(&server->log, "%s", text);
    server->exit_code = 1;
    event_base_loopbreak(server->base);
}

static void hear_state(lw_server *server)
{
    lw_diag d;
    const lw_engine_state state = lw_bridge_state(&server->bridge, NULL);
    const bool is_serving = server->workers.thread_count > 0;
    if (state == LW_ENGINE_READY && !is_serving && begin_serving(server, &d) != LW_OK)
        fail_start(server, d.text);
    if (state != LW_ENGINE_FAILED || server->exit_code != 0) return;
    if (!is_serving) {
        fail_start(server, server->bridge.load_error.text);
        return;
    }
    /* The device is lost: what started us starts us again. */
    server->exit_code = 1;
    lw_log_line(&server->log, "%s", server->bridge.load_error.text);
    if (!server->is_draining) begin_draining(server);
}

static void on_news(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    lw_server *server = context;
    lw_bridge_clear_wake(&server->bridge);
    hear_state(server);
    for (lw_job *job; (job = lw_bridge_pop_noticed(&server->bridge)) != NULL;) {
        if (job->conn != NULL) lw_answer_hear(job->conn);
        lw_job_release(job);
    }
    if (server->is_draining) go_on_draining(server, lw_clock_ns());
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    lw_server *server = context;
    const uint64_t now_ns = lw_clock_ns();
    lw_model_counts counts;
    const lw_engine_state state = lw_bridge_state(&server->bridge, &counts);
    for (lw_conn *conn = server->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        if (conn->job != NULL) lw_answer_tick(conn, now_ns);
    }
    if (server->is_draining) go_on_draining(server, now_ns);
    else if (state == LW_ENGINE_READY && server->conn_count < server->options->connections_max)
        evconnlistener_enable(server->listener);
    lw_log_live(&server->log, &counts, now_ns);
}

static lw_status add_events(lw_server *server, lw_diag *d)
{
    static const struct {
        int number;
        event_callback_fn heard;
    } signals[] = { { SIGTERM, on_signal }, { SIGINT, on_signal }, { SIGHUP, on_hangup } };
    /* Without a file of keys a terminal that hangs up ends the process as it ends others. */
    const size_t signal_count = server->options->api_key_file != NULL ? 3 : 2;
    const struct timeval tick = { .tv_usec = TICK_MS * 1000 };
    server->news_event =
        event_new(server->base, server->bridge.event_fd, EV_READ | EV_PERSIST, on_news, server);
    server->tick_event = event_new(server->base, -1, EV_PERSIST, on_tick, server);
    bool is_added = server->news_event != NULL && server->tick_event != NULL &&
                    event_add(server->news_event, NULL) == 0 && event_add(server->tick_event, &tick) == 0;
    for (size_t i = 0; i < signal_count && is_added; i++) {
        server->signal_events[i] =
            evsignal_new(server->base, signals[i].number, signals[i].heard, server);
        is_added = server->signal_events[i] != NULL && event_add(server->signal_events[i], NULL) == 0;
    }
    return is_added ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for the event loop");
}

/* ---- one life ---- */

/* Names stand in JSON, in metrics and in logs: what would need quoting in one of them is refused. */
static bool is_plain(const char *name)
{
    if (*name == '\0') return false;
    for (; *name != '\0'; name++) {
        if (*name <= ' ' || *name == 0x7F || *name == '"' || *name == '\\') return false;
    }
    return true;
}

/* The folder's name, made plain. */
static void name_by_folder(lw_server *server)
{
    const char *dir = server->options->model_dir;
    size_t count = strlen(dir);
    while (count > 1 && dir[count - 1] == '/') count--;
    size_t begin = count;
    while (begin > 0 && dir[begin - 1] != '/') begin--;
    snprintf(server->name, sizeof server->name, "%.*s", (int)(count - begin), dir + begin);
    for (char *c = server->name; *c != '\0'; c++) {
        const char one[2] = { *c, '\0' };
        if (!is_plain(one)) *c = '_';
    }
}

static lw_status name_model(lw_server *server, lw_diag *d)
{
    const lw_serve_options *options = server->options;
    name_by_folder(server);
    server->served_name = options->served_name != NULL ? options->served_name : server->name;
    if (!is_plain(server->served_name))
        return lw_fail(d, LW_BAD_INPUT, "--served-name takes printable ASCII without spaces and quotes");
    for (uint32_t i = 0; i < options->aliases.count; i++) {
        if (!is_plain(options->aliases.values[i]))
            return lw_fail(d, LW_BAD_INPUT, "--alias takes printable ASCII without spaces and quotes");
    }
    return LW_OK;
}

/* Signals belong to the event thread: the others are started with them blocked. */
static lw_status start_engine(lw_server *server, lw_diag *d)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    server->engine = (lw_engine){ .bridge = &server->bridge,
                                  .model_dir = server->options->model_dir,
                                  .options = &server->options->model,
                                  .splits_reasoning = !server->options->raw_reasoning,
                                  .tokens_max = server->options->tokens_max };
    const lw_status status = lw_engine_start(&server->engine, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void free_events(lw_server *server)
{
    struct event *events[] = { server->news_event, server->tick_event, server->signal_events[0],
                               server->signal_events[1], server->signal_events[2] };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i] != NULL) event_free(events[i]);
    }
    if (server->listener != NULL) evconnlistener_free(server->listener);
    server->listener = NULL;
    if (server->base != NULL) event_base_free(server->base);
}

/* Threads first: what they hold is freed by the last one that lets go. */
static void end(lw_server *server)
{
    while (server->conns != NULL) lw_conn_free(server->conns);
    if (server->workers.thread_count > 0) lw_workers_join(&server->workers);
    lw_bridge_drain(&server->bridge, LW_DRAIN_LEAVE);
    lw_engine_join(&server->engine);
    for (lw_job *job; (job = lw_bridge_pop_noticed(&server->bridge)) != NULL;) lw_job_release(job);
}

/* Called by the engine thread, while nothing else writes to the terminal. */
static void on_progress(void *context, uint64_t done, uint64_t all)
{
    lw_server *server = context;
    const uint32_t percent = all == 0 ? 100 : (uint32_t)(done * 100 / all);
    if (percent == server->load_percent) return;
    server->load_percent = percent;
    fprintf(stderr, percent < 100 ? "\r\033[Kloading %u%%" : "\r\033[K", percent);
}

static lw_status open_server(lw_server *server, lw_diag *d)
{
    lw_serve_options *options = &server->own_options;
    options->model.progress = options->is_terminal ? on_progress : NULL;
    options->model.progress_context = server;
    server->options = options;
    server->started = (int64_t)time(NULL);
    server->log = (lw_log){ .is_json = options->logs_json, .shows_prompts = options->logs_prompts,
                            .is_terminal = options->is_terminal };
    const lw_status named = name_model(server, d);
    if (named != LW_OK) return named;
    raise_file_limit();
    server->base = event_base_new();
    if (server->base == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the event loop");
    lw_status status = bind_server(server, d);
    if (status == LW_OK) status = add_events(server, d);
    return status == LW_OK ? start_engine(server, d) : status;
}

int lw_serve(const lw_serve_options *options)
{
    /* On the heap: after a second signal the process ends while threads still use it. */
    lw_server *server = calloc(1, sizeof *server);
    lw_diag d = { .text = "no memory for the server" };
    if (server == NULL || lw_bridge_open(&server->bridge, &d) != LW_OK) {
        fprintf(stderr, "lanewise: %s\n", d.text);
        free(server);
        return 1;
    }
    server->own_options = *options;
    if (open_server(server, &d) != LW_OK) {
        fprintf(stderr, "lanewise: %s\n", d.text);
        server->exit_code = 1;
    } else {
        event_base_dispatch(server->base);
        if (server->signals > 1) return server->exit_code;
        end(server);
    }
    free_events(server);
    lw_access_close(&server->access);
    lw_bridge_close(&server->bridge);
    const int exit_code = server->exit_code;
    free(server);
    return exit_code;
}

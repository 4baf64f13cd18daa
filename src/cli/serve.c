/* `lanewise serve`: the command line of the HTTP server. The server itself is src/serve. */
#include "cli/verbs.h"

#include "base/kept.h"
#include "base/limits.h"
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

static const char serve_summary[] =
    "Serves a model over HTTP as the OpenAI API does: /v1/chat/completions, /v1/completions, /v1/models,\n"
    "/tokenize, /detokenize, /health, /metrics and /props. Every reply is the same bits, alone or beside "
    "others.\n"
    "SIGTERM or Ctrl-C lets running replies finish; a second one ends at once. SIGHUP reads --api-key-file\n"
    "again.";

static const char serve_examples[] =
    "  lanewise serve models/lfm3-mlx4\n"
    "  lanewise serve ~/models/LFM3-1.7B --host 0.0.0.0 --api-key-file keys.txt --parallel 4\n"
    "  lanewise serve models/lfm3-mlx4 --port 0 --served-name tiny --cors https://chat.example\n";

typedef struct serve_arguments {
    lw_serve_options serve;
    lw_option_list aliases, hosts, origins, keys;
    const char *parallel, *reasoning, *log_format;
    double cache_gib, memory_gib;
    bool has_cache, has_memory, has_mtp;
    uint32_t body_mib, mtp_drafts;
    char costs_dir[LW_KEPT_PATH_BYTES];
} serve_arguments;

enum { SERVE_OPTIONS_COUNT = 40 };

static size_t engine_table(serve_arguments *a, lw_option *table)
{
    lw_model_options *m = &a->serve.model;
    const lw_option options[] = {
        { .name = "threads", .value = "N", .u32 = &m->threads, .min = 1, .max = 256,
          .help = "threads of the cpu device; default: one for each fast core" },
        { .name = "isa", .value = "NAME", .text = &m->isa,
          .choices = "generic|avx2|avx512|avx512f|avx512vnni|avx512bf16|avx512amx",
          .help = "instruction set; default: the best" },
        { .name = "device", .value = "NAME", .text = &m->device, .help = "what computes; default: cpu" },
        { .name = "device-wait", .value = "S", .u32 = &m->device_wait_s, .min = 1,
          .max = LW_LIMIT_DEVICE_WAIT_S,
          .help = "a GPU that takes longer for a round is lost; default: 120" },
        { .name = "context", .value = "N", .u32 = &m->context, .min = 1, .max = LW_LIMIT_CONTEXT,
          .help = "positions of a reply and its prompt; default: the model's, at most 32768" },
        { .name = "parallel", .value = "N", .text = &a->parallel,
          .help = "replies at once; auto: as many as fit, at most 8" },
        { .name = "chunk", .value = "N", .u32 = &m->chunk_rows, .min = 1, .max = 8192,
          .help = "prompt rows of one forward; default: 512" },
        { .name = "queue", .value = "N", .u32 = &m->queue, .min = 1, .max = LW_LIMIT_JOBS,
          .help = "requests that may wait; default: 256" },
        { .name = "prompt-cache-gib", .value = "G", .real = &a->cache_gib, .given = &a->has_cache,
          .real_max = 65536, .help = "prompt cache; 0: none; default: what is left, at most 16" },
        { .name = "memory-gib", .value = "G", .real = &a->memory_gib, .given = &a->has_memory,
          .real_max = 65536, .help = "all memory, weights included; default: what is free" },
        { .name = "round-ms", .value = "MS", .u32 = &m->round_ms, .min = 1, .max = 60000,
          .help = "goal for rounds that fill prompts beside replies" },
        { .name = "no-drafts", .flag = &m->drafts_off, .help = "one token a round and reply; same replies" },
        { .name = "drafts", .value = "N", .u32 = &m->drafts_max, .min = 1, .max = 64,
          .help = "drafts of one window; default: 15" },
        { .name = "mtp-drafts", .value = "N", .u32 = &a->mtp_drafts, .given = &a->has_mtp, .max = 16,
          .help = "of those by the model's own draft head; 0: it is not loaded; default: 5" },
        { .name = "trust-specials", .flag = &m->specials_anywhere,
          .help = "special tokens spelled in messages become tokens" },
        { .name = "act-int8", .flag = &m->act_int8,
          .help = "activations enter linears in int8: faster prompts, and other replies" },
        { .name = "kv-int8", .flag = &m->kv_int8,
          .help = "keep keys and values in int8: half the memory a token, and other replies" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static size_t http_table(serve_arguments *a, lw_option *table)
{
    lw_serve_options *s = &a->serve;
    const lw_option options[] = {
        { .name = "host", .value = "ADDRESS", .text = &s->host, .help = "default: 127.0.0.1" },
        { .name = "port", .value = "N", .u32 = &s->port, .max = 65535,
          .help = "0: any free one, printed; default: 8080" },
        { .name = "served-name", .value = "NAME", .text = &s->served_name,
          .help = "the model's name; default: the folder's" },
        { .name = "alias", .value = "NAME", .list = &a->aliases, .help = "another name; may be repeated" },
        { .name = "api-key", .value = "KEY", .list = &a->keys, .help = "asked of clients; may be repeated" },
        { .name = "api-key-file", .value = "FILE", .text = &s->api_key_file,
          .help = "keys, one a line; read again on SIGHUP" },
        { .name = "open-metrics", .flag = &s->open_metrics, .help = "/metrics asks for no key" },
        { .name = "allow-host", .value = "NAME", .list = &a->hosts,
          .help = "a Host that is answered on loopback; may be repeated" },
        { .name = "cors", .value = "ORIGIN", .list = &a->origins,
          .help = "pages that may call; *: all; may be repeated" },
        { .name = "reasoning", .value = "HOW", .text = &a->reasoning, .choices = "split|raw",
          .help = "apart from the content, or in it" },
        { .name = "fresh-seeds", .flag = &s->fresh_seeds,
          .help = "draw a seed for each request that names none" },
        { .name = "max-tokens", .value = "N", .u32 = &s->tokens_max, .min = 1, .max = LW_LIMIT_CONTEXT,
          .help = "of a reply whose request does not say; default: 4096" },
        { .name = "drain-timeout", .value = "S", .u32 = &s->drain_s, .max = 86400,
          .help = "for running replies at the end; default: 30" },
        { .name = "idle-timeout", .value = "S", .u32 = &s->idle_s, .min = 1, .max = 86400,
          .help = "of a connection between requests; default: 300" },
        { .name = "read-timeout", .value = "S", .u32 = &s->read_s, .min = 1, .max = 86400,
          .help = "for one request to arrive; default: 60" },
        { .name = "write-timeout", .value = "S", .u32 = &s->write_s, .min = 1, .max = 86400,
          .help = "for a reader that is stuck; default: 60" },
        { .name = "keep-alive", .value = "S", .u32 = &s->keep_alive_s, .min = 1, .max = 3600,
          .help = "a silent stream gets a comment; default: 10" },
        { .name = "body-mib", .value = "N", .u32 = &a->body_mib, .min = 1, .max = 256,
          .help = "largest body; default: 32" },
        { .name = "connections", .value = "N", .u32 = &s->connections_max, .min = 1,
          .max = LW_LIMIT_CONNECTIONS, .help = "open at once; default: 4096" },
        { .name = "log-format", .value = "HOW", .text = &a->log_format, .choices = "text|json",
          .help = "of the line that each request leaves" },
        { .name = "log-prompts", .flag = &s->logs_prompts, .help = "write prompts to the log" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static serve_arguments defaults(const lw_term *term)
{
    serve_arguments a = {
        .serve = { .host = "127.0.0.1", .port = 8080, .tokens_max = 4096, .drain_s = 30, .idle_s = 300,
                   .read_s = 60, .write_s = 60, .keep_alive_s = 10, .connections_max = 4096,
                   .is_terminal = term->err_is_terminal, .api_keys_more = term->api_keys },
        .parallel = "auto",
        .reasoning = "split",
        .log_format = "text",
        .body_mib = 32,
    };
    lw_model_options_init(&a.serve.model);
    a.serve.model.ze_loader = term->ze_loader;
    a.serve.model.xpu_kernels = term->xpu_kernels;
    a.serve.model.xpu_images = term->xpu_images;
    return a;
}

static void copy_list(lw_serve_texts *to, const lw_option_list *from)
{
    _Static_assert((int)LW_SERVE_TEXTS_MAX >= (int)LW_OPTION_LIST_MAX, "every value has a place");
    memcpy(to->values, from->values, sizeof from->values);
    to->count = from->count;
}

static bool read_parallel(serve_arguments *a)
{
    if (strcmp(a->parallel, "auto") == 0) return true;
    char *end;
    const unsigned long lanes = strtoul(a->parallel, &end, 10);
    a->serve.model.lanes = (uint32_t)lanes;
    return *a->parallel >= '1' && *a->parallel <= '9' && *end == '\0' && lanes <= LW_LIMIT_LANES;
}

static void complete(serve_arguments *a, const char *model_dir)
{
    lw_serve_options *s = &a->serve;
    s->model_dir = model_dir;
    if (a->has_cache) s->model.cache_bytes = (int64_t)(a->cache_gib * 0x1p30);
    if (a->has_mtp) s->model.mtp_drafts = (int32_t)a->mtp_drafts;
    if (a->has_memory) s->model.memory_bytes = (uint64_t)(a->memory_gib * 0x1p30);
    s->raw_reasoning = strcmp(a->reasoning, "raw") == 0;
    s->logs_json = strcmp(a->log_format, "json") == 0;
    s->body_bytes_max = (uint64_t)a->body_mib << 20;
    copy_list(&s->aliases, &a->aliases);
    copy_list(&s->allowed_hosts, &a->hosts);
    copy_list(&s->origins, &a->origins);
    copy_list(&s->api_keys, &a->keys);
}

int lw_verb_serve(const lw_term *term, int argc, char **argv)
{
    serve_arguments a = defaults(term);
    lw_option table[SERVE_OPTIONS_COUNT];
    size_t count = http_table(&a, table);
    count += engine_table(&a, table + count);
    LW_ASSERT(count <= SERVE_OPTIONS_COUNT);
    const lw_usage usage = { .verb = "serve", .arguments = "MODEL", .arguments_min = 1, .arguments_max = 1,
                             .summary = serve_summary, .examples = serve_examples, .options = table,
                             .option_count = count };
    lw_arguments arguments;
    int exit_code;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &exit_code)) return exit_code;
    if (!read_parallel(&a))
        return lw_usage_error("serve", "--parallel takes auto or a whole number from 1 to %d, not \"%s\"",
                              LW_LIMIT_LANES, a.parallel);
    complete(&a, arguments.values[0]);
    if (lw_kept_dir(term->cache_home, term->home, "window-costs", a.costs_dir))
        a.serve.model.costs_dir = a.costs_dir;
    return lw_serve(&a.serve);
}

/* `lanewise bench`: prompt and reply speed, what decoding reads from memory, and what the model takes of it.
 * Repetitions are interleaved: each runs the prompt, the reply and the bandwidth probe, so that a machine
 * that slows down slows all three.
 */
#include "cli/bandwidth.h"
#include "cli/bench_url.h"
#include "cli/load.h"
#include "cli/synth.h"
#include "cli/verbs.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT_DEFAULT = 512,
    DECODE_DEFAULT = 64,
    REPS_DEFAULT = 3,
    REPS_MAX = 1000,
    RUN_TOKENS_MAX = 1 << 20
};

typedef struct bench {
    const char *synth_name, *url, *api_key;
    lw_bench_row server_rows[LW_BENCH_ROWS_MAX];
    size_t server_row_count;
    uint32_t prompt, decode, reps;
    bool json;
    lw_load_options load;
    lw_loaded model;
    lw_synth synth;
    uint64_t weight_bytes, token_bytes;  /* all weights; those that one decoded token reads */
    uint64_t anon_before, anon_after;    /* resident anonymous memory around loading */
    double *prompt_rates, *decode_rates; /* [reps] tokens a second */
    double *read_rates;                  /* [reps] bytes a second */
} bench;

typedef struct spread {
    double min, median, max;
} spread;

typedef struct results {
    char device[LW_DEVICE_TEXT_BYTES];
    spread prompt, decode; /* tokens a second */
    spread reads;          /* bytes a second */
    double share;          /* of the read bandwidth, that decoding uses */
} results;

static const char bench_summary[] =
    "Measures prompt and reply tokens a second, the memory that a loaded model takes, and the share\n"
    "of this machine's read bandwidth (measured in the same run) that decoding uses. --synth takes no\n"
    "MODEL: random weights at the shape of a real checkpoint; only a header is written (under /tmp,\n"
    "removed at once), the weights are made in memory.";

static const char bench_examples[] =
    "  lanewise bench models/lfm3-mlx4\n"
    "  lanewise bench --synth lfm3-1.7b-4bit --threads 2\n"
    "  lanewise bench --synth lfm2-1.2b-bf16 --prompt 128 --decode 32 --json\n"
    "  lanewise bench models/lfm3-mlx4 --url http://127.0.0.1:8080\n";

/* "RssAnon" of this process in bytes; 0 where the kernel does not say. */
static uint64_t anonymous_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "RssAnon: %" SCNu64 " kB", &kib) == 1) break;
    }
    if (file != NULL) fclose(file);
    return kib * 1024;
}

static bool reads(const lw_op *op, uint32_t weight)
{
    for (int i = 0; i < LW_OP_WEIGHTS_MAX; i++) {
        if (op->weights[i].index == weight) return true;
    }
    return false;
}

/* What one row's op reads of a weight: of an embedding table its row, of a stack the chosen matrices. */
static uint64_t bytes_read(const lw_plan *plan, const lw_op *op, const lw_weight *weight)
{
    const uint64_t bytes = lw_weight_bytes(weight);
    if (op->kind == LW_OP_EMBED) return bytes / weight->rows;
    if (op->kind == LW_OP_EXPERT_LINEAR)
        return bytes / weight->stack_count * plan->values[op->out.index].slots;
    return bytes;
}

/* A step reads every weight that an op of the forward names, once; a table that is the head too also gives a
 * row. */
static void count_bytes(bench *b, const lw_plan *plan)
{
    for (uint32_t i = 0; i < plan->weight_count; i++) {
        const lw_weight *weight = &plan->weights[i];
        uint64_t most = 0, row = 0;
        for (uint32_t j = plan->entries[0].op_begin; j < plan->entries[0].op_end; j++) {
            const lw_op *op = &plan->ops[j];
            if (!reads(op, i)) continue;
            uint64_t *const counted = op->kind == LW_OP_EMBED ? &row : &most;
            const uint64_t bytes = bytes_read(plan, op, weight);
            *counted = bytes > *counted ? bytes : *counted;
        }
        b->weight_bytes += lw_weight_bytes(weight);
        b->token_bytes += most + row;
    }
}

static lw_status open_synth(bench *b, const lw_term *term, lw_diag *d)
{
    lw_progress_line line = lw_progress_line_make(term, "loading");
    const lw_engine_options options = {
        .device = b->load.device,
        .device_options = lw_load_device_options(&b->load, term),
        .lanes = 1,
        .context = b->load.context,
        .chunk_rows = b->load.chunk,
        .wanted_rows = b->load.wanted,
        .progress = lw_progress_of_line(&line),
    };
    lw_status status = lw_synth_make(b->synth_name, &b->synth, d);
    if (status != LW_OK) return status;
    const uint32_t context = lw_family_context(b->synth.checkpoint);
    status = lw_engine_open_plan(&b->synth.plan, context, &options, &b->model.engine, d);
    lw_progress_line_clear(&line);
    lw_synth_drop(&b->synth);
    if (status == LW_OK) status = lw_stream_open(b->model.engine, &b->model.stream, d);
    return status;
}

static lw_status open_model(bench *b, const lw_term *term, const char *dir, lw_diag *d)
{
    b->anon_before = anonymous_bytes();
    if (b->load.context == 0) b->load.context = b->prompt + b->decode;
    lw_status status = LW_OK;
    if (b->synth_name != NULL) {
        status = open_synth(b, term, d);
    } else {
        status = lw_load_checkpoint(&b->model, dir, d);
        if (status == LW_OK) status = lw_load_engine(&b->model, &b->load, term, (lw_trace){ .row = NULL }, d);
    }
    if (status != LW_OK) return status;
    b->anon_after = anonymous_bytes();
    count_bytes(b, lw_engine_plan(b->model.engine));
    return LW_OK;
}

/* ---- measuring ---- */

/* The prompt's tokens a second; leaves the last row's logits wanted. */
static lw_status run_prompt(bench *b, const int32_t *ids, double *rate, lw_diag *d)
{
    lw_stream *stream = b->model.stream;
    const uint32_t chunk = lw_engine_chunk_rows(b->model.engine);
    const uint64_t begin = lw_clock_ns();
    for (uint32_t done = 0; done < b->prompt;) {
        const uint32_t rows = b->prompt - done < chunk ? b->prompt - done : chunk;
        const lw_wanted wanted = done + rows == b->prompt ? LW_WANTED_LAST : LW_WANTED_NONE;
        const lw_status status = lw_stream_forward(stream, ids + done, rows, wanted, d);
        if (status != LW_OK) return status;
        lw_stream_commit(stream, rows);
        done += rows;
    }
    *rate = b->prompt * 1e9 / (double)(lw_clock_ns() - begin);
    return LW_OK;
}

/* Draws and feeds decode tokens greedily. */
static lw_status run_decode(bench *b, lw_sampler *sampler, double *rate, lw_diag *d)
{
    const lw_sampling greedy = { .temperature = 0.0 };
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_stream *stream = b->model.stream;
    lw_status status = LW_OK;
    const uint64_t begin = lw_clock_ns();
    for (uint32_t i = 0; i < b->decode && status == LW_OK; i++) {
        const float *logits = NULL;
        int32_t id = 0;
        status = lw_stream_logits(stream, 0, &logits, d);
        if (status == LW_OK) {
            status = lw_sampler_draw(sampler, &greedy, logits, vocab, lw_stream_committed(stream), &id, d);
        }
        if (status == LW_OK) status = lw_stream_forward(stream, &id, 1, LW_WANTED_LAST, d);
        if (status == LW_OK) lw_stream_commit(stream, 1);
    }
    *rate = b->decode * 1e9 / (double)(lw_clock_ns() - begin);
    return status;
}

static lw_status measure(bench *b, const int32_t *ids, lw_sampler *sampler, lw_progress_line *line,
                         lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < b->reps && status == LW_OK; i++) {
        lw_progress_line_step(line, i, b->reps);
        lw_stream_reset(b->model.stream);
        status = run_prompt(b, ids, &b->prompt_rates[i], d);
        if (status == LW_OK) status = run_decode(b, sampler, &b->decode_rates[i], d);
        if (status == LW_OK) status = lw_bandwidth_measure(b->load.threads, &b->read_rates[i], d);
    }
    lw_progress_line_clear(line);
    return status;
}

static lw_status bench_run(bench *b, const lw_term *term, const char *dir, lw_diag *d)
{
    lw_sampler *sampler = NULL;
    lw_status status = open_model(b, term, dir, d);
    if (status != LW_OK) return status;
    int32_t *ids = calloc(b->prompt, sizeof *ids);
    b->prompt_rates = calloc(b->reps, sizeof(double));
    b->decode_rates = calloc(b->reps, sizeof(double));
    b->read_rates = calloc(b->reps, sizeof(double));
    if (ids == NULL || b->prompt_rates == NULL || b->decode_rates == NULL || b->read_rates == NULL) {
        status = lw_fail(d, LW_NO_ROOM, "no memory for %u repetitions", b->reps);
    }
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_rng rng = lw_rng_make(1);
    for (uint32_t i = 0; status == LW_OK && i < b->prompt; i++) ids[i] = (int32_t)lw_rng_below(&rng, vocab);
    if (status == LW_OK) status = lw_sampler_make(vocab, &sampler, d);
    lw_progress_line line = lw_progress_line_make(term, "measuring");
    if (status == LW_OK) status = measure(b, ids, sampler, &line, d);
    lw_sampler_free(sampler);
    free(ids);
    return status;
}

/* ---- reporting ---- */

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static spread spread_of(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    const double upper = values[count / 2], lower = values[(count - 1) / 2];
    return (spread){ .min = values[0], .median = (lower + upper) / 2, .max = values[count - 1] };
}

static void add_spread(json_t *object, const char *name, spread s)
{
    json_object_set_new(object, name,
                        json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max));
}

static void add_count(json_t *object, const char *name, uint64_t count)
{
    json_object_set_new(object, name, json_integer((json_int_t)count));
}

static void print_json(const bench *b, const char *name, const results *r)
{
    json_t *object = json_object();
    json_object_set_new(object, "model", lw_json_text(name, strlen(name)));
    json_object_set_new(object, "device", json_string(r->device));
    add_count(object, "prompt_tokens", b->prompt);
    add_count(object, "decode_tokens", b->decode);
    add_count(object, "reps", b->reps);
    add_spread(object, "prompt_tok_s", r->prompt);
    add_spread(object, "decode_tok_s", r->decode);
    add_spread(object, "read_bytes_s", r->reads);
    json_object_set_new(object, "bandwidth_share", json_real(r->share));
    add_count(object, "weight_bytes", b->weight_bytes);
    add_count(object, "bytes_per_token", b->token_bytes);
    add_count(object, "anon_bytes", b->anon_after);
    add_count(object, "anon_bytes_before_load", b->anon_before);
    if (b->url != NULL)
        json_object_set_new(object, "server",
                            lw_bench_url_json(b->server_rows, b->server_row_count, r->decode.median));
    lw_out_json(object);
}

static void print_rate(const char *what, spread rate, uint32_t tokens)
{
    printf("%-11s %10.1f tok/s (%.1f to %.1f), %u tokens\n", what, rate.median, rate.min, rate.max, tokens);
}

static void print_plain(const bench *b, const char *name, const results *r)
{
    const double mib = 1 << 20, giga = 1e9;
    printf("model       %s%s\n", name, b->synth_name != NULL ? " (random weights)" : "");
    printf("device      %s\n", r->device);
    print_rate("prompt", r->prompt, b->prompt);
    print_rate("decode", r->decode, b->decode);
    printf("per token   %10.1f MiB of weights read, as stored\n", (double)b->token_bytes / mib);
    printf("bandwidth   %10.1f GB/s (%.1f to %.1f) read here; decoding uses %.0f %%\n",
           r->reads.median / giga, r->reads.min / giga, r->reads.max / giga, r->share * 100);
    printf("memory      %10.1f MiB anonymous after loading (%.1f before), for %.1f MiB of weights\n",
           (double)b->anon_after / mib, (double)b->anon_before / mib, (double)b->weight_bytes / mib);
    printf("medians (least to most) of %u repetitions: prompt, decode and bandwidth in turn\n", b->reps);
    if (b->url != NULL) lw_bench_url_print(b->server_rows, b->server_row_count, r->decode.median);
}

static void report(const bench *b, const char *name)
{
    results r = {
        .prompt = spread_of(b->prompt_rates, b->reps),
        .decode = spread_of(b->decode_rates, b->reps),
        .reads = spread_of(b->read_rates, b->reps),
    };
    r.share = r.decode.median * (double)b->token_bytes / r.reads.median;
    lw_engine_describe(b->model.engine, r.device, sizeof r.device);
    if (b->json) print_json(b, name, &r);
    else print_plain(b, name, &r);
}

static void bench_close(bench *b)
{
    lw_loaded_close(&b->model);
    if (b->synth_name != NULL) lw_synth_close(&b->synth);
    free(b->prompt_rates);
    free(b->decode_rates);
    free(b->read_rates);
}

static size_t bench_options(bench *b, lw_option *table)
{
    const lw_option options[] = {
        { .name = "url",
          .value = "U",
          .text = &b->url,
          .help = "also measure the server at http://HOST:PORT that serves this MODEL" },
        { .name = "api-key", .value = "KEY", .text = &b->api_key, .help = "with --url: the server's key" },
        { .name = "synth", .value = "SHAPE", .text = &b->synth_name, .help = LW_SYNTH_SHAPES },
        { .name = "prompt",
          .value = "N",
          .u32 = &b->prompt,
          .min = 1,
          .max = RUN_TOKENS_MAX,
          .help = "tokens of the prompt; default: 512" },
        { .name = "decode",
          .value = "N",
          .u32 = &b->decode,
          .min = 1,
          .max = RUN_TOKENS_MAX,
          .help = "tokens of the reply; default: 64" },
        { .name = "reps",
          .value = "N",
          .u32 = &b->reps,
          .min = REPS_DEFAULT,
          .max = REPS_MAX,
          .help = "repetitions; default: 3" },
        { .name = "json", .flag = &b->json, .help = "one JSON object" },
    };
    memcpy(table, options, sizeof options);
    const size_t count = sizeof options / sizeof options[0];
    return count + lw_load_options_table(&b->load, table + count);
}

/* The server's streams, while the engine here rests. */
static lw_status bench_server(bench *b, lw_diag *d)
{
    if (b->url == NULL) return LW_OK;
    lw_bench_url server = { .prompt_words = b->prompt / 2 + 1, .tokens = b->decode, .salt = lw_clock_ns() };
    const lw_status status = lw_http_server_parse(b->url, &server.server, d);
    if (status != LW_OK) return status;
    server.server.api_key = b->api_key;
    return lw_bench_url_run(&server, b->server_rows, &b->server_row_count, d);
}

int lw_verb_bench(const lw_term *term, int argc, char **argv)
{
    bench b = { .prompt = PROMPT_DEFAULT, .decode = DECODE_DEFAULT, .reps = REPS_DEFAULT,
                .load = { .wanted = 1 } };
    lw_option options[LW_OPTIONS_MAX];
    const size_t option_count = bench_options(&b, options);
    const lw_usage usage = {
        .verb = "bench",
        .arguments = "MODEL",
        .arguments_max = 1,
        .summary = bench_summary,
        .examples = bench_examples,
        .options = options,
        .option_count = option_count,
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    if ((arguments.count == 1) == (b.synth_name != NULL)) {
        return lw_usage_error("bench", "give either MODEL or --synth SHAPE");
    }
    if (b.synth_name != NULL && !lw_synth_is_known(b.synth_name)) {
        return lw_usage_error("bench", "--synth takes %s, not \"%s\"", LW_SYNTH_SHAPES, b.synth_name);
    }
    const char *name = b.synth_name != NULL ? b.synth_name : arguments.values[0];
    lw_diag d;
    lw_status status = bench_run(&b, term, name, &d);
    if (status == LW_OK) status = bench_server(&b, &d);
    if (status != LW_OK) code = lw_term_error("%s", d.text);
    else report(&b, name);
    bench_close(&b);
    return code;
}

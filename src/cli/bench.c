/* `lanewise bench`: prompt and reply speed, what decoding reads from memory, and what the model takes of it.
 * Repetitions are interleaved: each runs the prompt, the reply, the windows and the bandwidth probe, so that
 * a machine that slows down slows all of them. A cut shape's decode is stretched to its whole model by the
 * times of its layers' ops; what lies outside of the layers enters as it is.
 */
#include "cli/bandwidth.h"
#include "cli/bench_draft.h"
#include "cli/bench_profile.h"
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
    RUN_TOKENS_MAX = 1 << 20,
    WINDOWS = 4,
    WINDOW_ROWS_MAX = 8,
};

static const uint32_t window_rows[WINDOWS] = { 1, 2, 4, WINDOW_ROWS_MAX };

typedef struct bench {
    const char *synth_name, *url, *api_key;
    lw_bench_row server_rows[LW_BENCH_ROWS_MAX];
    size_t server_row_count;
    uint32_t prompt, decode, reps;
    bool json, drafts, profiles;
    lw_load_options load;
    lw_loaded model;
    lw_synth synth;
    double *scales; /* [layers] of a cut shape: what each stands for; else NULL */
    lw_profile profile;
    uint64_t weight_bytes;               /* all weights */
    lw_read_bytes token;                 /* what one decoded token reads */
    uint64_t anon_before, anon_after;    /* resident anonymous memory around loading */
    double *prompt_rates, *decode_rates; /* [reps] tokens a second */
    double *read_rates;                  /* [reps] bytes a second */
    lw_device_counts decode_counts;      /* of all repetitions' replies */
    bool has_counts;
    double *window_ns[WINDOWS];          /* [reps]; NULL: the model's rounds have fewer rows */
    lw_draft_result *draft_results;      /* [reps][LW_DRAFT_ROWS]; NULL: not asked for */
} bench;

typedef struct spread {
    double min, median, max;
} spread;

typedef struct results {
    char device[LW_DEVICE_TEXT_BYTES];
    spread prompt, decode;   /* tokens a second */
    spread reads;            /* bytes a second */
    double share;            /* of the read bandwidth, that decoding uses */
    double windows[WINDOWS]; /* medians, in plain steps; 0: not measured */
    double whole_rate;       /* tokens a second of a cut shape's whole model; else 0 */
    lw_read_bytes whole;     /* what it reads for a token */
    double draft_rates[LW_DRAFT_ROWS];
    double launches, commands; /* of a decoded token */
} results;

static const char bench_summary[] =
    "Measures prompt and reply tokens a second, the memory that a loaded model takes, and the share\n"
    "of this machine's read bandwidth (measured in the same run) that decoding uses. --synth takes no\n"
    "MODEL: random weights at the shape of a real checkpoint; only a header is written (under /tmp,\n"
    "removed at once), the weights are made in memory. Shapes:\n" LW_SYNTH_SHAPES;

static const char bench_examples[] =
    "  lanewise bench models/lfm3-mlx4\n"
    "  lanewise bench --synth lfm3-1.7b-4bit --threads 2\n"
    "  lanewise bench --synth lfm2-1.2b-bf16 --prompt 128 --decode 32 --json\n"
    "  lanewise bench --synth qwen3.8-27b-cut-4bit --drafts --profile\n"
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

static uint32_t positions_mean(const bench *b)
{
    return b->prompt + b->decode / 2;
}

static lw_trace trace_of(bench *b)
{
    return b->profiles ? lw_profile_trace(&b->profile) : (lw_trace){ .row = NULL };
}

/* What each layer of a cut shape stands for; such a shape is always profiled. */
static lw_status scales_make(bench *b, lw_diag *d)
{
    const lw_synth_shape *shape = b->synth.shape;
    const size_t layers = strlen(shape->layers);
    if (lw_synth_layers_whole(shape) == layers) return LW_OK;
    b->scales = calloc(layers, sizeof *b->scales);
    if (b->scales == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %zu layers", layers);
    for (uint32_t i = 0; i < layers; i++) b->scales[i] = lw_synth_stands_for(shape, i);
    b->profiles = true;
    return LW_OK;
}

static lw_status open_synth(bench *b, const lw_term *term, lw_diag *d)
{
    lw_progress_line line = lw_progress_line_make(term, "loading");
    lw_status status = lw_synth_make(b->synth_name, b->drafts, &b->synth, d);
    if (status == LW_OK) status = scales_make(b, d);
    if (status != LW_OK) return status;
    const lw_engine_options options = {
        .device = b->load.device,
        .device_options = lw_load_device_options(&b->load, term),
        .lanes = 1,
        .context = b->load.context,
        .chunk_rows = b->load.chunk,
        .wanted_rows = b->load.wanted,
        .progress = lw_progress_of_line(&line),
        .trace = trace_of(b),
    };
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
    if (b->load.context == 0) b->load.context = b->prompt + b->decode + WINDOW_ROWS_MAX;
    lw_status status = LW_OK;
    if (b->synth_name != NULL) {
        status = open_synth(b, term, d);
    } else {
        status = lw_load_checkpoint(&b->model, dir, d);
        if (status == LW_OK) status = lw_load_engine(&b->model, &b->load, term, trace_of(b), d);
    }
    if (status != LW_OK) return status;
    b->anon_after = anonymous_bytes();
    const lw_plan *plan = lw_engine_plan(b->model.engine);
    b->token = lw_token_reads(plan, positions_mean(b), NULL);
    for (uint32_t i = 0; i < plan->weight_count; i++) b->weight_bytes += lw_weight_bytes(&plan->weights[i]);
    return b->profiles ? lw_profile_make(&b->profile, plan, b->decode, d) : LW_OK;
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

/* Draws and feeds decode tokens greedily; profiles them where the rate is not wanted. */
static lw_status run_decode(bench *b, lw_sampler *sampler, double *rate, lw_diag *d)
{
    const lw_sampling greedy = { .temperature = 0.0 };
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_stream *stream = b->model.stream;
    lw_status status = LW_OK;
    lw_device_counts before = { 0 }, after = { 0 };
    b->has_counts = lw_engine_read_counts(b->model.engine, &before);
    const uint64_t begin = lw_clock_ns();
    for (uint32_t i = 0; i < b->decode && status == LW_OK; i++) {
        const float *logits = NULL;
        int32_t id = 0;
        status = lw_stream_logits(stream, 0, &logits, d);
        if (status == LW_OK) {
            status = lw_sampler_draw(sampler, &greedy, logits, vocab, lw_stream_committed(stream), &id, d);
        }
        if (rate == NULL) lw_profile_step_begin(&b->profile);
        if (status == LW_OK) status = lw_stream_forward(stream, &id, 1, LW_WANTED_LAST, d);
        if (rate == NULL) lw_profile_step_end(&b->profile);
        if (status == LW_OK) lw_stream_commit(stream, 1);
    }
    if (rate == NULL) return status;
    *rate = b->decode * 1e9 / (double)(lw_clock_ns() - begin);
    if (b->has_counts) lw_engine_read_counts(b->model.engine, &after);
    b->decode_counts.launches += after.launches - before.launches;
    b->decode_counts.commands += after.commands - before.commands;
    return status;
}

/* Forwards of random tokens whose logits are all wanted, as a window of drafts is. Nothing is kept. */
static lw_status run_windows(bench *b, uint32_t rep, lw_diag *d)
{
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_status status = LW_OK;
    for (uint32_t w = 0; w < WINDOWS && b->window_ns[w] != NULL && status == LW_OK; w++) {
        int32_t ids[WINDOW_ROWS_MAX];
        lw_rng rng = lw_rng_make((uint64_t)rep << 8 | w);
        for (uint32_t i = 0; i < window_rows[w]; i++) ids[i] = (int32_t)lw_rng_below(&rng, vocab);
        const uint64_t begin = lw_clock_ns();
        status = lw_stream_forward(b->model.stream, ids, window_rows[w], LW_WANTED_ALL, d);
        b->window_ns[w][rep] = (double)(lw_clock_ns() - begin);
    }
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
        if (status == LW_OK) status = run_windows(b, i, d);
        if (status == LW_OK) status = lw_bandwidth_measure(b->load.threads, &b->read_rates[i], d);
    }
    lw_progress_line_clear(line);
    return status;
}

/* One more reply, whose ops are told apart. */
static lw_status measure_profile(bench *b, const int32_t *ids, lw_sampler *sampler, lw_diag *d)
{
    double rate;
    if (!b->profiles) return LW_OK;
    lw_stream_reset(b->model.stream);
    const lw_status status = run_prompt(b, ids, &rate, d);
    return status == LW_OK ? run_decode(b, sampler, NULL, d) : status;
}

/* Gives the stream's lane to a core. */
static lw_status measure_drafts(bench *b, const int32_t *ids, lw_progress_line *line, lw_diag *d)
{
    lw_draft_bench *drafts = NULL;
    if (!b->drafts) return LW_OK;
    lw_stream_close(b->model.stream);
    b->model.stream = NULL;
    lw_status status = lw_draft_bench_open(b->model.engine, b->decode, &drafts, d);
    for (uint32_t i = 0; i < b->reps && status == LW_OK; i++) {
        lw_progress_line_step(line, i, b->reps);
        status = lw_draft_bench_run(drafts, ids, b->prompt, &b->draft_results[(size_t)i * LW_DRAFT_ROWS], d);
    }
    lw_progress_line_clear(line);
    lw_draft_bench_close(drafts);
    return status;
}

static lw_status results_make(bench *b, lw_diag *d)
{
    const uint32_t rows_max = lw_engine_wanted_max(b->model.engine);
    b->prompt_rates = calloc(b->reps, sizeof(double));
    b->decode_rates = calloc(b->reps, sizeof(double));
    b->read_rates = calloc(b->reps, sizeof(double));
    bool is_there = b->prompt_rates != NULL && b->decode_rates != NULL && b->read_rates != NULL;
    for (uint32_t w = 0; w < WINDOWS && window_rows[w] <= rows_max; w++) {
        b->window_ns[w] = calloc(b->reps, sizeof(double));
        is_there = is_there && b->window_ns[w] != NULL;
    }
    if (b->drafts) {
        b->draft_results = calloc((size_t)b->reps * LW_DRAFT_ROWS, sizeof *b->draft_results);
        is_there = is_there && b->draft_results != NULL;
    }
    return is_there ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for %u repetitions", b->reps);
}

static lw_status bench_run(bench *b, const lw_term *term, const char *dir, lw_diag *d)
{
    lw_sampler *sampler = NULL;
    lw_status status = open_model(b, term, dir, d);
    if (status == LW_OK) status = results_make(b, d);
    if (status != LW_OK) return status;
    int32_t *ids = calloc(b->prompt, sizeof *ids);
    if (ids == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for a prompt of %u tokens", b->prompt);
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_rng rng = lw_rng_make(1);
    for (uint32_t i = 0; status == LW_OK && i < b->prompt; i++) ids[i] = (int32_t)lw_rng_below(&rng, vocab);
    if (status == LW_OK) status = lw_sampler_make(vocab, &sampler, d);
    lw_progress_line line = lw_progress_line_make(term, "measuring");
    if (status == LW_OK) status = measure(b, ids, sampler, &line, d);
    if (status == LW_OK) status = measure_profile(b, ids, sampler, d);
    lw_progress_line drafts_line = lw_progress_line_make(term, "drafting");
    if (status == LW_OK) status = measure_drafts(b, ids, &drafts_line, d);
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

static void add_drafts(json_t *object, const bench *b, const results *r)
{
    json_t *list = json_array();
    for (uint32_t row = 0; row < LW_DRAFT_ROWS; row++) {
        const lw_draft_result *last = &b->draft_results[(size_t)(b->reps - 1) * LW_DRAFT_ROWS + row];
        json_array_append_new(list, json_pack("{s:b, s:f, s:f, s:i, s:i, s:i}", "plain", row == 0, "right",
                                              lw_draft_shares[row], "tok_s", r->draft_rates[row], "rounds",
                                              (int)last->rounds, "drafted", (int)last->drafted, "kept",
                                              (int)last->kept));
    }
    json_object_set_new(object, "drafts", list);
}

/* What only some measurements have. */
static void add_more(json_t *object, const bench *b, const results *r)
{
    json_t *windows = json_array();
    for (uint32_t w = 0; w < WINDOWS && r->windows[w] > 0.0; w++)
        json_array_append_new(windows,
                              json_pack("{s:i, s:f}", "rows", (int)window_rows[w], "steps", r->windows[w]));
    json_object_set_new(object, "windows", windows);
    if (b->scales != NULL) {
        json_object_set_new(object, "whole",
                            json_pack("{s:f, s:I, s:I, s:i, s:i}", "decode_tok_s", r->whole_rate,
                                      "bytes_per_token", (json_int_t)r->whole.weights,
                                      "state_bytes_per_token", (json_int_t)r->whole.states, "layers",
                                      (int)lw_synth_layers_whole(b->synth.shape), "layers_run",
                                      (int)strlen(b->synth.shape->layers)));
    }
    if (b->profiles) json_object_set_new(object, "profile", lw_profile_json(&b->profile, positions_mean(b)));
    if (b->drafts) add_drafts(object, b, r);
    if (!b->has_counts) return;
    json_object_set_new(object, "launches_per_token", json_real(r->launches));
    json_object_set_new(object, "commands_per_token", json_real(r->commands));
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
    add_count(object, "bytes_per_token", b->token.weights);
    add_count(object, "state_bytes_per_token", b->token.states);
    add_count(object, "anon_bytes", b->anon_after);
    add_count(object, "anon_bytes_before_load", b->anon_before);
    add_more(object, b, r);
    if (b->url != NULL)
        json_object_set_new(object, "server",
                            lw_bench_url_json(b->server_rows, b->server_row_count, r->decode.median));
    lw_out_json(object);
}

static void print_rate(const char *what, spread rate, uint32_t tokens)
{
    printf("%-11s %10.1f tok/s (%.1f to %.1f), %u tokens\n", what, rate.median, rate.min, rate.max, tokens);
}

static void print_drafts(const bench *b, const results *r)
{
    if (!b->drafts) return;
    printf("drafts      %10.1f tok/s in plain rounds, with the head's bookkeeping\n", r->draft_rates[0]);
    for (uint32_t row = 1; row < LW_DRAFT_ROWS; row++) {
        const lw_draft_result *last = &b->draft_results[(size_t)(b->reps - 1) * LW_DRAFT_ROWS + row];
        printf("            %10.1f tok/s where %.0f %% of the head's drafts are right: %.2f times plain; %u "
               "rounds, %u drafts, %u kept\n",
               r->draft_rates[row], 100 * lw_draft_shares[row], r->draft_rates[row] / r->draft_rates[0],
               last->rounds, last->drafted, last->kept);
    }
}

static void print_windows(const results *r)
{
    if (r->windows[0] <= 0.0) return;
    printf("windows    ");
    for (uint32_t w = 0; w < WINDOWS && r->windows[w] > 0.0; w++)
        printf("%s %u: %.2f", w == 0 ? "" : ",", window_rows[w], r->windows[w]);
    printf("   rows of random tokens with logits, in forwards of one\n");
}

static void print_plain(const bench *b, const char *name, const results *r)
{
    const double mib = 1 << 20, giga = 1e9;
    printf("model       %s%s\n", name, b->synth_name != NULL ? " (random weights)" : "");
    printf("device      %s\n", r->device);
    print_rate("prompt", r->prompt, b->prompt);
    print_rate("decode", r->decode, b->decode);
    if (b->scales != NULL) {
        printf(
            "whole       %10.1f tok/s extrapolated from %zu of %u layers; %.1f MiB of weights and %.1f MiB "
            "of state a token\n",
            r->whole_rate, strlen(b->synth.shape->layers), lw_synth_layers_whole(b->synth.shape),
            (double)r->whole.weights / mib, (double)r->whole.states / mib);
    }
    print_windows(r);
    if (b->has_counts)
        printf("launches    %10.1f a token, made by %.1f commands\n", r->launches, r->commands);
    printf("per token   %10.1f MiB of weights read, as stored, and %.1f MiB of state\n",
           (double)b->token.weights / mib, (double)b->token.states / mib);
    printf("bandwidth   %10.1f GB/s (%.1f to %.1f) read here; decoding uses %.0f %%\n",
           r->reads.median / giga, r->reads.min / giga, r->reads.max / giga, r->share * 100);
    printf("memory      %10.1f MiB anonymous after loading (%.1f before), for %.1f MiB of weights\n",
           (double)b->anon_after / mib, (double)b->anon_before / mib, (double)b->weight_bytes / mib);
    print_drafts(b, r);
    if (b->profiles) lw_profile_print(&b->profile, positions_mean(b), r->reads.median);
    printf("medians (least to most) of %u repetitions: prompt, decode and bandwidth in turn\n", b->reps);
    if (b->url != NULL) lw_bench_url_print(b->server_rows, b->server_row_count, r->decode.median);
}

/* Medians of what the repetitions gave for windows and drafts; sorts the former. */
static void report_fill(const bench *b, results *r)
{
    for (uint32_t w = 0; w < WINDOWS && b->window_ns[w] != NULL; w++) {
        r->windows[w] = spread_of(b->window_ns[w], b->reps).median;
        if (w > 0) r->windows[w] /= r->windows[0];
    }
    if (b->window_ns[0] != NULL) r->windows[0] = 1.0;
    r->launches = (double)b->decode_counts.launches / b->decode / b->reps;
    r->commands = (double)b->decode_counts.commands / b->decode / b->reps;
    for (uint32_t row = 0; b->drafts && row < LW_DRAFT_ROWS; row++) {
        double rates[REPS_MAX];
        for (uint32_t i = 0; i < b->reps; i++)
            rates[i] = b->draft_results[(size_t)i * LW_DRAFT_ROWS + row].tokens_per_s;
        r->draft_rates[row] = spread_of(rates, b->reps).median;
    }
}

static void report(const bench *b, const char *name)
{
    const lw_plan *plan = lw_engine_plan(b->model.engine);
    results r = {
        .prompt = spread_of(b->prompt_rates, b->reps),
        .decode = spread_of(b->decode_rates, b->reps),
        .reads = spread_of(b->read_rates, b->reps),
    };
    r.share = r.decode.median * (double)(b->token.weights + b->token.states) / r.reads.median;
    if (b->scales != NULL) {
        r.whole_rate = r.decode.median / lw_profile_stretch(&b->profile, b->scales);
        r.whole = lw_token_reads(plan, positions_mean(b), b->scales);
    }
    report_fill(b, &r);
    lw_engine_describe(b->model.engine, r.device, sizeof r.device);
    if (b->json) print_json(b, name, &r);
    else print_plain(b, name, &r);
}

static void bench_close(bench *b)
{
    lw_loaded_close(&b->model);
    if (b->synth_name != NULL) lw_synth_close(&b->synth);
    lw_profile_free(&b->profile);
    for (uint32_t w = 0; w < WINDOWS; w++) free(b->window_ns[w]);
    free(b->draft_results);
    free(b->scales);
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
        { .name = "synth", .value = "SHAPE", .text = &b->synth_name, .help = "one of the shapes above" },
        { .name = "drafts",
          .flag = &b->drafts,
          .help = "with --synth: also decode with drafts of the draft head, of which 90, 70 and 0 % are "
                  "made right" },
        { .name = "profile", .flag = &b->profiles, .help = "also the time of each kind of op" },
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

/* False, with the exit code: there is no such shape, or it lacks what is asked of it. */
static bool synth_check(bench *b, int *code)
{
    const lw_synth_shape *shape;
    uint32_t bits;
    lw_diag d;
    if (lw_synth_shape_find(b->synth_name, &shape, &bits, &d) != LW_OK) {
        *code = lw_usage_error("bench", "--synth: %s", d.text);
        return false;
    }
    if (b->drafts && !shape->has_head) {
        *code = lw_usage_error("bench", "--drafts: %s has no draft head", b->synth_name);
        return false;
    }
    return true;
}

int lw_verb_bench(const lw_term *term, int argc, char **argv)
{
    bench b = { .prompt = PROMPT_DEFAULT,
                .decode = DECODE_DEFAULT,
                .reps = REPS_DEFAULT,
                .load = { .wanted = WINDOW_ROWS_MAX } };
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
    if (b.drafts && b.synth_name == NULL) {
        return lw_usage_error("bench", "--drafts goes with --synth: a real model's drafts show with --url");
    }
    if (b.synth_name != NULL && !synth_check(&b, &code)) return code;
    const char *name = b.synth_name != NULL ? b.synth_name : arguments.values[0];
    lw_diag d;
    lw_status status = bench_run(&b, term, name, &d);
    if (status == LW_OK) status = bench_server(&b, &d);
    if (status != LW_OK) code = lw_term_error("%s", d.text);
    else report(&b, name);
    bench_close(&b);
    return code;
}

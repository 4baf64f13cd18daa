/* What a run of `lanewise bench` measured, in words and as JSON; see bench.h. */
#include "cli/bench.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef lw_bench bench;

typedef struct spread {
    double min, median, max;
    const double *values;        /* [count] ascending */
    uint32_t count;
} spread;

typedef struct results {
    char device[LW_DEVICE_TEXT_BYTES];
    spread prompt, decode;       /* tokens a second */
    spread reads;                /* bytes a second */
    spread first;                /* nanoseconds */
    double share;                /* of the read bandwidth, that decoding uses */
    double windows[LW_BENCH_WINDOWS]; /* medians, in plain steps */
    double whole_rate;           /* tokens a second of a cut shape's whole model; else 0 */
    lw_read_bytes whole;         /* what it reads for a token */
    double draft_rates[LW_DRAFT_ROWS];
    double launches, commands;   /* of a decoded token */
} results;

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Sorts the values. */
static spread spread_of(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    const double upper = values[count / 2], lower = values[(count - 1) / 2];
    return (spread){ .min = values[0], .median = (lower + upper) / 2, .max = values[count - 1],
                     .values = values, .count = count };
}

static spread spread_in(bench *b, unsigned series)
{
    return spread_of(lw_bench_samples(b, series), b->reps);
}

/* With all samples, so that runs can be put together. */
static void add_spread(json_t *object, const char *name, spread s)
{
    json_t *values = json_array(), *item;
    for (uint32_t i = 0; i < s.count; i++) json_array_append_new(values, json_real(s.values[i]));
    item =
        json_pack("{s:f, s:f, s:f, s:o}", "median", s.median, "min", s.min, "max", s.max, "samples", values);
    json_object_set_new(object, name, item);
}

static void add_count(json_t *object, const char *name, uint64_t count)
{
    json_object_set_new(object, name, json_integer((json_int_t)count));
}

/* One object for each value of an option, in the order given: {key: value, "tok_s": spread}. */
static json_t *list_json(bench *b, const lw_bench_list *list, const char *key, unsigned series)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < list->count; i++) {
        json_t *item = json_object();
        add_count(item, key, list->values[i]);
        add_spread(item, "tok_s", spread_in(b, series + i));
        json_array_append_new(out, item);
    }
    return out;
}

static json_t *depths_json(bench *b)
{
    json_t *out = list_json(b, &b->depths, "positions", LW_BENCH_DEPTH_DECODE);
    for (uint32_t i = 0; i < b->depths.count; i++)
        add_spread(json_array_get(out, i), "prompt_tok_s", spread_in(b, LW_BENCH_DEPTH_PROMPT + i));
    return out;
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
static void add_more(json_t *object, bench *b, const results *r)
{
    json_t *windows = json_array();
    for (uint32_t w = 0; w < b->windows; w++) {
        json_t *item = json_pack("{s:i, s:f}", "rows", (int)lw_bench_window_rows[w], "steps", r->windows[w]);
        add_spread(item, "ns", spread_in(b, LW_BENCH_WINDOW + w));
        json_array_append_new(windows, item);
    }
    json_object_set_new(object, "windows", windows);
    json_object_set_new(object, "more_prompts",
                        list_json(b, &b->more_prompts, "tokens", LW_BENCH_MORE_PROMPT));
    json_object_set_new(object, "streams", list_json(b, &b->streams, "streams", LW_BENCH_STREAMS));
    add_count(object, "stream_rounds", b->stream_rounds);
    add_count(object, "stream_rounds_ahead", b->stream_rounds_ahead);
    json_object_set_new(object, "depths", depths_json(b));
    if (b->scales != NULL) {
        json_object_set_new(object, "whole",
                            json_pack("{s:f, s:I, s:I, s:i, s:i}", "decode_tok_s", r->whole_rate,
                                      "bytes_per_token", (json_int_t)r->whole.weights,
                                      "state_bytes_per_token", (json_int_t)r->whole.states, "layers",
                                      (int)lw_synth_layers_whole(b->synth.shape), "layers_run",
                                      (int)strlen(b->synth.shape->layers)));
    }
    if (b->profiles)
        json_object_set_new(object, "profile", lw_profile_json(&b->profile, lw_bench_positions(b)));
    if (b->drafts) add_drafts(object, b, r);
    if (!b->has_counts) return;
    json_object_set_new(object, "launches_per_token", json_real(r->launches));
    json_object_set_new(object, "commands_per_token", json_real(r->commands));
}

static void print_json(bench *b, const char *name, const results *r)
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
    add_spread(object, "first_token_ns", r->first);
    json_object_set_new(object, "bandwidth_share", json_real(r->share));
    add_count(object, "weight_bytes", b->weight_bytes);
    add_count(object, "bytes_per_token", b->token.weights);
    add_count(object, "state_bytes_per_token", b->token.states);
    add_count(object, "kv_bytes_per_token", b->token.keys);
    add_count(object, "load_ns", b->load_ns);
    add_count(object, "resident_bytes", b->resident);
    add_count(object, "resident_max_bytes", b->resident_max);
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

static void print_windows(const bench *b, const results *r)
{
    if (b->windows == 0) return;
    printf("windows    ");
    for (uint32_t w = 0; w < b->windows; w++)
        printf("%s %u: %.2f", w == 0 ? "" : ",", lw_bench_window_rows[w], r->windows[w]);
    printf("   rows of random tokens with logits, in forwards of one\n");
}

static void print_lists(bench *b)
{
    for (uint32_t i = 0; i < b->more_prompts.count; i++)
        print_rate("prompt", spread_in(b, LW_BENCH_MORE_PROMPT + i), b->more_prompts.values[i]);
    for (uint32_t i = 0; i < b->streams.count; i++) {
        const spread s = spread_in(b, LW_BENCH_STREAMS + i);
        printf("streams     %10.1f tok/s (%.1f to %.1f), %u at once\n", s.median, s.min, s.max,
               b->streams.values[i]);
    }
    if (b->streams.count > 0)
        printf("ahead       %10.1f %% of the streams' rounds were submitted while the last one ran\n",
               100.0 * (double)b->stream_rounds_ahead / (double)b->stream_rounds);
    for (uint32_t i = 0; i < b->depths.count; i++) {
        const spread s = spread_in(b, LW_BENCH_DEPTH_DECODE + i);
        printf("depth       %10.1f tok/s (%.1f to %.1f) behind %u positions; a prompt chunk %.1f tok/s\n",
               s.median, s.min, s.max, b->depths.values[i],
               spread_in(b, LW_BENCH_DEPTH_PROMPT + i).median);
    }
}

static void print_plain(bench *b, const char *name, const results *r)
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
    print_windows(b, r);
    print_lists(b);
    if (b->has_counts)
        printf("launches    %10.1f a token, made by %.1f commands\n", r->launches, r->commands);
    printf("per token   %10.1f MiB of weights read, as stored, and %.1f MiB of state\n",
           (double)b->token.weights / mib, (double)b->token.states / mib);
    printf("bandwidth   %10.1f GB/s (%.1f to %.1f) read here; decoding uses %.0f %%\n",
           r->reads.median / giga, r->reads.min / giga, r->reads.max / giga, r->share * 100);
    printf("first token %10.1f ms (%.1f to %.1f) after a prompt of %u\n", r->first.median / 1e6,
           r->first.min / 1e6, r->first.max / 1e6, b->prompt);
    printf("load        %10.2f s, %.2f GB/s of weights\n", (double)b->load_ns / 1e9,
           (double)b->weight_bytes / (double)b->load_ns);
    printf("memory      %10.1f MiB anonymous after loading (%.1f before), for %.1f MiB of weights\n",
           (double)b->anon_after / mib, (double)b->anon_before / mib, (double)b->weight_bytes / mib);
    print_drafts(b, r);
    if (b->profiles) lw_profile_print(&b->profile, lw_bench_positions(b), r->reads.median);
    printf("medians (least to most) of %u repetitions: prompt, decode and bandwidth in turn\n", b->reps);
    if (b->url != NULL) lw_bench_url_print(b->server_rows, b->server_row_count, r->decode.median);
}

/* Medians of what the repetitions gave for windows and drafts. */
static void report_fill(bench *b, results *r)
{
    for (uint32_t w = 0; w < b->windows; w++) {
        r->windows[w] = spread_in(b, LW_BENCH_WINDOW + w).median;
        if (w > 0) r->windows[w] /= r->windows[0];
    }
    r->windows[0] = 1.0;
    r->launches = (double)b->decode_counts.launches / b->decode / b->reps;
    r->commands = (double)b->decode_counts.commands / b->decode / b->reps;
    for (uint32_t row = 0; b->drafts && row < LW_DRAFT_ROWS; row++) {
        double rates[LW_BENCH_REPS_MAX];
        for (uint32_t i = 0; i < b->reps; i++)
            rates[i] = b->draft_results[(size_t)i * LW_DRAFT_ROWS + row].tokens_per_s;
        r->draft_rates[row] = spread_of(rates, b->reps).median;
    }
}

void lw_bench_report(bench *b, const char *name)
{
    const lw_plan *plan = lw_engine_plan(b->model.engine);
    results r = {
        .prompt = spread_in(b, LW_BENCH_PROMPT),
        .decode = spread_in(b, LW_BENCH_DECODE),
        .reads = spread_in(b, LW_BENCH_READS),
        .first = spread_in(b, LW_BENCH_FIRST),
    };
    r.share = r.decode.median * (double)(b->token.weights + b->token.states) / r.reads.median;
    if (b->scales != NULL) {
        r.whole_rate = r.decode.median / lw_profile_stretch(&b->profile, b->scales);
        r.whole = lw_token_reads(plan, lw_bench_positions(b), b->scales);
    }
    report_fill(b, &r);
    lw_engine_describe(b->model.engine, r.device, sizeof r.device);
    if (b->json) print_json(b, name, &r);
    else print_plain(b, name, &r);
}

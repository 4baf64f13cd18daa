/* `lanewise bench`: prompt and reply speed, what decoding reads from memory, and what the model takes of it.
 * Repetitions are interleaved: each runs the prompts, the reply, the windows, the streams, the depths and the
 * bandwidth probe, so that a machine that slows down slows all of them. A cut shape's decode is stretched to
 * its whole model by the times of its layers' ops; what lies outside of the layers enters as it is.
 */
#include "cli/bandwidth.h"
#include "cli/bench.h"
#include "cli/bench_depth.h"
#include "cli/bench_streams.h"
#include "cli/verbs.h"

#include "base/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT_DEFAULT = 512,
    DECODE_DEFAULT = 64,
    REPS_DEFAULT = 3,
    RUN_TOKENS_MAX = 1 << 20,
    STREAM_PROMPT_MAX = 64,      /* short ones, so that streams soon run together */
};

const uint32_t lw_bench_window_rows[LW_BENCH_WINDOWS] = { 1, 2, 4, LW_BENCH_WINDOW_ROWS_MAX };

typedef lw_bench bench;

static const char bench_summary[] =
    "Measures prompt and reply tokens a second, the memory that a loaded model takes, and the share\n"
    "of this machine's read bandwidth (measured in the same run) that decoding uses. --synth takes no\n"
    "MODEL: random weights at the shape of a real checkpoint; only a header is written (under /tmp,\n"
    "removed at once), the weights are made in memory. --more-prompt, --streams and --depth may be\n"
    "given up to four times each. Shapes:\n" LW_SYNTH_SHAPES;

static const char bench_examples[] =
    "  lanewise bench models/lfm3-mlx4\n"
    "  lanewise bench --synth lfm3-1.7b-4bit --threads 2\n"
    "  lanewise bench --synth lfm2-1.2b-bf16 --prompt 128 --decode 32 --json\n"
    "  lanewise bench --synth qwen3.8-27b-cut-4bit --drafts --profile\n"
    "  lanewise bench --synth lfm3-350m-4bit --streams 1 --streams 8 --depth 8192\n"
    "  lanewise bench models/lfm3-mlx4 --url http://127.0.0.1:8080\n";

/* A line of /proc/self/status, as "RssAnon", in bytes; 0 where the kernel does not say. */
static uint64_t memory_bytes(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    const size_t chars = strlen(name);
    char line[256];
    uint64_t kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, chars) != 0 || line[chars] != ':') continue;
        if (sscanf(line + chars + 1, "%" SCNu64 " kB", &kib) == 1) break;
    }
    if (file != NULL) fclose(file);
    return kib * 1024;
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
    lw_engine_options options = lw_load_engine_options(&b->load, term);
    options.progress = lw_progress_of_line(&line);
    options.trace = trace_of(b);
    const uint32_t context = lw_family_context(b->synth.checkpoint);
    const uint64_t begin = lw_clock_ns();
    status = lw_engine_open_plan(&b->synth.plan, context, &options, &b->model.engine, d);
    b->load_ns = lw_clock_ns() - begin;
    lw_progress_line_clear(&line);
    lw_synth_drop(&b->synth);
    if (status == LW_OK) status = lw_stream_open(b->model.engine, &b->model.stream, d);
    return status;
}

static uint32_t most(const lw_bench_list *list)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < list->count; i++) out = list->values[i] > out ? list->values[i] : out;
    return out;
}

/* Lanes and positions for all that was asked: the lanes' pages together are a deep stream's. */
static void sizes_choose(bench *b)
{
    enum { CHUNK_ROWS = 512 };
    lw_load_options *load = &b->load;
    const uint32_t more = most(&b->more_prompts), prompt = more > b->prompt ? more : b->prompt;
    load->lanes = most(&b->streams) > 1 ? most(&b->streams) : 1;
    if (load->chunk == 0) load->chunk = CHUNK_ROWS;
    if (load->context != 0) return;
    load->context = prompt + b->decode + LW_BENCH_WINDOW_ROWS_MAX;
    if (b->depths.count == 0) return;
    const uint32_t deep = lw_bench_depth_positions(most(&b->depths), load->chunk);
    const uint32_t share = deep / load->lanes + LW_PAGE_POSITIONS;
    if (share > load->context) load->context = share;
}

static lw_status open_checkpoint(bench *b, const lw_term *term, const char *dir, lw_diag *d)
{
    const uint64_t begin = lw_clock_ns();
    lw_status status = lw_load_checkpoint(&b->model, dir, d);
    if (status == LW_OK) status = lw_load_engine(&b->model, &b->load, term, trace_of(b), d);
    b->load_ns = lw_clock_ns() - begin;
    return status;
}

static lw_status open_model(bench *b, const lw_term *term, const char *dir, lw_diag *d)
{
    b->anon_before = memory_bytes("RssAnon");
    sizes_choose(b);
    const lw_status status =
        b->synth_name != NULL ? open_synth(b, term, d) : open_checkpoint(b, term, dir, d);
    if (status != LW_OK) return status;
    b->anon_after = memory_bytes("RssAnon");
    b->resident = memory_bytes("VmRSS");
    b->resident_max = memory_bytes("VmHWM");
    const lw_plan *plan = lw_engine_plan(b->model.engine);
    b->token = lw_token_reads(plan, lw_bench_positions(b), NULL);
    for (uint32_t i = 0; i < plan->weight_count; i++) b->weight_bytes += lw_weight_bytes(&plan->weights[i]);
    return b->profiles ? lw_profile_make(&b->profile, plan, b->decode, d) : LW_OK;
}

/* ---- measuring ---- */

typedef struct prompt_times {
    double tokens_per_s, first_ns;
    int32_t first;
} prompt_times;

static lw_status draw(const bench *b, lw_sampler *sampler, int32_t *id, lw_diag *d)
{
    const lw_sampling greedy = { .temperature = 0.0 };
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    const float *logits = NULL;
    const lw_status status = lw_stream_logits(b->model.stream, 0, &logits, d);
    if (status != LW_OK) return status;
    return lw_sampler_draw(sampler, &greedy, logits, vocab, lw_stream_committed(b->model.stream), id, d);
}

/* Fills the stream anew and draws the first token of a reply. */
static lw_status run_prompt(bench *b, const int32_t *ids, uint32_t count, lw_sampler *sampler,
                            prompt_times *out, lw_diag *d)
{
    lw_stream *stream = b->model.stream;
    const uint32_t chunk = lw_engine_chunk_rows(b->model.engine);
    lw_stream_reset(stream);
    const uint64_t begin = lw_clock_ns();
    for (uint32_t done = 0; done < count;) {
        const uint32_t rows = count - done < chunk ? count - done : chunk;
        const lw_wanted wanted = done + rows == count ? LW_WANTED_LAST : LW_WANTED_NONE;
        const lw_status status = lw_stream_forward(stream, ids + done, rows, wanted, d);
        if (status != LW_OK) return status;
        lw_stream_commit(stream, rows);
        done += rows;
    }
    out->tokens_per_s = count * 1e9 / (double)(lw_clock_ns() - begin);
    const lw_status status = draw(b, sampler, &out->first, d);
    out->first_ns = (double)(lw_clock_ns() - begin);
    return status;
}

/* Feeds and draws decode tokens greedily, from the first one on; profiles them where the rate is not wanted.
 */
static lw_status run_decode(bench *b, lw_sampler *sampler, int32_t id, double *rate, lw_diag *d)
{
    lw_stream *stream = b->model.stream;
    lw_status status = LW_OK;
    lw_device_counts before = { 0 }, after = { 0 };
    b->has_counts = lw_engine_read_counts(b->model.engine, &before);
    const uint64_t begin = lw_clock_ns();
    for (uint32_t i = 0; i < b->decode && status == LW_OK; i++) {
        if (rate == NULL) lw_profile_step_begin(&b->profile);
        status = lw_stream_forward(stream, &id, 1, LW_WANTED_LAST, d);
        if (rate == NULL) lw_profile_step_end(&b->profile);
        if (status == LW_OK) lw_stream_commit(stream, 1);
        if (status == LW_OK) status = draw(b, sampler, &id, d);
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
    for (uint32_t w = 0; w < b->windows && status == LW_OK; w++) {
        const uint32_t rows = lw_bench_window_rows[w];
        int32_t ids[LW_BENCH_WINDOW_ROWS_MAX];
        lw_rng rng = lw_rng_make((uint64_t)rep << 8 | w);
        for (uint32_t i = 0; i < rows; i++) ids[i] = (int32_t)lw_rng_below(&rng, vocab);
        const uint64_t begin = lw_clock_ns();
        status = lw_stream_forward(b->model.stream, ids, rows, LW_WANTED_ALL, d);
        lw_bench_samples(b, LW_BENCH_WINDOW + w)[rep] = (double)(lw_clock_ns() - begin);
    }
    return status;
}

static lw_status run_more_prompts(bench *b, const int32_t *ids, lw_sampler *sampler, uint32_t rep, lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < b->more_prompts.count && status == LW_OK; i++) {
        prompt_times times = { .first = 0 };
        status = run_prompt(b, ids, b->more_prompts.values[i], sampler, &times, d);
        lw_bench_samples(b, LW_BENCH_MORE_PROMPT + i)[rep] = times.tokens_per_s;
    }
    return status;
}

/* What takes the engine's lanes away from the stream, which is opened again behind it. */
static lw_status run_lent(bench *b, uint32_t rep, lw_diag *d)
{
    const uint32_t prompt = b->prompt < STREAM_PROMPT_MAX ? b->prompt : STREAM_PROMPT_MAX;
    lw_depth_result depths[LW_BENCH_LIST_MAX];
    lw_status status = LW_OK;
    if (b->streams.count == 0 && b->depths.count == 0) return LW_OK;
    lw_stream_close(b->model.stream);
    b->model.stream = NULL;
    for (uint32_t i = 0; i < b->streams.count && status == LW_OK; i++) {
        const lw_bench_streams what = { .streams = b->streams.values[i], .prompt = prompt,
                                        .tokens = b->decode };
        lw_streams_result result;
        status = lw_bench_streams_run(b->model.engine, &what, &result, d);
        lw_bench_samples(b, LW_BENCH_STREAMS + i)[rep] = result.tokens_per_s;
        b->stream_rounds += result.rounds;
        b->stream_rounds_ahead += result.rounds_ahead;
    }
    if (status == LW_OK && b->depths.count > 0)
        status = lw_bench_depth_run(b->model.engine, b->depths.values, b->depths.count, depths, d);
    for (uint32_t i = 0; i < b->depths.count && status == LW_OK; i++) {
        lw_bench_samples(b, LW_BENCH_DEPTH_DECODE + i)[rep] = depths[i].decode_tok_s;
        lw_bench_samples(b, LW_BENCH_DEPTH_PROMPT + i)[rep] = depths[i].prompt_tok_s;
    }
    return status == LW_OK ? lw_stream_open(b->model.engine, &b->model.stream, d) : status;
}

static lw_status measure(bench *b, const int32_t *ids, lw_sampler *sampler, lw_progress_line *line,
                         lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < b->reps && status == LW_OK; i++) {
        prompt_times times = { .first = 0 };
        lw_progress_line_step(line, i, b->reps);
        status = run_prompt(b, ids, b->prompt, sampler, &times, d);
        lw_bench_samples(b, LW_BENCH_PROMPT)[i] = times.tokens_per_s;
        lw_bench_samples(b, LW_BENCH_FIRST)[i] = times.first_ns;
        if (status == LW_OK)
            status = run_decode(b, sampler, times.first, &lw_bench_samples(b, LW_BENCH_DECODE)[i], d);
        if (status == LW_OK) status = run_windows(b, i, d);
        if (status == LW_OK) status = run_more_prompts(b, ids, sampler, i, d);
        if (status == LW_OK) status = run_lent(b, i, d);
        if (status == LW_OK)
            status = lw_bandwidth_measure(b->load.threads, &lw_bench_samples(b, LW_BENCH_READS)[i], d);
    }
    lw_progress_line_clear(line);
    return status;
}

/* One more reply, whose ops are told apart. */
static lw_status measure_profile(bench *b, const int32_t *ids, lw_sampler *sampler, lw_diag *d)
{
    prompt_times times;
    if (!b->profiles) return LW_OK;
    const lw_status status = run_prompt(b, ids, b->prompt, sampler, &times, d);
    return status == LW_OK ? run_decode(b, sampler, times.first, NULL, d) : status;
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

static lw_status samples_make(bench *b, lw_diag *d)
{
    const uint32_t rows_max = lw_engine_wanted_max(b->model.engine);
    while (b->windows < LW_BENCH_WINDOWS && lw_bench_window_rows[b->windows] <= rows_max) b->windows++;
    b->samples = calloc((size_t)LW_BENCH_SERIES * b->reps, sizeof *b->samples);
    bool is_there = b->samples != NULL;
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
    if (status == LW_OK) status = samples_make(b, d);
    if (status != LW_OK) return status;
    const uint32_t more = most(&b->more_prompts), prompt = more > b->prompt ? more : b->prompt;
    int32_t *ids = calloc(prompt, sizeof *ids);
    if (ids == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for a prompt of %u tokens", prompt);
    const uint32_t vocab = lw_engine_vocab(b->model.engine);
    lw_rng rng = lw_rng_make(1);
    for (uint32_t i = 0; status == LW_OK && i < prompt; i++) ids[i] = (int32_t)lw_rng_below(&rng, vocab);
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

static void bench_close(bench *b)
{
    lw_loaded_close(&b->model);
    if (b->synth_name != NULL) lw_synth_close(&b->synth);
    lw_profile_free(&b->profile);
    free(b->samples);
    free(b->draft_results);
    free(b->scales);
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
        { .name = "more-prompt",
          .value = "N",
          .list = &b->more_prompts.texts,
          .help = "also time a prompt of N tokens" },
        { .name = "streams",
          .value = "N",
          .list = &b->streams.texts,
          .help = "also decode N streams at once, in the rounds of `serve`" },
        { .name = "depth",
          .value = "N",
          .list = &b->depths.texts,
          .help = "also run a decode step and a prompt chunk behind N positions" },
        { .name = "reps",
          .value = "N",
          .u32 = &b->reps,
          .min = REPS_DEFAULT,
          .max = LW_BENCH_REPS_MAX,
          .help = "repetitions; default: 3" },
        { .name = "json", .flag = &b->json, .help = "one JSON object" },
        { .name = "config",
          .flag = &b->tells_config,
          .help = "with --synth: print the shape's config.json and end" },
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

/* The numbers of one option; false, with the exit code: what stands there is none. */
static bool list_read(const char *option, lw_bench_list *list, uint32_t max, int *code)
{
    for (uint32_t i = 0; i < list->texts.count; i++) {
        const char *text = list->texts.values[i];
        char *end = NULL;
        errno = 0;
        const unsigned long value = strtoul(text, &end, 10);
        if (i == LW_BENCH_LIST_MAX) {
            *code = lw_usage_error("bench", "--%s may be given %d times", option, LW_BENCH_LIST_MAX);
            return false;
        }
        if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < 1 || value > max) {
            *code = lw_usage_error("bench", "--%s takes a whole number from 1 to %u, not \"%s\"", option, max,
                                   text);
            return false;
        }
        list->values[list->count++] = (uint32_t)value;
    }
    return true;
}

static bool lists_read(bench *b, int *code)
{
    if (!list_read("more-prompt", &b->more_prompts, RUN_TOKENS_MAX, code)) return false;
    if (!list_read("streams", &b->streams, LW_CORE_LANES_MAX, code)) return false;
    if (!list_read("depth", &b->depths, RUN_TOKENS_MAX, code)) return false;
    if (!b->drafts || b->streams.count == 0) return true;
    *code = lw_usage_error("bench", "--drafts runs one stream: leave out --streams");
    return false;
}

/* config.json of a shape, for programs that make files of the same sizes. */
static int config_tell(const bench *b)
{
    lw_buf config, header;
    uint64_t data_bytes;
    lw_diag d;
    lw_buf_init(&config, 0);
    lw_buf_init(&header, 0);
    const lw_status status = lw_synth_image(b->synth_name, &config, &header, &data_bytes, &d);
    const int code = status == LW_OK ? LW_EXIT_OK : lw_term_error("%s", d.text);
    if (status == LW_OK) printf("%.*s\n", (int)config.count, config.bytes);
    lw_buf_deinit(&config);
    lw_buf_deinit(&header);
    return code;
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
                .load = { .wanted = LW_BENCH_WINDOW_ROWS_MAX } };
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
    if (b.tells_config && b.synth_name == NULL) return lw_usage_error("bench", "--config goes with --synth");
    if (b.synth_name != NULL && !synth_check(&b, &code)) return code;
    if (!lists_read(&b, &code)) return code;
    if (b.tells_config) return config_tell(&b);
    const char *name = b.synth_name != NULL ? b.synth_name : arguments.values[0];
    lw_diag d;
    lw_status status = bench_run(&b, term, name, &d);
    if (status == LW_OK) status = bench_server(&b, &d);
    if (status != LW_OK) code = lw_term_error("%s", d.text);
    else lw_bench_report(&b, name);
    bench_close(&b);
    return code;
}

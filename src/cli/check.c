/* `lanewise check`: judges and prints what check_run.c compared. */
#include "cli/check.h"

#include "base/json.h"
#include "cli/verbs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RATIO_POOLED_MAX 1.05
#define RATIO_PROMPT_MAX 1.15

/* Every row wants its logits here, so forwards are short unless asked otherwise. */
enum { ARENA_BYTES_MAX = 1 << 30, CHUNK_ROWS = 64 };

static const char check_summary[] =
    "Compares the forward with MODEL/ref64.safetensors: per layer, how far our rows lie from double\n"
    "precision against how far a bf16 run of the reference code lies from it; logits; and the greedy\n"
    "tokens, the reference's own fed. Exit code 1 where a rule is broken, saying which.";

static const char check_examples[] = "  lanewise check models/lfm3-mlx4\n"
                                     "  lanewise check models/lfm3-mlx4 --isa generic --threads 2 --json\n";

/* Adds a line to the list of broken rules. */
LW_PRINTF(2, 3) static void broken(json_t *list, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(list, lw_json_text(text, strlen(text)));
}

static void judge_layer(const lw_check *check, uint32_t plane, json_t *list)
{
    const uint32_t layer = plane - 1;
    const double pooled = lw_check_ratio(check, plane, LW_CHECK_PROMPTS);
    if (isnan(pooled)) {
        broken(list, "layer %u: rows without a number, or never traced", layer);
        return;
    }
    if (pooled > RATIO_POOLED_MAX) {
        broken(list, "layer %u: distance over bf16 gap is %.3f pooled; the limit is %.2f", layer, pooled,
               RATIO_POOLED_MAX);
    }
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        const double ratio = lw_check_ratio(check, plane, j);
        if (ratio <= RATIO_PROMPT_MAX) continue;
        broken(list, "layer %u: distance over bf16 gap is %.3f for prompt p%u; the limit is %.2f", layer,
               ratio, j, RATIO_PROMPT_MAX);
    }
}

static void judge_tops(const lw_check_tops *tops, const char *what, json_t *list)
{
    if (tops->wrong == 0) return;
    broken(list, "%s: %u rows have another top token though the reference leads by more than %.1f", what,
           tops->wrong, LW_CHECK_MARGIN);
}

/* The broken rules as texts. */
static json_t *judge(const lw_check *check)
{
    json_t *list = json_array();
    uint32_t rows = 0;
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) rows += check->ref.prompts[j].row_count;
    if (check->embed_rows != rows || check->embed_rows_wrong > 0) {
        broken(list, "embedding: of %u stored rows %u were seen, %u of them not the dequantised row as bf16",
               rows, check->embed_rows, check->embed_rows_wrong);
    }
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) judge_layer(check, plane, list);
    if (!isfinite(check->logit_distance_sum)) broken(list, "logits: not finite");
    judge_tops(&check->tops, "logits", list);
    judge_tops(&check->greedy, "greedy", list);
    return list;
}

/* A number, or null where there is none (JSON has no NaN). */
static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *tops_object(const lw_check_tops *tops)
{
    return json_pack("{s:i, s:i, s:i}", "same", (int)tops->same, "near_ties", (int)tops->near_ties, "wrong",
                     (int)tops->wrong);
}

static json_t *report_object(const lw_check *check, json_t *failures)
{
    json_t *layers = json_array();
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) {
        json_t *prompts = json_array();
        for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
            json_array_append_new(prompts, real_or_null(lw_check_ratio(check, plane, j)));
        }
        json_t *pooled = real_or_null(lw_check_ratio(check, plane, LW_CHECK_PROMPTS));
        json_array_append_new(layers, json_pack("{s:i, s:o, s:o}", "layer", (int)plane - 1, "pooled", pooled,
                                                "prompts", prompts));
    }
    const double mean = check->logit_distance_sum / (double)check->logit_rows;
    return json_pack("{s:b, s:i, s:i, s:o, s:{s:i, s:o, s:o, s:o}, s:o, s:O}", "passed",
                     json_array_size(failures) == 0, "embedding_rows", (int)check->embed_rows,
                     "embedding_rows_wrong", (int)check->embed_rows_wrong, "layers", layers, "logits", "rows",
                     (int)check->logit_rows, "distance_mean", real_or_null(mean), "distance_max",
                     real_or_null(check->logit_distance_max), "tops", tops_object(&check->tops), "greedy",
                     tops_object(&check->greedy), "failures", failures);
}

static void print_tops(const char *what, const lw_check_tops *tops)
{
    printf("%s top tokens: %u as the reference, %u others at near ties, %u wrong\n", what, tops->same,
           tops->near_ties, tops->wrong);
}

static void print_report(const lw_check *check, const json_t *failures)
{
    printf("distance from double precision over that of a bf16 run\n%-9s %8s", "layer", "pooled");
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) printf("       p%u", j);
    printf("\n%-9s %s\n", "embedding", check->embed_rows_wrong == 0 ? "bit-equal" : "differs");
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) {
        printf("%-9u %8.3f", plane - 1, lw_check_ratio(check, plane, LW_CHECK_PROMPTS));
        for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) printf(" %8.3f", lw_check_ratio(check, plane, j));
        printf("\n");
    }
    printf("logits: %u rows, relative distance %.5f on average, %.5f at most\n", check->logit_rows,
           check->logit_distance_sum / (double)check->logit_rows, check->logit_distance_max);
    print_tops("logits", &check->tops);
    print_tops("greedy", &check->greedy);
    for (size_t i = 0; i < json_array_size(failures); i++) {
        printf("broken: %s\n", json_string_value(json_array_get(failures, i)));
    }
    printf("%s\n", json_array_size(failures) == 0 ? "passed" : "failed");
}

static lw_status compare(lw_check *check, const lw_term *term, const char *dir, const lw_load_options *load,
                         lw_loaded *model, lw_diag *d)
{
    char path[LW_PATH_BYTES];
    lw_status status = lw_load_checkpoint(model, dir, d);
    if (status == LW_OK) status = lw_path_join(path, dir, "ref64.safetensors", d);
    if (status == LW_OK) status = lw_check_ref_read(path, &check->arena, &check->ref, d);
    if (status == LW_OK) status = lw_check_make(check, d);
    if (status == LW_OK) status = lw_load_engine(model, load, term, lw_check_trace(check), d);
    if (status != LW_OK) return status;
    lw_progress_line line = lw_progress_line_make(term, "comparing");
    status = lw_check_run(check, model->engine, model->stream, &line, d);
    lw_progress_line_clear(&line);
    return status;
}

int lw_verb_check(const lw_term *term, int argc, char **argv)
{
    bool json = false;
    lw_load_options load = { .chunk = CHUNK_ROWS };
    lw_option options[LW_LOAD_OPTIONS_COUNT + 1] = {
        { .name = "json", .flag = &json, .help = "one JSON object instead of the table" },
    };
    const size_t option_count = 1 + lw_load_options_table(&load, options + 1);
    const lw_usage usage = {
        .verb = "check",
        .arguments = "MODEL",
        .arguments_min = 1,
        .arguments_max = 1,
        .summary = check_summary,
        .examples = check_examples,
        .options = options,
        .option_count = option_count,
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;

    lw_diag d;
    lw_check check = { .logit_rows = 0 };
    lw_loaded model = { .checkpoint = NULL };
    lw_arena_init(&check.arena, ARENA_BYTES_MAX);
    if (compare(&check, term, arguments.values[0], &load, &model, &d) != LW_OK) {
        code = lw_term_error("%s", d.text);
    } else {
        json_t *failures = judge(&check);
        code = json_array_size(failures) == 0 ? LW_EXIT_OK : LW_EXIT_FAILED;
        if (json) lw_out_json(report_object(&check, failures));
        else print_report(&check, failures);
        json_decref(failures);
    }
    lw_loaded_close(&model);
    lw_arena_deinit(&check.arena);
    return code;
}

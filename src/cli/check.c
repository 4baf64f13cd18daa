/* `lanewise check`: the command, and its judgement of what check_run.c compared. */
#include "cli/check.h"

#include "base/json.h"
#include "cli/check_ops.h"
#include "cli/verbs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Every row wants its logits here, so forwards are short unless asked otherwise. */
enum { ARENA_BYTES_MAX = 1 << 30, CHUNK_ROWS = 64 };

static const char check_summary[] =
    "Compares the forward with MODEL/ref64.safetensors: per layer, how far our rows lie from double\n"
    "precision against how far a bf16 run of the reference code lies from it; logits; the greedy tokens,\n"
    "the reference's own fed; which experts are chosen; and the draft head. Exit code 1 where a rule is\n"
    "broken, saying which. With --act-int8 that run rounds what enters linears to int8 as well.\n"
    "--ops needs no model: it runs every op of the device with random numbers, alone and in company, which\n"
    "must be the same bits, and against the cpu's generic kernels; a planted mistake has to show. With a\n"
    "MODEL too, its references, if it has them, and `receipts MODEL --quick` follow.";

static const char check_examples[] = "  lanewise check models/lfm3-mlx4\n"
                                     "  lanewise check models/lfm3-mlx4 --isa generic --threads 2 --json\n"
                                     "  lanewise check --ops --device xpu\n";

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
    if (!(pooled <= LW_CHECK_POOLED_MAX)) {
        broken(list, "layer %u: distance over the gap is %.3f pooled; the limit is %.2f", layer, pooled,
               LW_CHECK_POOLED_MAX);
    }
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        if (check->ref.prompts[j].row_count < LW_CHECK_ROWS_MIN) continue;
        const double ratio = lw_check_ratio(check, plane, j);
        if (ratio <= LW_CHECK_PROMPT_MAX) continue;
        broken(list, "layer %u: distance over the gap is %.3f for prompt p%u; the limit is %.2f", layer,
               ratio, j, LW_CHECK_PROMPT_MAX);
    }
}

static void judge_tops(const lw_check_tops *tops, const char *what, json_t *list)
{
    if (tops->wrong == 0) return;
    broken(list, "%s: %u rows have another top token with a lead of more than %.1f", what, tops->wrong,
           LW_CHECK_MARGIN);
}

static void judge_flips(const lw_check *check, uint32_t router, json_t *list)
{
    const lw_check_flips flips = lw_check_flips_of(check, router);
    const uint32_t layer = check->routers[router].op->layer;
    if (isnan(flips.deviation)) {
        broken(list, "layer %u: rows whose experts have no score, or were never traced", layer);
        return;
    }
    if (flips.unexplained == 0) return;
    const int32_t row = check->ref.prompts[flips.prompt].rows[flips.row];
    broken(
        list,
        "layer %u: %u rows chose other experts at no near tie; at row %d of p%u the lead is %.3g; the limit "
        "is %.3g",
        layer, flips.unexplained, row, flips.prompt, flips.lead_max, LW_CHECK_LEAD_MAX * flips.deviation);
}

static void judge_head(const lw_check *check, json_t *list)
{
    if (check->ref.has_drafts && !check->head.is_there) {
        broken(list, "draft head: the references have one and the model none");
    }
    if (!check->head.is_there) return;
    for (uint32_t j = 0; j < LW_CHECK_PROMPTS; j++) {
        const double ratio = lw_check_draft_ratio(check, j);
        if (ratio <= LW_CHECK_DRAFT_MAX) continue;
        broken(
            list,
            "draft head: distance over the last layer's gap is %.3f for prompt p%u; the limit is %.2f",
            ratio, j, LW_CHECK_DRAFT_MAX);
    }
    judge_tops(&check->head.drafts, "draft head", list);
}

json_t *lw_check_judge(const lw_check *check)
{
    json_t *list = json_array();
    uint32_t rows = 0;
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) rows += check->ref.prompts[j].row_count;
    if (check->embed_rows != rows || check->embed_rows_wrong > 0) {
        broken(list, "embedding: of %u stored rows %u were seen, %u of them not the dequantised row as bf16",
               rows, check->embed_rows, check->embed_rows_wrong);
    }
    for (uint32_t plane = 1; plane <= check->ref.layer_count; plane++) judge_layer(check, plane, list);
    for (uint32_t i = 0; i < check->router_count; i++) judge_flips(check, i, list);
    if (!isfinite(check->logit_distance_sum)) broken(list, "logits: not finite");
    judge_tops(&check->tops, "logits", list);
    judge_tops(&check->greedy, "greedy", list);
    judge_head(check, list);
    return list;
}

static lw_status compare(lw_check *check, const lw_term *term, const char *dir, const lw_load_options *load,
                         lw_loaded *model, lw_diag *d)
{
    char path[LW_PATH_BYTES];
    lw_status status = lw_load_checkpoint(model, dir, d);
    if (status == LW_OK) status = lw_path_join(path, dir, "ref64.safetensors", d);
    if (status == LW_OK) status = lw_check_ref_read(path, load->act_int8, &check->arena, &check->ref, d);
    if (status == LW_OK) status = lw_check_make(check, d);
    if (status == LW_OK) status = lw_load_engine(model, load, term, lw_check_trace(check), d);
    if (status == LW_OK) status = lw_check_experts_make(check, lw_engine_plan(model->engine), d);
    if (status != LW_OK) return status;
    lw_progress_line line = lw_progress_line_make(term, "comparing");
    status = lw_check_run(check, model->engine, model->stream, &line, d);
    lw_progress_line_clear(&line);
    return status;
}

static int check_model(const lw_term *term, const char *dir, const lw_load_options *load, bool json)
{
    lw_diag d;
    int code;
    lw_check check = { .logit_rows = 0 };
    lw_loaded model = { .checkpoint = NULL };
    lw_arena_init(&check.arena, ARENA_BYTES_MAX);
    if (compare(&check, term, dir, load, &model, &d) != LW_OK) {
        code = lw_term_error("%s", d.text);
    } else {
        json_t *failures = lw_check_judge(&check);
        code = json_array_size(failures) == 0 ? LW_EXIT_OK : LW_EXIT_FAILED;
        if (json) lw_out_json(lw_check_object(&check, failures));
        else lw_check_print(&check, failures);
        json_decref(failures);
    }
    lw_loaded_close(&model);
    lw_arena_deinit(&check.arena);
    return code;
}

static int check_ops(const lw_term *term, const lw_load_options *load, bool json)
{
    lw_diag d;
    json_t *object;
    if (lw_ops_check(term, load, &object, &d) != LW_OK) return lw_term_error("%s", d.text);
    const int code = lw_ops_passed(object) ? LW_EXIT_OK : LW_EXIT_FAILED;
    if (json) {
        lw_out_json(object);
        return code;
    }
    lw_ops_print(object);
    json_decref(object);
    return code;
}

/* What shows the row law on a whole model, with the options that this verb was given. */
static int check_receipts(const lw_term *term, const char *dir, const lw_load_options *load, bool json)
{
    enum { WORDS_MAX = 10 };
    char *words[WORDS_MAX], threads[32];
    int count = 0;
    snprintf(threads, sizeof threads, "--threads=%u", load->threads);
    words[count++] = (char *)"--quick";
    words[count++] = (char *)"--allow-unshown";
    if (json) words[count++] = (char *)"--json";
    if (load->act_int8) words[count++] = (char *)"--act-int8";
    if (load->kv_int8) words[count++] = (char *)"--kv-int8";
    if (load->threads > 0) words[count++] = threads;
    if (load->device != NULL) {
        words[count++] = (char *)"--device";
        words[count++] = (char *)(uintptr_t)load->device;
    }
    words[count++] = (char *)(uintptr_t)dir;
    return lw_verb_receipts(term, count, words);
}

/* Of a model beside the ops: references, which few checkpoints have, and receipts. */
static int check_all(const lw_term *term, const char *dir, const lw_load_options *load, bool json)
{
    char path[LW_PATH_BYTES];
    lw_diag d;
    int code = LW_EXIT_OK;
    if (lw_path_join(path, dir, "ref64.safetensors", &d) != LW_OK) return lw_term_error("%s", d.text);
    if (access(path, R_OK) == 0) code = check_model(term, dir, load, json);
    else fputs("lanewise: the model has no ref64.safetensors to be compared with; receipts alone\n", stderr);
    const int receipts = check_receipts(term, dir, load, json);
    return code != LW_EXIT_OK ? code : receipts;
}

int lw_verb_check(const lw_term *term, int argc, char **argv)
{
    bool json = false, ops = false;
    lw_load_options load = { .chunk = CHUNK_ROWS, .head = true };
    lw_option options[LW_LOAD_OPTIONS_COUNT + 2] = {
        { .name = "ops", .flag = &ops, .help = "each op of the device, before the MODEL if one is given" },
        { .name = "json", .flag = &json, .help = "one JSON object instead of the table" },
    };
    const size_t option_count = 2 + lw_load_options_table(&load, options + 2);
    const lw_usage usage = {
        .verb = "check",
        .arguments = "[MODEL]",
        .arguments_min = 0,
        .arguments_max = 1,
        .summary = check_summary,
        .examples = check_examples,
        .options = options,
        .option_count = option_count,
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;

    if (!ops && arguments.count == 0)
        return lw_usage_error("check", "give a MODEL folder, or --ops, which needs none");
    if (!ops) return check_model(term, arguments.values[0], &load, json);
    code = check_ops(term, &load, json);
    if (arguments.count == 0) return code;
    const int of_model = check_all(term, arguments.values[0], &load, json);
    return code != LW_EXIT_OK ? code : of_model;
}

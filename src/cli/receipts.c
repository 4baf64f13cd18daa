/* `lanewise receipts`: asks, compares, and prints one line for each law. */
#include "cli/receipts.h"

#include "base/json.h"
#include "cli/load.h"
#include "cli/receipts_model.h"
#include "cli/receipts_url.h"
#include "cli/verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS_USUAL = 64, TOKENS_QUICK = 32, CASES_QUICK = 4 };

static const char receipts_summary[] =
    "Shows that a reply is the same tokens however it was made: with drafts and without, beside others and\n"
    "alone, resumed and fresh, in any cut of its prompt, as a chat and as token ids. Greedy and sampled.\n"
    "Each comparison is also made with one token of the prompt changed, and has to notice. Exit code 1: a\n"
    "difference, a change that went unnoticed, or a law that was not shown: no draft was kept, or nothing\n"
    "was resumed. --allow-unshown takes the last as it is: a server without drafts has none to show.";

static const char receipts_examples[] =
    "  lanewise receipts models/lfm3-mlx4\n"
    "  lanewise receipts models/lfm3-mlx4 --quick --json\n"
    "  lanewise receipts --url http://127.0.0.1:8080\n";

typedef struct receipts_run {
    lw_term term;
    lw_load_options load;
    uint32_t tokens;
    const char *url, *api_key;
    bool quick, json, allow_unshown;
} receipts_run;

static json_t *receipt_json(const lw_receipt *receipt)
{
    json_t *object = json_pack("{s:s, s:b, s:b, s:[i,i], s:[i,i], s:b}", "law", receipt->name, "shown",
                               lw_receipt_is_shown(receipt), "holds",
                               lw_receipt_holds(receipt), "greedy", (int)receipt->equal[0],
                               (int)receipt->asked[0], "sampled", (int)receipt->equal[1],
                               (int)receipt->asked[1], "control_caught", receipt->control_caught);
    if (receipt->evidence_name != NULL)
        json_object_set_new(object, receipt->evidence_name, json_integer((json_int_t)receipt->evidence));
    if (receipt->difference[0] != '\0')
        json_object_set_new(object, "first_difference",
                            lw_json_text(receipt->difference, strlen(receipt->difference)));
    return object;
}

static void receipt_print(const lw_receipt *receipt)
{
    char greedy[32], sampled[32], evidence[64] = "";
    snprintf(greedy, sizeof greedy, "%u/%u", receipt->equal[0], receipt->asked[0]);
    snprintf(sampled, sizeof sampled, "%u/%u", receipt->equal[1], receipt->asked[1]);
    if (receipt->evidence_name != NULL)
        snprintf(evidence, sizeof evidence, "%" PRIu64 " %s", receipt->evidence, receipt->evidence_name);
    const char *shown = lw_receipt_is_shown(receipt) ? "holds" : "not shown";
    printf("%-22s greedy %7s   sampled %7s   control %-7s %s%s%s\n", receipt->name, greedy, sampled,
           receipt->control_caught ? "caught" : "MISSED", lw_receipt_holds(receipt) ? shown : "FAILS",
           evidence[0] != '\0' ? "   " : "", evidence);
    if (receipt->difference[0] != '\0') printf("    %s\n", receipt->difference);
}

/* What would show the laws that nothing was shown of. */
static void unshown_print(const receipts_run *run, const lw_receipt *receipts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (lw_receipt_is_shown(&receipts[i])) continue;
        printf("%s was not shown: no %s; more --tokens may show it%s\n", receipts[i].name,
               receipts[i].evidence_name,
               run->allow_unshown ? "" : ", and --allow-unshown takes it as it is");
    }
}

static int receipts_report(const receipts_run *run, const lw_receipt *receipts, size_t count)
{
    size_t held = 0, shown = 0, unshown = 0;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        held += lw_receipt_holds(&receipts[i]);
        unshown += !lw_receipt_is_shown(&receipts[i]);
        shown += lw_receipt_holds(&receipts[i]) && lw_receipt_is_shown(&receipts[i]);
        if (run->json) json_array_append_new(list, receipt_json(&receipts[i]));
        else receipt_print(&receipts[i]);
    }
    const bool holds = count > 0 && held == count;
    const bool passes = holds && (unshown == 0 || run->allow_unshown);
    if (run->json) {
        lw_out_json(json_pack("{s:b, s:b, s:i, s:o}", "holds", holds, "shown", unshown == 0, "tokens",
                              (int)run->tokens, "receipts", list));
        return passes ? LW_EXIT_OK : LW_EXIT_FAILED;
    }
    json_decref(list);
    unshown_print(run, receipts, count);
    printf("%zu of %zu laws were shown to hold, %zu failed\n", shown, count, count - held);
    return passes ? LW_EXIT_OK : LW_EXIT_FAILED;
}

static int receipts_collect(const receipts_run *run, const lw_asker *asker)
{
    lw_progress_line line = lw_progress_line_make(&run->term, "asking");
    const lw_progress progress = lw_progress_of_line(&line);
    const lw_receipts_options options = {
        .cases = run->quick ? CASES_QUICK : LW_RECEIPT_CASES_MAX,
        .progress = progress.step,
        .progress_context = progress.context,
    };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    size_t count;
    lw_diag d;
    const lw_status status = lw_receipts_collect(asker, &options, receipts, &count, &d);
    lw_progress_line_clear(&line);
    return status == LW_OK ? receipts_report(run, receipts, count) : lw_term_error("%s", d.text);
}

static int receipts_model(const receipts_run *run, const char *dir)
{
    const lw_receipt_model_options options = {
        .dir = dir,
        .isa = run->load.isa,
        .device = run->load.device,
        .ze_loader = run->term.ze_loader,
        .xpu_kernels = run->term.xpu_kernels,
        .xpu_images = run->term.xpu_images,
        .threads = run->load.threads,
        .context = run->load.context,
        .chunk_rows = run->load.chunk,
        .tokens = run->tokens,
        .act_int8 = run->load.act_int8,
        .kv_int8 = run->load.kv_int8,
    };
    lw_receipt_model *model = lw_receipt_model_make(&options);
    if (model == NULL) return lw_term_error("no memory for a model");
    const lw_asker asker = lw_receipt_model_asker(model);
    const int code = receipts_collect(run, &asker);
    lw_receipt_model_free(model);
    return code;
}

static int receipts_url(const receipts_run *run)
{
    lw_receipt_url url = { .tokens = run->tokens };
    lw_diag d;
    if (lw_http_server_parse(run->url, &url.server, &d) != LW_OK) return lw_term_error("%s", d.text);
    url.server.api_key = run->api_key;
    const lw_asker asker = lw_receipt_url_asker(&url);
    return receipts_collect(run, &asker);
}

int lw_verb_receipts(const lw_term *term, int argc, char **argv)
{
    receipts_run run = { .term = *term };
    const lw_option own[] = {
        { .name = "url", .value = "U", .text = &run.url, .help = "ask the server at http://HOST:PORT" },
        { .name = "api-key", .value = "KEY", .text = &run.api_key, .help = "with --url: the server's key" },
        { .name = "quick", .flag = &run.quick, .help = "few and short replies" },
        { .name = "tokens",
          .value = "N",
          .u32 = &run.tokens,
          .min = 1,
          .max = LW_LIMIT_CONTEXT,
          .help = "tokens of each reply; default: 64, quick 32" },
        { .name = "allow-unshown",
          .flag = &run.allow_unshown,
          .help = "a law without its evidence (a draft kept, a token resumed) is no failure" },
        { .name = "json", .flag = &run.json, .help = "print one JSON object instead of a table" },
    };
    enum { OWN_COUNT = sizeof own / sizeof own[0] };
    lw_option options[OWN_COUNT + LW_LOAD_OPTIONS_COUNT];
    memcpy(options, own, sizeof own);
    const lw_usage usage = {
        .verb = "receipts",
        .arguments = "[MODEL]",
        .arguments_min = 0,
        .arguments_max = 1,
        .summary = receipts_summary,
        .examples = receipts_examples,
        .options = options,
        .option_count = OWN_COUNT + lw_load_options_table(&run.load, options + OWN_COUNT),
    };
    lw_arguments arguments;
    int code;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    if (run.tokens == 0) run.tokens = run.quick ? TOKENS_QUICK : TOKENS_USUAL;
    if ((run.url != NULL) == (arguments.count == 1))
        return lw_usage_error("receipts", "give a MODEL folder, or --url of a server that runs");
    return run.url != NULL ? receipts_url(&run) : receipts_model(&run, arguments.values[0]);
}

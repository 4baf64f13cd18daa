/* `lanewise run`: options and the order of things; prompts, replies and turns stand in their own files
 * (run.h). */
#include "cli/run.h"

#include "cli/trace.h"
#include "cli/verbs.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const char run_summary[] =
    "Answers one prompt, or chats. The reply goes to standard output as it is made, timings to\n"
    "standard error. Without -p, --ids and --chat the prompt is standard input. Sampling follows the\n"
    "model's generation_config.json, else it is greedy; without --seed the seed comes from the\n"
    "prompt, so equal calls give equal replies.";

static const char run_examples[] =
    "  lanewise run models/lfm3-mlx4 -p 'Count to five.'\n"
    "  lanewise run models/lfm3-mlx4 --chat --system 'Be brief.'\n"
    "  lanewise run models/lfm3-mlx4 --raw -p 'Once upon a time' --max-tokens 50 --temperature 0.7\n"
    "  echo 'Say hello.' | lanewise run models/lfm3-mlx4 --json\n";

static size_t prompt_options(lw_run *run, lw_option *table)
{
    const lw_option options[] = {
        { .name = "prompt",
          .letter = 'p',
          .value = "TEXT",
          .text = &run->text,
          .help = "the prompt: one user turn" },
        { .name = "raw", .flag = &run->raw, .help = "the prompt as it is, without the chat template" },
        { .name = "chat", .flag = &run->chat, .help = "turns: one line of standard input each" },
        { .name = "ids",
          .value = "FILE",
          .text = &run->ids_path,
          .help = "the prompt as a JSON list of token ids; - is standard input" },
        { .name = "system", .value = "TEXT", .text = &run->system, .help = "the system message" },
        { .name = "no-think", .flag = &run->no_think, .help = "tell the chat template that thinking is off" },
        { .name = "trust-specials",
          .flag = &run->trust_specials,
          .help = "let special tokens match in messages too, not only in the template" },
        { .name = "no-specials",
          .flag = &run->no_specials,
          .help = "with --raw: special tokens match nowhere" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static size_t reply_options(lw_run *run, lw_option *table)
{
    lw_sampling *sampling = &run->sampling;
    const lw_option options[] = {
        { .name = "max-tokens",
          .value = "N",
          .u32 = &run->tokens_max,
          .min = 1,
          .max = LW_LIMIT_CONTEXT,
          .help = "tokens of the reply; default: 1024 or what the context leaves" },
        { .name = "temperature",
          .value = "T",
          .real = &sampling->temperature,
          .given = &run->temperature_given,
          .real_max = 100,
          .help = "0: greedy" },
        { .name = "top-k",
          .value = "K",
          .u32 = &sampling->top_k,
          .given = &run->top_k_given,
          .max = LW_LIMIT_VOCAB,
          .help = "only the K likeliest tokens; 0: all" },
        { .name = "top-p",
          .value = "P",
          .real = &sampling->top_p,
          .given = &run->top_p_given,
          .real_max = 1,
          .help = "only the likeliest tokens whose mass reaches P; 1: all" },
        { .name = "min-p",
          .value = "P",
          .real = &sampling->min_p,
          .given = &run->min_p_given,
          .real_max = 1,
          .help = "only tokens at least P times as likely as the likeliest; 0: all" },
        { .name = "seed",
          .value = "S",
          .u64 = &sampling->seed,
          .given = &run->seed_given,
          .max = INT64_MAX,
          .help = "seed of the draws; default: from the prompt" },
        { .name = "ignore-eos", .flag = &run->ignore_end, .help = "end tokens do not end the reply" },
        { .name = "json", .flag = &run->json, .help = "print one JSON object instead of text" },
        { .name = "trace",
          .flag = &run->trace,
          .help = "per op and row to standard error: layer, op, value, row, L2 norm, hash of the bits" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

/* The first pair of options that exclude each other, as a text; NULL: none. */
static const char *conflict(const lw_run *run)
{
    const bool has_text = run->text != NULL, has_ids = run->ids_path != NULL;
    const struct {
        bool is;
        const char *text;
    } rules[] = {
        { run->chat && run->raw, "--chat speaks through the template, --raw without it: give one of them" },
        { run->chat && has_ids, "--chat reads turns, --ids a whole prompt: give one of them" },
        { run->chat && run->json, "--json prints one object, --chat has many replies: give one of them" },
        { has_text && has_ids, "-p and --ids are both prompts: give one of them" },
        { run->raw && has_ids, "--ids is used as it is: leave out --raw" },
        { (run->raw || has_ids) && run->system != NULL,
          "--system needs the chat template: leave out --raw and --ids" },
        { (run->raw || has_ids) && run->no_think,
          "--no-think needs the chat template: leave out --raw and --ids" },
        { run->trust_specials && run->no_specials, "--trust-specials and --no-specials exclude each other" },
        { run->no_specials && !run->raw, "--no-specials is for --raw: a template is made of special tokens" },
        { run->term.in_is_terminal && !run->chat && !has_text && !has_ids,
          "no prompt: give -p TEXT, --ids FILE, --chat, or text on standard input" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].is) return rules[i].text;
    }
    return NULL;
}

/* A number of generation_config.json, unless an option gave it. */
static lw_status default_real(const lw_run *run, const char *key, bool given, double *value, lw_diag *d)
{
    const double absent = *value;
    return given ? LW_OK
                 : lw_config_f64(lw_checkpoint_generation(run->model.checkpoint), key, &absent, value, d);
}

lw_status lw_run_sampling(lw_run *run, lw_diag *d)
{
    const lw_config *config = lw_checkpoint_generation(run->model.checkpoint);
    lw_sampling *sampling = &run->sampling;
    bool samples;
    lw_status status = lw_config_bool(config, "do_sample", true, &samples, d);
    if (status != LW_OK) return status;
    if (!run->temperature_given)
        sampling->temperature = lw_config_get(config, "do_sample") != NULL ? 1.0 : 0.0;
    status = default_real(run, "temperature", run->temperature_given, &sampling->temperature, d);
    if (status == LW_OK && !run->temperature_given && !samples) sampling->temperature = 0.0;
    if (status == LW_OK) status = default_real(run, "top_p", run->top_p_given, &sampling->top_p, d);
    if (status == LW_OK) status = default_real(run, "min_p", run->min_p_given, &sampling->min_p, d);
    if (status != LW_OK) return status;
    /* The options have these bounds themselves. */
    if (!isfinite(sampling->temperature) || !(sampling->min_p <= 1.0)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: temperature %g must be finite, and min_p %g at most 1",
                       lw_config_name(config), sampling->temperature, sampling->min_p);
    }
    if (run->top_k_given) return LW_OK;
    const uint32_t all = 0;
    return lw_config_u32(config, "top_k", &all, UINT32_MAX, &sampling->top_k, d);
}

static lw_status run_load_text(lw_run *run, const char *dir, lw_diag *d)
{
    lw_status status = lw_load_checkpoint(&run->model, dir, d);
    if (status == LW_OK) status = lw_load_tokenizer(&run->model, d);
    /* Ids in, ids out: the object's text is then null. */
    if (status == LW_NOT_FOUND && run->ids_path != NULL && run->json) status = LW_OK;
    if (status == LW_OK && !run->raw && run->ids_path == NULL) status = lw_load_chat(&run->model, d);
    if (status == LW_OK) status = lw_run_sampling(run, d);
    return status;
}

static lw_status run_load_engine(lw_run *run, lw_diag *d)
{
    const lw_trace trace = run->trace ? lw_trace_printer() : (lw_trace){ .row = NULL };
    return lw_load_engine(&run->model, &run->load, &run->term, trace, d);
}

static int run_once(lw_run *run)
{
    lw_diag d;
    lw_ids prompt = { .ids = NULL };
    lw_reply reply = { .seed = 0 };
    lw_status status = lw_run_prompt_ids(run, &prompt, &d);
    if (status == LW_OK) status = run_load_engine(run, &d);
    if (status == LW_OK) status = lw_run_reply(run, &prompt, &reply, &d);
    int code = LW_EXIT_OK;
    if (status != LW_OK) code = lw_term_error("%s", d.text);
    else lw_run_report(run, &reply);
    const bool is_cut = status == LW_OK && reply.result.finish == LW_FINISH_STOPPED;
    if (is_cut && lw_interrupted()) code = LW_EXIT_INTERRUPTED;
    lw_reply_deinit(&reply);
    lw_ids_deinit(&prompt);
    return code;
}

static int run_turns(lw_run *run)
{
    lw_diag d;
    if (run->model.chat == NULL)
        return lw_term_error("%s has no chat template, which --chat needs; --raw sends text as it is",
                        lw_checkpoint_dir(run->model.checkpoint));
    if (run_load_engine(run, &d) != LW_OK) return lw_term_error("%s", d.text);
    return lw_run_chat(run);
}

int lw_verb_run(const lw_term *term, int argc, char **argv)
{
    lw_run run = { .term = *term, .load = { .wanted = 1 } };
    lw_option options[LW_OPTIONS_MAX];
    size_t option_count = prompt_options(&run, options);
    option_count += reply_options(&run, options + option_count);
    option_count += lw_load_options_table(&run.load, options + option_count);
    LW_ASSERT(option_count <= LW_OPTIONS_MAX);
    const lw_usage usage = {
        .verb = "run",
        .arguments = "MODEL",
        .arguments_min = 1,
        .arguments_max = 1,
        .summary = run_summary,
        .examples = run_examples,
        .options = options,
        .option_count = option_count,
    };
    lw_arguments arguments;
    int code;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    const char *text = conflict(&run);
    if (text != NULL) return lw_usage_error("run", "%s", text);

    lw_diag d;
    if (run_load_text(&run, arguments.values[0], &d) != LW_OK) code = lw_term_error("%s", d.text);
    else code = run.chat ? run_turns(&run) : run_once(&run);
    lw_loaded_close(&run.model);
    return code;
}

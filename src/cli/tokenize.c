/* `lanewise tokenize`: the ids of a text, as raw prompts make them. */
#include "cli/load.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenize {
    bool pieces, json, no_specials;
    lw_loaded model;
} tokenize;

static const char tokenize_summary[] =
    "Prints the token ids of TEXT, or of standard input. The tokenizer's post-processor is applied (a\n"
    "BOS where the model wants one) and special tokens are recognised, as for `lanewise run --raw`.";

static const char tokenize_examples[] = "  lanewise tokenize models/lfm3-mlx4 'Hello, world'\n"
                                        "  lanewise tokenize models/lfm3-mlx4 --pieces '<|im_start|>user'\n"
                                        "  lanewise tokenize models/lfm3-mlx4 --json <book.txt\n";

/* The bytes of id as a JSON string with its quotes; bytes that are no UTF-8 by themselves as \xNN. */
static lw_status piece_text(const tokenize *t, int32_t id, lw_buf *out)
{
    const lw_text bytes = lw_tokenizer_bytes(t->model.tokenizer, id);
    json_t *text = json_stringn(bytes.count > 0 ? bytes.bytes : "", bytes.count);
    char *quoted = text != NULL ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    lw_status status = LW_OK;
    if (quoted != NULL) {
        status = lw_buf_append_text(out, quoted);
    } else {
        for (size_t i = 0; i < bytes.count && status == LW_OK; i++) {
            status = lw_buf_printf(out, "\\x%02X", (unsigned char)bytes.bytes[i]);
        }
    }
    free(quoted);
    json_decref(text);
    return status;
}

static lw_status print_plain(const tokenize *t, const lw_ids *ids)
{
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_status status = LW_OK;
    for (size_t i = 0; i < ids->count && status == LW_OK; i++) {
        if (!t->pieces) {
            status = lw_buf_printf(&text, i == 0 ? "%d" : " %d", ids->ids[i]);
            continue;
        }
        status = lw_buf_printf(&text, "%8d  ", ids->ids[i]);
        if (status == LW_OK) status = piece_text(t, ids->ids[i], &text);
        if (status == LW_OK && i + 1 < ids->count) status = lw_buf_append_text(&text, "\n");
    }
    if (status == LW_OK) status = lw_buf_append_text(&text, "\n");
    if (status == LW_OK) lw_out_write(text.bytes, text.count);
    lw_buf_deinit(&text);
    return status;
}

static lw_status print_json(const tokenize *t, const lw_ids *ids)
{
    json_t *list = json_array(), *pieces = t->pieces ? json_array() : NULL;
    for (size_t i = 0; i < ids->count; i++) {
        json_array_append_new(list, json_integer(ids->ids[i]));
        if (pieces == NULL) continue;
        const lw_text bytes = lw_tokenizer_bytes(t->model.tokenizer, ids->ids[i]);
        json_t *text = json_stringn(bytes.count > 0 ? bytes.bytes : "", bytes.count);
        /* A part of a character has no text of its own. */
        json_array_append_new(pieces, text != NULL ? text : json_null());
    }
    json_t *object = json_pack("{s:o}", "ids", list);
    if (pieces != NULL) json_object_set_new(object, "pieces", pieces);
    lw_out_json(object);
    return LW_OK;
}

static lw_status tokenize_text(tokenize *t, const char *dir, const char *text, lw_diag *d)
{
    char *owned = NULL;
    size_t count = text != NULL ? strlen(text) : 0;
    lw_ids ids = { .ids = NULL };
    lw_status status = lw_load_checkpoint(&t->model, dir, d);
    if (status == LW_OK) status = lw_load_tokenizer(&t->model, d);
    if (status == LW_OK && text == NULL) {
        status = lw_read_all(STDIN_FILENO, "standard input", LW_LIMIT_PROMPT_BYTES, &owned, &count, d);
    }
    const lw_encode_options options = {
        .specials = t->no_specials ? LW_SPECIALS_NEVER : LW_SPECIALS_ALWAYS,
        .post_process = true,
    };
    const lw_text view = { .bytes = text != NULL ? text : owned, .count = count };
    if (status == LW_OK) {
        status = lw_tokenizer_encode(t->model.tokenizer, t->model.scratch, view, &options, &ids, d);
    }
    if (status == LW_OK) {
        status = t->json ? print_json(t, &ids) : print_plain(t, &ids);
        if (status != LW_OK) lw_fail(d, status, "no memory for the list of %zu ids", ids.count);
    }
    lw_ids_deinit(&ids);
    free(owned);
    return status;
}

int lw_verb_tokenize(const lw_term *term, int argc, char **argv)
{
    tokenize t = { .pieces = false };
    const lw_option options[] = {
        { .name = "pieces", .flag = &t.pieces, .help = "a table of ids and what each stands for" },
        { .name = "json", .flag = &t.json, .help = "one JSON object: ids, and with --pieces their texts" },
        { .name = "no-specials", .flag = &t.no_specials, .help = "special tokens match nowhere" },
    };
    const lw_usage usage = {
        .verb = "tokenize",
        .arguments = "MODEL [TEXT]",
        .arguments_min = 1,
        .arguments_max = 2,
        .summary = tokenize_summary,
        .examples = tokenize_examples,
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    if (arguments.count < 2 && term->in_is_terminal) {
        return lw_usage_error("tokenize", "no text: give TEXT, or text on standard input");
    }
    lw_diag d;
    const char *text = arguments.count == 2 ? arguments.values[1] : NULL;
    if (tokenize_text(&t, arguments.values[0], text, &d) != LW_OK) code = lw_term_error("%s", d.text);
    lw_loaded_close(&t.model);
    return code;
}

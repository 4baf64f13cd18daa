/* Runs a tokenizer over texts from stdin, for tests that compare it with another library.
 * tokenize_driver FILE encode always|trusted|never [post] [outside]   texts to lines of ids
 * tokenize_driver FILE decode show|skip                               lines of ids to texts
 * A text is a line with its byte count, then that many bytes. A line of ids has spaces between them; a text
 * that is refused gives a line "! reason". outside: every byte counts as outside data.
 */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *text)
{
    fprintf(stderr, "tokenize_driver: %s\n", text);
    exit(1);
}

/* Reads one text into buf; false at the end of stdin. */
static bool text_read(lw_buf *buf)
{
    size_t count;
    lw_buf_clear(buf);
    if (scanf("%zu", &count) != 1) return false;
    if (getchar() != '\n') die("a text begins with its byte count");
    if (lw_buf_reserve(buf, count + 1) != LW_OK) die("no memory");
    if (fread(buf->bytes, 1, count, stdin) != count) die("a text ends too early");
    buf->count = count;
    return true;
}

static void encode_all(const lw_tokenizer *tokenizer, const lw_encode_options *options, bool outside)
{
    lw_diag d;
    lw_token_scratch *scratch;
    if (lw_token_scratch_make(tokenizer, &scratch, &d) != LW_OK) die(d.text);
    lw_buf text, origins;
    lw_buf_init(&text, 0);
    lw_buf_init(&origins, 0);
    lw_ids ids = { .ids = NULL };
    while (text_read(&text)) {
        if (lw_buf_reserve(&origins, text.count) != LW_OK) die("no memory");
        memset(origins.bytes, LW_ORIGIN_OUTSIDE, text.count);
        const lw_text view = {
            .bytes = text.bytes,
            .count = text.count,
            .origins = outside ? (const uint8_t *)origins.bytes : NULL,
        };
        ids.count = 0;
        const lw_status status = lw_tokenizer_encode(tokenizer, scratch, view, options, &ids, &d);
        if (status != LW_OK) printf("! %s: %s", lw_status_name(status), d.text);
        for (size_t i = 0; i < ids.count; i++) printf(i == 0 ? "%d" : " %d", ids.ids[i]);
        putchar('\n');
    }
    lw_ids_deinit(&ids);
    lw_buf_deinit(&text);
    lw_buf_deinit(&origins);
    lw_token_scratch_free(scratch);
}

static void decode_all(const lw_tokenizer *tokenizer, bool show)
{
    char *line = NULL;
    size_t room = 0;
    lw_buf text;
    lw_buf_init(&text, 0);
    while (getline(&line, &room, stdin) >= 0) {
        lw_detokenizer detokenizer = { .show_specials = show };
        lw_buf_clear(&text);
        char *at = line, *end;
        for (long id = strtol(at, &end, 10); end != at; id = strtol(at, &end, 10)) {
            if (lw_detokenizer_push(&detokenizer, tokenizer, (int32_t)id, &text) != LW_OK) die("no memory");
            at = end;
        }
        if (lw_detokenizer_finish(&detokenizer, &text) != LW_OK) die("no memory");
        printf("%zu\n", text.count);
        fwrite(text.bytes, 1, text.count, stdout);
    }
    free(line);
    lw_buf_deinit(&text);
}

int main(int argc, char **argv)
{
    if (argc < 4) die("FILE encode always|trusted|never [post] [outside], or FILE decode show|skip");
    lw_diag d;
    lw_tokenizer *tokenizer;
    if (lw_tokenizer_open(argv[1], &tokenizer, &d) != LW_OK) die(d.text);
    if (strcmp(argv[2], "decode") == 0) {
        decode_all(tokenizer, strcmp(argv[3], "show") == 0);
    } else {
        lw_encode_options options = { .specials = LW_SPECIALS_NEVER };
        bool outside = false;
        if (strcmp(argv[3], "always") == 0) options.specials = LW_SPECIALS_ALWAYS;
        if (strcmp(argv[3], "trusted") == 0) options.specials = LW_SPECIALS_TRUSTED;
        for (int i = 4; i < argc; i++) {
            if (strcmp(argv[i], "post") == 0) options.post_process = true;
            if (strcmp(argv[i], "outside") == 0) outside = true;
        }
        encode_all(tokenizer, &options, outside);
    }
    lw_tokenizer_close(tokenizer);
    return 0;
}

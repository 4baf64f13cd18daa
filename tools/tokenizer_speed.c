/* Says how fast a tokenizer encodes a file on one thread: tokenizer_speed TOKENIZER.json TEXT [SECONDS]
 * The text is encoded whole and in pieces of 4 KiB, each by a scratch that has seen it and by a fresh one.
 */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void die(const char *text)
{
    fprintf(stderr, "tokenizer_speed: %s\n", text);
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void read_file(const char *path, lw_buf *buf)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) die("cannot open the text");
    for (size_t got = 1; got > 0; buf->count += got) {
        if (lw_buf_reserve(buf, 1 << 16) != LW_OK) die("no memory");
        got = fread(buf->bytes + buf->count, 1, 1 << 16, file);
    }
    fclose(file);
}

/* Encodes the text in pieces of piece_bytes, cut where a code point begins. */
static size_t encode_pieces(const lw_tokenizer *tokenizer, lw_token_scratch *scratch, const lw_buf *text,
                            size_t piece_bytes)
{
    const lw_encode_options options = { .specials = LW_SPECIALS_ALWAYS };
    lw_ids ids = { .ids = NULL };
    lw_diag d;
    size_t id_count = 0;
    for (size_t begin = 0, end; begin < text->count; begin = end) {
        end = text->count - begin > piece_bytes ? begin + piece_bytes : text->count;
        while (end < text->count && ((unsigned char)text->bytes[end] & 0xC0) == 0x80) end++;
        const lw_text piece = { .bytes = text->bytes + begin, .count = end - begin };
        ids.count = 0;
        if (lw_tokenizer_encode(tokenizer, scratch, piece, &options, &ids, &d) != LW_OK) die(d.text);
        id_count += ids.count;
    }
    lw_ids_deinit(&ids);
    return id_count;
}

static void measure(const lw_tokenizer *tokenizer, const lw_buf *text, size_t piece_bytes, bool fresh,
                    double wish)
{
    lw_diag d;
    lw_token_scratch *scratch = NULL;
    double best = 1e300, spent = 0;
    size_t id_count = 0;
    while (spent < wish) {
        if (fresh || scratch == NULL) {
            lw_token_scratch_free(scratch);
            if (lw_token_scratch_make(tokenizer, &scratch, &d) != LW_OK) die(d.text);
            if (!fresh) (void)encode_pieces(tokenizer, scratch, text, piece_bytes);
        }
        const double begin = seconds();
        id_count = encode_pieces(tokenizer, scratch, text, piece_bytes);
        const double took = seconds() - begin;
        best = took < best ? took : best;
        spent += took;
    }
    lw_token_scratch_free(scratch);
    printf("%-5s %8zu-byte pieces  %7.1f MB/s  %zu ids\n", fresh ? "fresh" : "warm",
           piece_bytes < text->count ? piece_bytes : text->count, (double)text->count / best / 1e6, id_count);
}

int main(int argc, char **argv)
{
    if (argc < 3) die("TOKENIZER.json TEXT [SECONDS]");
    const double wish = argc > 3 ? atof(argv[3]) : 1.0;
    lw_diag d;
    lw_tokenizer *tokenizer;
    const double begin = seconds();
    if (lw_tokenizer_open(argv[1], &tokenizer, &d) != LW_OK) die(d.text);
    printf("opened in %.2f s\n", seconds() - begin);
    lw_buf text;
    lw_buf_init(&text, 0);
    read_file(argv[2], &text);
    if (text.count == 0) die("the text is empty");
    for (int fresh = 1; fresh >= 0; fresh--) {
        measure(tokenizer, &text, text.count, fresh != 0, wish);
        measure(tokenizer, &text, 4096, fresh != 0, wish);
    }
    lw_buf_deinit(&text);
    lw_tokenizer_close(tokenizer);
    return 0;
}

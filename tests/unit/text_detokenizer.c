/* The incremental detokenizer against decoding at once, cut at every byte. */
#include "text_made.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct decode_case {
    const char *bytes;
    const char *text;
} decode_case;

/* Ill-formed parts as Unicode's table of maximal subparts has them. */
static const decode_case cases[] = {
    { "", "" },
    { "abc", "abc" },
    { "\u00e9\u6f22\U0001F600", "\u00e9\u6f22\U0001F600" },
    { "\xff", "\ufffd" },
    { "\x80\x80", "\ufffd\ufffd" },
    { "a\xc3", "a\ufffd" },
    { "\xc3" "b", "\ufffd" "b" },
    { "\xe2\x82", "\ufffd" },
    { "\xe2\x82" "x", "\ufffdx" },
    { "\xe2\xe2\x82\xac", "\ufffd\u20ac" },
    { "\xf0\x9f\x98", "\ufffd" },
    { "\xf0\x9f\x98\xf0\x9f\x98\x80", "\ufffd\U0001F600" },
    { "\xc0\xaf", "\ufffd\ufffd" },
    { "\xed\xa0\x80", "\ufffd\ufffd\ufffd" },
    { "\xe0\x80\x80", "\ufffd\ufffd\ufffd" },
    { "\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd" },
    { "\xf1\x80\x80\xe1\x80\xc2" "b", "\ufffd\ufffd\ufffd" "b" },
    { "\ufffd\uffff", "\ufffd\uffff" },
};

enum { FIRST_PAIR = 256, SPECIAL = 65000 };

/* Every byte is a token; tokens of several bytes are named by the cases' own pieces. */
static lw_tokenizer *tokenizer_make(lw_buf *vocab)
{
    lw_buf_init(vocab, 0);
    int id = FIRST_PAIR;
    for (unsigned a = 0x80; a < 0x100; a += 3) {
        for (unsigned b = 0x7E; b < 0x100; b++, id++) {
            char text[8];
            size_t count = lw__byte_char((uint8_t)a, text);
            count += lw__byte_char((uint8_t)b, text + count);
            assert_int_equal(lw_buf_printf(vocab, ",\"%.*s\":%d", (int)count, text, id), LW_OK);
        }
    }
    const made file = { .vocab = vocab->bytes,
                        .added = "{\"id\":65000,\"content\":\"<s>\",\"special\":true}" };
    lw_tokenizer *tokenizer;
    lw_diag d;
    if (made_open(&file, &tokenizer, &d) != LW_OK) fail_msg("%s", d.text);
    return tokenizer;
}

static void push(lw_detokenizer *detokenizer, const lw_tokenizer *tokenizer, int32_t id, lw_buf *out)
{
    const size_t before = out->count;
    assert_int_equal(lw_detokenizer_push(detokenizer, tokenizer, id, out), LW_OK);
    if (out->count > before) assert_true(lw__utf8_valid(out->bytes + before, out->count - before));
}

static void bytes_come_out_as_whole_code_points(void **state)
{
    (void)state;
    lw_buf vocab;
    lw_tokenizer *tokenizer = tokenizer_make(&vocab);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw_detokenizer detokenizer = { .pending_count = 0 };
        lw_buf out;
        lw_buf_init(&out, 0);
        for (const char *at = cases[i].bytes; *at != '\0'; at++)
            push(&detokenizer, tokenizer, (uint8_t)*at, &out);
        assert_int_equal(lw_detokenizer_finish(&detokenizer, &out), LW_OK);
        assert_int_equal(out.count, strlen(cases[i].text));
        assert_memory_equal(out.count == 0 ? "" : out.bytes, cases[i].text, out.count);
        lw_buf_deinit(&out);
    }
    lw_tokenizer_close(tokenizer);
    lw_buf_deinit(&vocab);
}

/* Whole decoding: repair of all bytes at once. */
static void decode_whole(const lw_tokenizer *tokenizer, const lw_ids *ids, lw__text_buf *out)
{
    lw_buf bytes;
    lw_buf_init(&bytes, 0);
    for (size_t i = 0; i < ids->count; i++) {
        const lw_text token = lw_tokenizer_bytes(tokenizer, ids->ids[i]);
        if (lw_tokenizer_is_special(tokenizer, ids->ids[i])) continue;
        assert_int_equal(lw_buf_append(&bytes, token.bytes, token.count), LW_OK);
    }
    assert_int_equal(lw__utf8_repair((lw_text){ .bytes = bytes.bytes, .count = bytes.count }, out), LW_OK);
    lw_buf_deinit(&bytes);
}

static void pieces_together_are_the_whole(void **state)
{
    (void)state;
    lw_buf vocab;
    lw_tokenizer *tokenizer = tokenizer_make(&vocab);
    lw_rng rng = lw_rng_make(11);
    lw__text_buf whole = { .bytes = { .count_max = 0 } };
    for (int round = 0; round < 3000; round++) {
        lw_ids ids = { .ids = NULL };
        lw_buf out;
        lw_buf_init(&out, 0);
        lw_detokenizer detokenizer = { .pending_count = 0 };
        for (uint64_t left = lw_rng_below(&rng, 12); left > 0; left--) {
            const uint64_t kind = lw_rng_below(&rng, 8);
            const int32_t id = kind == 0  ? SPECIAL
                               : kind < 4 ? (int32_t)lw_rng_below(&rng, 256)
                                          : (int32_t)(FIRST_PAIR + lw_rng_below(&rng, 5000));
            assert_int_equal(lw_ids_append(&ids, id), LW_OK);
            push(&detokenizer, tokenizer, id, &out);
        }
        assert_int_equal(lw_detokenizer_finish(&detokenizer, &out), LW_OK);
        assert_int_equal(detokenizer.pending_count, 0);
        decode_whole(tokenizer, &ids, &whole);
        assert_int_equal(out.count, whole.bytes.count);
        if (out.count > 0) assert_memory_equal(out.bytes, whole.bytes.bytes, out.count);
        lw_ids_deinit(&ids);
        lw_buf_deinit(&out);
    }
    lw__text_buf_deinit(&whole);
    lw_tokenizer_close(tokenizer);
    lw_buf_deinit(&vocab);
}

static void special_tokens_show_when_asked(void **state)
{
    (void)state;
    lw_buf vocab, out;
    lw_tokenizer *tokenizer = tokenizer_make(&vocab);
    lw_buf_init(&out, 0);
    lw_detokenizer hidden = { .pending_count = 0 }, shown = { .show_specials = true };
    push(&hidden, tokenizer, SPECIAL, &out);
    push(&hidden, tokenizer, 'a', &out);
    push(&hidden, tokenizer, -5, &out);
    push(&hidden, tokenizer, 1 << 30, &out);
    assert_string_equal(out.bytes, "a");
    push(&shown, tokenizer, SPECIAL, &out);
    push(&shown, tokenizer, 0xC3, &out);
    push(&shown, tokenizer, SPECIAL, &out);
    assert_string_equal(out.bytes, "a<s>\ufffd<s>");
    lw_buf_deinit(&out);
    lw_tokenizer_close(tokenizer);
    lw_buf_deinit(&vocab);
}

static void a_full_buffer_changes_nothing(void **state)
{
    (void)state;
    lw_buf vocab, out;
    lw_tokenizer *tokenizer = tokenizer_make(&vocab);
    lw_buf_init(&out, 4);
    lw_detokenizer detokenizer = { .show_specials = true };
    push(&detokenizer, tokenizer, 'a', &out);
    push(&detokenizer, tokenizer, 0xC3, &out);
    /* The unfinished code point and the special token need 6 bytes; 3 are left, so that the first part would
     * fit. */
    assert_int_equal(lw_detokenizer_push(&detokenizer, tokenizer, SPECIAL, &out), LW_NO_ROOM);
    assert_string_equal(out.bytes, "a");
    assert_int_equal(detokenizer.pending_count, 1);
    push(&detokenizer, tokenizer, 0xA9, &out);
    assert_string_equal(out.bytes, "a\u00e9");
    lw_buf_deinit(&out);
    lw_tokenizer_close(tokenizer);
    lw_buf_deinit(&vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_as_whole_code_points),
        cmocka_unit_test(pieces_together_are_the_whole),
        cmocka_unit_test(special_tokens_show_when_asked),
        cmocka_unit_test(a_full_buffer_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

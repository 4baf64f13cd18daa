/* Encoding with small made files: merges, added tokens and their flags, who may match a special token,
 * limits. */
#include "text_made.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct encode_case {
    made_text text;
    const char *ids; /* as made_show writes them */
} encode_case;

static void check_cases(const made *file, const encode_case *cases, size_t count)
{
    lw_tokenizer *tokenizer;
    lw_diag d = { .text = "" };
    if (made_open(file, &tokenizer, &d) != LW_OK) fail_msg("%s", d.text);
    for (size_t i = 0; i < count; i++) {
        lw_ids ids = { .ids = NULL };
        char shown[512];
        if (made_encode(tokenizer, &cases[i].text, &ids, &d) != LW_OK) fail_msg("case %zu: %s", i, d.text);
        made_show(&ids, shown, sizeof shown);
        if (strcmp(shown, cases[i].ids) != 0) fail_msg("case %zu: %s, not %s", i, shown, cases[i].ids);
        lw_ids_deinit(&ids);
    }
    lw_tokenizer_close(tokenizer);
}

#define CHECK_CASES(file, cases) check_cases(&(file), cases, sizeof(cases) / sizeof *(cases))

static void merges_go_by_rank_then_left(void **state)
{
    (void)state;
    const made file = {
        .vocab = ",\"ab\":256,\"bc\":257,\"aa\":258,\"abbc\":259",
        .merges = "[\"a\",\"b\"],\"b c\",\"a a\",\"ab bc\"",
    };
    const encode_case cases[] = {
        { { .text = "" }, "" },
        { { .text = "abc" }, "[256]c" },
        { { .text = "abbc" }, "[259]" },
        { { .text = "aaa" }, "[258]a" },
        { { .text = "aab" }, "a[256]" },
        { { .text = "xyz" }, "xyz" },
    };
    CHECK_CASES(file, cases);
}

static void ignore_merges_keeps_whole_words(void **state)
{
    (void)state;
    made file = { .vocab = ",\"ab\":256,\"abc\":257,\"\u0120a\":258",
                  .merges = "\"a b\"",
                  .model = ",\"ignore_merges\":true" };
    file.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}";
    const encode_case whole[] = { { { .text = "abc" }, "[257]" }, { { .text = "abcd a" }, "[256]cd[258]" } };
    CHECK_CASES(file, whole);
    file.model = NULL;
    const encode_case merged[] = { { { .text = "abc" }, "[256]c" }, { { .text = "x a" }, "x[32]a" } };
    CHECK_CASES(file, merged);
}

static void added_tokens_are_found_leftmost_then_longest(void **state)
{
    (void)state;
    const made file = {
        .added = "{\"id\":256,\"content\":\"<a>\"},{\"id\":257,\"content\":\"<a><b>\"},{\"id\":258,"
                 "\"content\":\"><\"}",
    };
    const encode_case cases[] = {
        { { .text = "x<a>y" }, "x[256]y" },
        { { .text = "<a><b>" }, "[257]" },
        { { .text = "<a><c>" }, "[256]<c>" },
        { { .text = "<b><a>" }, "<b[258]a>" },
        { { .text = "<<a" }, "<<a" },
    };
    CHECK_CASES(file, cases);
}

static void added_tokens_mind_words_and_white_space(void **state)
{
    (void)state;
    const made file = {
        .added = "{\"id\":256,\"content\":\"one\",\"single_word\":true},{\"id\":257,\"content\":\"<l>\","
                 "\"lstrip\":true},"
                 "{\"id\":258,\"content\":\"<r>\",\"rstrip\":true},{\"id\":259,\"content\":\" \"}",
    };
    const encode_case cases[] = {
        { { .text = "one" }, "[256]" },
        { { .text = "ones" }, "ones" },
        { { .text = "\u00e9one" }, "[195][169]one" },
        { { .text = "(one)" }, "([256])" },
        { { .text = "a\t <l>b" }, "a[9][259][257]b" },
        { { .text = "a\t\n<l>b" }, "a[257]b" },
        { { .text = "a<r>\t\u3000b" }, "a[258]b" },
        { { .text = "<r>\t<l>" }, "[258][257]" },
    };
    CHECK_CASES(file, cases);
}

static void normalized_tokens_match_normalised_text(void **state)
{
    (void)state;
    const made file = {
        .added =
            "{\"id\":256,\"content\":\"e\u0301\",\"normalized\":true},{\"id\":257,\"content\":\"o\u0308\"},"
            "{\"id\":252,\"content\":\"\u00fc\",\"normalized\":false}",
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}",
    };
    const encode_case cases[] = {
        { { .text = "\u00e9" }, "[256]" },
        { { .text = "e\u0301" }, "[256]" },
        { { .text = "\u00f6" }, "[195][182]" },        /* looked for as written, in raw text */
        { { .text = "o\u0308" }, "[257]" },
        { { .text = "\u00fcu\u0308" }, "[252][195][188]" },
    };
    CHECK_CASES(file, cases);
}

static void special_tokens_need_trusted_bytes(void **state)
{
    (void)state;
    const made file = {
        .added = "{\"id\":256,\"content\":\"<s>\",\"special\":true},{\"id\":257,\"content\":\"<t>\","
                 "\"special\":false},"
                 "{\"id\":258,\"content\":\"<s><t>\",\"special\":true}",
    };
    const encode_case cases[] = {
        { { "<s>", NULL, LW_SPECIALS_TRUSTED, false }, "[256]" },
        { { "<s>", "...", LW_SPECIALS_TRUSTED, false }, "[256]" },
        { { "<s>", "ooo", LW_SPECIALS_TRUSTED, false }, "<s>" },
        { { "<s>", "o..", LW_SPECIALS_TRUSTED, false }, "<s>" },
        { { "<s>", ".o.", LW_SPECIALS_TRUSTED, false }, "<s>" },
        { { "<s>", "..o", LW_SPECIALS_TRUSTED, false }, "<s>" },
        { { "<s>", "ooo", LW_SPECIALS_ALWAYS, false }, "[256]" },
        { { "<s>", "...", LW_SPECIALS_NEVER, false }, "<s>" },
        { { "<s>", NULL, LW_SPECIALS_NEVER, false }, "<s>" },
        { { "<t>", "ooo", LW_SPECIALS_TRUSTED, false }, "[257]" },
        { { "<t>", "ooo", LW_SPECIALS_NEVER, false }, "[257]" },
        /* A refused match leaves room for shorter and later ones. */
        { { "<s><t>", "......", LW_SPECIALS_TRUSTED, false }, "[258]" },
        { { "<s><t>", "....oo", LW_SPECIALS_TRUSTED, false }, "[256][257]" },
        { { "<s><t>", "oooooo", LW_SPECIALS_TRUSTED, false }, "<s>[257]" },
        { { "<s><t>", NULL, LW_SPECIALS_NEVER, false }, "<s>[257]" },
        { { "o<s>o<s>", "o...oooo", LW_SPECIALS_TRUSTED, false }, "o[256]o<s>" },
    };
    CHECK_CASES(file, cases);
}

static void origins_stay_in_step(void **state)
{
    (void)state;
    const made file = {
        .added = "{\"id\":256,\"content\":\"<s>\",\"special\":true,\"normalized\":true},"
                 "{\"id\":233,\"content\":\"\u00e9\",\"special\":true,\"normalized\":true}",
        .normalizer = "{\"type\":\"NFC\"}",
    };
    const encode_case cases[] = {
        { { "o\u0308<s>", "ooo...", LW_SPECIALS_TRUSTED, false },
          "[195][182][256]" }, /* three bytes become two */
        { { "o\u0308<s>", "...ooo", LW_SPECIALS_TRUSTED, false }, "[195][182]<s>" },
        { { "e\u0301", "...", LW_SPECIALS_TRUSTED, false }, "[233]" },
        { { "e\u0301", ".oo", LW_SPECIALS_TRUSTED, false }, "[195][169]" },
        { { "e\u0301", "o..", LW_SPECIALS_TRUSTED, false }, "[195][169]" },
        { { "<s>\u0316\u0300", "...oooo", LW_SPECIALS_TRUSTED, false }, "[256][204][150][204][128]" },
        { { "<s>\u0338", "...oo", LW_SPECIALS_TRUSTED, false }, "<s[226][137][175]" },
        { { "\xff<s>\xc3", "o...o", LW_SPECIALS_TRUSTED, false }, "[239][191][189][256][239][191][189]" },
        { { "\xff<s>", ".o..", LW_SPECIALS_TRUSTED, false }, "[239][191][189]<s>" },
    };
    CHECK_CASES(file, cases);
}

static void merging_reaches_no_special_token(void **state)
{
    (void)state;
    made file = {
        .vocab = ",\"ab\":256,\"abc\":257", .merges = "\"a b\",\"ab c\"",
        .added = "{\"id\":256,\"content\":\"ab\",\"special\":true}",
    };
    const encode_case merged[] = {
        { { "ab", NULL, LW_SPECIALS_TRUSTED, false }, "[256]" },
        { { "abab", "oooo", LW_SPECIALS_TRUSTED, false }, "abab" },
        { { "xab", NULL, LW_SPECIALS_NEVER, false }, "xab" },
        { { "abc", "ooo", LW_SPECIALS_TRUSTED, false }, "[257]" },
        { { "abc", "ooo", LW_SPECIALS_ALWAYS, false }, "[256]c" },
    };
    CHECK_CASES(file, merged);
    file.merges = NULL;
    file.model = ",\"ignore_merges\":true";
    const encode_case whole[] = {
        { { "ab", "oo", LW_SPECIALS_TRUSTED, false }, "ab" },
        { { "abc", "ooo", LW_SPECIALS_TRUSTED, false }, "[257]" },
    };
    CHECK_CASES(file, whole);
}

static void the_post_processor_puts_ids_around(void **state)
{
    (void)state;
    const made file = {
        .added = "{\"id\":256,\"content\":\"<s>\",\"special\":true},{\"id\":257,\"content\":\"</"
                 "s>\",\"special\":true}",
        .post_processor = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":"
                          "\"TemplateProcessing\",\"single\":["
                          "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},{"
                          "\"SpecialToken\":{\"id\":\"</s>\"}}],"
                          "\"special_tokens\":{\"<s>\":{\"ids\":[256]},\"</s>\":{\"ids\":[257,258]}}}]}",
        .vocab = ",\"zz\":258",
    };
    const encode_case cases[] = {
        { { "a", NULL, LW_SPECIALS_NEVER, true }, "[256]a[257][258]" },
        { { "", NULL, LW_SPECIALS_NEVER, true }, "[256][257][258]" },
        { { "a", NULL, LW_SPECIALS_NEVER, false }, "a" },
    };
    CHECK_CASES(file, cases);
}

static void ids_are_named(void **state)
{
    (void)state;
    const made file = {
        .vocab = ",\"\u0120a\":256,\"\uff5c\":258",
        .added = "{\"id\":260,\"content\":\"<\u00e9>\",\"special\":true}",
    };
    lw_tokenizer *tokenizer;
    assert_int_equal(made_open(&file, &tokenizer, NULL), LW_OK);
    assert_int_equal(lw_tokenizer_id_count(tokenizer), 261);
    assert_int_equal(lw_tokenizer_find(tokenizer, "\u0120a"), 256);
    assert_int_equal(lw_tokenizer_find(tokenizer, "<\u00e9>"), 260);
    assert_int_equal(lw_tokenizer_find(tokenizer, " a"), -1);
    const struct { int32_t id; const char *bytes;
    } bytes[] = {
        { 'a', "a" },        { 200, "\xC8" }, { 256, " a" }, { 257, "" },       { 258, "\uff5c" },
        { 260, "<\u00e9>" }, { 261, "" },     { -1, "" },    { INT32_MIN, "" },
    };
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        const lw_text text = lw_tokenizer_bytes(tokenizer, bytes[i].id);
        assert_int_equal(text.count, strlen(bytes[i].bytes));
        assert_memory_equal(text.bytes, bytes[i].bytes, text.count);
        assert_int_equal(lw_tokenizer_is_special(tokenizer, bytes[i].id), bytes[i].id == 260);
    }
    lw_tokenizer_close(tokenizer);
}

static void a_failed_encoding_leaves_ids_alone(void **state)
{
    (void)state;
    lw_tokenizer *tokenizer;
    lw_diag d;
    const made file = { .pre_tokenizer = MADE_STEPS(MADE_SPLIT("x|(?:a|aa)+[bc]", "Isolated")) };
    assert_int_equal(made_open(&file, &tokenizer, &d), LW_OK);
    lw_ids ids = { .ids = NULL };
    assert_int_equal(lw_ids_append(&ids, 7), LW_OK);
    const made_text text = { .text = "xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    assert_int_equal(made_encode(tokenizer, &text, &ids, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "Split 0"));
    assert_int_equal(ids.count, 1);
    const made_text sound = { .text = "xaaab" };
    assert_int_equal(made_encode(tokenizer, &sound, &ids, &d), LW_OK);
    assert_int_equal(ids.count, 6);
    lw_ids_deinit(&ids);
    lw_tokenizer_close(tokenizer);
}

/* Encodes count times "a" as one word. */
static lw_status encode_long(const lw_tokenizer *tokenizer, lw_token_scratch *scratch, size_t count,
                             lw_diag *d)
{
    char *bytes = malloc(count);
    assert_non_null(bytes);
    memset(bytes, 'a', count);
    lw_ids ids = { .ids = NULL };
    const lw_text text = { .bytes = bytes, .count = count };
    const lw_encode_options options = { .specials = LW_SPECIALS_TRUSTED };
    const lw_status status = lw_tokenizer_encode(tokenizer, scratch, text, &options, &ids, d);
    if (status == LW_OK) assert_int_equal(ids.count, count);
    lw_ids_deinit(&ids);
    free(bytes);
    return status;
}

static void texts_and_words_have_limits(void **state)
{
    (void)state;
    lw_tokenizer *tokenizer;
    lw_token_scratch *scratch;
    lw_diag d;
    const made file = { .vocab = NULL };
    assert_int_equal(made_open(&file, &tokenizer, &d), LW_OK);
    assert_int_equal(lw_token_scratch_make(tokenizer, &scratch, &d), LW_OK);
    assert_int_equal(encode_long(tokenizer, scratch, LW_LIMIT_WORD_BYTES, &d), LW_OK);
    assert_int_equal(encode_long(tokenizer, scratch, LW_LIMIT_WORD_BYTES + 1, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "word"));
    assert_int_equal(encode_long(tokenizer, scratch, LW_LIMIT_PROMPT_BYTES + 1, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "text"));
    lw_token_scratch_free(scratch);
    lw_tokenizer_close(tokenizer);
}

static void a_byte_without_a_token_is_refused(void **state)
{
    (void)state;
    static const char json[] = "{\"pre_tokenizer\":" MADE_BYTES ",\"decoder\":{\"type\":\"ByteLevel\"},"
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    lw_tokenizer *tokenizer;
    lw_diag d;
    lw_ids ids = { .ids = NULL };
    assert_int_equal(lw_tokenizer_parse(json, sizeof json - 1, "made", &tokenizer, &d), LW_OK);
    assert_int_equal(made_encode(tokenizer, &(made_text){ .text = "aa" }, &ids, &d), LW_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(made_encode(tokenizer, &(made_text){ .text = "ab" }, &ids, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "0x62"));
    lw_ids_deinit(&ids);
    lw_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_left),
        cmocka_unit_test(ignore_merges_keeps_whole_words),
        cmocka_unit_test(added_tokens_are_found_leftmost_then_longest),
        cmocka_unit_test(added_tokens_mind_words_and_white_space),
        cmocka_unit_test(normalized_tokens_match_normalised_text),
        cmocka_unit_test(special_tokens_need_trusted_bytes),
        cmocka_unit_test(origins_stay_in_step),
        cmocka_unit_test(merging_reaches_no_special_token),
        cmocka_unit_test(the_post_processor_puts_ids_around),
        cmocka_unit_test(ids_are_named),
        cmocka_unit_test(a_failed_encoding_leaves_ids_alone),
        cmocka_unit_test(texts_and_words_have_limits),
        cmocka_unit_test(a_byte_without_a_token_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

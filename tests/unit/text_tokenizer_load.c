/* What a tokenizer file may not say: each form that is refused, by its status and by the name in its text. */
#include "text_made.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct refusal {
    made file;
    lw_status status;
    const char *name; /* stands in the text */
} refusal;

#define ADDED(text) .added = text
#define STEP(text) .pre_tokenizer = text
#define TEMPLATE(pieces, specials) .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[" pieces \
    "],\"special_tokens\":{" specials "}}"
#define A "{\"Sequence\":{\"id\":\"A\"}}"

static const refusal refusals[] = {
    { { .model_type = "WordPiece" }, LW_UNSUPPORTED, "WordPiece" },
    { { .model_type = "Unigram" }, LW_UNSUPPORTED, "Unigram" },
    { { .model = ",\"dropout\":0.1" }, LW_UNSUPPORTED, "dropout" },
    { { .model = ",\"byte_fallback\":true" }, LW_UNSUPPORTED, "byte_fallback" },
    { { .model = ",\"continuing_subword_prefix\":\"##\"" }, LW_UNSUPPORTED, "continuing_subword_prefix" },
    { { .model = ",\"end_of_word_suffix\":\"</w>\"" }, LW_UNSUPPORTED, "end_of_word_suffix" },
    { { .vocab = ",\"ab\":-1" }, LW_BAD_MODEL, "'ab'" },
    { { .vocab = ",\"ab\":2097152" }, LW_BAD_MODEL, "'ab'" },
    { { .vocab = ",\"ab\":1.5" }, LW_BAD_MODEL, "'ab'" },
    { { .vocab = ",\"ab\":97" }, LW_BAD_MODEL, "id 97" },
    { { .vocab = ",\"a\":256" }, LW_BAD_MODEL, "duplicate" },
    { { .merges = "\"a b\"" }, LW_BAD_MODEL, "'ab'" },
    { { .merges = "[\"a\",\"bc\"]", .vocab = ",\"abc\":256" }, LW_BAD_MODEL, "'bc'" },
    { { .merges = "[\"xx\",\"b\"]", .vocab = ",\"abc\":256" }, LW_BAD_MODEL, "'xx'" },
    { { .merges = "\"ab\"" }, LW_BAD_MODEL, "merge 0" },
    { { .merges = "\"a b c\"" }, LW_BAD_MODEL, "merge 0" },
    { { .merges = "[\"a\"]" }, LW_BAD_MODEL, "merge 0" },
    { { .merges = "7" }, LW_BAD_MODEL, "merge 0" },
    { { ADDED("{\"id\":256}") }, LW_BAD_MODEL, "content" },
    { { ADDED("{\"id\":-3,\"content\":\"x1\"}") }, LW_BAD_MODEL, "'x1'" },
    { { ADDED("{\"id\":97,\"content\":\"x1\"}") }, LW_BAD_MODEL, "id 97" },
    { { ADDED("{\"id\":256,\"content\":\"a\"}") }, LW_BAD_MODEL, "'a'" },
    { { ADDED("{\"id\":256,\"content\":\"x1\"},{\"id\":256,\"content\":\"x1\"}") }, LW_BAD_MODEL, "twice" },
    { { .normalizer = "{\"type\":\"NFKC\"}" }, LW_UNSUPPORTED, "NFKC" },
    { { .normalizer =
            "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}" },
      LW_UNSUPPORTED,
      "Lowercase" },
    { { .normalizer = "{\"type\":\"Sequence\"}" }, LW_BAD_MODEL, "normalizers" },
    { { .normalizer = "3" }, LW_UNSUPPORTED, "normalizer" },
    { { STEP("null") }, LW_UNSUPPORTED, "pre_tokenizer" },
    { { STEP("{\"type\":\"Metaspace\"}") }, LW_UNSUPPORTED, "Metaspace" },
    { { STEP("{\"type\":\"Sequence\",\"pretokenizers\":[]}") }, LW_UNSUPPORTED, "ByteLevel" },
    { { STEP(MADE_SPLIT("a", "Isolated")) }, LW_UNSUPPORTED, "ByteLevel" },
    { { STEP("{\"type\":\"Sequence\",\"pretokenizers\":[" MADE_BYTES "," MADE_SPLIT("a", "Isolated") "]}") },
      LW_UNSUPPORTED,
      "Split" },
    { { STEP("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}") }, LW_UNSUPPORTED, "add_prefix_space" },
    { { STEP(MADE_STEPS(MADE_SPLIT("a", "Sideways"))) }, LW_UNSUPPORTED, "Sideways" },
    { { STEP(MADE_STEPS(MADE_SPLIT("", "Isolated"))) }, LW_UNSUPPORTED, "empty pattern" },
    { { STEP(MADE_STEPS(MADE_SPLIT("(a", "Isolated"))) }, LW_UNSUPPORTED, "'(a'" },
    { { STEP(MADE_STEPS(MADE_SPLIT("\\\\p{Nonesuch}", "Isolated"))) }, LW_UNSUPPORTED, "Nonesuch" },
    { { STEP(MADE_STEPS("{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}")) },
      LW_BAD_MODEL,
      "Split" },
    { { .post_processor = "{\"type\":\"BertProcessing\"}" }, LW_UNSUPPORTED, "BertProcessing" },
    { { TEMPLATE("", "") }, LW_UNSUPPORTED, "Sequence A" },
    { { TEMPLATE(A "," A, "") }, LW_UNSUPPORTED, "Sequence A" },
    { { TEMPLATE("{\"Sequence\":{\"id\":\"B\"}}", "") }, LW_BAD_MODEL, "Sequence A" },
    { { TEMPLATE("{\"SpecialToken\":{\"id\":\"<s>\"}}," A, "") }, LW_BAD_MODEL, "<s>" },
    { { TEMPLATE("{\"SpecialToken\":{\"id\":\"<s>\"}}," A, "\"<s>\":{\"ids\":[256]}") },
      LW_BAD_MODEL,
      "<s>" },
    { { .decoder = "null" }, LW_UNSUPPORTED, "decoder 'null'" },
    { { .decoder = "{\"type\":\"ByteFallback\"}" }, LW_UNSUPPORTED, "ByteFallback" },
};

static void each_refused_form_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        lw_tokenizer *tokenizer;
        lw_diag d = { .text = "" };
        const lw_status status = made_open(&refusals[i].file, &tokenizer, &d);
        if (status != refusals[i].status || strstr(d.text, refusals[i].name) == NULL) {
            fail_msg("case %zu: %s: %s", i, lw_status_name(status), d.text);
        }
        assert_null(tokenizer);
        assert_non_null(strstr(d.text, "made.json"));
        assert_int_equal(made_open(&refusals[i].file, &tokenizer, NULL), refusals[i].status);
    }
}

static const made accepted[] = {
    { .vocab = NULL },
    { .vocab = ",\"ab\":2097151" },
    { .model = ",\"dropout\":null,\"unk_token\":\"a\",\"fuse_unk\":false,\"end_of_word_suffix\":\"\",\"byte_"
               "fallback\":false" },
    { .model = ",\"dropout\":0.0" },
    { .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}" },
    { .post_processor = "{\"type\":\"Sequence\",\"processors\":[]}" },
    { .post_processor = "{\"type\":\"ByteLevel\"}" },
    { .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}" },
    { .added = "{\"id\":97,\"content\":\"a\"}" },
    { .added = "{\"id\":300,\"content\":\"\"}" },
};

static void plain_forms_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        lw_tokenizer *tokenizer;
        lw_diag d;
        if (made_open(&accepted[i], &tokenizer, &d) != LW_OK) fail_msg("case %zu: %s", i, d.text);
        lw_tokenizer_close(tokenizer);
    }
}

static void a_file_that_is_no_object_is_bad(void **state)
{
    (void)state;
    const char *const files[] = { "",
                                  "{",
                                  "[]",
                                  "{}",
                                  "null",
                                  "{\"model\":3}",
                                  "\xff",
                                  "{\"model\":{\"type\":\"BPE\"}}",
                                  "{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}",
                                  "{\"added_tokens\":3,\"model\":{}}" };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        lw_tokenizer *tokenizer;
        lw_diag d = { .text = "" };
        const lw_status status = lw_tokenizer_parse(files[i], strlen(files[i]), "bad.json", &tokenizer, &d);
        assert_true(status == LW_BAD_MODEL || status == LW_UNSUPPORTED);
        assert_null(tokenizer);
        assert_memory_equal(d.text, "bad.json", 8);
    }
}

/* Opens file with text repeated count times between begin and end, in the place that set fills. */
static lw_status open_repeated(const char *begin, const char *unit, size_t count, const char *end,
                               void (*set)(made *, const char *))
{
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_status status = lw_buf_append_text(&text, begin);
    for (size_t i = 0; i < count && status == LW_OK; i++) status = lw_buf_append_text(&text, unit);
    if (status == LW_OK) status = lw_buf_append_text(&text, end);
    assert_int_equal(status, LW_OK);
    made file = { .vocab = NULL };
    set(&file, text.bytes);
    lw_tokenizer *tokenizer;
    status = made_open(&file, &tokenizer, NULL);
    lw_tokenizer_close(tokenizer);
    lw_buf_deinit(&text);
    return status;
}

static void set_vocab(made *file, const char *text) { file->vocab = text; }
static void set_added(made *file, const char *text) { file->added = text; }
static void set_steps(made *file, const char *text) { file->pre_tokenizer = text; }
static void set_post(made *file, const char *text) { file->post_processor = text; }

static void limits_are_met_exactly(void **state)
{
    (void)state;
    const char *const vocab = ",\"", *const vocab_end = "\":256";
    assert_int_equal(open_repeated(vocab, "x", LW_LIMIT_TOKEN_BYTES, vocab_end, set_vocab), LW_OK);
    assert_int_equal(open_repeated(vocab, "x", LW_LIMIT_TOKEN_BYTES + 1, vocab_end, set_vocab), LW_NO_ROOM);
    const char *const added = "{\"id\":256,\"content\":\"", *const added_end = "\"}";
    assert_int_equal(open_repeated(added, "x", LW_LIMIT_ADDED_BYTES, added_end, set_added), LW_OK);
    assert_int_equal(open_repeated(added, "x", LW_LIMIT_ADDED_BYTES + 1, added_end, set_added), LW_NO_ROOM);
    const char *const steps = "{\"type\":\"Sequence\",\"pretokenizers\":[", *const steps_end =
                                                                                MADE_BYTES "]}";
    const char *const step = MADE_SPLIT("a", "Isolated") ",";
    assert_int_equal(open_repeated(steps, step, LW_LIMIT_SPLIT_STEPS, steps_end, set_steps), LW_OK);
    assert_int_equal(open_repeated(steps, step, LW_LIMIT_SPLIT_STEPS + 1, steps_end, set_steps), LW_NO_ROOM);
    const char *const post =
        "{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"s\":{\"ids\":[97]}},\"single\":[";
    const char *const special = "{\"SpecialToken\":{\"id\":\"s\"}},";
    assert_int_equal(open_repeated(post, special, LW_LIMIT_AROUND_IDS, A "]}", set_post), LW_OK);
    assert_int_equal(open_repeated(post, special, LW_LIMIT_AROUND_IDS + 1, A "]}", set_post), LW_NO_ROOM);
    const char *const split =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"";
    const char *const split_end = "\"},\"behavior\":\"Isolated\"}," MADE_BYTES "]}";
    assert_int_equal(open_repeated(split, "ab|c", 1000, split_end, set_steps), LW_OK);
    assert_int_equal(open_repeated(split, "a", LW_LIMIT_PATTERN_BYTES + 1, split_end, set_steps), LW_NO_ROOM);
}

static void a_git_lfs_pointer_is_named(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    lw_tokenizer *tokenizer;
    lw_diag d;
    assert_int_not_equal(lw_tokenizer_parse(pointer, strlen(pointer), "t.json", &tokenizer, &d), LW_OK);
    assert_non_null(strstr(d.text, "t.json"));
    assert_non_null(strstr(d.text, "lfs"));
}

static void a_file_is_opened_by_its_path(void **state)
{
    (void)state;
    char path[] = "/tmp/lanewise_tokenizer_XXXXXX";
    lw_tokenizer *tokenizer;
    lw_diag d;
    lw_buf json;
    made_json(&(made){ .vocab = ",\"ab\":256" }, &json);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, json.bytes, json.count), (ssize_t)json.count);
    close(fd);
    lw_buf_deinit(&json);
    assert_int_equal(lw_tokenizer_open(path, &tokenizer, &d), LW_OK);
    assert_int_equal(lw_tokenizer_find(tokenizer, "ab"), 256);
    lw_tokenizer_close(tokenizer);
    unlink(path);
    assert_int_equal(lw_tokenizer_open(path, &tokenizer, &d), LW_NOT_FOUND);
    assert_null(tokenizer);
    assert_non_null(strstr(d.text, path));
    assert_int_equal(lw_tokenizer_open("/tmp", &tokenizer, &d), LW_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_refused_form_is_named),
        cmocka_unit_test(plain_forms_are_taken),
        cmocka_unit_test(a_file_that_is_no_object_is_bad),
        cmocka_unit_test(limits_are_met_exactly),
        cmocka_unit_test(a_git_lfs_pointer_is_named),
        cmocka_unit_test(a_file_is_opened_by_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

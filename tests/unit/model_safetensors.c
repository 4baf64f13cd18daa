/* Crafted safetensors headers: what is well formed opens, and every lie is refused by name. */
#include "model/checkpoint.h"

#include "model_files.h"

typedef struct bad_case {
    const char *header;
    size_t data_bytes;
    const char *named; /* must stand in the text */
} bad_case;

static lw_status parse(const char *header, size_t data_bytes, lw_diag *d)
{
    size_t count;
    lw_safetensors *file;
    uint8_t *bytes = safetensors_make(header, data_bytes, &count);
    const lw_status status = lw_safetensors_parse(bytes, count, "crafted", &file, d);
    if (status != LW_OK) assert_null(file);
    lw_safetensors_close(file);
    free(bytes);
    return status;
}

static void good_file_opens(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"quantization\":\"{\\\"bits\\\":4}\"},\n"
        " \"b.weight\" : {\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},\n"
        " \"a\\u00e9\\ud83d\\ude00\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\"},"
        "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[6,6]}}   ";
    size_t count;
    lw_safetensors *file;
    lw_diag d;
    uint8_t *bytes = safetensors_make(header, 20, &count);
    assert_int_equal(lw_safetensors_parse(bytes, count, "crafted", &file, &d), LW_OK);
    assert_int_equal(lw_safetensors_count(file), 3);
    assert_string_equal(lw_safetensors_tensor(file, 0)->name, "a\xc3\xa9\xf0\x9f\x98\x80");
    const lw_tensor *b = lw_safetensors_find(file, "b.weight");
    assert_non_null(b);
    assert_int_equal(b->dtype, LW_DTYPE_BF16);
    assert_int_equal(b->dim_count, 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->byte_count, 12);
    assert_int_equal(b->bytes[0], 4);
    assert_int_equal(lw_safetensors_find(file, "empty")->byte_count, 0);
    assert_null(lw_safetensors_find(file, "b"));
    assert_string_equal(lw_safetensors_metadata(file, "quantization"), "{\"bits\":4}");
    assert_null(lw_safetensors_metadata(file, "absent"));
    lw_safetensors_close(file);
    free(bytes);
}

#define TENSOR(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void lies_are_refused(void **state)
{
    (void)state;
    static const bad_case cases[] = {
        { "{" TENSOR("t", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "[4294967296, 4294967296]" },
        { "{" TENSOR("t", "F64", "[2305843009213693952]", 0, 0) "}", 0, "more bytes than any file" },
        { "{" TENSOR("t", "U8", "[18446744073709551616]", 0, 0) "}", 0, "64 bits" },
        { "{" TENSOR("t", "F32", "[1]", 8, 4) "}", 8, "end at 4, before they begin at 8" },
        { "{" TENSOR("t", "F32", "[2]", 0, 4) "}", 8, "needs 8 bytes, but data_offsets span 4" },
        { "{" TENSOR("t", "F32", "[0,9]", 0, 4) "}", 8, "needs 0 bytes" },
        { "{" TENSOR("s", "F32", "[2]", 0, 8) "," TENSOR("t", "F32", "[2]", 4, 12) "}", 12,
          "\"s\" and \"t\" overlap" },
        { "{" TENSOR("s", "U8", "[9]", 0, 9) "," TENSOR("r", "U8", "[1]", 1, 2) "}", 12,
          "\"s\" and \"r\" overlap" },
        { "{" TENSOR("s", "U8", "[9]", 0, 9) "," TENSOR("r", "U8", "[0]", 1, 1) ","
          TENSOR("t", "U8", "[2]", 8, 10) "}", 12, "\"s\" and \"t\" overlap" },
        { "{" TENSOR("t", "F32", "[1]", 0, 4) "," TENSOR("t", "F32", "[1]", 4, 8) "}", 8,
          "duplicate key \"t\"" },
        { "{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
          "duplicate key \"dtype\"" },
        { "{" TENSOR("t", "F7", "[1]", 0, 4) "}", 4, "dtype \"F7\"" },
        { "{" TENSOR("t", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 4, "longer than any served" },
        { "{" TENSOR("t", "U8", "[-1]", 0, 1) "}", 4, "not negative" },
        { "{" TENSOR("t", "U8", "[1.0]", 0, 1) "}", 4, "does not end" },
        { "{" TENSOR("t", "U8", "[01]", 0, 1) "}", 4, "begins with 0" },
        { "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "not two numbers" },
        { "{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "must all be there" },
        { "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
          "\"x\" is not a field" },
        { "{\"t\":5}", 1, "an object is expected" },
        { "{\"__metadata__\":{\"a\":1}}", 1, "not a string" },
        { "{\"__metadata__\":[]}", 1, "not an object of strings" },
        { "{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 1, "duplicate key \"a\"" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 1, "duplicate key \"__metadata__\"" },
        { "[]", 1, "not a JSON object" },
        { "{} x", 1, "text follows" },
        { "{\"t", 1, "inside a string" },
        { "{\"\\ud800\":1}", 1, "wrong escape" },
        { "{\"\\u0000\":1}", 1, "wrong escape" },
        { "{\"\xff\":1}", 1, "not text" },
        { "{" TENSOR("t", "U8", "[1]", 0, 1) ",}", 1, "string is expected" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw_diag d = { .text = "" };
        assert_int_equal(parse(cases[i].header, cases[i].data_bytes, &d), LW_BAD_MODEL);
        assert_names(d.text, "crafted", cases[i].named);
    }
}

static void limits_hold(void **state)
{
    (void)state;
    char header[LW_LIMIT_NAME_BYTES + 128], name[LW_LIMIT_NAME_BYTES + 1];
    for (int over = 0; over < 2; over++) {
        memset(name, 'n', sizeof name);
        name[LW_LIMIT_NAME_BYTES - 1 + over] = '\0';
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 name);
        lw_diag d;
        assert_int_equal(parse(header, 1, &d), over ? LW_BAD_MODEL : LW_OK);
    }
    assert_int_equal(parse("{" TENSOR("t", "U8", "[1,1,1,1,1,1,1,1]", 0, 1) "}", 1, NULL), LW_OK);
}

static void header_length_is_checked(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { UINT64_MAX, (uint64_t)INT64_MAX, LW_LIMIT_HEADER_BYTES + 1u, 3 };
    static const char *const named[] = { "18446744073709551615", "limit", "limit", "10 bytes are there" };
    for (size_t i = 0; i < 4; i++) {
        uint8_t bytes[10] = { 0 };
        lw_safetensors *file;
        lw_diag d;
        memcpy(bytes, &lengths[i], 8);
        assert_int_equal(lw_safetensors_parse(bytes, sizeof bytes, "crafted", &file, &d), LW_BAD_MODEL);
        assert_names(d.text, named[i]);
    }
}

/* Every cut of a good file is refused, and says how much is there. */
static void half_downloads_are_named(void **state)
{
    (void)state;
    size_t count;
    lw_safetensors *file;
    lw_diag d;
    uint8_t *bytes = safetensors_make("{" TENSOR("t", "F32", "[4]", 0, 16) "}", 16, &count);
    for (size_t cut = 0; cut < count; cut++) {
        uint8_t *part = malloc(cut + 1); /* its own block, so that a read past the cut shows */
        char there[64];
        assert_non_null(part);
        memcpy(part, bytes, cut);
        uint8_t *exact = realloc(part, cut > 0 ? cut : 1);
        assert_non_null(exact);
        assert_int_equal(lw_safetensors_parse(exact, cut, "half", &file, &d), LW_BAD_MODEL);
        snprintf(there, sizeof there, "%zu bytes are there", cut);
        assert_names(d.text, cut == 0 ? "empty" : there);
        free(exact);
    }
    char expected[64];
    snprintf(expected, sizeof expected, "%zu are expected", count);
    assert_int_equal(lw_safetensors_parse(bytes, count - 1, "half", &file, &d), LW_BAD_MODEL);
    assert_names(d.text, "\"t\"", expected);
    assert_int_equal(lw_safetensors_parse(bytes, count, "whole", &file, &d), LW_OK);
    lw_safetensors_close(file);
    free(bytes);
}

static void lfs_pointer_is_named(void **state)
{
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00ff\nsize 14744360\n";
    lw_safetensors *file;
    lw_diag d;
    assert_int_equal(lw_safetensors_parse((const uint8_t *)text, sizeof text - 1, "m", &file, &d),
                     LW_BAD_MODEL);
    assert_names(d.text, "git-lfs pointer", "14744360 are expected", "git lfs pull");
}

static void files_are_mapped(void **state)
{
    (void)state;
    const folder f = folder_make();
    char path[512];
    lw_safetensors *file;
    lw_diag d;
    safetensors_write(&f, "a.safetensors", "{" TENSOR("t", "U8", "[3]", 1, 4) "}", 4);
    snprintf(path, sizeof path, "%s/a.safetensors", f.path);
    assert_int_equal(lw_safetensors_open(path, &file, &d), LW_OK);
    assert_int_equal(lw_safetensors_find(file, "t")->bytes[2], 3);
    lw_safetensors_close(file);
    assert_int_equal(lw_safetensors_open(f.path, &file, &d), LW_BAD_MODEL);
    snprintf(path, sizeof path, "%s/none", f.path);
    assert_int_equal(lw_safetensors_open(path, &file, &d), LW_NOT_FOUND);
    assert_names(d.text, path);
    folder_free(&f);
}

static void every_dtype_has_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < LW_DTYPE_COUNT; i++) {
        lw_dtype found = LW_DTYPE_COUNT;
        assert_non_null(lw_dtype_name((lw_dtype)i));
        assert_true(lw_dtype_bytes((lw_dtype)i) > 0);
        assert_true(lw_dtype_find(lw_dtype_name((lw_dtype)i), &found));
        assert_int_equal(found, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file_opens),         cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(limits_hold),             cmocka_unit_test(header_length_is_checked),
        cmocka_unit_test(half_downloads_are_named), cmocka_unit_test(lfs_pointer_is_named),
        cmocka_unit_test(files_are_mapped),        cmocka_unit_test(every_dtype_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

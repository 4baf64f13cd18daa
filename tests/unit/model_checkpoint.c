/* Model folders: which files count, how the index is held against the shards, and what each wrong folder
 * says. */
#include "model/checkpoint.h"

#include "model_files.h"

#include <sys/stat.h>

#define T4(name, begin, end) \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

static lw_status open_folder(const folder *f, lw_checkpoint **c, lw_diag *d)
{
    d->text[0] = '\0';
    return lw_checkpoint_open(f->path, c, d);
}

/* The folder must be refused with a text that holds every part. */
#define assert_refused(f, wanted, ...) \
    do { \
        lw_checkpoint *refused_; \
        lw_diag diag_; \
        assert_int_equal(open_folder(f, &refused_, &diag_), wanted); \
        assert_null(refused_); \
        assert_names(diag_.text, __VA_ARGS__); \
    } while (0)

static folder two_shards(const char *index)
{
    const folder f = folder_make();
    text_write(&f, "config.json", "{\"model_type\":\"x\"}");
    safetensors_write(&f, "one.safetensors", "{" T4("m.weight", 0, 4) "}", 4);
    safetensors_write(&f, "two.safetensors", "{" T4("m.scales", 0, 4) "," T4("m.biases", 4, 8) "}", 8);
    if (index != NULL) text_write(&f, "model.safetensors.index.json", index);
    return f;
}

static void parts_lie_in_different_shards(void **state)
{
    (void)state;
    const folder f = two_shards("{\"weight_map\":{\"m.weight\":\"one.safetensors\","
                                "\"m.scales\":\"two.safetensors\",\"m.biases\":\"two.safetensors\"}}");
    lw_checkpoint *c;
    lw_diag d;
    assert_int_equal(open_folder(&f, &c, &d), LW_OK);
    assert_int_equal(lw_checkpoint_tensor_count(c), 3);
    assert_int_equal(lw_checkpoint_bytes(c), 12);
    assert_string_equal(lw_checkpoint_tensor(c, 0)->name, "m.biases");
    assert_non_null(strstr(lw_checkpoint_find(c, "m.weight")->file, "one.safetensors"));
    assert_non_null(strstr(lw_checkpoint_find(c, "m.scales")->file, "two.safetensors"));
    assert_null(lw_checkpoint_find(c, "m"));
    assert_string_equal(lw_checkpoint_dir(c), f.path);
    assert_non_null(lw_config_get(lw_checkpoint_config(c), "model_type"));
    assert_null(lw_config_get(lw_checkpoint_generation(c), "eos_token_id"));
    assert_int_equal(lw_checkpoint_find(c, "m.biases")->bytes[3], 7);
    lw_checkpoint_close(c);
    folder_free(&f);
}

/* Hints leave the bytes as they are, the tensor's own and those of neighbours on its pages. */
static void hints_change_nothing(void **state)
{
    (void)state;
    const folder f = folder_make();
    lw_checkpoint *c;
    lw_diag d;
    text_write(&f, "config.json", "{}");
    safetensors_write(&f, "model.safetensors",
                      "{\"a\":{\"dtype\":\"U8\",\"shape\":[40000],\"data_offsets\":[3,40003]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[40003,40012]}}", 40012);
    assert_int_equal(open_folder(&f, &c, &d), LW_OK);
    const lw_tensor *a = lw_checkpoint_find(c, "a"), *b = lw_checkpoint_find(c, "b");
    lw_checkpoint_prefetch(c, a);
    lw_checkpoint_release(c, a);
    lw_checkpoint_release(c, b);
    for (size_t i = 0; i < 40000; i++) assert_int_equal(a->bytes[i], (uint8_t)(i + 3));
    for (size_t i = 0; i < 9; i++) assert_int_equal(b->bytes[i], (uint8_t)(i + 40003));
    lw_checkpoint_close(c);
    folder_free(&f);
}

static void wrong_indexes_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "{\"weight_map\":{\"m.weight\":\"three.safetensors\"}}", "three.safetensors", "m.weight" },
        { "{\"weight_map\":{\"m.scales\":\"one.safetensors\"}}", "one.safetensors", "m.scales" },
        { "{\"weight_map\":{\"m.weight\":\"../one.safetensors\"}}", "../one.safetensors", "m.weight" },
        { "{\"weight_map\":{\"m.weight\":\"/etc/passwd\"}}", "/etc/passwd", "m.weight" },
        { "{\"weight_map\":{\"m.weight\":\"\"}}", "plain name", "m.weight" },
        { "{\"weight_map\":{\"m.weight\":7}}", "not a string", "m.weight" },
        { "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}}", "duplicate",
          "index.json" },
        { "{\"weight_map\":[]}", "weight_map", "not an object" },
        { "{}", "weight_map", "not an object" },
        { "{\"weight_map\":{}}", "no *.safetensors", "folder" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const folder f = two_shards(cases[i][0]);
        lw_checkpoint *c;
        lw_diag d;
        assert_int_not_equal(open_folder(&f, &c, &d), LW_OK);
        assert_null(c);
        assert_names(d.text, f.path, cases[i][1], cases[i][2]);
        folder_free(&f);
    }
}

static void several_files_without_an_index_are_joined(void **state)
{
    (void)state;
    const folder f = two_shards(NULL);
    lw_checkpoint *c;
    lw_diag d;
    safetensors_write(&f, "ref64.safetensors", "{" T4("p0.ids", 0, 4) "}", 4);
    safetensors_write(&f, "adapter_model.safetensors", "{" T4("lora", 0, 4) "}", 4);
    assert_int_equal(open_folder(&f, &c, &d), LW_OK);
    assert_int_equal(lw_checkpoint_tensor_count(c), 3);
    lw_checkpoint_close(c);
    safetensors_write(&f, "zzz.safetensors", "{" T4("m.weight", 0, 4) "}", 4);
    assert_refused(&f, LW_BAD_MODEL, "m.weight", "one.safetensors", "zzz.safetensors");
    /* With model.safetensors there, the others are not weights of this model. */
    safetensors_write(&f, "model.safetensors", "{" T4("m.weight", 0, 4) "}", 4);
    assert_int_equal(open_folder(&f, &c, &d), LW_OK);
    assert_int_equal(lw_checkpoint_tensor_count(c), 1);
    lw_checkpoint_close(c);
    folder_free(&f);
}

static void side_files_are_found_under_mtp(void **state)
{
    (void)state;
    const folder f = folder_make();
    lw_checkpoint *c;
    lw_diag d;
    text_write(&f, "config.json", "{}");
    text_write(&f, "generation_config.json", "{\"eos_token_id\":[4]}");
    safetensors_write(&f, "model.safetensors", "{" T4("layers.0.w", 0, 4) "}", 4);
    safetensors_write(
        &f, "mtp-4bit.safetensors",
        "{\"__metadata__\":{\"quantization\":\"{}\"}," T4("layers.0.w", 0, 4) "," T4("mtp.x", 4, 8) "}", 8);
    safetensors_write(&f, "model_extra_tensors.safetensors", "{" T4("extra", 0, 4) "}", 4);
    assert_int_equal(open_folder(&f, &c, &d), LW_OK);
    assert_int_equal(lw_checkpoint_tensor_count(c), 4);
    const lw_tensor *side = lw_checkpoint_find(c, "mtp.layers.0.w");
    assert_non_null(side);
    assert_non_null(lw_checkpoint_find(c, "mtp.x"));
    assert_non_null(lw_checkpoint_find(c, "extra"));
    assert_string_equal(lw_checkpoint_metadata(c, side, "quantization"), "{}");
    assert_null(lw_checkpoint_metadata(c, lw_checkpoint_find(c, "layers.0.w"), "quantization"));
    assert_non_null(lw_config_get(lw_checkpoint_generation(c), "eos_token_id"));
    lw_checkpoint_close(c);
    folder_free(&f);
}

/* The layout of download caches: a snapshot of links into a folder of blobs. */
static void linked_caches_open(void **state)
{
    (void)state;
    const folder blobs = folder_make(), snapshot = folder_make();
    static const char *const names[][2] = { { "aa", "config.json" }, { "bb", "model.safetensors" } };
    char target[512], link[512];
    lw_checkpoint *c;
    lw_diag d;
    text_write(&blobs, "aa", "{}");
    safetensors_write(&blobs, "bb", "{" T4("t", 0, 4) "}", 4);
    for (size_t i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "../%s/%s", strrchr(blobs.path, '/') + 1, names[i][0]);
        snprintf(link, sizeof link, "%s/%s", snapshot.path, names[i][1]);
        assert_int_equal(symlink(target, link), 0);
    }
    assert_int_equal(open_folder(&snapshot, &c, &d), LW_OK);
    assert_non_null(lw_checkpoint_find(c, "t"));
    lw_checkpoint_close(c);
    snprintf(target, sizeof target, "%s/bb", blobs.path);
    assert_int_equal(unlink(target), 0);
    assert_refused(&snapshot, LW_NOT_FOUND, "model.safetensors", "link points to a file that is not there");
    folder_free(&snapshot);
    folder_free(&blobs);
}

static void half_downloads_are_named(void **state)
{
    (void)state;
    static const char *const weights[] = { "model.safetensors.incomplete", "model.safetensors.part",
                                           "model.safetensors.partial", "model.safetensors.aria2",
                                           "model.safetensors.crdownload" };
    const folder alone = folder_make(), beside = two_shards(NULL);
    text_write(&alone, "config.json", "{}");
    char path[512];
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        text_write(&alone, weights[i], "");
        assert_refused(&alone, LW_NOT_FOUND, alone.path, "half a download", weights[i]);
        snprintf(path, sizeof path, "%s/%s", alone.path, weights[i]);
        assert_int_equal(unlink(path), 0);
        text_write(&beside, weights[i], "");
        assert_refused(&beside, LW_NOT_FOUND, beside.path, "half a download", weights[i]);
        snprintf(path, sizeof path, "%s/%s", beside.path, weights[i]);
        assert_int_equal(unlink(path), 0);
    }
    text_write(&alone, "Unconfirmed 123.crdownload", "");
    assert_refused(&alone, LW_NOT_FOUND, "half a download", "Unconfirmed 123.crdownload");
    /* Beside whole weights, another file's leftover is nobody's concern. */
    text_write(&beside, "README.md.part", "");
    text_write(&beside, "one.safetensors.sha256", "");
    lw_checkpoint *c;
    lw_diag d;
    assert_int_equal(open_folder(&beside, &c, &d), LW_OK);
    lw_checkpoint_close(c);
    /* An index whose shard is still being fetched. */
    text_write(&beside, "model.safetensors.index.json",
               "{\"weight_map\":{\"m.weight\":\"three.safetensors\"}}");
    text_write(&beside, "three.safetensors.part", "");
    assert_refused(&beside, LW_NOT_FOUND, "half a download", "three.safetensors.part");
    folder_free(&beside);
    folder_free(&alone);
}

static void wrong_folders_say_what_they_are(void **state)
{
    (void)state;
    const folder f = folder_make();
    char path[512];
    lw_checkpoint *c;
    lw_diag d;
    assert_refused(&f, LW_NOT_FOUND, f.path, "no config.json");
    text_write(&f, "config.json", "{}");
    assert_refused(&f, LW_NOT_FOUND, f.path, "no *.safetensors");
    file_write(&f, "model.safetensors", "", 0);
    assert_refused(&f, LW_BAD_MODEL, "model.safetensors", "empty");
    text_write(&f, "model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 99\n");
    assert_refused(&f, LW_BAD_MODEL, "model.safetensors", "git-lfs pointer", "99 are expected");
    text_write(&f, "config.json", "version https://git-lfs.github.com/spec/v1\n");
    assert_refused(&f, LW_BAD_MODEL, "config.json", "git-lfs pointer");
    snprintf(path, sizeof path, "%s/config.json", f.path);
    assert_int_equal(lw_checkpoint_open(path, &c, &d), LW_BAD_INPUT);
    assert_names(d.text, path, "is a file");
    snprintf(path, sizeof path, "%s/nowhere", f.path);
    assert_int_equal(lw_checkpoint_open(path, &c, &d), LW_NOT_FOUND);
    assert_names(d.text, path, "no such folder");
    snprintf(path, sizeof path, "%s/model.safetensors", f.path);
    assert_int_equal(unlink(path), 0);
    text_write(&f, "config.json", "{}");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(&f, LW_BAD_MODEL, "model.safetensors", "not a regular file");
    folder_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_lie_in_different_shards),
        cmocka_unit_test(hints_change_nothing),
        cmocka_unit_test(wrong_indexes_are_refused),
        cmocka_unit_test(several_files_without_an_index_are_joined),
        cmocka_unit_test(side_files_are_found_under_mtp),
        cmocka_unit_test(linked_caches_open),
        cmocka_unit_test(half_downloads_are_named),
        cmocka_unit_test(wrong_folders_say_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Modules of the xpu device that are SPIR-V: what the driver built is kept, and taken at the next start
 * unless anything it depends on is another, its file is not whole, or the driver does not take it. No folder,
 * no whole SPIR-V, no kernels in this build: each is told or tolerated.
 */
#include "../xpu/xpu_case.h"
#include "base/kept.h"
#include "base/sha256.h"
#include "device/xpu/queue.h"
#include "device/xpu/spirv.h"
#include "device/xpu/xpu.h"

#include <dirent.h>
#include <string.h>

enum { HEAD_BYTES = 24, FILES_MAX = 8, NAME_BYTES = 80, IMAGE_BYTES_MAX = 64 << 20 };

typedef struct image_case {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    char folder[32], spirv[64], images[64];
    lw_device_options options;
} image_case;

/* A module of SPIR-V that names one kernel, as far as the emulated device reads it. */
static size_t spirv_make(uint32_t words[32], const char *kernel)
{
    const size_t name_words = strlen(kernel) / 4 + 1, length = 3 + name_words;
    memset(words, 0, 32 * sizeof *words);
    words[0] = 0x07230203;
    words[1] = 0x00010000;
    words[5] = (uint32_t)length << 16 | 15;
    words[6] = 6;
    words[7] = 1;
    memcpy(&words[8], kernel, strlen(kernel));
    return (5 + length) * sizeof *words;
}

static void file_put(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void case_open(image_case *c)
{
    uint32_t words[32];
    *c = (image_case){ .paths = xpu_paths_find(), .folder = "/tmp/lanewise-images-XXXXXX" };
    xpu_need_kernels(&c->paths);
    c->library = xpu_emulated_open(&c->paths, &c->emulated);
    assert_non_null(mkdtemp(c->folder));
    snprintf(c->spirv, sizeof c->spirv, "%s/add.spv", c->folder);
    snprintf(c->images, sizeof c->images, "%s/images", c->folder);
    file_put(c->spirv, words, spirv_make(words, "lw_add"));
    setenv("LW_EMULATED_COMPILED", c->paths.kernels, 1);
    c->options = (lw_device_options){ .ze_loader = c->paths.loader, .xpu_kernels = c->spirv,
                                      .xpu_images = c->images };
}

static void case_close(image_case *c)
{
    char command[64];
    assert_int_equal(c->emulated->objects, 0);
    assert_string_equal(c->emulated->error, "");
    unsetenv("LW_EMULATED_COMPILED");
    dlclose(c->library);
    snprintf(command, sizeof command, "rm -rf %s", c->folder);
    assert_int_equal(system(command), 0);
}

static lw_status load(image_case *c, lw_diag *d)
{
    lw_device *device = NULL;
    lw_status status = lw_device_xpu.open(&c->options, &device, d);
    if (status == LW_OK) status = lw__xpu_kernels_load(device, d);
    lw_device_xpu.close(device);
    return status;
}

/* How many modules of SPIR-V a load built. */
static uint32_t builds(image_case *c)
{
    lw_diag d = { "" };
    const uint32_t before = c->emulated->spirv_builds;
    if (load(c, &d) != LW_OK) fail_msg("%s", d.text);
    return c->emulated->spirv_builds - before;
}

static size_t files_list(const image_case *c, char names[FILES_MAX][NAME_BYTES])
{
    size_t count = 0;
    DIR *dir = opendir(c->images);
    for (const struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' && (e->d_name[1] == '\0' || e->d_name[1] == '.')) continue;
        assert_true(count < FILES_MAX);
        snprintf(names[count++], NAME_BYTES, "%.64s", e->d_name);
    }
    if (dir != NULL) closedir(dir);
    return count;
}

static void what_was_built_is_kept(void **state)
{
    (void)state;
    image_case c;
    char names[FILES_MAX][NAME_BYTES];
    case_open(&c);
    assert_int_equal(builds(&c), 1);
    assert_int_equal(files_list(&c, names), 1);
    assert_int_equal(builds(&c), 0);
    assert_int_equal(builds(&c), 0);
    c.options.xpu_images = NULL;
    assert_int_equal(builds(&c), 1);
    case_close(&c);
}

/* Another driver, another device, other SPIR-V. */
static void what_a_build_depends_on_is_in_the_key(void **state)
{
    (void)state;
    image_case c;
    uint32_t words[32];
    char names[FILES_MAX][NAME_BYTES];
    case_open(&c);
    assert_int_equal(builds(&c), 1);
    c.emulated->driver_version = 2;
    assert_int_equal(builds(&c), 1);
    assert_int_equal(builds(&c), 0);
    setenv("LW_EMULATED_DEVICES", "2", 1);
    c.options.which = "1";
    assert_int_equal(builds(&c), 1);
    assert_int_equal(builds(&c), 0);
    unsetenv("LW_EMULATED_DEVICES");
    c.options.which = NULL;
    file_put(c.spirv, words, spirv_make(words, "lw_mul"));
    assert_int_equal(builds(&c), 1);
    assert_int_equal(files_list(&c, names), 4);
    c.emulated->driver_version = 1;
    file_put(c.spirv, words, spirv_make(words, "lw_add"));
    assert_int_equal(builds(&c), 0);
    case_close(&c);
}

/* Cut anywhere near its parts, and changed in each of them; then one that is whole but no module. */
static void a_file_that_is_not_whole_is_built_again(void **state)
{
    (void)state;
    image_case c;
    char names[FILES_MAX][NAME_BYTES], path[256];
    lw_buf good;
    case_open(&c);
    assert_int_equal(builds(&c), 1);
    assert_int_equal(files_list(&c, names), 1);
    snprintf(path, sizeof path, "%s/%s", c.images, names[0]);
    lw_buf_init(&good, IMAGE_BYTES_MAX);
    assert_int_equal(lw_kept_read(c.images, names[0], &good, NULL), LW_OK);
    const size_t payload = HEAD_BYTES + LW_SHA256_BYTES;
    const size_t cuts[] = { 0,           1,       HEAD_BYTES - 1, HEAD_BYTES,
                            payload - 1, payload, payload + 1,    good.count - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        file_put(path, good.bytes, cuts[i]);
        assert_int_equal(builds(&c), 1);
        assert_int_equal(builds(&c), 0);
    }
    const size_t places[] = {
        0, 20, HEAD_BYTES, payload - 1, payload, (payload + good.count) / 2, good.count - 1
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        good.bytes[places[i]] ^= 1;
        file_put(path, good.bytes, good.count);
        good.bytes[places[i]] ^= 1;
        assert_int_equal(builds(&c), 1);
    }
    static const char no_module[] = "\177ELF and nothing more";
    uint8_t digest[LW_SHA256_BYTES];
    lw_sha256(no_module, sizeof no_module, digest);
    memcpy(good.bytes + HEAD_BYTES, digest, sizeof digest);
    memcpy(good.bytes + payload, no_module, sizeof no_module);
    file_put(path, good.bytes, payload + sizeof no_module);
    assert_int_equal(builds(&c), 1);
    assert_int_equal(builds(&c), 0);
    lw_buf_deinit(&good);
    case_close(&c);
}

static void a_folder_that_cannot_be_costs_time_only(void **state)
{
    (void)state;
    image_case c;
    char below[96];
    case_open(&c);
    snprintf(below, sizeof below, "%s/below", c.spirv);
    c.options.xpu_images = below;
    assert_int_equal(builds(&c), 1);
    assert_int_equal(builds(&c), 1);
    c.options.xpu_images = "/proc/no/such/place";
    assert_int_equal(builds(&c), 1);
    c.options.xpu_images = "";
    assert_int_equal(builds(&c), 1);
    case_close(&c);
}

static void spirv_that_is_wrong_is_refused(void **state)
{
    (void)state;
    image_case c;
    uint32_t words[32];
    lw_diag d;
    case_open(&c);
    file_put(c.spirv, words, spirv_make(words, "lw_no_such_kernel"));
    assert_int_not_equal(load(&c, &d), LW_OK);
    assert_non_null(strstr(d.text, "lw_no_such_kernel is not in"));
    assert_non_null(strstr(d.text, c.spirv));
    file_put(c.spirv, words, spirv_make(words, "lw_add") - sizeof *words);
    assert_int_not_equal(load(&c, &d), LW_OK);
    assert_non_null(strstr(d.text, "cut short"));
    unsetenv("LW_EMULATED_COMPILED");
    assert_int_not_equal(load(&c, &d), LW_OK);
    assert_non_null(strstr(d.text, "takes LW_EMULATED_COMPILED"));
    char names[FILES_MAX][NAME_BYTES];
    assert_int_equal(files_list(&c, names), 0);
    case_close(&c);
}

/* Whichever call fails, nothing stays open, and the next load is as if it had not. */
static void any_call_may_fail(void **state)
{
    (void)state;
    enum { CALLS_MAX = 1000 }; /* beyond what any number of kernels takes */
    image_case c;
    uint32_t n = 1, failures = 0, kept_anyway = 0;
    case_open(&c);
    for (; n < CALLS_MAX; n++) {
        char command[96];
        lw_diag d;
        snprintf(command, sizeof command, "rm -rf %s", c.images);
        assert_int_equal(system(command), 0);
        c.emulated->fail_with = LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        c.emulated->fail_at = n;
        const lw_status status = load(&c, &d);
        const bool failed = c.emulated->fail_at == 0;
        c.emulated->fail_at = 0;
        assert_int_equal(c.emulated->objects, 0);
        if (!failed) break;
        failures += status != LW_OK;
        if (status == LW_OK) kept_anyway += builds(&c) == 0;
        assert_true(builds(&c) <= 1);
    }
    /* Not keeping an image is no failure. */
    assert_true(n < CALLS_MAX && failures > 10 && failures < n - 1 && kept_anyway < n - 1 - failures);
    case_close(&c);
}

static void the_programs_own_kernels_load(void **state)
{
    (void)state;
    image_case c;
    lw_diag d = { "" };
    case_open(&c);
    c.options.xpu_kernels = NULL;
    const lw_status status = load(&c, &d);
    if (lw_xpu_spirv_view(false).count == 0) {
        assert_int_equal(status, LW_UNSUPPORTED);
        assert_non_null(strstr(d.text, "made without ocloc (Debian: intel-opencl-icd)"));
    } else if (status != LW_OK) {
        fail_msg("%s", d.text);
    }
    assert_true(lw_xpu_spirv_view(true).count >= lw_xpu_spirv_view(false).count);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_built_is_kept),
        cmocka_unit_test(what_a_build_depends_on_is_in_the_key),
        cmocka_unit_test(a_file_that_is_not_whole_is_built_again),
        cmocka_unit_test(a_folder_that_cannot_be_costs_time_only),
        cmocka_unit_test(spirv_that_is_wrong_is_refused),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(the_programs_own_kernels_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

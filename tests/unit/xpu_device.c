/* Opening the xpu device: loaders that are absent, lack an entry or fail; none, one and two devices; which of
 * them a name means; free memory with and without Sysman. Every call in turn fails once, and nothing is left
 * behind. The linker hands this program's calls of dlsym to the one below.
 */
#include "../xpu/xpu_case.h"
#include "device/xpu/queue.h"
#include "device/xpu/spirv.h"
#include "device/xpu/xpu.h"

#include <string.h>
#include <sys/stat.h>

static const char *hidden_entry;   /* that no library has */

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
    if (hidden_entry != NULL && strcmp(hidden_entry, name) == 0) return NULL;
    return __real_dlsym(library, name);
}

typedef struct device_case {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    lw_device_options options;
} device_case;

static void case_open(device_case *c, const char *devices)
{
    *c = (device_case){ .paths = xpu_paths_find() };
    c->library = xpu_emulated_open(&c->paths, &c->emulated);
    c->options.ze_loader = c->paths.loader;
    if (devices == NULL) unsetenv("LW_EMULATED_DEVICES");
    else setenv("LW_EMULATED_DEVICES", devices, 1);
}

/* Nothing is open, and nothing was done that the specification forbids. */
static void case_close(device_case *c)
{
    assert_int_equal(c->emulated->objects, 0);
    assert_false(c->emulated->after_failed_init);
    assert_string_equal(c->emulated->error, "");
    unsetenv("LW_EMULATED_DEVICES");
    dlclose(c->library);
}

static void refused(const lw_device_options *options, lw_status status, const char *text)
{
    lw_device *device = (lw_device *)&device;
    lw_diag d = { "" };
    assert_int_equal(lw_device_xpu.open(options, &device, &d), status);
    assert_null(device);
    if (strstr(d.text, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", d.text, text);
}

static void a_loader_that_is_absent_is_named(void **state)
{
    (void)state;
    refused(&(lw_device_options){ .ze_loader = "/no/such/loader.so" }, LW_UNSUPPORTED, "/no/such/loader.so");
    refused(&(lw_device_options){ .ze_loader = "/no/such/loader.so" }, LW_UNSUPPORTED, "libze1");
}

static void every_needed_entry_is_needed(void **state)
{
    (void)state;
    enum { OPTIONAL, NEEDED };
    static const struct { const char *name; int need; } entries[] = {
#define LW_ZE(need, name, parameters) { #name, need },
#include "device/xpu/ze.list"
#undef LW_ZE
    };
    device_case c;
    case_open(&c, NULL);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        hidden_entry = entries[i].name;
        if (entries[i].need == NEEDED) {
            refused(&c.options, LW_UNSUPPORTED, entries[i].name);
        } else {
            lw_device *device = NULL;
            assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
            assert_true(lw_device_xpu.free_bytes(device) > 0);
            lw_device_xpu.close(device);
        }
        hidden_entry = NULL;
    }
    case_close(&c);
}

static void a_failed_init_is_the_end(void **state)
{
    (void)state;
    device_case c;
    uint32_t count = 7;
    case_open(&c, NULL);
    setenv("LW_EMULATED_NO_DRIVER", "1", 1);
    refused(&c.options, LW_UNSUPPORTED, "no device");
    lw_diag d;
    assert_int_equal(lw_device_xpu.count(&c.options, &count, &d), LW_UNSUPPORTED);
    assert_int_equal(count, 0);
    unsetenv("LW_EMULATED_NO_DRIVER");
    assert_int_equal(c.emulated->calls, 0);
    case_close(&c);
}

static void devices_are_counted(void **state)
{
    (void)state;
    static const char *const counts[] = { "0", "1", "2", "4" };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        device_case c;
        uint32_t count = 7;
        case_open(&c, counts[i]);
        assert_int_equal(lw_device_xpu.count(&c.options, &count, NULL), LW_OK);
        assert_int_equal(count, counts[i][0] - '0');
        if (count == 0) refused(&c.options, LW_UNSUPPORTED, "no device: Level Zero's drivers are here");
        case_close(&c);
    }
}

/* What the chosen one says of itself. */
static void chosen(device_case *c, const char *which, const char *text)
{
    lw_device *device = NULL;
    lw_diag d = { "" };
    char described[LW_DEVICE_TEXT_BYTES];
    c->options.which = which;
    if (lw_device_xpu.open(&c->options, &device, &d) != LW_OK) fail_msg("%s", d.text);
    lw_device_xpu.describe(device, described, sizeof described);
    if (strstr(described, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", described, text);
    lw_device_xpu.close(device);
}

static void names_mean_devices(void **state)
{
    (void)state;
    device_case c;
    case_open(&c, "2");
    chosen(&c, NULL, "0000:03:00.0, discrete");
    chosen(&c, "0", "0000:03:00.0");
    chosen(&c, "1", "0000:04:00.0, integrated, 4.0 GiB, sub-groups of 16/32, 1 tile");
    chosen(&c, "0000:04:00.0", "0000:04:00.0");
    chosen(&c, "04:00.0", "0000:04:00.0");
    static const char *const wrong[] = { "2", "", "0000:05:00.0", "-1", "1x", "99999999999999999999" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        c.options.which = wrong[i];
        refused(&c.options, LW_BAD_INPUT, "xpu:1 (emulated device, 0000:04:00.0)");
    }
    c.options.which = NULL;
    c.options.isa = "avx2";
    refused(&c.options, LW_UNSUPPORTED, "instruction sets");
    case_close(&c);
}

static uint64_t free_of(device_case *c, const char *which)
{
    lw_device *device = NULL;
    c->options.which = which;
    assert_int_equal(lw_device_xpu.open(&c->options, &device, NULL), LW_OK);
    const uint64_t bytes = lw_device_xpu.free_bytes(device);
    lw_device_xpu.close(device);
    return bytes;
}

static void free_memory_is_sysmans_or_the_total(void **state)
{
    (void)state;
    device_case c;
    case_open(&c, "2");
    setenv("LW_EMULATED_BYTES", "1000000", 1);
    assert_int_equal(free_of(&c, "0"), 750000);
    assert_int_equal(free_of(&c, "1"), 500000);   /* its own, though Sysman lists it first */
    setenv("LW_EMULATED_NO_SYSMAN", "1", 1);
    assert_int_equal(free_of(&c, "1"), 1000000);
    unsetenv("LW_EMULATED_NO_SYSMAN");
    unsetenv("LW_EMULATED_BYTES");
    case_close(&c);
}

static void own_memory_is_not_free(void **state)
{
    (void)state;
    device_case c;
    lw_device *device = NULL;
    lw_xpu_memory small, large, too_large;
    case_open(&c, NULL);
    assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
    /* The second is over what one allocation may have, were it not asked for by the relaxed form. */
    assert_int_equal(lw__xpu_alloc(device, 4096, &small, NULL), LW_OK);
    assert_int_equal(lw__xpu_alloc(device, (size_t)2 << 30, &large, NULL), LW_OK);
    assert_int_equal(lw_device_xpu.free_bytes(device), ((uint64_t)2 << 30) - 4096);
    lw_diag d;
    assert_int_equal(lw__xpu_alloc(device, (size_t)3 << 30, &too_large, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "3221225472 bytes on emulated device: Level Zero answers out of device"));
    assert_null(too_large.at);
    lw__xpu_free(device, &small);
    lw__xpu_free(device, &large);
    lw__xpu_free(device, &too_large);
    assert_int_equal(device->own_bytes, 0);
    lw_device_xpu.close(device);
    case_close(&c);
}

/* Through both halves of the staging memory, more than once, and by a size that fills none of them. */
static void bytes_come_back(void **state)
{
    (void)state;
    enum { BYTES = 3 * LW_XPU_STAGING_BYTES + 12345 };
    device_case c;
    lw_device *device = NULL;
    lw_xpu_memory a, b;
    uint8_t *sent = malloc(BYTES), *got = calloc(1, BYTES);
    assert_true(sent != NULL && got != NULL);
    for (size_t i = 0; i < BYTES; i++) sent[i] = (uint8_t)(i * 2654435761u >> 13);
    case_open(&c, NULL);
    assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
    assert_int_equal(lw__xpu_alloc(device, BYTES, &a, NULL), LW_OK);
    assert_int_equal(lw__xpu_alloc(device, BYTES, &b, NULL), LW_OK);
    assert_int_equal(lw__xpu_upload(device, a.at, sent, BYTES, NULL), LW_OK);
    const uint8_t first = sent[0];
    sent[0] = (uint8_t)~first;   /* the caller's again as soon as upload returned */
    assert_int_equal(lw__xpu_copy(device, b.at, a.at, BYTES, NULL), LW_OK);
    assert_int_equal(lw__xpu_download(device, got, b.at, BYTES, NULL), LW_OK);
    sent[0] = first;
    assert_memory_equal(sent, got, BYTES);
    lw__xpu_free(device, &a);
    lw__xpu_free(device, &b);
    lw_device_xpu.close(device);
    free(sent);
    free(got);
    case_close(&c);
}

/* Opens, asks, copies and closes; what the n-th call's failure does to it. */
static lw_status visit(device_case *c, lw_diag *d)
{
    lw_device *device = NULL;
    lw_xpu_memory memory = { NULL, 0 };
    uint32_t value = 7, back = 0;
    lw_status status = lw_device_xpu.open(&c->options, &device, d);
    if (status != LW_OK) return status;
    status = lw__xpu_alloc(device, sizeof value, &memory, d);
    if (status == LW_OK) status = lw__xpu_upload(device, memory.at, &value, sizeof value, d);
    if (status == LW_OK) status = lw__xpu_download(device, &back, memory.at, sizeof back, d);
    if (status == LW_OK) assert_int_equal(back, value);
    lw__xpu_free(device, &memory);
    lw_device_xpu.close(device);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    static const lw_ze_result results[] = { LW_ZE_RESULT_ERROR_DEVICE_LOST,
                                            LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                                            LW_ZE_RESULT_ERROR_UNKNOWN };
    enum { CALLS_MAX = 1000 };
    device_case c;
    case_open(&c, "2");
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        uint32_t failures = 0, n = 1;
        for (; n < CALLS_MAX; n++) {
            lw_diag d = { "" };
            c.emulated->fail_with = results[i];
            c.emulated->fail_at = n;
            const lw_status status = visit(&c, &d);
            const bool failed = c.emulated->fail_at == 0;
            c.emulated->fail_at = 0;
            assert_int_equal(c.emulated->objects, 0);
            assert_int_equal(c.emulated->used_bytes[0], 0);
            if (!failed) break;
            failures += status != LW_OK;
            /* An address that is not told, and the last wait before closing, do not make it fail. */
            if (status != LW_OK) assert_non_null(strstr(d.text, "Level Zero answers"));
        }
        assert_true(n < CALLS_MAX && failures > 20 && failures < n);
    }
    case_close(&c);
}

/* What is listed works, or it says that it does not. */
static void a_build_without_kernels_says_so(void **state)
{
    (void)state;
    device_case c;
    lw_device *device = NULL;
    char described[LW_DEVICE_TEXT_BYTES];
    case_open(&c, NULL);
    for (int i = 0; i < 2; i++) {
        c.options.xpu_kernels = i == 0 ? NULL : "a.spv";
        assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
        lw_device_xpu.describe(device, described, sizeof described);
        const bool has_none = strstr(described, "this build has no kernels") != NULL;
        assert_true(has_none == (i == 0 && lw_xpu_spirv_view(true).count == 0));
        lw_device_xpu.close(device);
    }
    case_close(&c);
}

/* What stands in a folder like /dev, and what is said of it. */
static void hinted(const char *folder, const char *made, const char *to, const char *text)
{
    char path[256], hint[LW_ZE_HINT_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, made);
    assert_int_equal(symlink(to, path), 0);
    assert_true(lw_ze_is_wsl(folder) == (strcmp(made, "dxg") == 0));
    lw_ze_hint(folder, hint);
    if (strstr(hint, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", hint, text);
    assert_int_equal(unlink(path), 0);
}

static void who_has_no_device_is_told_what_to_look_at(void **state)
{
    (void)state;
    char folder[] = "/tmp/lanewise-dev-XXXXXX", path[256], hint[LW_ZE_HINT_BYTES];
    assert_non_null(mkdtemp(folder));
    lw_ze_hint(folder, hint);
    assert_non_null(strstr(hint, "/dri/renderD*, so that this machine has no GPU"));
    snprintf(path, sizeof path, "%s/dri", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    lw_ze_hint(folder, hint);
    assert_non_null(strstr(hint, "has no GPU"));
    hinted(folder, "dri/renderD128", "/dev/null", "/dri/renderD128 is there, so that either");
    hinted(folder, "dri/renderD129", "/no/such/node", "this user may not open");
    assert_false(lw_ze_is_wsl(folder));
    hinted(folder, "dxg", "/dev/null", "/dxg is there");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* Whatever the wait that failed said; then nothing is asked of the device but what closing it takes, and that
 * does not wait for two minutes again. */
static void a_lost_device_is_left_alone(void **state)
{
    (void)state;
    static const lw_ze_result results[] = { LW_ZE_RESULT_NOT_READY, LW_ZE_RESULT_ERROR_DEVICE_LOST,
                                            LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                                            LW_ZE_RESULT_ERROR_UNKNOWN };
    enum { CALLS_OF_A_WAIT = 3, MINUTE = 60, SECOND_NS = 1000000000 };
    device_case c;
    case_open(&c, NULL);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        lw_device *device = NULL;
        lw_xpu_memory memory;
        uint32_t value = 7;
        lw_diag d = { "" };
        assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
        assert_int_equal(lw__xpu_alloc(device, sizeof value, &memory, NULL), LW_OK);
        assert_int_equal(lw__xpu_upload(device, memory.at, &value, sizeof value, NULL), LW_OK);
        c.emulated->fail_with = results[i];
        c.emulated->fail_at = CALLS_OF_A_WAIT;
        assert_int_equal(lw__xpu_sync(device, &d), LW_DEVICE_LOST);
        assert_int_equal(c.emulated->fail_at, 0);
        assert_true(c.emulated->wait_ns > (uint64_t)MINUTE * SECOND_NS);
        assert_non_null(strstr(d.text, "waiting for emulated device"));
        const uint32_t calls = c.emulated->calls;
        assert_int_equal(lw__xpu_upload(device, memory.at, &value, sizeof value, &d), LW_DEVICE_LOST);
        assert_non_null(strstr(d.text, "emulated device is lost"));
        assert_int_equal(lw__xpu_download(device, &value, memory.at, sizeof value, NULL), LW_DEVICE_LOST);
        assert_int_equal(lw__xpu_launch(device, &(lw_xpu_launch){ .args_bytes = 0 }, NULL), LW_DEVICE_LOST);
        assert_int_equal(c.emulated->calls, calls);
        lw__xpu_drain(device);
        assert_true(c.emulated->wait_ns <= SECOND_NS);
        lw__xpu_free(device, &memory);
        lw_device_xpu.close(device);
    }
    case_close(&c);
}

/* What is at a place after two copies to it, with or without a barrier between them. */
static uint32_t after_two_copies(lw_device *device, bool has_barrier)
{
    lw_xpu_memory memory;
    uint8_t *staged;
    uint32_t got = 0;
    assert_int_equal(lw__xpu_alloc(device, sizeof got, &memory, NULL), LW_OK);
    assert_int_equal(lw__xpu_stage(device, 2 * sizeof got, &staged, NULL), LW_OK);
    memcpy(staged, (const uint32_t[]){ 1, 2 }, 2 * sizeof got);
    assert_int_equal(lw__xpu_stage_copy(device, memory.at, staged, sizeof got, NULL), LW_OK);
    if (has_barrier) assert_int_equal(lw__xpu_barrier(device, device->list, NULL, NULL), LW_OK);
    assert_int_equal(lw__xpu_stage_copy(device, memory.at, staged + sizeof got, sizeof got, NULL), LW_OK);
    assert_int_equal(lw__xpu_sync(device, NULL), LW_OK);
    assert_int_equal(lw__xpu_download(device, &got, memory.at, sizeof got, NULL), LW_OK);
    lw__xpu_free(device, &memory);
    return got;
}

/* The list's own order, where driver and layers have it; else barriers make it, and copies without one
 * between them, planted here, come out in another. */
static void order_is_the_lists_or_of_barriers(void **state)
{
    (void)state;
    static const struct { const char *version, *without; bool refuses, in_order; } cases[] = {
        { "1.7", NULL, false, true },
        { "1.6", NULL, false, false },
        { "1.13", NULL, true, false },
        { "1.13", "in_order", false, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        device_case c;
        lw_device *device = NULL;
        lw_diag d = { "" };
        setenv("LW_EMULATED_API", cases[i].version, 1);
        case_open(&c, NULL);
        c.emulated->refuses_order = cases[i].refuses;
        c.options.without = cases[i].without;
        if (lw_device_xpu.open(&c.options, &device, &d) != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(device->in_order, cases[i].in_order);
        assert_int_equal(after_two_copies(device, true), 2);
        assert_int_equal(after_two_copies(device, false), cases[i].in_order ? 2 : 1);
        lw_device_xpu.close(device);
        case_close(&c);
    }
    unsetenv("LW_EMULATED_API");
}

/* A wait is as long as was asked for, and a device that hangs is lost then. */
static void a_hung_device_is_given_up(void **state)
{
    (void)state;
    device_case c;
    lw_device *device = NULL;
    lw_diag d = { "" };
    case_open(&c, NULL);
    assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
    assert_int_equal(lw_device_xpu.wait_s(device), 120);
    lw_device_xpu.close(device);
    c.options.wait_s = 7;
    assert_int_equal(lw_device_xpu.open(&c.options, &device, NULL), LW_OK);
    assert_int_equal(lw_device_xpu.wait_s(device), 7);
    assert_int_equal(lw__xpu_sync(device, NULL), LW_OK);
    assert_true(c.emulated->wait_ns == UINT64_C(7000000000));
    c.emulated->fail_with = LW_ZE_RESULT_NOT_READY;
    c.emulated->fail_at = 3;
    assert_int_equal(lw__xpu_sync(device, &d), LW_DEVICE_LOST);
    assert_non_null(strstr(d.text, "emulated device: it did not finish in 7 s"));
    lw_device_xpu.close(device);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loader_that_is_absent_is_named),
        cmocka_unit_test(every_needed_entry_is_needed),
        cmocka_unit_test(a_failed_init_is_the_end),
        cmocka_unit_test(devices_are_counted),
        cmocka_unit_test(names_mean_devices),
        cmocka_unit_test(free_memory_is_sysmans_or_the_total),
        cmocka_unit_test(own_memory_is_not_free),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(a_lost_device_is_left_alone),
        cmocka_unit_test(a_hung_device_is_given_up),
        cmocka_unit_test(order_is_the_lists_or_of_barriers),
        cmocka_unit_test(a_build_without_kernels_says_so),
        cmocka_unit_test(who_has_no_device_is_told_what_to_look_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

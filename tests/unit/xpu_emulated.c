/* The emulated device itself: if it did not see a divergent barrier, a freed buffer or a sum's other order,
 * no test on it would be worth anything.
 */
#include "../xpu/xpu_case.h"
#include "device/xpu/queue.h"
#include "device/xpu/xpu.h"

#include <string.h>

enum { ITEMS = 64, GROUPS = 3, COUNT = ITEMS * GROUPS };

typedef struct probe_case {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    lw_device *device;
    lw_ze_module *module;
    lw_xpu_memory in, out;
} probe_case;

static void file_read(const char *path, uint8_t **bytes, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *bytes = malloc(1 << 20);
    assert_non_null(*bytes);
    *count = fread(*bytes, 1, 1 << 20, file);
    fclose(file);
}

static void case_open(probe_case *c)
{
    *c = (probe_case){ .paths = xpu_paths_find() };
    xpu_need_kernels(&c->paths);
    c->library = xpu_emulated_open(&c->paths, &c->emulated);
    const lw_device_options options = { .ze_loader = c->paths.loader };
    assert_int_equal(lw_device_xpu.open(&options, &c->device, NULL), LW_OK);
    char path[600];
    snprintf(path, sizeof path, "%.*s/probe_cpu.so", (int)(strrchr(c->paths.kernels, '/') - c->paths.kernels),
             c->paths.kernels);
    uint8_t *bytes;
    size_t count;
    file_read(path, &bytes, &count);
    const lw_ze_module_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_MODULE_DESC,
                                     .format = LW_ZE_MODULE_FORMAT_NATIVE, .input_bytes = count,
                                     .input = bytes };
    const lw_ze_result result =
        c->device->ze.zeModuleCreate(c->device->context, c->device->info.device, &desc, &c->module, NULL);
    assert_int_equal(result, LW_ZE_RESULT_SUCCESS);
    free(bytes);
    assert_int_equal(lw__xpu_alloc(c->device, COUNT * 4, &c->in, NULL), LW_OK);
    assert_int_equal(lw__xpu_alloc(c->device, COUNT * 4, &c->out, NULL), LW_OK);
}

static void case_close(probe_case *c)
{
    lw__xpu_drain(c->device);
    lw__xpu_free(c->device, &c->in);
    lw__xpu_free(c->device, &c->out);
    assert_int_equal(c->device->ze.zeModuleDestroy(c->module), LW_ZE_RESULT_SUCCESS);
    lw_device_xpu.close(c->device);
    assert_int_equal(c->emulated->objects, 0);
    dlclose(c->library);
}

/* Runs the kernel over in; the status of the wait. */
static lw_status probe_run(probe_case *c, const char *name, const void *in, void *out, lw_diag *d)
{
    const lw_ze *ze = &c->device->ze;
    const uint64_t args[2] = { (uintptr_t)c->in.at, (uintptr_t)c->out.at };
    const lw_ze_kernel_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_KERNEL_DESC, .name = name };
    const lw_ze_group_count groups = { GROUPS, 1, 1 };
    lw_ze_kernel *kernel = NULL;
    assert_int_equal(ze->zeKernelCreate(c->module, &desc, &kernel), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetIndirectAccess(kernel, LW_ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE),
                     LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetGroupSize(kernel, ITEMS, 1, 1), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetArgumentValue(kernel, 0, sizeof args, args), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(lw__xpu_upload(c->device, c->in.at, in, COUNT * 4, NULL), LW_OK);
    assert_int_equal(ze->zeCommandListAppendLaunchKernel(c->device->list, kernel, &groups, NULL, 0, NULL),
                     LW_ZE_RESULT_SUCCESS);
    const lw_status status = lw__xpu_sync(c->device, d);
    assert_int_equal(ze->zeKernelDestroy(kernel), LW_ZE_RESULT_SUCCESS);
    if (status == LW_OK)
        assert_int_equal(lw__xpu_download(c->device, out, c->out.at, COUNT * 4, NULL), LW_OK);
    return status;
}

static void items_meet_at_barriers(void **state)
{
    (void)state;
    probe_case c;
    uint32_t in[COUNT], out[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = i * i;
    assert_int_equal(probe_run(&c, "lw_reverse", in, out, NULL), LW_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(out[i], in[i / ITEMS * ITEMS + ITEMS - 1 - i % ITEMS]);
    case_close(&c);
}

static void lanes_see_each_other(void **state)
{
    (void)state;
    probe_case c;
    float in[COUNT], out[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = (float)(i % 23);
    assert_int_equal(probe_run(&c, "lw_lanes", in, out, NULL), LW_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t first = i / 16 * 16, turns = i % ITEMS / 16 + 1;
        float sum = 0;
        for (uint32_t lane = 0; lane < 16; lane++) sum += in[first + lane];
        assert_true(out[i] == in[first + 3] + (in[turns % 2 == 1 ? i ^ 1 : i] + sum));
    }
    case_close(&c);
}

static void what_would_hang_is_an_error(void **state)
{
    (void)state;
    static const char *const names[] = { "lw_divergent", "lw_leaves" };
    uint32_t in[COUNT] = { 0 }, out[COUNT];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        probe_case c;
        lw_diag d = { "" };
        case_open(&c);
        assert_int_equal(probe_run(&c, names[i], in, out, &d), LW_DEVICE_LOST);
        assert_non_null(strstr(d.text, "device lost"));
        assert_true(c.emulated->error[0] != '\0');
        case_close(&c);
    }
}

/* Work waits for a wait: memory that is freed under it is seen. */
static void memory_that_is_freed_too_early_is_seen(void **state)
{
    (void)state;
    probe_case c;
    const uint32_t in[COUNT] = { 0 };
    case_open(&c);
    assert_int_equal(lw__xpu_upload(c.device, c.in.at, in, sizeof in, NULL), LW_OK);
    assert_string_equal(c.emulated->error, "");
    lw__xpu_free(c.device, &c.out);
    assert_non_null(strstr(c.emulated->error, "freed while commands wait"));
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_meet_at_barriers),
        cmocka_unit_test(lanes_see_each_other),
        cmocka_unit_test(what_would_hang_is_an_error),
        cmocka_unit_test(memory_that_is_freed_too_early_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

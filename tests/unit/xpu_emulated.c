/* The emulated device itself: if it did not see a divergent barrier, a freed buffer or a sum's other order,
 * no test on it would be worth anything.
 */
#include "../xpu/xpu_case.h"
#include "base/float16.h"
#include "device/xpu/queue.h"
#include "device/xpu/xpu.h"

#include <string.h>

enum { ITEMS = 64, GROUPS = 3, COUNT = ITEMS * GROUPS, GROUPS_MANY = 500, COUNT_MANY = ITEMS * GROUPS_MANY };

typedef struct probe_case {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    lw_device *device;
    lw_ze_module *module;
    lw_xpu_memory in, out;
    uint32_t groups;
    lw_ze_kernel *kernel;        /* the one that was appended last */
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

static void case_open_for(probe_case *c, uint32_t groups)
{
    const size_t memory_bytes = (size_t)groups * ITEMS * 4;
    *c = (probe_case){ .paths = xpu_paths_find(), .groups = groups };
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
    assert_int_equal(lw__xpu_alloc(c->device, memory_bytes, &c->in, NULL), LW_OK);
    assert_int_equal(lw__xpu_alloc(c->device, memory_bytes, &c->out, NULL), LW_OK);
}

static void case_open(probe_case *c)
{
    case_open_for(c, GROUPS);
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

/* Uploads in and appends the kernel; what the device says of that. */
static lw_ze_result probe_append(probe_case *c, const char *name, const void *in)
{
    const lw_ze *ze = &c->device->ze;
    const uint64_t args[2] = { (uintptr_t)c->in.at, (uintptr_t)c->out.at };
    const lw_ze_kernel_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_KERNEL_DESC, .name = name };
    const lw_ze_group_count groups = { c->groups, 1, 1 };
    const size_t bytes = (size_t)c->groups * ITEMS * 4;
    lw_ze_kernel *kernel = NULL;
    assert_int_equal(ze->zeKernelCreate(c->module, &desc, &kernel), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetIndirectAccess(kernel, LW_ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE),
                     LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetGroupSize(kernel, ITEMS, 1, 1), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(ze->zeKernelSetArgumentValue(kernel, 0, sizeof args, args), LW_ZE_RESULT_SUCCESS);
    assert_int_equal(lw__xpu_upload(c->device, c->in.at, in, bytes, NULL), LW_OK);
    c->kernel = kernel;
    return ze->zeCommandListAppendLaunchKernel(c->device->list, kernel, &groups, NULL, 0, NULL);
}

static void kernel_close(probe_case *c)
{
    assert_int_equal(c->device->ze.zeKernelDestroy(c->kernel), LW_ZE_RESULT_SUCCESS);
}

/* Runs the kernel over in; the status of the wait. */
static lw_status probe_run(probe_case *c, const char *name, const void *in, void *out, lw_diag *d)
{
    assert_int_equal(probe_append(c, name, in), LW_ZE_RESULT_SUCCESS);
    const lw_status status = lw__xpu_sync(c->device, d);
    kernel_close(c);
    const size_t bytes = (size_t)c->groups * ITEMS * 4;
    if (status == LW_OK)
        assert_int_equal(lw__xpu_download(c->device, out, c->out.at, bytes, NULL), LW_OK);
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

/* Enough groups for both threads, which must not see each other's local memory. */
static void workers_share_a_launch(void **state)
{
    (void)state;
    static uint32_t in[COUNT_MANY], out[COUNT_MANY];
    for (uint32_t i = 0; i < COUNT_MANY; i++) in[i] = i * i;
    probe_case c;
    case_open_for(&c, GROUPS_MANY);
    for (uint32_t turn = 0; turn < 20; turn++) {
        memset(out, 0, sizeof out);
        assert_int_equal(probe_run(&c, "lw_reverse", in, out, NULL), LW_OK);
        for (uint32_t i = 0; i < COUNT_MANY; i++)
            assert_int_equal(out[i], in[i / ITEMS * ITEMS + ITEMS - 1 - i % ITEMS]);
    }
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

static void lanes_have_places(void **state)
{
    (void)state;
    probe_case c;
    uint32_t in[COUNT], out[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = 5 * i + 1;
    assert_int_equal(probe_run(&c, "lw_places", in, out, NULL), LW_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t next = i % 16 == 15 ? 7 : in[i + 1];
        assert_int_equal(out[i], in[i / 16 * 16 + 15 - i % 16] + next);
    }
    case_close(&c);
}

static void blocks_are_interleaved(void **state)
{
    (void)state;
    probe_case c;
    uint32_t in[COUNT], out[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = 0x10001 * i + 1;
    assert_int_equal(probe_run(&c, "lw_blocks", in, out, NULL), LW_OK);
    for (uint32_t i = 0; i < COUNT; i++) assert_int_equal(out[i], in[i ^ 16]);
    case_close(&c);
}

/* A sum that leans on a reduction's order is another one in each order: 2^24 swallows what is added to it. */
static void a_reduction_has_the_order_that_is_asked_for(void **state)
{
    (void)state;
    static const char *const orders[] = { "0", "1", "2" };
    /* The last first: 2^24 with 15 ones added singly; the first first: 15, then 2^24; halves: pairs of ones.
     */
    static const float expected[] = { 16777216.0f, 16777232.0f, 16777230.0f };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        probe_case c;
        float in[COUNT], out[COUNT];
        setenv("LW_EMULATED_REDUCE", orders[i], 1);
        case_open(&c);
        for (uint32_t k = 0; k < COUNT; k++) in[k] = k % 16 == 15 ? 16777216.0f : 1.0f;
        assert_int_equal(probe_run(&c, "lw_sums", in, out, NULL), LW_OK);
        for (uint32_t k = 0; k < COUNT; k++) {
            if (out[k] != expected[i]) fail_msg("order %s: %.1f, not %.1f", orders[i], out[k], expected[i]);
        }
        unsetenv("LW_EMULATED_REDUCE");
        case_close(&c);
    }
}

static void the_matrix_engine_multiplies(void **state)
{
    (void)state;
    probe_case c;
    uint32_t in[COUNT];
    uint16_t *left = (uint16_t *)in, *right = left + 128;
    float sums[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < 2 * COUNT; i++) left[i] = lw_bf16_of_float((float)(i * 7 % 19) - 9.0f);
    assert_int_equal(probe_run(&c, "lw_matrix_bf16", in, sums, NULL), LW_OK);
    for (uint32_t row = 0; row < 8; row++) {
        for (uint32_t col = 0; col < 16; col++) {
            float sum = 0.5f;
            for (uint32_t k = 0; k < 16; k++)
                sum += lw_float_of_bf16(left[16 * row + k])
                    * lw_float_of_bf16(right[2 * (16 * (k / 2) + col) + k % 2]);
            assert_true(sums[16 * row + col] == sum);
        }
    }
    int8_t *bytes = (int8_t *)in;
    int32_t counts[COUNT];
    for (uint32_t i = 0; i < 4 * COUNT; i++) bytes[i] = (int8_t)(i * 89 % 251);
    assert_int_equal(probe_run(&c, "lw_matrix_i8", in, counts, NULL), LW_OK);
    for (uint32_t row = 0; row < 8; row++) {
        for (uint32_t col = 0; col < 16; col++) {
            int32_t sum = 3;
            for (uint32_t k = 0; k < 32; k++)
                sum += bytes[32 * row + k] * bytes[256 + 4 * (16 * (k / 4) + col) + k % 4];
            assert_int_equal(counts[16 * row + col], sum);
        }
    }
    case_close(&c);
}

static void surfaces_end_in_zeros(void **state)
{
    (void)state;
    enum { WIDTH = 32, ROWS = 12 };
    probe_case c;
    uint16_t in[2 * COUNT];
    uint32_t out[COUNT];
    const uint16_t *edge = (const uint16_t *)out;
    case_open(&c);
    for (uint32_t i = 0; i < 2 * COUNT; i++) in[i] = (uint16_t)(i + 1);
    assert_int_equal(probe_run(&c, "lw_surface", in, out, NULL), LW_OK);
    for (uint32_t row = 0; row < 8; row++) {
        for (uint32_t lane = 0; lane < 16; lane++) {
            const bool inside = 24 + lane < WIDTH && 6 + row < ROWS;
            assert_int_equal(edge[16 * row + lane], inside ? in[(6 + row) * WIDTH + 24 + lane] : 0);
            const uint32_t first = 2 + 2 * row;
            const uint32_t low = first < ROWS ? in[first * WIDTH + 8 + lane] : 0;
            const uint32_t high = first + 1 < ROWS ? in[(first + 1) * WIDTH + 8 + lane] : 0;
            assert_int_equal(out[64 + 16 * row + lane], low | high << 16);
        }
    }
    case_close(&c);
}

static void gen12lp_has_no_matrix_engine(void **state)
{
    (void)state;
    static const char *const names[] = { "lw_matrix_bf16", "lw_matrix_i8", "lw_surface" };
    const uint32_t in[COUNT] = { 0 };
    uint32_t out[COUNT];
    setenv("LW_EMULATED_KIND", "gen12lp", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        probe_case c;
        case_open(&c);
        assert_int_equal(probe_run(&c, names[i], in, out, NULL), LW_DEVICE_LOST);
        assert_non_null(strstr(c.emulated->error, "no matrix engine"));
        case_close(&c);
    }
    unsetenv("LW_EMULATED_KIND");
}

/* 100 KiB: one kind has them, the other has 64. */
static void local_memory_ends(void **state)
{
    (void)state;
    probe_case c;
    uint32_t in[COUNT], out[COUNT];
    case_open(&c);
    for (uint32_t i = 0; i < COUNT; i++) in[i] = 3 * i + 1;
    assert_int_equal(probe_run(&c, "lw_spread", in, out, NULL), LW_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(out[i], in[i / ITEMS * ITEMS + ITEMS - 1 - i % ITEMS]);
    assert_string_equal(c.emulated->error, "");
    case_close(&c);
    setenv("LW_EMULATED_KIND", "gen12lp", 1);
    case_open(&c);
    assert_int_equal(probe_run(&c, "lw_reverse", in, out, NULL), LW_OK);
    assert_int_equal(probe_append(&c, "lw_spread", in), LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    kernel_close(&c);
    assert_non_null(strstr(c.emulated->error, "more local memory than the device has"));
    case_close(&c);
    unsetenv("LW_EMULATED_KIND");
}

/* What the driver says of the device, and how large a work-group it takes. */
static void kinds_differ(void **state)
{
    (void)state;
    static const struct { const char *name; uint32_t id, items, local_bytes, flags; } kinds[] = {
        { "xe2", 0xE20B, 1024, 131072, 0 },
        { "gen12lp", 0x9A49, 512, 65536, LW_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        probe_case c;
        lw_ze_device_properties properties = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES };
        lw_ze_device_compute_properties compute = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES };
        const lw_ze_kernel_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_KERNEL_DESC, .name = "lw_sums" };
        lw_ze_kernel *kernel = NULL;
        setenv("LW_EMULATED_KIND", kinds[i].name, 1);
        case_open(&c);
        const lw_ze *ze = &c.device->ze;
        assert_int_equal(ze->zeDeviceGetProperties(c.device->info.device, &properties), LW_ZE_RESULT_SUCCESS);
        assert_int_equal(properties.device_id, kinds[i].id);
        assert_int_equal(properties.flags, kinds[i].flags);
        assert_int_equal(ze->zeDeviceGetComputeProperties(c.device->info.device, &compute),
                         LW_ZE_RESULT_SUCCESS);
        assert_int_equal(compute.group_size_max, kinds[i].items);
        assert_int_equal(compute.local_bytes_max, kinds[i].local_bytes);
        assert_int_equal(ze->zeKernelCreate(c.module, &desc, &kernel), LW_ZE_RESULT_SUCCESS);
        assert_int_equal(ze->zeKernelSetGroupSize(kernel, kinds[i].items, 1, 1), LW_ZE_RESULT_SUCCESS);
        assert_int_equal(ze->zeKernelSetGroupSize(kernel, kinds[i].items, 2, 1),
                         LW_ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(ze->zeKernelDestroy(kernel), LW_ZE_RESULT_SUCCESS);
        case_close(&c);
    }
    unsetenv("LW_EMULATED_KIND");
}

/* The n-th launch, and all that is asked of the device after it. */
static void a_device_can_be_lost(void **state)
{
    (void)state;
    const uint32_t in[COUNT] = { 0 };
    uint32_t out[COUNT];
    probe_case c;
    setenv("LW_EMULATED_LOSE_AT", "2", 1);
    case_open(&c);
    assert_int_equal(probe_run(&c, "lw_reverse", in, out, NULL), LW_OK);
    assert_int_equal(probe_run(&c, "lw_reverse", in, out, NULL), LW_DEVICE_LOST);
    assert_int_equal(lw__xpu_upload(c.device, c.in.at, in, sizeof in, NULL), LW_DEVICE_LOST);
    unsetenv("LW_EMULATED_LOSE_AT");
    case_close(&c);
}

/* Lists in order came with version 1.7. */
static void an_older_driver_knows_fewer_flags(void **state)
{
    (void)state;
    static const struct { const char *version; lw_ze_result in_order; } drivers[] = {
        { "1.4", LW_ZE_RESULT_ERROR_INVALID_ENUMERATION },
        { "1.7", LW_ZE_RESULT_SUCCESS },
    };
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        probe_case c;
        lw_ze_list *list = NULL;
        const lw_ze_queue_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = 1,
                                        .flags = LW_ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
                                        .mode = LW_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS };
        setenv("LW_EMULATED_API", drivers[i].version, 1);
        case_open(&c);
        const lw_ze *ze = &c.device->ze;
        assert_int_equal(
            ze->zeCommandListCreateImmediate(c.device->context, c.device->info.device, &desc, &list),
            drivers[i].in_order);
        if (list != NULL) assert_int_equal(ze->zeCommandListDestroy(list), LW_ZE_RESULT_SUCCESS);
        case_close(&c);
    }
    unsetenv("LW_EMULATED_API");
}

static void what_would_hang_is_an_error(void **state)
{
    (void)state;
    static const struct { const char *kernel, *said; } cases[] = {
        { "lw_divergent", "not every work-item reaches" },
        { "lw_leaves", "left the kernel while others wait at a barrier" },
        { "lw_lane_leaves", "left the kernel while its sub-group waits" },
        { "lw_ragged_block", "lanes name several addresses" },
        { "lw_lone_block", "lanes name several addresses" },
        { "lw_ragged_surface", "lanes name several addresses" },
    };
    uint32_t in[COUNT] = { 0 }, out[COUNT];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        probe_case c;
        lw_diag d = { "" };
        case_open(&c);
        assert_int_equal(probe_run(&c, cases[i].kernel, in, out, &d), LW_DEVICE_LOST);
        assert_non_null(strstr(d.text, "device lost"));
        assert_non_null(strstr(c.emulated->error, cases[i].said));
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
        cmocka_unit_test(workers_share_a_launch),
        cmocka_unit_test(lanes_see_each_other),
        cmocka_unit_test(lanes_have_places),
        cmocka_unit_test(blocks_are_interleaved),
        cmocka_unit_test(a_reduction_has_the_order_that_is_asked_for),
        cmocka_unit_test(the_matrix_engine_multiplies),
        cmocka_unit_test(surfaces_end_in_zeros),
        cmocka_unit_test(gen12lp_has_no_matrix_engine),
        cmocka_unit_test(local_memory_ends),
        cmocka_unit_test(kinds_differ),
        cmocka_unit_test(a_device_can_be_lost),
        cmocka_unit_test(an_older_driver_knows_fewer_flags),
        cmocka_unit_test(what_would_hang_is_an_error),
        cmocka_unit_test(memory_that_is_freed_too_early_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

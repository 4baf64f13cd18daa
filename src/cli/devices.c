/* `lanewise devices`: what can compute here. Devices are opened, not guessed at: what is listed works. */
#include "cli/verbs.h"

#include "base/machine.h"
#include "device/device.h"

#include <stdio.h>
#include <unistd.h>

static const char devices_summary[] =
    "Lists the devices of this build and whether they open on this machine, by the names that --device\n"
    "takes, the instruction sets that its processor offers to the cpu device (the best comes last and is\n"
    "the default), threads and memory.";

static const char devices_examples[] = "  lanewise devices\n"
                                       "  lanewise devices --json\n";

static const char *const isas[] = { "generic", "avx2", "avx512f", "avx512vnni", "avx512bf16" };
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

static uint64_t memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

/* True if the device opens with these options; then what it says of itself and its free memory. */
static bool try_device(const lw_device_table *table, const lw_device_options *options,
                       char text[LW_DEVICE_TEXT_BYTES], uint64_t *free_bytes, lw_diag *d)
{
    lw_device *device = NULL;
    if (table->open(options, &device, d) != LW_OK) return false;
    table->describe(device, text, LW_DEVICE_TEXT_BYTES);
    *free_bytes = table->free_bytes(device);
    table->close(device);
    return true;
}

static json_t *absent_object(const char *name, const lw_diag *d)
{
    return json_pack("{s:s, s:b, s:s}", "name", name, "opens", 0, "why", d->text);
}

static json_t *device_object(const lw_device_table *table, const lw_device_options *options, const char *name)
{
    char text[LW_DEVICE_TEXT_BYTES];
    uint64_t free_bytes = 0;
    lw_diag d;
    if (!try_device(table, options, text, &free_bytes, &d)) return absent_object(name, &d);
    return json_pack("{s:s, s:b, s:s, s:I}", "name", name, "opens", 1, "description", text, "free_bytes",
                     (json_int_t)free_bytes);
}

/* Every device of a kind; where there is none, why. */
static void list_kind(const lw_device_table *table, const lw_term *term, json_t *list)
{
    lw_device_options options = { .ze_loader = term->ze_loader, .xpu_kernels = term->xpu_kernels };
    uint32_t count = 0;
    lw_diag d;
    if (table->count == NULL) {
        json_array_append_new(list, device_object(table, &options, table->name));
        return;
    }
    if (table->count(&options, &count, &d) != LW_OK) {
        json_array_append_new(list, absent_object(table->name, &d));
        return;
    }
    /* Opening where there is none says so. */
    if (count == 0) json_array_append_new(list, device_object(table, &options, table->name));
    for (uint32_t i = 0; i < count; i++) {
        char which[16], name[32];
        snprintf(which, sizeof which, "%u", i);
        snprintf(name, sizeof name, "%s:%s", table->name, which);
        options.which = which;
        json_array_append_new(list, device_object(table, &options, name));
    }
}

static json_t *isa_list(void)
{
    json_t *list = json_array();
    const char *which;
    const lw_device_table *cpu = lw_device_find("cpu", &which);
    for (size_t i = 0; i < ISA_COUNT && cpu != NULL; i++) {
        char text[LW_DEVICE_TEXT_BYTES];
        uint64_t free_bytes;
        const lw_device_options options = { .threads = 1, .isa = isas[i] };
        if (try_device(cpu, &options, text, &free_bytes, NULL))
            json_array_append_new(list, json_string(isas[i]));
    }
    return list;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

static void print_plain(const json_t *object)
{
    size_t at;
    json_t *item;
    json_array_foreach(json_object_get(object, "devices"), at, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (json_is_true(json_object_get(item, "opens"))) {
            printf("%-10s %s, %.1f GiB free\n", name, json_string_value(json_object_get(item, "description")),
                   gib((uint64_t)json_integer_value(json_object_get(item, "free_bytes"))));
        } else {
            printf("%-10s absent: %s\n", name, json_string_value(json_object_get(item, "why")));
        }
    }
    printf("isas      ");
    json_array_foreach(json_object_get(object, "isas"), at, item) printf(" %s", json_string_value(item));
    printf("\nthreads    %d by default, on %d CPUs\nmemory     %.1f GiB\n",
           (int)json_integer_value(json_object_get(object, "threads")),
           (int)json_integer_value(json_object_get(object, "cpus")),
           gib((uint64_t)json_integer_value(json_object_get(object, "memory_bytes"))));
}

int lw_verb_devices(const lw_term *term, int argc, char **argv)
{
    bool json = false;
    const lw_option options[] = { { .name = "json", .flag = &json, .help = "one JSON object" } };
    const lw_usage usage = {
        .verb = "devices",
        .arguments = "",
        .summary = devices_summary,
        .examples = devices_examples,
        .options = options,
        .option_count = 1,
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    json_t *devices = json_array();
    for (size_t i = 0; lw_devices[i] != NULL; i++) list_kind(lw_devices[i], term, devices);
    lw_machine_cpus cpus;
    lw_machine_cpus_own(&cpus);
    json_t *object = json_pack("{s:o, s:o, s:I, s:I, s:I}", "devices", devices, "isas", isa_list(), "threads",
                               (json_int_t)cpus.worth, "cpus", (json_int_t)cpus.count, "memory_bytes",
                               (json_int_t)memory_bytes());
    if (object == NULL) return lw_term_error("no memory for the list");
    if (json) {
        lw_out_json(object);
        return LW_EXIT_OK;
    }
    print_plain(object);
    json_decref(object);
    return LW_EXIT_OK;
}

/* `lanewise devices`: what can compute here. Devices are opened, not guessed at: what is listed works. */
#include "cli/verbs.h"

#include "device/device.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static const char devices_summary[] =
    "Lists the devices of this build and whether they open on this machine, the instruction sets that\n"
    "its processor offers to the cpu device (the best comes last and is the default), threads and\n"
    "memory.";

static const char devices_examples[] = "  lanewise devices\n"
                                       "  lanewise devices --json\n";

static const char *const isas[] = { "generic", "avx2", "avx512f", "avx512bf16" };
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

static uint32_t thread_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return (uint32_t)CPU_COUNT(&set);
}

static uint64_t memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

/* True if the device opens with these options; then what it says of itself and its free memory. */
static bool try_device(const lw_device_table *table, const lw_device_options *options, char text[128],
                       uint64_t *free_bytes, lw_diag *d)
{
    lw_device *device = NULL;
    if (table->open(options, &device, d) != LW_OK) return false;
    table->describe(device, text, 128);
    *free_bytes = table->free_bytes(device);
    table->close(device);
    return true;
}

static json_t *device_object(const lw_device_table *table)
{
    char text[128];
    uint64_t free_bytes = 0;
    lw_diag d;
    if (!try_device(table, &(lw_device_options){ .threads = 0 }, text, &free_bytes, &d)) {
        return json_pack("{s:s, s:b, s:s}", "name", table->name, "opens", 0, "why", d.text);
    }
    return json_pack("{s:s, s:b, s:s, s:I}", "name", table->name, "opens", 1, "description", text,
                     "free_bytes", (json_int_t)free_bytes);
}

static json_t *isa_list(void)
{
    json_t *list = json_array();
    const lw_device_table *cpu = lw_device_find("cpu");
    for (size_t i = 0; i < ISA_COUNT && cpu != NULL; i++) {
        char text[128];
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
    printf("\nthreads    %d\nmemory     %.1f GiB\n",
           (int)json_integer_value(json_object_get(object, "threads")),
           gib((uint64_t)json_integer_value(json_object_get(object, "memory_bytes"))));
}

int lw_verb_devices(const lw_term *term, int argc, char **argv)
{
    (void)term;
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
    for (size_t i = 0; lw_devices[i] != NULL; i++)
        json_array_append_new(devices, device_object(lw_devices[i]));
    json_t *object = json_pack("{s:o, s:o, s:I, s:I}", "devices", devices, "isas", isa_list(), "threads",
                               (json_int_t)thread_count(), "memory_bytes", (json_int_t)memory_bytes());
    if (object == NULL) return lw_term_error("no memory for the list");
    if (json) {
        lw_out_json(object);
        return LW_EXIT_OK;
    }
    print_plain(object);
    json_decref(object);
    return LW_EXIT_OK;
}

/* Tiny checkpoints of families, made by tests: every tensor dense, as a list of names, shapes and values. And
 * configs that differ from a right one in a few keys. Texts of JSON are written with ' for ".
 */
#ifndef TESTS_FAMILY_MADE_H
#define TESTS_FAMILY_MADE_H

#include "model_files.h"

#include "base/float16.h"
#include "family/family.h"

enum { MADE_HEADER_BYTES = 64 << 10, MADE_DATA_BYTES = 2 << 20 };

typedef struct made {
    folder f;
    char *header;
    uint8_t *data;
    size_t data_bytes;
} made;

LW_UNUSED static made made_begin(void)
{
    made m = { .f = folder_make(), .header = calloc(1, MADE_HEADER_BYTES), .data = malloc(MADE_DATA_BYTES) };
    assert_true(m.header != NULL && m.data != NULL);
    return m;
}

/* Numbers around mean; shape as JSON lists it: "8, 1, 4". */
LW_UNUSED LW_PRINTF(5, 6) static void made_tensor(made *m, const char *dtype, double mean, const char *shape,
                                                  const char *name, ...)
{
    char full[256];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    size_t count = 1;
    for (const char *at = shape; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        count *= strtoul(at, NULL, 10);
    }
    const bool is_bf16 = strcmp(dtype, "BF16") == 0;
    const size_t begin = m->data_bytes, at = strlen(m->header);
    assert_true(begin + count * 4 <= MADE_DATA_BYTES);
    for (size_t i = 0; i < count; i++) {
        const float number = (float)(mean + 0.01 * ((double)(i * 37 % 11) - 5.0));
        const uint16_t narrow = lw_bf16_of_float(number);
        memcpy(m->data + m->data_bytes, is_bf16 ? (const void *)&narrow : &number, is_bf16 ? 2 : 4);
        m->data_bytes += is_bf16 ? 2 : 4;
    }
    snprintf(m->header + at, MADE_HEADER_BYTES - at,
             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", at == 0 ? "{" : ",",
             full, dtype, shape, begin, m->data_bytes);
}

/* Writes and frees all but the folder. */
LW_UNUSED static folder made_end(made *m)
{
    const size_t header_bytes = strlen(m->header) + 1;
    const uint64_t length = header_bytes;
    uint8_t *bytes = malloc(8 + header_bytes + m->data_bytes);
    assert_non_null(bytes);
    m->header[header_bytes - 1] = '}';
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, m->header, header_bytes);
    memcpy(bytes + 8 + header_bytes, m->data, m->data_bytes);
    file_write(&m->f, "model.safetensors", bytes, 8 + header_bytes + m->data_bytes);
    free(bytes);
    free(m->header);
    free(m->data);
    return m->f;
}

/* ---- configs ---- */

LW_UNUSED static json_t *json_made(const char *text)
{
    char copy[4096];
    json_error_t error;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at != '\0'; at++) *at = *at == '\'' ? '"' : *at;
    json_t *value = json_loads(copy, 0, &error);
    if (value == NULL) fail_msg("%s in %s", error.text, text);
    return value;
}

/* base, with the keys of changes in their place; null is as good as absent. */
LW_UNUSED static void config_write(const folder *f, const char *base, const char *changes)
{
    json_t *config = json_made(base), *other = json_made(changes);
    assert_int_equal(json_object_update(config, other), 0);
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    text_write(f, "config.json", text);
    free(text);
    json_decref(other);
    json_decref(config);
}

/* A plan and the checkpoint whose names and tensors it points at. */
typedef struct recorded {
    lw_checkpoint *checkpoint;
    lw_plan plan;
} recorded;

LW_UNUSED static void recorded_free(recorded *r)
{
    lw_plan_deinit(&r->plan);
    lw_checkpoint_close(r->checkpoint);
}

/* Opens the folder and records its model; nothing is left to be freed where the status is not LW_OK. */
LW_UNUSED static lw_status made_record(const folder *f, const lw_record_options *options, recorded *out,
                                       lw_diag *d)
{
    const lw_family *family = NULL;
    if (lw_checkpoint_open(f->path, &out->checkpoint, d) != LW_OK) fail_msg("%s", d->text);
    assert_int_equal(lw_plan_init(&out->plan, NULL), LW_OK);
    lw_status status = lw_family_find(out->checkpoint, &family, d);
    if (status == LW_OK) status = family->record(out->checkpoint, options, &out->plan, d);
    if (status != LW_OK) recorded_free(out);
    return status;
}

/* A config that cannot be served: what it changes, and what the error must say beside the file. */
typedef struct refusal {
    const char *changes;
    lw_status status;
    const char *key, *value;
} refusal;

LW_UNUSED static void refusals_check(const folder *f, const char *base, const refusal *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        recorded r;
        lw_diag d = { "" };
        config_write(f, base, all[i].changes);
        const lw_status status = made_record(f, &(lw_record_options){ .head = true }, &r, &d);
        if (status != all[i].status)
            fail_msg("%s: %s (%s)", all[i].changes, lw_status_name(status), d.text);
        assert_names(d.text, f->path, "config.json", all[i].key, all[i].value);
    }
}

LW_UNUSED static void count_ops(const lw_plan *plan, uint32_t counts[LW_OP_COUNT])
{
    memset(counts, 0, LW_OP_COUNT * sizeof *counts);
    for (uint32_t i = 0; i < plan->op_count; i++) counts[plan->ops[i].kind]++;
}

/* How often a plan has an op, without its head and with it. */
typedef struct op_counts {
    lw_op_kind kind;
    uint32_t plain, headed;
} op_counts;

/* Ops that are not listed are not there. */
LW_UNUSED static void shipped_counts_check(const char *dir, const op_counts *want, size_t want_count)
{
    for (int head = 0; head < 2; head++) {
        recorded r;
        lw_diag d = { "" };
        uint32_t counts[LW_OP_COUNT];
        folder f;
        snprintf(f.path, sizeof f.path, "%s", dir);
        if (made_record(&f, &(lw_record_options){ .head = head == 1 }, &r, &d) != LW_OK)
            fail_msg("%s", d.text);
        count_ops(&r.plan, counts);
        uint32_t sum = 0;
        for (size_t i = 0; i < want_count; i++) {
            const uint32_t count = head == 1 ? want[i].headed : want[i].plain;
            if (counts[want[i].kind] != count)
                fail_msg("%s: %u of %s, not %u", dir, counts[want[i].kind], lw_op_table[want[i].kind].name,
                         count);
            sum += count;
        }
        assert_int_equal(r.plan.op_count, sum);
        assert_int_equal(r.plan.entry_count, 1 + head);
        recorded_free(&r);
    }
}

#endif

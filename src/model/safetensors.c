/* One safetensors file: u64 header length, JSON header, then the tensors' bytes. The header comes from outside, so
 * it has a parser of its own that knows only this grammar, and nothing of it is used before it is checked:
 *   1. every string, number and bracket lies inside the header; numbers fit in 64 bits;
 *   2. the product of a shape times the dtype's bytes equals the span of its offsets, without wrapping;
 *   3. spans lie inside the file and do not overlap (holes do no harm and are let pass);
 *   4. no name stands twice.
 * Tensors are kept in order of name.
 */
#include "base/arena.h"
#include "base/size.h"
#include "model/checkpoint.h"
#include "model/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LENGTH_BYTES = 8 };

typedef struct metadata metadata;
struct metadata {
    metadata *next;
    const char *key;
    const char *value;
};

struct lw_safetensors {
    lw_arena arena;       /* names and metadata */
    lw_mapping mapping;   /* empty when the bytes are the caller's */
    const char *name;
    lw_tensor *tensors;   /* [count], ascending by name */
    size_t count;
    metadata *pairs;
};

/* A tensor while its place is not yet checked: the offset stands apart, so that no pointer leaves the file. */
typedef struct entry {
    lw_tensor tensor; /* first, so that one comparison of names serves both */
    uint64_t begin;   /* from the end of the header */
} entry;

/* Cursor over the header. data_bytes is what follows the header in the file. */
typedef struct reader {
    const char *begin;
    const char *at;
    const char *end;
    size_t data_bytes;
    entry *entries; /* [entry_count of entry_room], owned */
    size_t entry_count;
    size_t entry_room;
    size_t pair_count;
    lw_safetensors *file;
    lw_diag *d;
    char text[LW_LIMIT_NAME_BYTES]; /* the last key or dtype, decoded */
    char key[LW_LIMIT_NAME_BYTES];  /* the tensor that is being read, for texts */
} reader;

/* data_offsets as the header states them. */
typedef struct span {
    uint64_t begin;
    uint64_t end;
} span;

static lw_status fail_at(const reader *r, const char *what)
{
    if (r->key[0] != '\0')
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": %s (header byte %td)", r->file->name, r->key, what,
                       r->at - r->begin);
    return lw_fail(r->d, LW_BAD_MODEL, "%s: %s (header byte %td)", r->file->name, what, r->at - r->begin);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

/* Moves past c if it is next. */
static bool accept(reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool read_hex4(reader *r, uint32_t *out)
{
    uint32_t value = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char c = *r->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A') + 10;
        else return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

/* The code point after "\u"; a surrogate needs its other half. */
static bool read_unicode(reader *r, uint32_t *out)
{
    uint32_t low;
    if (!read_hex4(r, out)) return false;
    if (*out >= 0xDC00 && *out <= 0xDFFF) return false;
    if (*out < 0xD800 || *out > 0xDBFF) return *out != 0;
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') return false;
    r->at += 2;
    if (!read_hex4(r, &low) || low < 0xDC00 || low > 0xDFFF) return false;
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* One escape after its backslash, as UTF-8 into out[4]; returns the bytes written, 0 if it is wrong. */
static size_t read_escape(reader *r, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end) return 0;
    const char c = *r->at++;
    if (c == 'u') {
        uint32_t code;
        if (!read_unicode(r, &code)) return 0;
        return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
    }
    const char *found = c == '\0' ? NULL : strchr(from, c);
    if (found == NULL) return 0;
    *out = to[found - from];
    return 1;
}

/* The string body after its opening quote into out[room]; escapes never decode to more bytes than they take. */
static lw_status read_string_body(reader *r, char *out, size_t room)
{
    size_t count = 0;
    while (r->at < r->end && *r->at != '"') {
        char escaped[4];
        const char *from = r->at;
        size_t bytes;
        if (*r->at == '\\') {
            r->at++;
            bytes = read_escape(r, escaped);
            if (bytes == 0) return fail_at(r, "a string holds a wrong escape");
            from = escaped;
        } else {
            utf8proc_int32_t code;
            const utf8proc_ssize_t taken = utf8proc_iterate((const utf8proc_uint8_t *)r->at, r->end - r->at, &code);
            if (taken <= 0 || code < 0x20) return fail_at(r, "a string holds bytes that are not text");
            bytes = (size_t)taken;
            r->at += bytes;
        }
        if (count + bytes >= room) return fail_at(r, "a string is too long");
        memcpy(out + count, from, bytes);
        count += bytes;
    }
    if (r->at == r->end) return fail_at(r, "the header ends inside a string");
    r->at++;
    out[count] = '\0';
    return LW_OK;
}

/* A key or dtype into r->text. */
static lw_status read_text(reader *r)
{
    if (!accept(r, '"')) return fail_at(r, "a string is expected");
    return read_string_body(r, r->text, sizeof r->text);
}

static lw_status read_u64(reader *r, uint64_t *out)
{
    skip_space(r);
    const char *first = r->at;
    uint64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*r->at - '0'), &value))
            return fail_at(r, "a number does not fit in 64 bits");
    }
    if (r->at == first) return fail_at(r, "a whole number that is not negative is expected");
    if (*first == '0' && r->at - first > 1) return fail_at(r, "a number begins with 0");
    *out = value;
    return LW_OK;
}

/* [u64, ...] of at most max numbers. */
static lw_status read_numbers(reader *r, uint64_t *numbers, uint32_t max, uint32_t *count)
{
    *count = 0;
    if (!accept(r, '[')) return fail_at(r, "a list of numbers is expected");
    if (accept(r, ']')) return LW_OK;
    do {
        if (*count == max) return fail_at(r, "a list is longer than any served");
        const lw_status status = read_u64(r, &numbers[*count]);
        if (status != LW_OK) return status;
        ++*count;
    } while (accept(r, ','));
    return accept(r, ']') ? LW_OK : fail_at(r, "a list does not end");
}

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

static lw_status read_dtype(reader *r, lw_tensor *tensor)
{
    const lw_status status = read_text(r);
    if (status != LW_OK) return status;
    if (!lw_dtype_find(r->text, &tensor->dtype))
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": dtype \"%s\" is not known", r->file->name, r->key,
                       r->text);
    return LW_OK;
}

static lw_status read_offsets(reader *r, span *where)
{
    uint64_t offsets[2];
    uint32_t count;
    const lw_status status = read_numbers(r, offsets, 2, &count);
    if (status != LW_OK) return status;
    if (count != 2) return fail_at(r, "data_offsets are not two numbers");
    *where = (span){ .begin = offsets[0], .end = offsets[1] };
    return LW_OK;
}

/* One "dtype": .., "shape": .. or "data_offsets": .. of a tensor. */
static lw_status read_field(reader *r, lw_tensor *tensor, span *where, unsigned *seen)
{
    static const char *const names[] = { "dtype", "shape", "data_offsets" };
    lw_status status = read_text(r);
    if (status != LW_OK) return status;
    unsigned field = 0;
    while (field < 3 && strcmp(names[field], r->text) != 0) field++;
    if (field == 3)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": \"%s\" is not a field of a tensor", r->file->name,
                       r->key, r->text);
    if ((*seen & 1u << field) != 0)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": duplicate key \"%s\"", r->file->name, r->key, r->text);
    *seen |= 1u << field;
    if (!accept(r, ':')) return fail_at(r, "\":\" is expected");
    if (1u << field == FIELD_DTYPE) return read_dtype(r, tensor);
    if (1u << field == FIELD_OFFSETS) return read_offsets(r, where);
    return read_numbers(r, tensor->dims, LW_LIMIT_TENSOR_DIMS, &tensor->dim_count);
}

/* Invariant 2. A span that runs past the file's end is judged later, when the whole expected size is known. */
static lw_status check_span(const reader *r, lw_tensor *tensor, const span *where)
{
    char shape[160];
    uint64_t bytes = lw_dtype_bytes(tensor->dtype);
    bool wraps = false, empty = false;
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        if (tensor->dims[i] == 0) empty = true;
        else wraps |= __builtin_mul_overflow(bytes, tensor->dims[i], &bytes);
    }
    lw_tensor_shape(tensor, shape, sizeof shape);
    if (wraps)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": shape %s has more bytes than any file", r->file->name,
                       r->key, shape);
    if (where->end < where->begin)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": data_offsets end at %" PRIu64 ", before they begin at %"
                       PRIu64, r->file->name, r->key, where->end, where->begin);
    if (empty) bytes = 0;
    if (where->end - where->begin != bytes)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: tensor \"%s\": %s needs %" PRIu64 " bytes, but data_offsets span %"
                       PRIu64, r->file->name, r->key, shape, bytes, where->end - where->begin);
    tensor->byte_count = (size_t)bytes;
    return LW_OK;
}

static lw_status add_entry(reader *r, const entry *added)
{
    if (r->entry_count == LW_LIMIT_TENSORS)
        return lw_fail(r->d, LW_NO_ROOM, "%s: more than %d tensors", r->file->name, LW_LIMIT_TENSORS);
    if (r->entry_count == r->entry_room) {
        const size_t room = r->entry_room == 0 ? 64 : r->entry_room * 2;
        entry *grown = realloc(r->entries, room * sizeof *grown);
        if (grown == NULL) return lw_fail(r->d, LW_NO_ROOM, "%s: no memory for %zu tensors", r->file->name, room);
        r->entries = grown;
        r->entry_room = room;
    }
    r->entries[r->entry_count++] = *added;
    return LW_OK;
}

static lw_status read_tensor(reader *r)
{
    lw_tensor tensor = { .file = r->file->name };
    span where = { 0 };
    unsigned seen = 0;
    lw_status status;
    if (!accept(r, '{')) return fail_at(r, "an object is expected");
    do {
        status = read_field(r, &tensor, &where, &seen);
        if (status != LW_OK) return status;
    } while (accept(r, ','));
    if (!accept(r, '}')) return fail_at(r, "the tensor's object does not end");
    if (seen != FIELD_ALL) return fail_at(r, "dtype, shape and data_offsets must all be there");
    status = check_span(r, &tensor, &where);
    if (status != LW_OK) return status;
    tensor.name = lw_arena_copy_text(&r->file->arena, r->key, strlen(r->key));
    if (tensor.name == NULL) return lw_fail(r->d, LW_NO_ROOM, "%s: no memory for names", r->file->name);
    return add_entry(r, &(entry){ .tensor = tensor, .begin = where.begin });
}

static lw_status read_pair(reader *r)
{
    lw_safetensors *file = r->file;
    lw_status status = read_text(r);
    if (status != LW_OK) return status;
    if (lw_safetensors_metadata(file, r->text) != NULL)
        return lw_fail(r->d, LW_BAD_MODEL, "%s: __metadata__: duplicate key \"%s\"", file->name, r->text);
    if (++r->pair_count > LW_LIMIT_METADATA)
        return lw_fail(r->d, LW_NO_ROOM, "%s: __metadata__ has more than %d keys", file->name, LW_LIMIT_METADATA);
    metadata *pair = lw_arena_take(&file->arena, sizeof *pair);
    char *key = lw_arena_copy_text(&file->arena, r->text, strlen(r->text));
    if (!accept(r, ':') || !accept(r, '"')) return fail_at(r, "a value of __metadata__ is not a string");
    /* The raw text up to the next quote that no backslash stands before bounds the decoded text. */
    const char *quote = r->at;
    while (quote < r->end && *quote != '"') quote += *quote == '\\' && r->end - quote > 1 ? 2 : 1;
    const size_t room = (size_t)(quote - r->at) + 1;
    char *value = lw_arena_take(&file->arena, room);
    if (pair == NULL || key == NULL || value == NULL)
        return lw_fail(r->d, LW_NO_ROOM, "%s: no memory for __metadata__", file->name);
    status = read_string_body(r, value, room);
    if (status != LW_OK) return status;
    *pair = (metadata){ .next = file->pairs, .key = key, .value = value };
    file->pairs = pair;
    return LW_OK;
}

static lw_status read_metadata(reader *r)
{
    if (!accept(r, '{')) return fail_at(r, "__metadata__ is not an object of strings");
    if (accept(r, '}')) return LW_OK;
    do {
        const lw_status status = read_pair(r);
        if (status != LW_OK) return status;
    } while (accept(r, ','));
    return accept(r, '}') ? LW_OK : fail_at(r, "__metadata__ does not end");
}

static lw_status read_entry(reader *r, bool *metadata_seen)
{
    lw_status status = read_text(r);
    if (status != LW_OK) return status;
    memcpy(r->key, r->text, sizeof r->key);
    if (!accept(r, ':')) return fail_at(r, "\":\" is expected");
    if (strcmp(r->key, "__metadata__") != 0) {
        status = read_tensor(r);
    } else {
        r->key[0] = '\0';
        if (*metadata_seen) return fail_at(r, "duplicate key \"__metadata__\"");
        *metadata_seen = true;
        status = read_metadata(r);
    }
    r->key[0] = '\0';
    return status;
}

static lw_status read_header(reader *r)
{
    bool metadata_seen = false;
    if (!accept(r, '{')) return fail_at(r, "the header is not a JSON object");
    if (!accept(r, '}')) {
        do {
            const lw_status status = read_entry(r, &metadata_seen);
            if (status != LW_OK) return status;
        } while (accept(r, ','));
        if (!accept(r, '}')) return fail_at(r, "\",\" or \"}\" is expected");
    }
    skip_space(r);
    return r->at == r->end ? LW_OK : fail_at(r, "text follows the header's object");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const lw_tensor *)a)->name, ((const lw_tensor *)b)->name);
}

/* Empty tensors come first at their offset: they end where they begin and overlap nothing. */
static int compare_begins(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->tensor.byte_count > y->tensor.byte_count) - (x->tensor.byte_count < y->tensor.byte_count);
}

/* Invariant 3. Needs entries in order of begin. */
static lw_status check_places(const reader *r)
{
    const char *last = "", *name = r->file->name;
    uint64_t end = 0;
    for (size_t i = 0; i < r->entry_count; i++) {
        const entry *e = &r->entries[i];
        if (e->tensor.byte_count > 0 && e->begin < end)
            return lw_fail(r->d, LW_BAD_MODEL, "%s: tensors \"%s\" and \"%s\" overlap", name, last, e->tensor.name);
        if (e->begin + e->tensor.byte_count <= end) continue;
        end = e->begin + e->tensor.byte_count;
        last = e->tensor.name;
    }
    if (end <= r->data_bytes) return LW_OK;
    const uint64_t before = LENGTH_BYTES + (uint64_t)(r->end - r->begin);
    uint64_t expected;
    if (__builtin_add_overflow(before, end, &expected)) expected = UINT64_MAX;
    return lw_fail(r->d, LW_BAD_MODEL,
                   "%s: the file is shorter than its header says: %" PRIu64 " bytes are there and %" PRIu64
                   " are expected (tensor \"%s\" ends last); an unfinished download?",
                   name, before + r->data_bytes, expected, last);
}

/* Invariants 3 and 4, then the tensors move into the file. */
static lw_status keep_tensors(reader *r)
{
    lw_safetensors *file = r->file;
    if (r->entry_count == 0) return LW_OK;
    qsort(r->entries, r->entry_count, sizeof *r->entries, compare_begins);
    const lw_status status = check_places(r);
    if (status != LW_OK) return status;
    qsort(r->entries, r->entry_count, sizeof *r->entries, compare_names);
    file->tensors = calloc(r->entry_count, sizeof *file->tensors);
    if (file->tensors == NULL)
        return lw_fail(r->d, LW_NO_ROOM, "%s: no memory for %zu tensors", file->name, r->entry_count);
    for (size_t i = 0; i < r->entry_count; i++) {
        const entry *e = &r->entries[i];
        if (i > 0 && strcmp(file->tensors[i - 1].name, e->tensor.name) == 0)
            return lw_fail(r->d, LW_BAD_MODEL, "%s: duplicate key \"%s\" in the header", file->name, e->tensor.name);
        file->tensors[i] = e->tensor;
        file->tensors[i].bytes = (const uint8_t *)r->end + e->begin;
    }
    file->count = r->entry_count;
    return LW_OK;
}

static lw_status check_header_bytes(const char *name, const uint8_t *bytes, size_t count, uint64_t *header_bytes,
                                    lw_diag *d)
{
    const lw_status status = lw__lfs_check(name, bytes, count, d);
    if (status != LW_OK) return status;
    if (count == 0) return lw_fail(d, LW_BAD_MODEL, "%s: the file is empty", name);
    if (count < LENGTH_BYTES)
        return lw_fail(d, LW_BAD_MODEL, "%s: %zu bytes are there and at least %d are expected; an unfinished download?",
                       name, count, LENGTH_BYTES);
    memcpy(header_bytes, bytes, LENGTH_BYTES);
    if (*header_bytes > LW_LIMIT_HEADER_BYTES)
        return lw_fail(d, LW_BAD_MODEL, "%s: a header of %" PRIu64 " bytes is above the limit of %d; not a safetensors "
                       "file?", name, *header_bytes, LW_LIMIT_HEADER_BYTES);
    if (*header_bytes > count - LENGTH_BYTES)
        return lw_fail(d, LW_BAD_MODEL, "%s: the file ends inside its header: %zu bytes are there and more than %" PRIu64
                       " are expected; an unfinished download?", name, count, LENGTH_BYTES + *header_bytes);
    return LW_OK;
}

/* Fills a zeroed file whose mapping may be set. */
static lw_status parse(lw_safetensors *file, const uint8_t *bytes, size_t count, const char *name, lw_diag *d)
{
    uint64_t header_bytes = 0;
    lw_status status = check_header_bytes(name, bytes, count, &header_bytes, d);
    if (status != LW_OK) return status;
    /* A tensor takes at least 49 bytes of header and one aligned copy of its name: thrice the header is enough. */
    lw_arena_init(&file->arena, 3 * (size_t)header_bytes + strlen(name) + 4096);
    file->name = lw_arena_copy_text(&file->arena, name, strlen(name));
    reader *r = calloc(1, sizeof *r);
    if (file->name == NULL || r == NULL) {
        free(r);
        return lw_fail(d, LW_NO_ROOM, "%s: no memory", name);
    }
    r->begin = r->at = (const char *)bytes + LENGTH_BYTES;
    r->end = r->begin + header_bytes;
    r->data_bytes = count - LENGTH_BYTES - (size_t)header_bytes;
    r->file = file;
    r->d = d;
    status = read_header(r);
    if (status == LW_OK) status = keep_tensors(r);
    free(r->entries);
    free(r);
    return status;
}

lw_status lw_safetensors_parse(const uint8_t *bytes, size_t count, const char *name, lw_safetensors **out, lw_diag *d)
{
    *out = NULL;
    lw_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory", name);
    const lw_status status = parse(file, bytes, count, name, d);
    if (status != LW_OK) {
        lw_safetensors_close(file);
        return status;
    }
    *out = file;
    return LW_OK;
}

lw_status lw_safetensors_open(const char *path, lw_safetensors **out, lw_diag *d)
{
    lw_mapping mapping;
    *out = NULL;
    lw_status status = lw__mapping_open(path, &mapping, d);
    if (status != LW_OK) return status;
    status = lw_safetensors_parse(mapping.bytes, mapping.count, path, out, d);
    if (status != LW_OK) lw__mapping_close(&mapping);
    else (*out)->mapping = mapping;
    return status;
}

void lw_safetensors_close(lw_safetensors *file)
{
    if (file == NULL) return;
    lw__mapping_close(&file->mapping);
    lw_arena_deinit(&file->arena);
    free(file->tensors);
    free(file);
}

size_t lw_safetensors_count(const lw_safetensors *file)
{
    return file->count;
}

const lw_tensor *lw_safetensors_tensor(const lw_safetensors *file, size_t index)
{
    LW_ASSERT(index < file->count);
    return &file->tensors[index];
}

const lw_tensor *lw_safetensors_find(const lw_safetensors *file, const char *name)
{
    const lw_tensor wanted = { .name = name };
    if (file->count == 0) return NULL;
    return bsearch(&wanted, file->tensors, file->count, sizeof wanted, compare_names);
}

const char *lw_safetensors_metadata(const lw_safetensors *file, const char *key)
{
    for (const metadata *pair = file->pairs; pair != NULL; pair = pair->next)
        if (strcmp(pair->key, key) == 0) return pair->value;
    return NULL;
}

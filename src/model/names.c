/* The search for a family's weights; see names.h. Two halves: finding a tensor under any spelling, and making
 * a descriptor of what was found. Neither guesses: whatever config and shapes disagree about becomes a note,
 * and finish turns the notes into one error.
 */
#include "model/names.h"

#include "base/arena.h"
#include "base/size.h"
#include "model/quant_config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTES_SHOWN = 12,
    TRIED_SHOWN = 3,
    NOTE_BYTES = 512,
    SHAPE_BYTES = 160,
    SCRATCH_BYTES_MAX = LW_LIMIT_SPELLINGS * (LW_LIMIT_NAME_BYTES + 64) * 2,
};

typedef struct note note;
struct note {
    note *next;
    const char *text;
};

struct lw_names {
    lw_arena arena;   /* notes and lists */
    lw_arena scratch; /* spellings of one search */
    const lw_checkpoint *checkpoint;
    const lw_names_options *options;
    lw_quant_config quant;
    const char *winner; /* prefix under which the first tensor was found; NULL before */
    bool *taken;        /* [tensor_count] */
    note *notes;        /* oldest first */
    note **notes_end;
    size_t note_count;
    bool is_unsupported; /* a note speaks of a form that is well but not served */
    bool is_full;        /* memory ran out; finish says so */
    const char **unused; /* [unused_count] */
    size_t unused_count;
};

/* What a family asks for. */
typedef struct ask {
    char name[LW_LIMIT_NAME_BYTES]; /* the family's spelling */
    const char *suffix;             /* ".weight" or "" */
    uint32_t stack;                 /* 0: no stack dimension */
    uint32_t rows;                  /* 0 with any_rows */
    uint32_t cols;
    bool any_rows;                  /* as many as the file has */
} ask;

typedef struct found {
    char path[LW_LIMIT_NAME_BYTES]; /* as in the file, without the suffix */
    const lw_tensor *tensor;
} found;

typedef struct spellings {
    const char *texts[LW_LIMIT_SPELLINGS];
    size_t count;
} spellings;

/* -- notes -- */

static void note_add(lw_names *names, lw_status status, const char *format, ...) LW_PRINTF(3, 4);
static void note_add(lw_names *names, lw_status status, const char *format, ...)
{
    char text[NOTE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    names->is_unsupported |= status == LW_UNSUPPORTED;
    names->is_full |= status == LW_NO_ROOM;
    note *added = lw_arena_take(&names->arena, sizeof *added);
    const char *copy = lw_arena_copy_text(&names->arena, text, strlen(text));
    if (added == NULL || copy == NULL) {
        names->is_full = true;
        return;
    }
    added->text = copy;
    *names->notes_end = added;
    names->notes_end = &added->next;
    names->note_count++;
}

/* The file without its folder, which stands once at the head of the error. */
static const char *after_slash(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static const char *file_of(const lw_tensor *tensor)
{
    return after_slash(tensor->file);
}

static const char *config_of(const lw_names *names)
{
    return after_slash(names->quant.file);
}

/* -- finding -- */

/* Where want stands in text as whole dotted parts; NULL if it does not. */
static const char *find_parts(const char *text, const char *want)
{
    const size_t bytes = strlen(want);
    for (const char *at = strstr(text, want); at != NULL; at = strstr(at + 1, want)) {
        const bool begins = at == text || at[-1] == '.', ends = at[bytes] == '\0' || at[bytes] == '.';
        if (begins && ends) return at;
    }
    return NULL;
}

static bool has_spelling(const spellings *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->texts[i], text) == 0) return true;
    return false;
}

/* Adds the spelling that one alias makes of text, if it is another one and there is room. */
static void spell_with(lw_names *names, spellings *list, const char *text, const lw_alias *alias)
{
    const char *at = find_parts(text, alias->want);
    if (at == NULL || list->count == LW_LIMIT_SPELLINGS) return;
    const size_t head = (size_t)(at - text), want = strlen(alias->want), bytes = strlen(alias->found);
    char *made = lw_arena_take(&names->scratch, strlen(text) - want + bytes + 1);
    if (made == NULL) {
        names->is_full = true;
        return;
    }
    memcpy(made, text, head);
    memcpy(made + head, alias->found, bytes);
    memcpy(made + head + bytes, at + want, strlen(at + want) + 1);
    if (!has_spelling(list, made)) list->texts[list->count++] = made;
}

/* Every combination of aliases, those with the fewest replacements first. Texts live until the next call. */
static void spell(lw_names *names, const char *name, spellings *list)
{
    lw_arena_reset(&names->scratch);
    *list = (spellings){ .texts = { name }, .count = 1 };
    const lw_alias *aliases = names->options->aliases;
    for (size_t i = 0; i < list->count; i++)
        for (const lw_alias *alias = aliases; alias != NULL && alias->want != NULL; alias++)
            spell_with(names, list, list->texts[i], alias);
}

static const lw_tensor *find_spelled(const lw_names *names, const char *prefix, size_t prefix_bytes,
                                     const ask *a, const spellings *list, found *out)
{
    char whole[LW_LIMIT_NAME_BYTES + 16];
    for (size_t i = 0; i < list->count; i++) {
        const int bytes =
            snprintf(out->path, sizeof out->path, "%.*s%s", (int)prefix_bytes, prefix, list->texts[i]);
        if (bytes < 0 || (size_t)bytes >= sizeof out->path) continue;
        snprintf(whole, sizeof whole, "%s%s", out->path, a->suffix);
        out->tensor = lw_checkpoint_find(names->checkpoint, whole);
        if (out->tensor != NULL) return out->tensor;
    }
    return NULL;
}

/* Length of the prefix one dotted part shorter: "a.b." -> "a.", "a." -> "". */
static size_t parent_bytes(const char *prefix, size_t bytes)
{
    if (bytes > 0) bytes--;
    while (bytes > 0 && prefix[bytes - 1] != '.') bytes--;
    return bytes;
}

static bool find(lw_names *names, const ask *a, found *out)
{
    spellings list;
    spell(names, a->name, &list);
    if (names->winner != NULL) {
        size_t bytes = strlen(names->winner);
        while (find_spelled(names, names->winner, bytes, a, &list, out) == NULL) {
            if (bytes == 0) return false;
            bytes = parent_bytes(names->winner, bytes);
        }
        return true;
    }
    for (const char *const *prefix = names->options->prefixes; *prefix != NULL; prefix++) {
        if (find_spelled(names, *prefix, strlen(*prefix), a, &list, out) == NULL) continue;
        if (**prefix != '\0') names->winner = *prefix;
        return true;
    }
    return false;
}

/* Collects the names that a search tried, for a text. */
typedef struct tried {
    char text[NOTE_BYTES / 2];
    size_t at;
    size_t count;
} tried;

static void tried_add(tried *t, const char *prefix, const spellings *list, const char *suffix)
{
    for (size_t i = 0; i < list->count; i++) {
        if (t->count++ >= TRIED_SHOWN || t->at >= sizeof t->text) continue;
        const int bytes = snprintf(t->text + t->at, sizeof t->text - t->at, "%s%s%s%s",
                                   t->at == 0 ? "" : ", ", prefix, list->texts[i], suffix);
        if (bytes > 0) t->at += (size_t)bytes;
    }
}

static void note_missing(lw_names *names, const ask *a)
{
    spellings list;
    tried t = { .at = 0 };
    spell(names, a->name, &list);
    if (names->winner != NULL) tried_add(&t, names->winner, &list, a->suffix);
    for (const char *const *prefix = names->options->prefixes; *prefix != NULL && names->winner == NULL;
         prefix++)
        tried_add(&t, *prefix, &list, a->suffix);
    if (t.count > TRIED_SHOWN)
        note_add(names, LW_BAD_MODEL, "missing: %s%s (tried %s and %zu more)", a->name, a->suffix, t.text,
                 t.count - TRIED_SHOWN);
    else
        note_add(names, LW_BAD_MODEL, "missing: %s%s (tried %s)", a->name, a->suffix, t.text);
}

static void take(lw_names *names, const lw_tensor *tensor)
{
    if (tensor != NULL) names->taken[tensor - lw_checkpoint_tensor(names->checkpoint, 0)] = true;
}

static const lw_tensor *sibling(const lw_names *names, const found *f, const char *suffix)
{
    char whole[LW_LIMIT_NAME_BYTES + 16];
    snprintf(whole, sizeof whole, "%s%s", f->path, suffix);
    return lw_checkpoint_find(names->checkpoint, whole);
}

/* -- descriptors -- */

static bool dense_map(lw_dtype dtype, lw_map *map)
{
    if (dtype == LW_DTYPE_BF16) *map = LW_MAP_BF16;
    else if (dtype == LW_DTYPE_F16) *map = LW_MAP_FP16;
    else if (dtype == LW_DTYPE_F32) *map = LW_MAP_FP32;
    else return false;
    return true;
}

static lw_weight dense_weight(const lw_tensor *tensor, const ask *a, uint32_t rows, lw_map map)
{
    return (lw_weight){
        .name = tensor->name,
        .stack_count = a->stack == 0 ? 1 : a->stack,
        .rows = rows,
        .cols = a->cols,
        .map = map,
        .code_bits = (uint32_t)lw_dtype_bytes(tensor->dtype) * 8,
        .global_scale = 1.0f,
        .codes = tensor,
    };
}

/* True if tensor is (stack, rows, last) or (rows, last) as asked; *rows is then the file's number. */
static bool has_shape(const lw_tensor *tensor, const ask *a, uint64_t last, uint32_t *rows)
{
    const uint32_t first = a->stack == 0 ? 0 : 1;
    if (tensor->dim_count != first + 2) return false;
    if (first == 1 && tensor->dims[0] != a->stack) return false;
    if (tensor->dims[first + 1] != last) return false;
    const uint64_t stored = tensor->dims[first];
    if (!a->any_rows && stored != a->rows) return false;
    if (stored == 0 || stored > LW_LIMIT_VOCAB) return false;
    *rows = (uint32_t)stored;
    return true;
}

static void ask_shape(const ask *a, uint64_t last, char text[SHAPE_BYTES])
{
    char stack[24] = "", rows[24] = "rows";
    if (a->stack != 0) snprintf(stack, sizeof stack, "%" PRIu32 ", ", a->stack);
    if (!a->any_rows) snprintf(rows, sizeof rows, "%" PRIu32, a->rows);
    snprintf(text, SHAPE_BYTES, "[%s%s, %" PRIu64 "]", stack, rows, last);
}

static bool fail_shape(lw_names *names, const lw_tensor *tensor, const char *expected)
{
    char shape[SHAPE_BYTES];
    lw_tensor_shape(tensor, shape, sizeof shape);
    note_add(names, LW_BAD_MODEL, "%s: %s is %s, but the config asks for %s", file_of(tensor), tensor->name,
             shape, expected);
    return false;
}

static bool fail_dtype(lw_names *names, const lw_tensor *tensor)
{
    note_add(names, LW_UNSUPPORTED,
             "%s: %s: %s weights are not served; served: BF16, F16, F32 and MLX affine", file_of(tensor),
             tensor->name, lw_dtype_name(tensor->dtype));
    return false;
}

/* Settings of a quantised or possibly quantised module: the config's own word for it, else that of the file's
 * metadata, else the global ones. *known is false when nothing speaks of quantisation. */
static bool module_quant(lw_names *names, const found *f, lw_quant *out, bool *known)
{
    lw_diag d;
    lw_status status = LW_OK;
    *out = (lw_quant){ 0 };
    *known = names->quant.settings != NULL;
    if (*known) status = lw__quant_config_module(&names->quant, f->path, out, &d);
    const char *metadata = lw_checkpoint_metadata(names->checkpoint, f->tensor, "quantization");
    if (status == LW_OK && !out->is_explicit && metadata != NULL) {
        status = lw__quant_parse(metadata, file_of(f->tensor), out, &d);
        *known = true;
    }
    if (status == LW_OK) return true;
    note_add(names, status, "%s", d.text);
    return false;
}

static bool fill_dense(lw_names *names, const ask *a, const found *f, lw_weight *out)
{
    lw_map map;
    lw_quant quant;
    bool known;
    uint32_t rows;
    char expected[SHAPE_BYTES];
    if (!dense_map(f->tensor->dtype, &map)) return fail_dtype(names, f->tensor);
    if (!module_quant(names, f, &quant, &known)) return false;
    if (quant.is_explicit && !quant.is_off) {
        note_add(names, LW_BAD_MODEL, "%s: %s is %s, but %s says that it is quantized", file_of(f->tensor),
                 f->tensor->name, lw_dtype_name(f->tensor->dtype), config_of(names));
        return false;
    }
    if (sibling(names, f, ".scales") != NULL) {
        note_add(names, LW_BAD_MODEL, "%s: %s is %s, yet %s.scales is there", file_of(f->tensor),
                 f->tensor->name, lw_dtype_name(f->tensor->dtype), f->path);
        return false;
    }
    if (!has_shape(f->tensor, a, a->cols, &rows)) {
        ask_shape(a, a->cols, expected);
        return fail_shape(names, f->tensor, expected);
    }
    *out = dense_weight(f->tensor, a, rows, map);
    return true;
}

/* Says what the config claims and what the file holds, so that the reader sees which of the two is wrong. */
static bool fail_quant_shape(lw_names *names, const ask *a, const lw_weight *w)
{
    char held[64] = "which fits no width";
    const uint64_t words = w->codes->dim_count == 0 ? 0 : w->codes->dims[w->codes->dim_count - 1];
    const uint64_t groups = w->scales->dim_count == 0 ? 0 : w->scales->dims[w->scales->dim_count - 1];
    if (words <= a->cols && groups > 0 && a->cols % groups == 0 && words * 32 % a->cols == 0)
        snprintf(held, sizeof held, "which is %" PRIu64 " bits, group %" PRIu64, words * 32 / a->cols,
                 a->cols / groups);
    char codes[SHAPE_BYTES], scales[SHAPE_BYTES], expected[SHAPE_BYTES];
    lw_tensor_shape(w->codes, codes, sizeof codes);
    lw_tensor_shape(w->scales, scales, sizeof scales);
    ask_shape(a, a->cols, expected);
    note_add(names, LW_BAD_MODEL,
             "%s: %s: the config asks for %s in %" PRIu32 " bits, group %" PRIu32
             ", but the file holds weight %s and scales %s, %s",
             file_of(w->codes), w->name, expected, w->code_bits, w->group, codes, scales, held);
    return false;
}

static bool check_scales(lw_names *names, const ask *a, const lw_weight *w)
{
    lw_map map;
    uint32_t rows, scale_rows;
    if (!dense_map(w->scales->dtype, &map)) {
        note_add(names, LW_UNSUPPORTED,
                 "%s: %s: scales of dtype %s are not served; affine scales are BF16, F16 or F32",
                 file_of(w->scales), w->scales->name, lw_dtype_name(w->scales->dtype));
        return false;
    }
    const uint64_t words = (uint64_t)a->cols * w->code_bits / 32, groups = a->cols / w->group;
    if (a->cols % w->group != 0 || !has_shape(w->codes, a, words, &rows) ||
        !has_shape(w->scales, a, groups, &scale_rows) || rows != scale_rows)
        return fail_quant_shape(names, a, w);
    const lw_tensor *s = w->scales, *b = w->biases;
    if (b->dtype == s->dtype && b->dim_count == s->dim_count && memcmp(b->dims, s->dims, sizeof s->dims) == 0)
        return true;
    char scales[SHAPE_BYTES], biases[SHAPE_BYTES];
    lw_tensor_shape(s, scales, sizeof scales);
    lw_tensor_shape(b, biases, sizeof biases);
    note_add(names, LW_BAD_MODEL, "%s: %s is %s, but %s is %s: both must be alike", file_of(b), b->name,
             biases, s->name, scales);
    return false;
}

static bool fill_affine(lw_names *names, const ask *a, const found *f, lw_weight *out)
{
    lw_quant quant;
    bool known;
    const lw_tensor *scales = sibling(names, f, ".scales"), *biases = sibling(names, f, ".biases");
    take(names, scales);
    take(names, biases);
    if (!module_quant(names, f, &quant, &known)) return false;
    if (!known || quant.is_off) {
        note_add(names, LW_BAD_MODEL, "%s: %s is packed in U32 words, but %s %s", file_of(f->tensor),
                 f->tensor->name, config_of(names),
                 known ? "says that it is not quantized" : "has no \"quantization\"");
        return false;
    }
    if (scales == NULL || biases == NULL) {
        note_add(names, LW_BAD_MODEL, "missing: %s.%s (of the quantized %s in %s)", f->path,
                 scales == NULL ? "scales" : "biases", f->tensor->name, file_of(f->tensor));
        return false;
    }
    const lw_weight weight = {
        .name = f->tensor->name,
        .stack_count = a->stack == 0 ? 1 : a->stack,
        .rows = a->rows,
        .cols = a->cols,
        .map = LW_MAP_INTEGER,
        .code_bits = quant.bits,
        .order = LW_ORDER_ROWS,
        .group = quant.group,
        .scale_type = scales->dtype,
        .has_bias = true,
        .global_scale = 1.0f,
        .codes = f->tensor,
        .scales = scales,
        .biases = biases,
    };
    if (!check_scales(names, a, &weight)) return false;
    *out = weight;
    out->rows = (uint32_t)f->tensor->dims[a->stack == 0 ? 0 : 1];
    return true;
}

/* Sizes come from the config, so a zero is the config's fault. */
static bool fail_empty(lw_names *names, const ask *a)
{
    note_add(names, LW_BAD_MODEL, "%s: the config makes it empty", a->name);
    return false;
}

static bool matrix(lw_names *names, lw_weight *out, ask *a)
{
    found f;
    *out = (lw_weight){ 0 };
    a->suffix = ".weight";
    if (a->cols == 0 || (a->rows == 0 && !a->any_rows)) return fail_empty(names, a);
    if (!find(names, a, &f)) {
        note_missing(names, a);
        return false;
    }
    take(names, f.tensor);
    return f.tensor->dtype == LW_DTYPE_U32 ? fill_affine(names, a, &f, out) : fill_dense(names, a, &f, out);
}

/* Prints a family's spelling. Names come from the program: one that does not fit is the program's mistake. */
#define SPELL_ASK(a, format) \
    do { \
        va_list args_; \
        va_start(args_, format); \
        const int bytes_ = vsnprintf((a)->name, sizeof(a)->name, format, args_); \
        va_end(args_); \
        LW_ASSERT(bytes_ >= 0 && (size_t)bytes_ < sizeof(a)->name); \
    } while (0)

bool lw_names_matrix(lw_names *names, lw_weight *out, uint32_t rows, uint32_t cols, const char *module, ...)
{
    ask a = { .rows = rows, .cols = cols };
    SPELL_ASK(&a, module);
    return matrix(names, out, &a);
}

bool lw_names_matrix_any_rows(lw_names *names, lw_weight *out, uint32_t cols, const char *module, ...)
{
    ask a = { .cols = cols, .any_rows = true };
    SPELL_ASK(&a, module);
    return matrix(names, out, &a);
}

bool lw_names_stack(lw_names *names, lw_weight *out, const uint32_t dims[3], const char *module, ...)
{
    ask a = { .stack = dims[0], .rows = dims[1], .cols = dims[2] };
    SPELL_ASK(&a, module);
    *out = (lw_weight){ 0 };
    return a.stack == 0 ? fail_empty(names, &a) : matrix(names, out, &a);
}

bool lw_names_dense(lw_names *names, lw_weight *out, uint32_t rows, uint32_t cols, const char *name, ...)
{
    ask a = { .suffix = "", .rows = rows, .cols = cols };
    found f;
    lw_map map;
    char expected[SHAPE_BYTES];
    *out = (lw_weight){ 0 };
    SPELL_ASK(&a, name);
    if (rows == 0 || cols == 0) return fail_empty(names, &a);
    if (!find(names, &a, &f)) {
        note_missing(names, &a);
        return false;
    }
    take(names, f.tensor);
    if (!dense_map(f.tensor->dtype, &map)) return fail_dtype(names, f.tensor);
    const uint64_t count = (uint64_t)rows * cols;
    if (f.tensor->byte_count / lw_dtype_bytes(f.tensor->dtype) != count) {
        snprintf(expected, sizeof expected, "%" PRIu64 " elements", count);
        return fail_shape(names, f.tensor, expected);
    }
    *out = dense_weight(f.tensor, &a, rows, map);
    return true;
}

bool lw_names_has(lw_names *names, const char *module, ...)
{
    ask a = { .suffix = ".weight" };
    found f;
    SPELL_ASK(&a, module);
    if (find(names, &a, &f)) return true;
    a.suffix = "";
    return find(names, &a, &f);
}

/* -- begin and end -- */

lw_status lw_names_make(const lw_checkpoint *checkpoint, const lw_names_options *options, lw_names **out,
                        lw_diag *d)
{
    *out = NULL;
    lw_names *names = calloc(1, sizeof *names);
    if (names == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the names of a model");
    const size_t count = lw_checkpoint_tensor_count(checkpoint);
    lw_arena_init(&names->arena, SIZE_MAX); /* grows with the questions, which are the program's own */
    lw_arena_init(&names->scratch, SCRATCH_BYTES_MAX);
    names->checkpoint = checkpoint;
    names->options = options;
    names->notes_end = &names->notes;
    names->taken = lw_arena_take_array(&names->arena, size_max(count, 1), sizeof *names->taken);
    lw_status status = LW_OK;
    if (names->taken == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for the names of a model");
    else status = lw__quant_config_read(lw_checkpoint_config(checkpoint), &names->quant, d);
    if (status != LW_OK) {
        lw_names_free(names);
        return status;
    }
    *out = names;
    return LW_OK;
}

void lw_names_free(lw_names *names)
{
    if (names == NULL) return;
    lw_arena_deinit(&names->arena);
    lw_arena_deinit(&names->scratch);
    free(names);
}

static bool is_ignored(const lw_names *names, const char *name)
{
    const char *const *ignored = names->options->ignored;
    for (; ignored != NULL && *ignored != NULL; ignored++)
        if (strncmp(name, *ignored, strlen(*ignored)) == 0) return true;
    return false;
}

static lw_status list_unused(lw_names *names, lw_diag *d)
{
    const size_t count = lw_checkpoint_tensor_count(names->checkpoint);
    names->unused_count = 0;
    names->unused = lw_arena_take_array(&names->arena, size_max(count, 1), sizeof *names->unused);
    if (names->unused == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the list of unused tensors");
    for (size_t i = 0; i < count; i++) {
        const char *name = lw_checkpoint_tensor(names->checkpoint, i)->name;
        if (!names->taken[i] && !is_ignored(names, name)) names->unused[names->unused_count++] = name;
    }
    return LW_OK;
}

/* All notes in one text: at most NOTES_SHOWN, and only whole ones, then how many there are beyond. */
static lw_status fail_notes(const lw_names *names, lw_diag *d)
{
    enum { TAIL_BYTES = 32 };
    char text[LW_DIAG_BYTES - 256];
    size_t at = 0, shown = 0;
    for (const note *n = names->notes; n != NULL && shown < NOTES_SHOWN; n = n->next, shown++) {
        if (at + strlen(n->text) + TAIL_BYTES >= sizeof text) break;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", shown == 0 ? "" : "\n  ", n->text);
    }
    if (shown < names->note_count)
        snprintf(text + at, sizeof text - at, "\n  and %zu more", names->note_count - shown);
    return lw_fail(d, names->is_unsupported ? LW_UNSUPPORTED : LW_BAD_MODEL,
                   "%.128s: %zu weight%s cannot be used:\n  %s", lw_checkpoint_dir(names->checkpoint),
                   names->note_count, names->note_count == 1 ? "" : "s", text);
}

lw_status lw_names_finish(lw_names *names, lw_diag *d)
{
    if (names->is_full) return lw_fail(d, LW_NO_ROOM, "no memory for the names of a model");
    const lw_status status = list_unused(names, d);
    if (status != LW_OK) return status;
    return names->note_count == 0 ? LW_OK : fail_notes(names, d);
}

size_t lw_names_unused_count(const lw_names *names)
{
    return names->unused_count;
}

const char *lw_names_unused(const lw_names *names, size_t index)
{
    LW_ASSERT(index < names->unused_count);
    return names->unused[index];
}

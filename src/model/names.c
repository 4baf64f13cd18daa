/* The search for a family's weights under any spelling; see names.h. What is found goes to module.c, which
 * makes a descriptor of it; finish turns everybody's notes into one error.
 */
#include "model/names.h"

#include "base/arena.h"
#include "base/size.h"
#include "model/module.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTES_SHOWN = 12,
    TRIED_SHOWN = 3,
    NOTE_BYTES = 512,
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

typedef struct spellings {
    const char *texts[LW_LIMIT_SPELLINGS];
    size_t count;
} spellings;

/* -- notes -- */

void lw__names_note(lw_names *names, lw_status status, const char *format, ...)
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

static const char *after_slash(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

const char *lw__file_of(const lw_tensor *tensor)
{
    return after_slash(tensor->file);
}

const char *lw__config_of(const lw_names *names)
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
                                     const lw__ask *a, const spellings *list, lw__found *out)
{
    char whole[LW_LIMIT_NAME_BYTES + 16];
    for (size_t i = 0; i < list->count; i++) {
        const int bytes =
            snprintf(out->path, sizeof out->path, "%.*s%s", (int)prefix_bytes, prefix, list->texts[i]);
        if (bytes < 0 || (size_t)bytes >= sizeof out->path) continue;
        for (size_t j = 0; a->suffixes[j] != NULL; j++) {
            snprintf(whole, sizeof whole, "%s%s", out->path, a->suffixes[j]);
            out->suffix = a->suffixes[j];
            out->tensor = lw_checkpoint_find(names->checkpoint, whole);
            if (out->tensor != NULL) return out->tensor;
        }
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

static bool find(lw_names *names, const lw__ask *a, lw__found *out)
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

static void note_missing(lw_names *names, const lw__ask *a)
{
    spellings list;
    tried t = { .at = 0 };
    spell(names, a->name, &list);
    if (names->winner != NULL) tried_add(&t, names->winner, &list, a->suffixes[0]);
    for (const char *const *prefix = names->options->prefixes; *prefix != NULL && names->winner == NULL;
         prefix++)
        tried_add(&t, *prefix, &list, a->suffixes[0]);
    if (t.count > TRIED_SHOWN)
        lw__names_note(names, LW_BAD_MODEL, "missing: %s%s (tried %s and %zu more)", a->name, a->suffixes[0],
                       t.text, t.count - TRIED_SHOWN);
    else
        lw__names_note(names, LW_BAD_MODEL, "missing: %s%s (tried %s)", a->name, a->suffixes[0], t.text);
}

static void take(lw_names *names, const lw_tensor *tensor)
{
    if (tensor != NULL) names->taken[tensor - lw_checkpoint_tensor(names->checkpoint, 0)] = true;
}

/* -- what module.c needs -- */

static const lw_tensor *sibling(const lw_names *names, const char *path, const char *suffix)
{
    char whole[LW_LIMIT_NAME_BYTES + 32];
    snprintf(whole, sizeof whole, "%s%s", path, suffix);
    return lw_checkpoint_find(names->checkpoint, whole);
}

bool lw__names_holds(const lw_names *names, const char *path, const char *suffix)
{
    return sibling(names, path, suffix) != NULL;
}

const lw_tensor *lw__names_take(lw_names *names, const char *path, const char *suffix)
{
    const lw_tensor *tensor = sibling(names, path, suffix);
    take(names, tensor);
    return tensor;
}

const lw_quant_config *lw__names_quant(const lw_names *names)
{
    return &names->quant;
}

const lw_checkpoint *lw__names_checkpoint(const lw_names *names)
{
    return names->checkpoint;
}

/* -- asking -- */

/* Sizes come from the config, so a zero is the config's fault. */
static bool fail_empty(lw_names *names, const lw__ask *a)
{
    lw__names_note(names, LW_BAD_MODEL, "%s: the config makes it empty", a->name);
    return false;
}

static bool matrix(lw_names *names, lw_weight *out, lw__ask *a)
{
    lw__found f;
    *out = (lw_weight){ 0 };
    if (a->cols == 0 || (a->rows == 0 && !a->any_rows)) return fail_empty(names, a);
    if (!find(names, a, &f)) {
        note_missing(names, a);
        return false;
    }
    take(names, f.tensor);
    return lw__module_fill(names, a, &f, out);
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
    lw__ask a = { .suffixes = lw__matrix_suffixes, .rows = rows, .cols = cols };
    SPELL_ASK(&a, module);
    return matrix(names, out, &a);
}

bool lw_names_matrix_any_rows(lw_names *names, lw_weight *out, uint32_t cols, const char *module, ...)
{
    lw__ask a = { .suffixes = lw__matrix_suffixes, .cols = cols, .any_rows = true };
    SPELL_ASK(&a, module);
    return matrix(names, out, &a);
}

/* -- stacks -- */

static const char *const no_suffix[] = { "", NULL };
/* Fused experts are parameters of their module: no ".weight" follows. */
static const char *const stack_suffixes[] = { ".weight", "", NULL };

/* Puts "parent.child" into a, '*' in child replaced by index. */
static void spell_child(lw__ask *a, const char *parent, const char *child, uint32_t index)
{
    const char *star = strchr(child, '*');
    char number[16] = "";
    if (star != NULL) snprintf(number, sizeof number, "%" PRIu32, index);
    const size_t head = star == NULL ? strlen(child) : (size_t)(star - child);
    const int bytes = snprintf(a->name, sizeof a->name, "%s.%.*s%s%s", parent, (int)head, child, number,
                               star == NULL ? "" : star + 1);
    LW_ASSERT(bytes >= 0 && (size_t)bytes < sizeof a->name);
}

static bool has_child(lw_names *names, lw__ask *a, const char *parent, const char *child, uint32_t index)
{
    lw__found f;
    if (child == NULL) return false;
    spell_child(a, parent, child, index);
    return find(names, a, &f);
}

/* The rows of out that belong to one of the matrices that are stored as one. */
static bool fused(lw_names *names, lw_weight *out, lw__ask *a, const lw_stack_names *stored)
{
    const uint32_t rows = a->rows;
    LW_ASSERT(stored->fused_begin <= stored->fused_rows && rows <= stored->fused_rows - stored->fused_begin);
    a->rows = stored->fused_rows;
    if (!matrix(names, out, a)) return false;
    out->rows = rows;
    out->row_begin = stored->fused_begin;
    out->rows_stored = stored->fused_rows;
    return true;
}

static bool is_alike(const lw_weight *a, const lw_weight *b)
{
    return a->map == b->map && a->code_bits == b->code_bits && a->order == b->order && a->group == b->group &&
        a->group_rows == b->group_rows && a->scale_type == b->scale_type && a->has_bias == b->has_bias &&
        a->table == b->table;
}

/* A dense tensor of a's elements. */
static bool dense(lw_names *names, lw_weight *out, lw__ask *a)
{
    lw__found f;
    *out = (lw_weight){ 0 };
    if (a->rows == 0 || a->cols == 0) return fail_empty(names, a);
    if (!find(names, a, &f)) {
        note_missing(names, a);
        return false;
    }
    take(names, f.tensor);
    return lw__module_fill_dense(names, a, &f, out);
}

/* How one member of a stack is looked up. */
typedef bool member_fn(lw_names *names, lw_weight *out, lw__ask *a);

/* A module, or a dense tensor, for each member; a->name is "parent.each" of the first one. */
static bool gathered(lw_names *names, lw_weight *out, lw__ask *a, const char *parent, const char *each)
{
    member_fn *const member = a->suffixes == no_suffix ? dense : matrix;
    const uint32_t count = a->stack;
    lw_weight *members = lw__checkpoint_keep(names->checkpoint, count, sizeof *members);
    if (members == NULL) {
        names->is_full = true;
        return false;
    }
    bool complete = true;
    a->stack = 0;
    for (uint32_t i = 0; i < count; i++) {
        spell_child(a, parent, each, i);
        if (!member(names, &members[i], a)) complete = false;
        else if (complete && !is_alike(&members[0], &members[i])) {
            lw__names_note(names, LW_UNSUPPORTED, "%s is stored in another way than %s of the same stack",
                           members[i].name, members[0].name);
            complete = false;
        }
    }
    if (!complete) return false;
    *out = members[0];
    out->stack_count = count;
    out->members = members;
    out->codes = out->scales = out->biases = NULL;
    out->global_scale = 1.0f; /* each member has its own */
    out->global_divides = false;
    return true;
}

bool lw_names_stack_of(lw_names *names, lw_weight *out, const uint32_t dims[3], const lw_stack_names *stored,
                       const char *parent, ...)
{
    lw__ask a = { .suffixes = stack_suffixes, .stack = dims[0], .rows = dims[1], .cols = dims[2] };
    char whole[LW_LIMIT_NAME_BYTES];
    SPELL_ASK(&a, parent);
    memcpy(whole, a.name, sizeof whole);
    *out = (lw_weight){ 0 };
    if (a.stack == 0 || a.rows == 0 || a.cols == 0) return fail_empty(names, &a);
    if (has_child(names, &a, whole, stored->whole, 0)) return matrix(names, out, &a);
    if (has_child(names, &a, whole, stored->fused, 0)) return fused(names, out, &a, stored);
    a.suffixes = lw__matrix_suffixes;
    if (has_child(names, &a, whole, stored->each, 0)) return gathered(names, out, &a, whole, stored->each);
    lw__names_note(names, LW_BAD_MODEL, "missing: the experts of %s (as %s, %s or %s)", whole,
                   stored->whole == NULL ? "-" : stored->whole, stored->fused == NULL ? "-" : stored->fused,
                   stored->each == NULL ? "-" : stored->each);
    return false;
}

bool lw_names_has_vectors(lw_names *names, uint32_t count, const lw_stack_names *stored, const char *parent,
                          ...)
{
    lw__ask a = { .suffixes = no_suffix };
    char whole[LW_LIMIT_NAME_BYTES];
    SPELL_ASK(&a, parent);
    memcpy(whole, a.name, sizeof whole);
    bool found = has_child(names, &a, whole, stored->whole, 0);
    for (uint32_t i = 0; i < count && !found; i++) found = has_child(names, &a, whole, stored->each, i);
    return found;
}

bool lw_names_vectors_of(lw_names *names, lw_weight *out, const uint32_t dims[2],
                         const lw_stack_names *stored, const char *parent, ...)
{
    lw__ask a = { .suffixes = no_suffix, .stack = dims[0], .rows = 1, .cols = dims[1] };
    char whole[LW_LIMIT_NAME_BYTES];
    SPELL_ASK(&a, parent);
    memcpy(whole, a.name, sizeof whole);
    *out = (lw_weight){ 0 };
    if (a.stack == 0) return fail_empty(names, &a);
    if (!has_child(names, &a, whole, stored->whole, 0))
        return gathered(names, out, &a, whole, stored->each);
    a.stack = 0;
    a.rows = dims[0];
    if (!dense(names, out, &a)) return false;
    out->stack_count = dims[0];
    out->rows = 1;
    return true;
}

/* -- single tensors -- */

bool lw_names_dense(lw_names *names, lw_weight *out, uint32_t rows, uint32_t cols, const char *name, ...)
{
    lw__ask a = { .suffixes = no_suffix, .rows = rows, .cols = cols };
    SPELL_ASK(&a, name);
    return dense(names, out, &a);
}

bool lw_names_has(lw_names *names, const char *module, ...)
{
    lw__ask a = { .suffixes = lw__matrix_suffixes };
    lw__found f;
    SPELL_ASK(&a, module);
    if (find(names, &a, &f)) return true;
    a.suffixes = no_suffix;
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
    else
        status = lw__quant_config_read(lw_checkpoint_config(checkpoint), lw_checkpoint_quant(checkpoint),
                                       &names->quant, d);
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

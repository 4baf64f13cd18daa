/* Pre-tokenisation: each Split step cuts the pieces of the step before it; a piece is a text of its own, so
 * that no look-around sees past its ends. PCRE2 matches, through its JIT compiler where the system permits
 * one. A match that backtracks without end meets a limit and becomes an error.
 */
#include "text/text_internal.h"

#include <string.h>

typedef enum behavior {
    ISOLATED,       /* matches and what lies between them are pieces */
    REMOVED,        /* matches are dropped */
    MERGED_BEFORE,  /* a match joins the piece before it */
    MERGED_AFTER,   /* a match joins the piece after it */
    CONTIGUOUS,     /* matches in a row are one piece */
    BEHAVIOR_COUNT
} behavior;

static const char *const behavior_names[] = {
    [ISOLATED] = "Isolated",
    [REMOVED] = "Removed",
    [MERGED_BEFORE] = "MergedWithPrevious",
    [MERGED_AFTER] = "MergedWithNext",
    [CONTIGUOUS] = "Contiguous",
};
_Static_assert(sizeof behavior_names / sizeof behavior_names[0] == BEHAVIOR_COUNT,
               "the last behavior has a name");

struct lw__split {
    pcre2_code *code;    /* NULL: a literal */
    bool is_jit;
    const char *literal;
    size_t literal_count;
    behavior behavior;
    bool invert;
};

void lw__pretok_deinit(lw__pretok *pretok)
{
    for (size_t i = 0; i < pretok->split_count; i++) pcre2_code_free(pretok->splits[i].code);
    pretok->split_count = 0;
}

static lw_status split_compile(lw__split *split, const lw__split_rule *rule, lw_diag *d)
{
    lw_buf pattern;
    lw_buf_init(&pattern, 0);
    lw_status status = lw__pattern_rewrite(rule->pattern, rule->count, &pattern, d);
    if (status == LW_OK) status = lw__pattern_compile(pattern.bytes, pattern.count, &split->code, d);
    lw_buf_deinit(&pattern);
    if (status == LW_OK) split->is_jit = pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE) == 0;
    return status;
}

lw_status lw__pretok_add(lw__pretok *pretok, lw_arena *arena, const lw__split_rule *rule, const char *name,
                         lw_diag *d)
{
    if (pretok->splits == NULL) {
        pretok->splits = lw_arena_take_array(arena, LW_LIMIT_SPLIT_STEPS, sizeof *pretok->splits);
        if (pretok->splits == NULL)
            return lw_fail(d, LW_NO_ROOM, "%s: no memory for the pre-tokenizer", name);
    }
    if (pretok->split_count == LW_LIMIT_SPLIT_STEPS) {
        return lw_fail(d, LW_NO_ROOM, "%s: pre_tokenizer has more than %d Split steps", name,
                       LW_LIMIT_SPLIT_STEPS);
    }
    lw__split split = { .behavior = BEHAVIOR_COUNT, .invert = rule->invert };
    for (int i = 0; i < BEHAVIOR_COUNT; i++) {
        if (strcmp(rule->behavior, behavior_names[i]) == 0) split.behavior = (behavior)i;
    }
    if (split.behavior == BEHAVIOR_COUNT) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: pre_tokenizer: Split with behavior '%.100s' is not served",
                       name, rule->behavior);
    }
    if (rule->count == 0)
        return lw_fail(d, LW_UNSUPPORTED, "%s: pre_tokenizer: Split with an empty pattern", name);
    lw_status status = LW_OK;
    if (rule->is_regex) {
        status = split_compile(&split, rule, d);
        if (status != LW_OK) return lw_fail_prefix(d, status, "%s: pre_tokenizer", name);
    } else {
        split.literal = lw_arena_copy_text(arena, rule->pattern, rule->count);
        split.literal_count = rule->count;
        if (split.literal == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for the pre-tokenizer", name);
    }
    pretok->splits[pretok->split_count++] = split;
    return LW_OK;
}

/* ---- cutting ---- */

/* One step at work on one piece. Items (matches and gaps) arrive left to right; held is what may still grow.
 */
typedef struct cut {
    const lw__pretok_run *run;
    size_t step;
    const char *bytes;
    size_t count;
    size_t held_begin, held_end;
    bool has_held;
    bool was_match;          /* of the item before; false before the first */
} cut;

static lw_status cut_step(const lw__pretok_run *run, size_t step, const char *bytes, size_t count);

static lw_status piece_done(const cut *c, size_t begin, size_t end)
{
    return begin == end ? LW_OK : cut_step(c->run, c->step + 1, c->bytes + begin, end - begin);
}

static lw_status held_done(cut *c)
{
    const bool has_held = c->has_held;
    c->has_held = false;
    return has_held ? piece_done(c, c->held_begin, c->held_end) : LW_OK;
}

/* Holds [begin, end) after what is held has gone, or lengthens what is held. */
static lw_status hold(cut *c, size_t begin, size_t end, bool joins)
{
    if (joins && c->has_held) {
        c->held_end = end;
        return LW_OK;
    }
    const lw_status status = held_done(c);
    c->held_begin = begin;
    c->held_end = end;
    c->has_held = true;
    return status;
}

static lw_status item(cut *c, size_t begin, size_t end, bool is_match)
{
    const lw__split *split = &c->run->pretok->splits[c->step];
    if (split->invert) is_match = !is_match;
    const bool was_match = c->was_match;
    c->was_match = is_match;
    switch (split->behavior) {
    case ISOLATED: return piece_done(c, begin, end);
    case REMOVED: return is_match ? LW_OK : piece_done(c, begin, end);
    case MERGED_BEFORE: return hold(c, begin, end, is_match && !was_match);
    case MERGED_AFTER: return hold(c, begin, end, !is_match && was_match);
    case CONTIGUOUS: return hold(c, begin, end, is_match == was_match);
    case BEHAVIOR_COUNT: break;
    }
    LW_ASSERT(split->behavior < BEHAVIOR_COUNT);
    return LW_OK;
}

static lw_status match_failed(const cut *c, int error)
{
    const bool is_limit = error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT ||
                          error == PCRE2_ERROR_HEAPLIMIT || error == PCRE2_ERROR_JIT_STACKLIMIT;
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return lw_fail(c->run->d, is_limit || error == PCRE2_ERROR_NOMEMORY ? LW_NO_ROOM : LW_BAD_INPUT,
                   "pre_tokenizer: Split %zu gave up on a text of %zu bytes: %s", c->step, c->count,
                   (const char *)text);
}

/* Finds the first match at or after from: 1 and its place, 0 for none, or a PCRE2 error below 0. */
static int find(const cut *c, size_t from, size_t *begin, size_t *end)
{
    const lw__split *split = &c->run->pretok->splits[c->step];
    if (split->code == NULL) {
        const char *at = memmem(c->bytes + from, c->count - from, split->literal, split->literal_count);
        if (at == NULL) return 0;
        *begin = (size_t)(at - c->bytes);
        *end = *begin + split->literal_count;
        return 1;
    }
    const lw__pretok_run *run = c->run;
    const PCRE2_SPTR subject = (PCRE2_SPTR)c->bytes;
    const int found = split->is_jit
        ? pcre2_jit_match(split->code, subject, c->count, from, 0, run->match, run->limits)
        : pcre2_match(split->code, subject, c->count, from, PCRE2_NO_UTF_CHECK, run->match, run->limits);
    if (found == PCRE2_ERROR_NOMATCH) return 0;
    if (found < 0) return found;
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(run->match);
    *begin = place[0];
    *end = place[1];
    return 1;
}

static size_t point_end(const cut *c, size_t at)
{
    size_t used;
    (void)lw__utf8_decode(c->bytes + at, &used);
    return at + used;
}

static lw_status cut_step(const lw__pretok_run *run, size_t step, const char *bytes, size_t count)
{
    if (step == run->pretok->split_count) return run->word(run->context, bytes, count);
    cut c = { .run = run, .step = step, .bytes = bytes, .count = count };
    size_t done = 0, from = 0, begin = 0, end = 0;
    bool has_matched = false;
    lw_status status = LW_OK;
    while (status == LW_OK && from <= count) {
        const int found = find(&c, from, &begin, &end);
        if (found < 0) return match_failed(&c, found);
        if (found == 0) break;
        if (begin == end && has_matched && begin == done) {
            /* An empty match right behind a match is none: look on from the next code point. */
            from = from < count ? point_end(&c, from) : count + 1;
            continue;
        }
        if (begin > done) status = item(&c, done, begin, false);
        if (status == LW_OK) status = item(&c, begin, end, true);
        has_matched = true;
        done = from = end;
    }
    if (status == LW_OK && done < count) status = item(&c, done, count, false);
    return status == LW_OK ? held_done(&c) : status;
}

lw_status lw__pretok_cut(const lw__pretok_run *run, const char *bytes, size_t count)
{
    return count == 0 ? LW_OK : cut_step(run, 0, bytes, count);
}

/* Pre-tokenizer patterns are written for Oniguruma (Ruby syntax, UTF-8). PCRE2 reads most of them alike; here
 * every construct is either known to mean the same, rewritten so that it does, or refused by name. The
 * rewritten ones: \s and \w are the Unicode sets (PCRE2's differ by a few code points), script names mean the
 * Script property, and \u, \v and \d get PCRE2's spelling.
 */
#include "text/text_internal.h"

#include <string.h>

/* White_Space and its complement as the inside of a class. */
#define WHITE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"
#define NOT_WHITE \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}" \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Oniguruma's word characters: those of Unicode, and the superscripts and fractions of Latin-1. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* A pattern under way. Every function below reads at p->at, appends to p->out and moves on. */
typedef struct rewrite {
    const char *pattern;
    size_t count;
    size_t at;
    lw_buf *out;
    lw_diag *d;
    bool in_class;
} rewrite;

static char peek(const rewrite *p, size_t ahead)
{
    return ahead < p->count - p->at ? p->pattern[p->at + ahead] : '\0';
}

static bool begins(const rewrite *p, const char *text)
{
    const size_t count = strlen(text);
    return p->count - p->at >= count && memcmp(p->pattern + p->at, text, count) == 0;
}

/* Refuses the count bytes at p->at. */
static lw_status refuse(const rewrite *p, size_t count, const char *why)
{
    const size_t left = p->count - p->at;
    return lw_fail(p->d, LW_UNSUPPORTED, "'%.*s' at byte %zu of the pattern is not supported: %s",
                   (int)(count < left ? count : left), p->pattern + p->at, p->at, why);
}

static lw_status put(const rewrite *p, const char *text)
{
    return lw_buf_append_text(p->out, text);
}

static lw_status copy(rewrite *p, size_t count)
{
    LW_ASSERT(count <= p->count - p->at);
    const lw_status status = lw_buf_append(p->out, p->pattern + p->at, count);
    p->at += count;
    return status;
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \p{..}: general categories mean the same; longer names are scripts, which PCRE2 would widen to extensions.
 */
static lw_status rewrite_property(rewrite *p)
{
    if (peek(p, 2) != '{') return refuse(p, 3, "a property is written \\p{Name}");
    const size_t caret = peek(p, 3) == '^';
    size_t end = 3 + caret;
    while (is_alnum(peek(p, end)) || peek(p, end) == '_') end++;
    const size_t name_count = end - 3 - caret;
    if (peek(p, end) != '}' || name_count == 0) return refuse(p, end + 1, "a property is written \\p{Name}");
    if (name_count <= 2) return copy(p, end + 1);
    lw_status status = lw_buf_printf(p->out, "\\%c{%ssc:%.*s}", peek(p, 1), caret ? "^" : "", (int)name_count,
                                     p->pattern + p->at + 3 + caret);
    p->at += end + 1;
    return status;
}

/* \x{H..}, \xHH and \uHHHH. */
static lw_status rewrite_number(rewrite *p)
{
    const bool braced = peek(p, 1) == 'x' && peek(p, 2) == '{';
    size_t begin = braced ? 3 : 2, end = begin;
    const size_t digits_max = braced ? 8 : peek(p, 1) == 'x' ? 2 : 4;
    while (end < begin + digits_max && is_hex(peek(p, end))) end++;
    const bool whole = braced ? end > begin && peek(p, end) == '}' : end == begin + digits_max;
    if (!whole) return refuse(p, end + 1, "a code point is written \\x{H..}, \\xHH or \\uHHHH");
    if (peek(p, 1) == 'x' && !braced && peek(p, 2) >= '8')
        return refuse(p, 4, "it names a byte of a code point");
    const lw_status status =
        lw_buf_printf(p->out, "\\x{%.*s}", (int)(end - begin), p->pattern + p->at + begin);
    p->at += braced ? end + 1 : end;
    return status;
}

typedef struct escape_facts {
    char letter;
    const char *outside;     /* what stands for it outside of a class */
    const char *inside;      /* and inside; NULL: refused there */
} escape_facts;

static const escape_facts escapes[] = {
    { 's', "[" WHITE "]", WHITE },
    { 'S', "[^" WHITE "]", NOT_WHITE },
    { 'd', "\\p{Nd}", "\\p{Nd}" },
    { 'D', "\\P{Nd}", "\\P{Nd}" },
    { 'w', "[" WORD "]", WORD },
    { 'W', "[^" WORD "]", NULL },
    { 'r', "\\r", "\\r" },
    { 'n', "\\n", "\\n" },
    { 't', "\\t", "\\t" },
    { 'f', "\\f", "\\f" },
    { 'v', "\\x{b}", "\\x{b}" },
    { 'A', "\\A", NULL },
    { 'z', "\\z", NULL },
};

static lw_status rewrite_escape(rewrite *p)
{
    const char letter = peek(p, 1);
    if (p->count - p->at < 2) return refuse(p, 1, "nothing follows the backslash");
    if (letter == 'p' || letter == 'P') return rewrite_property(p);
    if (letter == 'x' || letter == 'u') return rewrite_number(p);
    if (!is_alnum(letter) && (uint8_t)letter < 0x80) return copy(p, 2);
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        const char *text = p->in_class ? escapes[i].inside : escapes[i].outside;
        if (escapes[i].letter != letter || text == NULL) continue;
        p->at += 2;
        return put(p, text);
    }
    return refuse(p, 2, p->in_class ? "this escape in a class" : "this escape");
}

static lw_status rewrite_class(rewrite *p)
{
    p->in_class = true;
    lw_status status = copy(p, peek(p, 1) == '^' ? 2 : 1);
    if (status == LW_OK && peek(p, 0) == ']')
        return refuse(p, 1, "a class must not be empty or begin with ]");
    while (status == LW_OK && p->at < p->count && peek(p, 0) != ']') {
        if (peek(p, 0) == '\\') status = rewrite_escape(p);
        else if (peek(p, 0) == '[') return refuse(p, 2, "classes in classes and [:names:]");
        else if (begins(p, "&&")) return refuse(p, 2, "intersections of classes");
        else status = copy(p, 1);
    }
    p->in_class = false;
    if (status != LW_OK) return status;
    return p->at < p->count ? copy(p, 1) : refuse(p, 0, "a class does not end");
}

static lw_status rewrite_group(rewrite *p)
{
    static const char *const known[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (begins(p, known[i])) return copy(p, strlen(known[i]));
    }
    /* Elsewhere an option without a group of its own reaches further here than there. */
    if (p->at == 0 && begins(p, "(?i)")) return copy(p, 4);
    if (peek(p, 1) == '?' || peek(p, 1) == '*') return refuse(p, 4, "this kind of group");
    return copy(p, 1);
}

/* {m}, {m,} and {m,n}; any other brace is itself. A + or ? behind it repeats it there and changes it here. */
static lw_status rewrite_brace(rewrite *p)
{
    size_t end = 1;
    while (peek(p, end) >= '0' && peek(p, end) <= '9') end++;
    if (end == 1) return peek(p, 1) == ',' ? refuse(p, 3, "a repetition needs a lower bound") : copy(p, 1);
    if (peek(p, end) == ',') end++;
    while (peek(p, end) >= '0' && peek(p, end) <= '9') end++;
    if (peek(p, end) != '}') return copy(p, 1);
    const char after = peek(p, end + 1);
    if (after == '+' || after == '?' || after == '*')
        return refuse(p, end + 2, "a repetition of a repetition");
    return copy(p, end + 1);
}

lw_status lw__pattern_rewrite(const char *pattern, size_t count, lw_buf *out, lw_diag *d)
{
    if (count > LW_LIMIT_PATTERN_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "the pattern has %zu bytes; at most %d are read", count,
                       LW_LIMIT_PATTERN_BYTES);
    }
    rewrite p = { .pattern = pattern, .count = count, .out = out, .d = d };
    lw_status status = lw_buf_reserve(out, count);
    while (status == LW_OK && p.at < count) {
        switch (peek(&p, 0)) {
        case '\\': status = rewrite_escape(&p); break;
        case '[': status = rewrite_class(&p); break;
        case '(': status = rewrite_group(&p); break;
        case '{': status = rewrite_brace(&p); break;
        default: status = copy(&p, 1); break;
        }
    }
    return status == LW_NO_ROOM ? lw_fail(d, status, "no memory for a pattern") : status;
}

lw_status lw__pattern_compile(const char *pattern, size_t count, pcre2_code **out, lw_diag *d)
{
    *out = NULL;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, 64 * (size_t)LW_LIMIT_PATTERN_BYTES);
    int error = 0;
    PCRE2_SIZE at = 0;
    /* MULTILINE: in the source syntax ^ and $ stand at every line. */
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, count, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                     PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
    pcre2_compile_context_free(context);
    if (code == NULL) {
        PCRE2_UCHAR text[256];
        pcre2_get_error_message(error, text, sizeof text);
        return lw_fail(d, LW_UNSUPPORTED, "PCRE2 does not take the pattern '%.*s': %s (at byte %zu)",
                       (int)(count < 512 ? count : 512), pattern, (const char *)text, (size_t)at);
    }
    *out = code;
    return LW_OK;
}

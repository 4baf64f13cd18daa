/* The lexer; see lexer.h. It walks the source once: root text up to a mark, then the inside of that mark. */
#include "text/jinja/lexer.h"

#include "base/limits.h"
#include "text/jinja/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    lw_arena *arena;
    const char *name;
    lw_diag *diag;
    const char *at;
    const char *end;
    const char *begin;
    int line;
    size_t room;
    jtokens *out;
} lexer;

enum { TOKENS_ROOM_MIN = 64, BRACKETS_MAX = LW_LIMIT_TEMPLATE_DEPTH };

static lw_status fail_at(const lexer *lx, lw_status status, const char *what)
{
    return lw_fail(lx->diag, status, "%s: line %d: %s", lx->name, lx->line, what);
}

static lw_status push(lexer *lx, jtoken token)
{
    jtokens *out = lx->out;
    if (out->count == lx->room) {
        const size_t room = lx->room == 0 ? TOKENS_ROOM_MIN : lx->room * 2;
        jtoken *items = lw_arena_take_array(lx->arena, room, sizeof *items);
        if (items == NULL) return fail_at(lx, LW_NO_ROOM, "no memory for the template's tokens");
        if (out->count > 0) memcpy(items, out->items, out->count * sizeof *items);
        out->items = items;
        lx->room = room;
    }
    token.line = lx->line;
    out->items[out->count++] = token;
    return LW_OK;
}

static void move_to(lexer *lx, const char *to)
{
    for (; lx->at < to; lx->at++) lx->line += *lx->at == '\n';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end) {
        const size_t bytes = lw__jinja_space_bytes(at, (size_t)(end - at));
        if (bytes == 0) break;
        at += bytes;
    }
    return at;
}

static bool has(const char *at, const char *end, const char *word)
{
    const size_t count = strlen(word);
    return (size_t)(end - at) >= count && memcmp(at, word, count) == 0;
}

/* The place behind a closing mark at `at`, with what it eats; NULL when there is none. */
static const char *close_mark(const char *at, const char *end, const char *mark)
{
    const bool is_variable = mark[0] == '}';
    if (at < end && *at == '-' && has(at + 1, end, mark)) return skip_space(at + 3, end);
    if (at < end && *at == '+' && !is_variable && has(at + 1, end, mark)) return at + 3;
    if (!has(at, end, mark)) return NULL;
    at += 2;
    return !is_variable && at < end && *at == '\n' ? at + 1 : at;
}

/* Emits text[begin, end) as the mark after it asks: its sign, or the lone-line rule. */
static lw_status push_data(lexer *lx, const char *begin, const char *end, char sign, bool is_variable)
{
    const lw_text text = { .bytes = begin, .count = (size_t)(end - begin) };
    if (sign == '-') {
        end = begin + lw__jinja_trim_right(text);
    } else if (sign != '+' && !is_variable) {
        const char *line = end;
        while (line > begin && line[-1] != '\n') line--;
        const bool starts_line = line > begin || begin == lx->begin || begin[-1] == '\n';
        if (starts_line && skip_space(line, end) == end) end = line;
    }
    if (end == begin) return LW_OK;
    return push(lx, (jtoken){ .kind = JT_DATA, .bytes = begin, .count = (size_t)(end - begin) });
}

static char sign_at(const char *at, const char *end)
{
    return at < end && (*at == '-' || *at == '+') ? *at : '\0';
}

static lw_status lex_comment(lexer *lx, const char *from)
{
    for (const char *at = from; at < lx->end; at++) {
        const char *behind = close_mark(at, lx->end, "#}");
        if (behind == NULL) continue;
        move_to(lx, behind);
        return LW_OK;
    }
    return fail_at(lx, LW_BAD_INPUT, "a comment without its closing #}");
}

/* After "{%" and its sign: the place behind "raw %}", else NULL. */
static const char *raw_begin(const char *at, const char *end)
{
    at = skip_space(at, end);
    if (!has(at, end, "raw")) return NULL;
    at = skip_space(at + 3, end);
    if (has(at, end, "-%}")) return skip_space(at + 3, end);
    return has(at, end, "%}") ? at + 2 : NULL;
}

static lw_status lex_raw(lexer *lx, const char *from)
{
    move_to(lx, from);
    for (const char *at = from; at < lx->end; at++) {
        if (!has(at, lx->end, "{%")) continue;
        const char sign = sign_at(at + 2, lx->end);
        const char *word = skip_space(at + 2 + (sign != '\0'), lx->end);
        if (!has(word, lx->end, "endraw")) continue;
        const char *behind = close_mark(skip_space(word + 6, lx->end), lx->end, "%}");
        if (behind == NULL) continue;
        const lw_status status = push_data(lx, from, at, sign, false);
        move_to(lx, behind);
        return status;
    }
    return fail_at(lx, LW_BAD_INPUT, "a raw block without endraw");
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static lw_status read_hex(const lexer *lx, const char **at, const char *end, size_t digits, uint32_t *code)
{
    *code = 0;
    for (size_t i = 0; i < digits; i++, (*at)++) {
        const int digit = *at < end ? hex_value(**at) : -1;
        if (digit < 0) return fail_at(lx, LW_BAD_INPUT, "a \\x, \\u or \\U escape lacks hexadecimal digits");
        *code = *code * 16 + (uint32_t)digit;
    }
    if (*code > 0x10FFFF) return fail_at(lx, LW_BAD_INPUT, "a \\U escape beyond U+10FFFF");
    if (*code >= 0xD800 && *code < 0xE000)
        return fail_at(lx, LW_UNSUPPORTED,
                       "a \\u escape of half a surrogate pair is not supported; write the character");
    return LW_OK;
}

/* One escape after its backslash: the code point, or false in *is_known when Python keeps the backslash. */
static lw_status read_escape(const lexer *lx, const char **at, const char *end, uint32_t *code,
                             bool *is_known)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *(*at)++;
    *is_known = true;
    const char *known = c == '\0' ? NULL : strchr(from, c);
    if (known != NULL) {
        *code = (unsigned char)to[known - from];
        return LW_OK;
    }
    if (c >= '0' && c <= '7') {
        *code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && **at >= '0' && **at <= '7'; i++)
            *code = *code * 8 + (uint32_t)(*(*at)++ - '0');
        return LW_OK;
    }
    if (c == 'x') return read_hex(lx, at, end, 2, code);
    if (c == 'u') return read_hex(lx, at, end, 4, code);
    if (c == 'U') return read_hex(lx, at, end, 8, code);
    if (c == 'N') return fail_at(lx, LW_UNSUPPORTED, "the escape \\N{...} is not supported");
    if ((unsigned char)c >= 0x80)
        return fail_at(lx, LW_UNSUPPORTED, "a backslash before a non-ASCII character");
    *is_known = false;
    *code = (unsigned char)c;
    return LW_OK;
}

static lw_status lex_string(lexer *lx)
{
    const char quote = *lx->at;
    const char *end = lx->at + 1;
    while (end < lx->end && *end != quote) end += *end == '\\' && end + 1 < lx->end ? 2 : 1;
    if (end >= lx->end) return fail_at(lx, LW_BAD_INPUT, "a string without its closing quote");
    const char *at = lx->at + 1;
    char *bytes = lw_arena_take(lx->arena, (size_t)(end - at) * 2 + 1);
    if (bytes == NULL) return fail_at(lx, LW_NO_ROOM, "no memory for a string");
    size_t count = 0;
    while (at < end) {
        if (*at != '\\') {
            bytes[count++] = *at++;
            continue;
        }
        at++;
        if (*at == '\n') {
            at++;
            continue;
        }
        uint32_t code = 0;
        bool is_known = false;
        const lw_status status = read_escape(lx, &at, end, &code, &is_known);
        if (status != LW_OK) return status;
        if (!is_known) bytes[count++] = '\\';
        count += lw__jinja_encode(code, bytes + count);
    }
    const lw_status status = push(lx, (jtoken){ .kind = JT_STRING, .bytes = bytes, .count = count });
    move_to(lx, end + 1);
    return status;
}

/* digits with single underscores between them; NULL when there is none */
static const char *skip_digits(const char *at, const char *end, int base)
{
    const char *last = NULL;
    while (at < end) {
        if (last != NULL && *at == '_' && at + 1 < end) at++;
        const int digit = hex_value(*at);
        if (digit < 0 || digit >= base) break;
        last = ++at;
    }
    return last;
}

static const char *float_end(const char *at, const char *end)
{
    const char *whole = skip_digits(at, end, 10);
    if (whole == NULL) return NULL;
    const char *fraction = whole < end && *whole == '.' ? skip_digits(whole + 1, end, 10) : NULL;
    const char *mantissa = fraction != NULL ? fraction : whole;
    if (mantissa < end && (*mantissa == 'e' || *mantissa == 'E')) {
        const char *digits = mantissa + 1;
        if (digits < end && (*digits == '+' || *digits == '-')) digits++;
        const char *exponent = skip_digits(digits, end, 10);
        if (exponent != NULL) return exponent;
    }
    return fraction;
}

static const char *integer_end(const char *at, const char *end, int *base)
{
    *base = 10;
    if (*at == '0' && at + 1 < end) {
        const char mark = (char)(at[1] | 0x20);
        const int other = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        const char *digits = at + 2 + (at + 2 < end && at[2] == '_');
        const char *stop = other != 0 ? skip_digits(digits, end, other) : NULL;
        if (stop != NULL) {
            *base = other;
            return stop;
        }
        return skip_digits(at, end, 1);
    }
    return skip_digits(at, end, 10);
}

static lw_status lex_number(lexer *lx)
{
    jtoken token = { .kind = JT_INTEGER };
    int base = 10;
    const bool follows_dot = lx->at > lx->begin && lx->at[-1] == '.';
    const char *end = follows_dot ? NULL : float_end(lx->at, lx->end);
    if (end != NULL) token.kind = JT_FLOAT;
    else end = integer_end(lx->at, lx->end, &base);
    const char *from = lx->at + (base == 10 ? 0 : 2);
    char *digits = lw_arena_take(lx->arena, (size_t)(end - from) + 1);
    if (digits == NULL) return fail_at(lx, LW_NO_ROOM, "no memory for a number");
    size_t count = 0;
    for (const char *at = from; at < end; at++)
        if (*at != '_') digits[count++] = *at;
    errno = 0;
    if (token.kind == JT_FLOAT) token.real = strtod(digits, NULL);
    else token.integer = strtoll(digits, NULL, base);
    if (token.kind == JT_INTEGER && errno == ERANGE)
        return fail_at(lx, LW_UNSUPPORTED, "an integer beyond 64 bits is not supported");
    const lw_status status = push(lx, token);
    move_to(lx, end);
    return status;
}

static bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static lw_status lex_name(lexer *lx)
{
    const char *end = lx->at;
    while (end < lx->end && (is_name_start(*end) || is_digit(*end))) end++;
    const jtoken token = { .kind = JT_NAME, .bytes = lx->at, .count = (size_t)(end - lx->at) };
    lx->at = end;
    return push(lx, token);
}

static lw_status lex_operator(lexer *lx, char *brackets, size_t *depth)
{
    static const char doubles[][3] = { "//", "**", "==", "!=", ">=", "<=" };
    const char c = *lx->at;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        if (!has(lx->at, lx->end, doubles[i])) continue;
        lx->at += 2;
        return push(lx, (jtoken){ .kind = JT_OPERATOR, .op = JOP(doubles[i][0], doubles[i][1]) });
    }
    if ((unsigned char)c >= 0x80) return fail_at(lx, LW_UNSUPPORTED, "names outside ASCII are not supported");
    if (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)
        return lw_fail(lx->diag, LW_BAD_INPUT, "%s: line %d: unexpected character 0x%02x", lx->name, lx->line,
                       c);
    if (c == '(' || c == '[' || c == '{') {
        if (*depth == BRACKETS_MAX)
            return lw_fail(lx->diag, LW_NO_ROOM, "%s: line %d: brackets nest deeper than %d", lx->name,
                           lx->line,
                           BRACKETS_MAX);
        brackets[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (*depth == 0 || brackets[--*depth] != c)
            return lw_fail(lx->diag, LW_BAD_INPUT, "%s: line %d: unexpected '%c'", lx->name, lx->line, c);
    }
    lx->at++;
    return push(lx, (jtoken){ .kind = JT_OPERATOR, .op = c });
}

/* The inside of {{ }} or {% %}; a closing mark counts only outside brackets. */
static lw_status lex_inside(lexer *lx, const char *mark, jtoken_kind end_kind)
{
    char brackets[BRACKETS_MAX];
    size_t depth = 0;
    while (lx->at < lx->end) {
        const char *behind = depth == 0 ? close_mark(lx->at, lx->end, mark) : NULL;
        if (behind != NULL) {
            const lw_status status = push(lx, (jtoken){ .kind = end_kind });
            move_to(lx, behind);
            return status;
        }
        const char *word = skip_space(lx->at, lx->end);
        if (word > lx->at) {
            move_to(lx, word);
            continue;
        }
        const char c = *lx->at;
        lw_status status;
        if (is_digit(c)) status = lex_number(lx);
        else if (is_name_start(c)) status = lex_name(lx);
        else if (c == '\'' || c == '"') status = lex_string(lx);
        else status = lex_operator(lx, brackets, &depth);
        if (status != LW_OK) return status;
    }
    return fail_at(lx, LW_BAD_INPUT, "the template ends inside {{ or {%");
}

/* Text up to the next mark, then what the mark opens. */
static lw_status lex_step(lexer *lx)
{
    const char *begin = lx->at, *at = begin;
    while (at < lx->end &&
           !(at[0] == '{' && at + 1 < lx->end && strchr("{%#", at[1]) != NULL && at[1] != '\0')) at++;
    if (at == lx->end) {
        const lw_status status = push_data(lx, begin, at, '+', false);
        move_to(lx, at);
        return status;
    }
    const char kind = at[1], sign = sign_at(at + 2, lx->end);
    lw_status status = push_data(lx, begin, at, sign, kind == '{');
    if (status != LW_OK) return status;
    const char *inside = at + 2 + (sign != '\0');
    move_to(lx, inside);
    if (kind == '#') return lex_comment(lx, inside);
    if (kind == '{') {
        status = push(lx, (jtoken){ .kind = JT_VARIABLE_BEGIN });
        return status != LW_OK ? status : lex_inside(lx, "}}", JT_VARIABLE_END);
    }
    const char *raw = raw_begin(inside, lx->end);
    if (raw != NULL) return lex_raw(lx, raw);
    status = push(lx, (jtoken){ .kind = JT_BLOCK_BEGIN });
    return status != LW_OK ? status : lex_inside(lx, "%}", JT_BLOCK_END);
}

/* Every line end becomes \n, and one at the very end goes. */
static size_t normalize_lines(char *to, const char *from, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        to[used++] = from[i] == '\r' ? '\n' : from[i];
        if (from[i] == '\r' && i + 1 < count && from[i + 1] == '\n') i++;
    }
    return used > 0 && to[used - 1] == '\n' ? used - 1 : used;
}

lw_status lw__jinja_lex(lw_arena *arena, const char *source, size_t count, const char *name, jtokens *out,
                        lw_diag *d)
{
    *out = (jtokens){ 0 };
    lexer lx = { .arena = arena, .name = name, .diag = d, .line = 1, .out = out };
    if (count > LW_LIMIT_TEMPLATE_BYTES)
        return lw_fail(d, LW_NO_ROOM, "%s: a template of %zu bytes; the limit is %d", name, count,
                       LW_LIMIT_TEMPLATE_BYTES);
    if (!lw__jinja_is_utf8(source, count))
        return lw_fail(d, LW_BAD_INPUT, "%s: the template is not UTF-8", name);
    char *bytes = lw_arena_take(arena, count + 1);
    if (bytes == NULL) return fail_at(&lx, LW_NO_ROOM, "no memory for the template's source");
    lx.begin = lx.at = bytes;
    lx.end = bytes + normalize_lines(bytes, source, count);
    while (lx.at < lx.end) {
        const lw_status status = lex_step(&lx);
        if (status != LW_OK) return status;
    }
    return push(&lx, (jtoken){ .kind = JT_END });
}

/* The parser's base: cursor, names, nodes and the entry; see parser.h. */
#include "text/jinja/parser.h"

#include "base/limits.h"
#include "text/jinja/c_locale.h"
#include "text/jinja/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES_ROOM_MIN = 4, PARSE_MEMORY_BYTES = 256 * LW_LIMIT_TEMPLATE_BYTES, TOKEN_SHOWN_BYTES = 40 };

bool lw__jinja_at_op(const jparser *p, int op)
{
    return parser_token(p)->kind == JT_OPERATOR && parser_token(p)->op == op;
}

bool lw__jinja_at_word(const jparser *p, const char *word)
{
    const jtoken *token = parser_token(p);
    return token->kind == JT_NAME && text_is((lw_text){ .bytes = token->bytes, .count = token->count }, word);
}

void lw__jinja_advance(jparser *p)
{
    if (p->at + 1 < p->tokens.count) p->at++;
}

bool lw__jinja_skip_op(jparser *p, int op)
{
    const bool is_there = lw__jinja_at_op(p, op);
    if (is_there) lw__jinja_advance(p);
    return is_there;
}

bool lw__jinja_skip_word(jparser *p, const char *word)
{
    const bool is_there = lw__jinja_at_word(p, word);
    if (is_there) lw__jinja_advance(p);
    return is_there;
}

lw_status lw__jinja_parse_fail(const jparser *p, lw_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lw_fail(p->diag, status, "%s: line %d: %s", p->program->name, parser_token(p)->line, text);
}

static void describe(const jtoken *token, char *to, size_t room)
{
    static const char *const labels[] = {
        [JT_DATA] = "text", [JT_VARIABLE_BEGIN] = "{{", [JT_VARIABLE_END] = "}}", [JT_BLOCK_BEGIN] = "{%",
        [JT_BLOCK_END] = "%}", [JT_NAME] = "name", [JT_STRING] = "a string", [JT_INTEGER] = "an integer",
        [JT_FLOAT] = "a float", [JT_OPERATOR] = "operator", [JT_END] = "the end of the template",
    };
    if (token->kind == JT_NAME) {
        const size_t shown = token->count < TOKEN_SHOWN_BYTES ? token->count : TOKEN_SHOWN_BYTES;
        snprintf(to, room, "'%.*s'", (int)shown, token->bytes);
    } else if (token->kind == JT_OPERATOR) {
        const char text[3] = { (char)(token->op & 0xFF), (char)(token->op >> 8), '\0' };
        snprintf(to, room, "'%s'", text);
    } else {
        snprintf(to, room, "%s", labels[token->kind]);
    }
}

lw_status lw__jinja_unexpected(const jparser *p, const char *wanted)
{
    char got[64];
    describe(parser_token(p), got, sizeof got);
    return lw__jinja_parse_fail(p, LW_BAD_INPUT, "expected %s, got %s", wanted, got);
}

lw_status lw__jinja_expect_op(jparser *p, int op)
{
    if (lw__jinja_skip_op(p, op)) return LW_OK;
    const char text[5] = { '\'', (char)(op & 0xFF), '\'', '\0', '\0' };
    return lw__jinja_unexpected(p, text);
}

lw_status lw__jinja_expect_word(jparser *p, const char *word)
{
    return lw__jinja_skip_word(p, word) ? LW_OK : lw__jinja_unexpected(p, word);
}

lw_status lw__jinja_expect_kind(jparser *p, jtoken_kind kind, const char *what)
{
    if (parser_token(p)->kind != kind) return lw__jinja_unexpected(p, what);
    lw__jinja_advance(p);
    return LW_OK;
}

size_t lw__jinja_name_bucket(const char *bytes, size_t count)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < count; i++) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash % JINJA_NAME_BUCKETS;
}

const jname *lw__jinja_name_find(const struct lw_jinja *program, const char *bytes, size_t count)
{
    const jname *name = program->names[lw__jinja_name_bucket(bytes, count)];
    while (name != NULL && !text_equal(name->text, (lw_text){ .bytes = bytes, .count = count }))
        name = name->next;
    return name;
}

static lw_status out_of_memory(const jparser *p)
{
    return lw__jinja_parse_fail(p, LW_NO_ROOM, "no memory for the parsed template");
}

lw_status lw__jinja_expect_name(jparser *p, const jname **out)
{
    const jtoken *token = parser_token(p);
    if (token->kind != JT_NAME) return lw__jinja_unexpected(p, "a name");
    *out = lw__jinja_name_find(p->program, token->bytes, token->count);
    if (*out == NULL) {
        jname *name = lw_arena_take(&p->program->arena, sizeof *name);
        if (name == NULL) return out_of_memory(p);
        name->text.bytes = lw_arena_copy_text(&p->program->arena, token->bytes, token->count);
        if (name->text.bytes == NULL) return out_of_memory(p);
        name->text.count = token->count;
        const jname **bucket = &p->program->names[lw__jinja_name_bucket(token->bytes, token->count)];
        name->next = *bucket;
        *bucket = *out = name;
    }
    lw__jinja_advance(p);
    return LW_OK;
}

lw_status lw__jinja_node(jparser *p, jnode_kind kind, jnode **out)
{
    *out = lw_arena_take(&p->program->arena, sizeof **out);
    if (*out == NULL) return out_of_memory(p);
    (*out)->kind = kind;
    (*out)->line = parser_token(p)->line;
    return LW_OK;
}

static size_t height_of(const jnode *node, size_t so_far)
{
    return node != NULL && node->height > so_far ? node->height : so_far;
}

lw_status lw__jinja_node_done(jparser *p, jnode *node)
{
    size_t below = height_of(node->left, height_of(node->right, height_of(node->third, 0)));
    for (size_t i = 0; i < node->count; i++) below = height_of(node->items[i], below);
    for (size_t i = 0; i < node->named_count; i++) below = height_of(node->values[i], below);
    node->height = below + 1;
    if (node->height > LW_LIMIT_TEMPLATE_DEPTH)
        return lw__jinja_parse_fail(p, LW_NO_ROOM, "the template nests deeper than %d levels",
                                    LW_LIMIT_TEMPLATE_DEPTH);
    return LW_OK;
}

lw_status lw__jinja_add_named(jparser *p, jnodes *list, const jname *name, const jnode *node)
{
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? NODES_ROOM_MIN : list->room * 2;
        const jnode **items = lw_arena_take_array(&p->program->arena, room, sizeof *items);
        const jname **names = lw_arena_take_array(&p->program->arena, room, sizeof *names);
        if (items == NULL || names == NULL) return out_of_memory(p);
        if (list->count > 0) {
            memcpy(items, list->items, list->count * sizeof *items);
            memcpy(names, list->names, list->count * sizeof *names);
        }
        list->items = items;
        list->names = names;
        list->room = room;
    }
    list->names[list->count] = name;
    list->items[list->count++] = node;
    return LW_OK;
}

lw_status lw__jinja_add(jparser *p, jnodes *list, const jnode *node)
{
    return lw__jinja_add_named(p, list, NULL, node);
}

lw_status lw__jinja_parse_enter(jparser *p)
{
    if (p->depth >= LW_LIMIT_TEMPLATE_DEPTH)
        return lw__jinja_parse_fail(p, LW_NO_ROOM, "the template nests deeper than %d levels",
                                    LW_LIMIT_TEMPLATE_DEPTH);
    p->depth++;
    return LW_OK;
}

void lw_jinja_free(lw_jinja *program)
{
    if (program == NULL) return;
    lw_arena_deinit(&program->arena);
    free(program);
}

static lw_status parse_whole(lw_jinja *program, const char *source, size_t count, lw_diag *d)
{
    jparser p = { .program = program, .diag = d };
    TRY(lw__jinja_lex(&program->arena, source, count, program->name, &p.tokens, d));
    const char *const until[] = { NULL };
    TRY(lw__jinja_parse_body(&p, until, &program->body));
    return LW_OK;
}

/* Strings and text of the tree point into the lexer's memory, so one arena holds both. */
lw_status lw_jinja_parse(const char *source, size_t count, const char *name, lw_jinja **out, lw_diag *d)
{
    *out = NULL;
    lw_jinja *program = calloc(1, sizeof *program);
    if (program == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for a template", name);
    lw_arena_init(&program->arena, PARSE_MEMORY_BYTES);
    program->name = lw_arena_copy_text(&program->arena, name, strlen(name));
    const c_locale locale = c_locale_enter();
    lw_status status = program->name == NULL ? lw_fail(d, LW_NO_ROOM, "%s: no memory for a template", name)
                                             : parse_whole(program, source, count, d);
    c_locale_leave(locale);
    if (status != LW_OK) {
        lw_jinja_free(program);
        return status;
    }
    *out = program;
    return LW_OK;
}

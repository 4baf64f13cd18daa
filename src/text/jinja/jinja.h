/* A small interpreter for the part of Jinja that chat templates use. The caller is text/chat.c.
 * Output is byte-equal to Jinja2 in its immutable sandbox with trim_blocks, lstrip_blocks, loop controls and
 * a tojson without HTML escaping. What is missing is refused by name: syntax when parsed, names when reached.
 *
 * Grammar. Words in quotes stand for themselves; [x] optional, {x} repeated, | one of.
 *
 *   template   = { text | "{{" tuple "}}" | "{%" statement "%}" | "{#" comment "#}" | raw }
 *   raw        = "{% raw %}" anything "{% endraw %}"
 *   A sign may follow each opening and precede each closing mark: "-" eats all white space on that side,
 *   "+" keeps it. Without a sign a statement or comment alone on its line takes the spaces before it and the
 *   newline after it.
 *
 *   statement  = "if" tuple body { "elif" tuple body } [ "else" body ] "endif"
 *              | "for" target "in" items [ "if" expr ] body [ "else" body ] "endfor"
 *              | "break" | "continue"
 *              | "set" target "=" tuple
 *              | "set" target { "|" filter } body "endset"
 *              | "macro" NAME "(" [ param { "," param } ] ")" body "endmacro" [ NAME ]
 *              | "call" [ "(" params ")" ] expr body "endcall"
 *              | "filter" filter { "|" filter } body "endfilter"
 *              | "with" [ NAME "=" expr { "," NAME "=" expr } ] body "endwith"
 *              | "generation" body "endgeneration"
 *              | "print" [ expr { "," expr } ]
 *   param      = NAME [ "=" expr ]
 *   target     = place { "," place } [ "," ]          place = NAME | NAME "." NAME | "(" target ")"
 *
 *   tuple      = expr { "," expr } [ "," ]
 *   expr       = or { "if" or [ "else" expr ] }
 *   or         = and { "or" and }                     and = not { "and" not }
 *   not        = "not" not | compare
 *   compare    = sum { ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in" ) sum }
 *   sum        = concat { ( "+" | "-" ) concat }      concat = product { "~" product }
 *   product    = power { ( "*" | "/" | "//" | "%" ) power }
 *   power      = unary { "**" unary }                 (groups to the left, as Jinja does)
 *   unary      = ( "-" | "+" ) unary-without-filters postfix | primary postfix { filtered }
 *   filtered   = "|" filter | "is" [ "not" ] NAME [ arguments | primary postfix ] | arguments
 *   filter     = NAME [ arguments ]
 *   postfix    = { "." NAME | "." INTEGER | "[" expr "]" | "[" [ expr ] ":" [ expr ] [ ":" [ expr ] ] "]"
 *                | arguments }
 *   arguments  = "(" [ argument { "," argument } ] [ "," ] ")"     argument = [ NAME "=" ] expr
 *   primary    = NAME | STRING { STRING } | INTEGER | FLOAT | "(" [ tuple ] ")" | "[" exprs "]"
 *              | "{" [ expr ":" expr { "," expr ":" expr } ] [ "," ] "}"
 *
 * Scopes: for, macro, call, filter, with, generation and the body of a set block open one; if does not. A
 * macro sees the scope it was written in. namespace() makes the one object that an inner scope can change.
 * Origins: each string value keeps one origin byte per text byte; every other value keeps one for the whole.
 */
#ifndef LW_TEXT_JINJA_JINJA_H
#define LW_TEXT_JINJA_JINJA_H

#include "base/buf.h"
#include "base/origin.h"
#include "base/status.h"

#include <jansson.h>

typedef struct lw_jinja lw_jinja;

/* Parses source, which is copied; name is for error texts. */
lw_status lw_jinja_parse(const char *source, size_t count, const char *name, lw_jinja **out,
                         lw_diag *d) LW_MUST_USE;
void lw_jinja_free(lw_jinja *program);

/* What one rendering may use. */
typedef struct lw_jinja_limits {
    size_t depth;         /* nesting of data */
    size_t frames;        /* evaluations inside one another; bounds the C stack */
    size_t output_bytes;  /* one text */
    size_t memory_bytes;  /* all values together */
    size_t steps;
} lw_jinja_limits;

lw_jinja_limits lw_jinja_limits_default(void);

/* One variable: outside data (json), else a trusted text, else a trusted truth value. */
typedef struct lw_jinja_variable {
    const char *name;
    const json_t *json;
    const char *text;
    bool truth;
} lw_jinja_variable;

typedef struct lw_jinja_input {
    const lw_jinja_variable *variables;  /* a later one hides an earlier one of the same name */
    size_t count;
    lw_jinja_limits limits;
} lw_jinja_input;

/* Renders into text and origins, both empty buffers of the caller; on failure they stay empty. */
lw_status lw_jinja_render(const lw_jinja *program, const lw_jinja_input *input, lw_buf *text, lw_buf *origins,
                          lw_diag *d) LW_MUST_USE;

#endif

/* Template source to tokens: text outside the marks, and names, literals and operators inside. White space
 * control happens here, so the parser never sees it. Called by the parser only.
 */
#ifndef LW_TEXT_JINJA_LEXER_H
#define LW_TEXT_JINJA_LEXER_H

#include "base/arena.h"
#include "base/status.h"

typedef enum jtoken_kind {
    JT_DATA,
    JT_VARIABLE_BEGIN,
    JT_VARIABLE_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INTEGER,
    JT_FLOAT,
    JT_OPERATOR,
    JT_END,
} jtoken_kind;

/* An operator of one or two characters as one number. */
#define JOP(first, second) ((first) | (second) << 8)

typedef struct jtoken {
    jtoken_kind kind;
    int line;
    int op;             /* JOP of an operator */
    const char *bytes;  /* data, name, or the string with its escapes resolved */
    size_t count;
    int64_t integer;
    double real;
} jtoken;

typedef struct jtokens {
    jtoken *items;  /* ends with JT_END */
    size_t count;
} jtokens;

/* Tokens live in arena. name is for error texts. */
lw_status lw__jinja_lex(lw_arena *arena, const char *source, size_t count, const char *name, jtokens *out,
                        lw_diag *d) LW_MUST_USE;

#endif

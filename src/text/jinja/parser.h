/* What parse_expr.c and parse_stmt.c share: a cursor over tokens, node making with its depth check, error
 * texts. */
#ifndef LW_TEXT_JINJA_PARSER_H
#define LW_TEXT_JINJA_PARSER_H

#include "text/jinja/jinja.h"
#include "text/jinja/lexer.h"
#include "text/jinja/node.h"

#define TRY(call) \
    do { \
        const lw_status try_status_ = (call); \
        if (try_status_ != LW_OK) return try_status_; \
    } while (0)

typedef struct jparser {
    lw_jinja *program;
    lw_diag *diag;
    jtokens tokens;
    size_t at;
    size_t depth;      /* of the parser's own recursion */
    size_t loops;      /* open loops, for break and continue */
    jnode *macro;      /* innermost open macro or NULL */
} jparser;

/* A growing list of nodes and names; what is outgrown stays in the arena. */
typedef struct jnodes {
    const jnode **items;
    const jname **names;  /* NULL unless lw__jinja_add_named was used */
    size_t count;
    size_t room;
} jnodes;

static inline const jtoken *parser_token(const jparser *p) { return &p->tokens.items[p->at]; }
static inline const jtoken *parser_ahead(const jparser *p)
{
    return &p->tokens.items[p->at + (p->at + 1 < p->tokens.count)];
}

bool lw__jinja_at_op(const jparser *p, int op);
bool lw__jinja_at_word(const jparser *p, const char *word);
void lw__jinja_advance(jparser *p);
bool lw__jinja_skip_op(jparser *p, int op);
bool lw__jinja_skip_word(jparser *p, const char *word);
lw_status lw__jinja_expect_op(jparser *p, int op) LW_MUST_USE;
lw_status lw__jinja_expect_word(jparser *p, const char *word) LW_MUST_USE;
lw_status lw__jinja_expect_kind(jparser *p, jtoken_kind kind, const char *what) LW_MUST_USE;
lw_status lw__jinja_expect_name(jparser *p, const jname **out) LW_MUST_USE;

lw_status lw__jinja_parse_fail(const jparser *p, lw_status status, const char *format, ...) LW_PRINTF(3, 4);

/* "expected X, got Y" at the current token. */
lw_status lw__jinja_unexpected(const jparser *p, const char *wanted);

lw_status lw__jinja_node(jparser *p, jnode_kind kind, jnode **out) LW_MUST_USE;

/* Computes the height from the children; deeper than the limit fails. To be called when the children
 * stand. */
lw_status lw__jinja_node_done(jparser *p, jnode *node) LW_MUST_USE;

lw_status lw__jinja_add(jparser *p, jnodes *list, const jnode *node) LW_MUST_USE;
lw_status lw__jinja_add_named(jparser *p, jnodes *list, const jname *name, const jnode *node) LW_MUST_USE;

/* Guards each recursive rule; every enter that gave LW_OK is followed by one leave. */
lw_status lw__jinja_parse_enter(jparser *p) LW_MUST_USE;
static inline void parser_leave(jparser *p) { p->depth--; }

lw_status lw__jinja_parse_expr(jparser *p, const jnode **out) LW_MUST_USE;
lw_status lw__jinja_parse_or(jparser *p, const jnode **out) LW_MUST_USE;
lw_status lw__jinja_parse_tuple(jparser *p, bool with_condition, const jnode **out) LW_MUST_USE;

/* "| name(args)" after the bar: node becomes the filtered node. */
lw_status lw__jinja_parse_filter(jparser *p, const jnode **node) LW_MUST_USE;

/* Statements up to one of the given words, which stays the current token (after its opening mark). */
lw_status lw__jinja_parse_body(jparser *p, const char *const *until, const jnode **out) LW_MUST_USE;

#endif

/* One rendering: its arena, limits, scopes and the functions that work on values. Owned by one thread.
 * Every function that can fail writes its text where it fails, with the template's name and line.
 */
#ifndef LW_TEXT_JINJA_RUN_H
#define LW_TEXT_JINJA_RUN_H

#include "text/jinja/jinja.h"
#include "text/jinja/node.h"
#include "text/jinja/text.h"

#define TRY(call) \
    do { \
        const lw_status try_status_ = (call); \
        if (try_status_ != LW_OK) return try_status_; \
    } while (0)

typedef struct jrun jrun;

/* A text under construction in the arena. */
typedef struct jbuild {
    jrun *run;
    char *bytes;
    uint8_t *origins;
    size_t count;
    size_t room;
    bool has_outside;
} jbuild;

typedef struct jbinding {
    const jname *name;
    jvalue value;
    bool is_set;
    struct jbinding *next;
} jbinding;

typedef struct jscope {
    struct jscope *parent;
    jbinding *first;
} jscope;

typedef enum jflow { JF_ON, JF_BREAK, JF_CONTINUE } jflow;

struct jrun {
    lw_arena arena;
    const lw_jinja *program;
    lw_jinja_limits limits;
    lw_diag *diag;
    size_t steps;
    size_t frames;
    int line;
    jflow flow;
    jbuild *output;   /* where statements write */
    jbuild grow;      /* the newest concatenation: appending to exactly its text need not copy it */
    jvalue captured;  /* the text of the block whose filters are running */
};

struct jmacro {
    const jnode *node;
    jscope *scope;    /* where it was written */
};

typedef struct jargs {
    const jvalue *items;
    size_t count;
    const jname *const *names;
    const jvalue *values;
    size_t named_count;
} jargs;

/* --- run.c: limits, errors, scopes */
lw_status lw__jinja_fail(const jrun *run, lw_status status, const char *format, ...) LW_PRINTF(3, 4);
lw_status lw__jinja_step(jrun *run, size_t bytes) LW_MUST_USE;  /* one step, more for work on many bytes */
lw_status lw__jinja_enter(jrun *run) LW_MUST_USE;               /* one more frame of the C stack */
static inline void run_leave(jrun *run) { run->frames--; }
/* *out: the memory */
lw_status lw__jinja_take(jrun *run, size_t count, size_t item_bytes, void *out) LW_MUST_USE;
lw_status lw__jinja_scope(jrun *run, jscope *parent, jscope **out) LW_MUST_USE;
lw_status lw__jinja_set(jrun *run, jscope *scope, const jname *name, jvalue value) LW_MUST_USE;
lw_status lw__jinja_get(jrun *run, const jscope *scope, const jname *name, jvalue *out) LW_MUST_USE;

/* --- build.c: texts under construction */
lw_status lw__jinja_put(jbuild *build, lw_text text) LW_MUST_USE;
lw_status lw__jinja_put_bytes(jbuild *build, const char *bytes, size_t count, uint8_t origin) LW_MUST_USE;
lw_status lw__jinja_put_word(jbuild *build, const char *word, uint8_t origin) LW_MUST_USE;
lw_text lw__jinja_built(const jbuild *build);
lw_status lw__jinja_concat(jrun *run, lw_text first, lw_text second, lw_text *out) LW_MUST_USE;
lw_status lw__jinja_escape(jrun *run, lw_text text, lw_text *out) LW_MUST_USE;

/* --- value.c */
const char *lw__jinja_kind_name(jvalue v);   /* as in error texts: "dict object" */
lw_status lw__jinja_undefined(jrun *run, const char *owner, lw_text name, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_undefined_hint(jrun *run, const char *hint, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_fail_undefined(const jrun *run, jvalue v);
bool lw__jinja_truth(jvalue v);
lw_status lw__jinja_equal(jrun *run, jvalue a, jvalue b, bool *out) LW_MUST_USE;
/* 2: not comparable, as with NaN */
lw_status lw__jinja_order(jrun *run, jvalue a, jvalue b, int *out) LW_MUST_USE;
lw_status lw__jinja_contains(jrun *run, jvalue whole, jvalue part, bool *out) LW_MUST_USE;
lw_status lw__jinja_count(jrun *run, jvalue v, size_t *out) LW_MUST_USE;
bool lw__jinja_is_iterable(jvalue v);
/* an iterator is used up */
lw_status lw__jinja_items(jrun *run, jvalue v, jvalue **items, size_t *count) LW_MUST_USE;
lw_status lw__jinja_list(jrun *run, jkind kind, size_t room, jvalue *out) LW_MUST_USE;     /* count is 0 */
/* within its room */
void lw__jinja_list_push(jvalue *list, jvalue item);
lw_status lw__jinja_dict(jrun *run, jkind kind, size_t room, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_dict_set(jrun *run, jvalue *dict, jvalue key, jvalue value) LW_MUST_USE;
/* NULL: absent */
lw_status lw__jinja_dict_get(jrun *run, jvalue dict, jvalue key, const jvalue **out) LW_MUST_USE;
const jvalue *lw__jinja_dict_find(const jdict *dict, lw_text key);
lw_status lw__jinja_from_json(jrun *run, const json_t *json, jvalue *out) LW_MUST_USE;

/* --- print.c and json.c */
lw_status lw__jinja_text(jrun *run, jvalue v, lw_text *out) LW_MUST_USE; /* Python's str() */
lw_status lw__jinja_repr(jbuild *build, jvalue v) LW_MUST_USE;
void lw__jinja_float_text(double real, char to[static 40]);
typedef struct jjson_style {
    lw_text indent;
    bool has_indent;
    bool is_ascii;
    bool sort_keys;
    lw_text item_separator, key_separator;
} jjson_style;
lw_status lw__jinja_json(jbuild *build, const jjson_style *style, jvalue v, size_t level) LW_MUST_USE;

/* --- casing.c */
typedef enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITAL } jcase;
lw_status lw__jinja_case(jrun *run, lw_text text, jcase how, lw_text *out) LW_MUST_USE;

/* --- operators.c */
lw_status lw__jinja_binary(jrun *run, int op, jvalue a, jvalue b, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_negate(jrun *run, jvalue a, bool is_minus, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_compare(jrun *run, int op, jvalue a, jvalue b, bool *out) LW_MUST_USE;
/* owner.name */
lw_status lw__jinja_attribute(jrun *run, jvalue owner, lw_text name, jvalue *out) LW_MUST_USE;
/* owner[key] */
lw_status lw__jinja_item(jrun *run, jvalue owner, jvalue key, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_slice(jrun *run, jvalue owner, const jvalue parts[static 3], jvalue *out) LW_MUST_USE;

/* --- eval.c, exec.c, call.c, loop.c */
lw_status lw__jinja_eval(jrun *run, const jnode *node, jscope *scope, jvalue *out) LW_MUST_USE;
lw_status lw__jinja_eval_args(jrun *run, const jnode *node, jscope *scope, jargs *out) LW_MUST_USE;
lw_status lw__jinja_exec(jrun *run, const jnode *node, jscope *scope) LW_MUST_USE;
lw_status lw__jinja_catch(jrun *run, const jnode *body, jscope *scope, lw_text *out) LW_MUST_USE;
lw_status lw__jinja_exec_for(jrun *run, const jnode *node, jscope *scope) LW_MUST_USE;
lw_status lw__jinja_assign(jrun *run, const jnode *target, jscope *scope, jvalue value) LW_MUST_USE;
lw_status lw__jinja_call(jrun *run, jvalue callee, const jargs *args, jvalue *out) LW_MUST_USE;
const jbuiltin *lw__jinja_builtin(lw_text name); /* a global function, or NULL */
lw_status lw__jinja_loop_attribute(jrun *run, jloop *loop, lw_text name, jvalue *out,
                                   bool *is_there) LW_MUST_USE;
lw_status lw__jinja_loop_call(jrun *run, jloop *loop, lw_text name, const jargs *args,
                              jvalue *out) LW_MUST_USE;
lw_status lw__jinja_loop_count(jrun *run, jloop *loop, size_t *out) LW_MUST_USE;

/* --- args.c: the parameters of filters, tests and methods. params ends with NULL; absent ones stay NULL in
 * out. */
lw_status lw__jinja_bind(jrun *run, const char *what, const jargs *args, const char *const *params,
                         const jvalue **out) LW_MUST_USE;
lw_status lw__jinja_need_text(jrun *run, const char *what, const jvalue *v, lw_text *out) LW_MUST_USE;
lw_status lw__jinja_need_int(jrun *run, const char *what, const jvalue *v, int64_t *out) LW_MUST_USE;

/* --- filters*.c, tests.c, methods*.c */
lw_status lw__jinja_filter(jrun *run, lw_text name, jvalue subject, const jargs *args,
                           jvalue *out) LW_MUST_USE;
lw_status lw__jinja_test(jrun *run, lw_text name, jvalue subject, const jargs *args, bool *out) LW_MUST_USE;
lw_status lw__jinja_method(jrun *run, jvalue owner, lw_text name, const jargs *args, jvalue *out) LW_MUST_USE;
/* Whether Python's type has an attribute of that name, and whether the sandbox lets it be read. */
bool lw__jinja_has_method(jkind kind, lw_text name, bool *is_safe);

#endif

/* The parsed template. One node type; which fields a kind uses stands beside it. Read-only after parsing. */
#ifndef LW_TEXT_JINJA_NODE_H
#define LW_TEXT_JINJA_NODE_H

#include "base/arena.h"
#include "text/jinja/value.h"

typedef enum jnode_kind {
    /* expressions */
    JN_CONST,       /* value */
    JN_NAME,        /* name */
    JN_TUPLE,       /* items */
    JN_LIST,        /* items */
    JN_DICT,        /* items: key, value, key, value... */
    JN_ATTRIBUTE,   /* left.name */
    JN_ITEM,        /* left[right] */
    JN_SLICE,       /* left[items 0:1:2], each may be NULL */
    JN_CALL,        /* left(items, names = values) */
    JN_FILTER,      /* left | name(items, names = values) */
    JN_TEST,        /* left is name(items, names = values) */
    JN_NOT,         /* left */
    JN_NEGATE,      /* left */
    JN_PLUS,        /* left */
    JN_AND,         /* left, right */
    JN_OR,          /* left, right */
    JN_BINARY,      /* left op right */
    JN_CONCAT,      /* items */
    JN_COMPARE,     /* left, then items: JN_OPERAND each */
    JN_OPERAND,     /* op left */
    JN_CONDITION,   /* left if right else third (may be NULL) */
    /* statements */
    JN_BODY,        /* items */
    JN_OUTPUT,      /* left */
    JN_IF,          /* items: condition, body, condition, body...; left: else body or NULL */
    JN_FOR,         /* left in right if third (may be NULL); items: body, else body or NULL */
    JN_SET,         /* left = right */
    JN_SET_BLOCK,   /* left; items: body; right: filters over JN_CAPTURED, or NULL */
    JN_CAPTURED,    /* value: the text that a filter or set block caught */
    JN_MACRO,       /* name; names with values (NULL: no default); left: body */
    JN_CALL_BLOCK,  /* left: the call; right: JN_MACRO, the caller */
    JN_FILTER_BLOCK, /* left: filters over JN_CAPTURED; right: body */
    JN_WITH,        /* names = values; left: body */
    JN_SCOPE,       /* left: body */
    JN_BREAK,
    JN_CONTINUE,
} jnode_kind;

/* Names are interned: equal names are one object. */
typedef struct jname {
    lw_text text;  /* NUL-terminated */
    const struct jname *next;
} jname;

enum { JINJA_NAME_BUCKETS = 1024 };

typedef struct jnode jnode;
struct jnode {
    jnode_kind kind;
    int line;
    int op;               /* JOP, or JOP_IN, JOP_NOT_IN */
    size_t height;        /* levels below and including this one */
    const jname *name;
    const jnode *left, *right, *third;
    const jnode **items;
    size_t count;
    const jname **names;
    const jnode **values;
    size_t named_count;
    jvalue value;
    bool is_negated;      /* is not */
    bool uses_varargs, uses_kwargs, uses_caller; /* of a macro's body */
};

enum { JOP_IN = 1, JOP_NOT_IN = 2 };

struct lw_jinja {
    lw_arena arena;
    const char *name;
    const jname *names[JINJA_NAME_BUCKETS];
    const jnode *body;
};

/* The bucket of a name. */
size_t lw__jinja_name_bucket(const char *bytes, size_t count);

/* The interned name, or NULL when the template does not mention it. */
const jname *lw__jinja_name_find(const struct lw_jinja *program, const char *bytes, size_t count);

#endif

/* The values that a template computes with, in the arena of one rendering; never changed once made, save a
 * namespace, an iterator's place and a loop. Invariant: origin is LW_ORIGIN_OUTSIDE whenever any part of the
 * value came from outside, and a text's origins are NULL only when all its bytes are trusted.
 */
#ifndef LW_TEXT_JINJA_VALUE_H
#define LW_TEXT_JINJA_VALUE_H

#include "base/origin.h"

typedef enum jkind {
    JK_UNDEFINED,
    JK_NONE,
    JK_BOOL,
    JK_INT,
    JK_FLOAT,
    JK_STRING,
    JK_LIST,
    JK_TUPLE,
    JK_DICT,
    JK_VIEW,       /* what keys(), values() and items() give */
    JK_RANGE,
    JK_ITERATOR,   /* read once: what map, select, items and the like give */
    JK_NAMESPACE,
    JK_MACRO,
    JK_LOOP,
    JK_BUILTIN,
    JK_METHOD,
} jkind;

typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jundefined jundefined;
typedef struct jmacro jmacro;
typedef struct jloop jloop;
typedef struct jmethod jmethod;
typedef struct jbuiltin jbuiltin;

typedef struct jvalue {
    jkind kind;
    uint8_t origin;   /* LW_ORIGIN_* of the whole */
    bool is_markup;   /* a string that | safe or | escape has passed */
    union {
        bool truth;
        int64_t integer;
        double real;
        lw_text text;
        jlist *list;                 /* list, tuple, view, range, iterator */
        jdict *dict;                 /* dict, namespace */
        const jundefined *undefined; /* may be NULL: nothing is known */
        const jmacro *macro;
        jloop *loop;
        const jmethod *method;
        const jbuiltin *builtin;
    } as;
} jvalue;

struct jlist {
    jvalue *items;
    size_t count;
    size_t next;        /* of an iterator */
    const char *label;  /* "dict_keys" of a view */
    int64_t start, stop, step; /* of a range */
};

struct jdict {
    jvalue *keys;
    jvalue *values;
    size_t count;
    size_t room;
};

struct jundefined {
    const char *owner;  /* "dict object"; NULL: a variable */
    lw_text name;
    const char *hint;   /* instead of both */
    bool is_unsafe;     /* the sandbox refuses the attribute */
};

/* A method not called yet: owner.name */
struct jmethod {
    jvalue owner;
    lw_text name;
};

static inline jvalue value_none(uint8_t origin) { return (jvalue){ .kind = JK_NONE, .origin = origin }; }
static inline jvalue value_bool(bool truth, uint8_t origin)
{
    return (jvalue){ .kind = JK_BOOL, .origin = origin, .as.truth = truth };
}
static inline jvalue value_int(int64_t integer, uint8_t origin)
{
    return (jvalue){ .kind = JK_INT, .origin = origin, .as.integer = integer };
}
static inline jvalue value_float(double real, uint8_t origin)
{
    return (jvalue){ .kind = JK_FLOAT, .origin = origin, .as.real = real };
}
static inline jvalue value_text(lw_text text)
{
    const uint8_t origin = text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE;
    return (jvalue){ .kind = JK_STRING, .origin = origin, .as.text = text };
}
static inline jvalue value_list(jkind kind, jlist *list, uint8_t origin)
{
    return (jvalue){ .kind = kind, .origin = origin, .as.list = list };
}

static inline bool value_is_number(jvalue v) { return v.kind == JK_BOOL || v.kind == JK_INT ||
    v.kind == JK_FLOAT; }
static inline bool value_is_integer(jvalue v) { return v.kind == JK_BOOL || v.kind == JK_INT; }
static inline int64_t value_integer(jvalue v) { return v.kind == JK_BOOL ? v.as.truth : v.as.integer; }
static inline double value_real(jvalue v) { return v.kind == JK_FLOAT ? v.as.real
    : (double)value_integer(v); }

#endif

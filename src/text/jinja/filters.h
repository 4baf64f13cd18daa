/* The filters' tables: text and numbers in filters_text.c, sequences in filters_list.c; lookup in
 * filters.c. */
#ifndef LW_TEXT_JINJA_FILTERS_H
#define LW_TEXT_JINJA_FILTERS_H

#include "text/jinja/run.h"

typedef struct jfilter {
    const char *name;
    lw_status (*apply)(jrun *run, jvalue subject, const jargs *args, jvalue *out);
} jfilter;

enum { JINJA_TEXT_FILTERS = 17, JINJA_LIST_FILTERS = 21 };
extern const jfilter lw__jinja_text_filters[JINJA_TEXT_FILTERS];
extern const jfilter lw__jinja_list_filters[JINJA_LIST_FILTERS];

/* Fails when a filter without parameters is given some. */
lw_status lw__jinja_no_args(jrun *run, const char *what, const jargs *args) LW_MUST_USE;

/* Python's strip(chars), at the sides asked for; chars NULL: white space. Shared with the string methods. */
lw_status lw__jinja_strip(jrun *run, lw_text text, const jvalue *chars, const bool sides[static 2],
                          lw_text *out) LW_MUST_USE;

/* Python's replace; times < 0: all. */
lw_status lw__jinja_replace(jrun *run, lw_text text, const lw_text pair[static 2], int64_t times,
                            lw_text *out) LW_MUST_USE;

/* Python's splitlines without the line ends. */
lw_status lw__jinja_split_lines(jrun *run, lw_text text, jvalue *out) LW_MUST_USE;

#endif

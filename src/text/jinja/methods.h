/* String methods, for methods.c. */
#ifndef LW_TEXT_JINJA_METHODS_H
#define LW_TEXT_JINJA_METHODS_H

#include "text/jinja/run.h"

/* Every public attribute of Python's str; NULL ends the list. */
extern const char *const lw__jinja_text_names[];

lw_status lw__jinja_text_method(jrun *run, jvalue owner, lw_text name, const jargs *args,
                                jvalue *out) LW_MUST_USE;

#endif

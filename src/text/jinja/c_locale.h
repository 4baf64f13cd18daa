/* Numbers are spelled with a point while a template is parsed or rendered, whatever locale the program that
 * uses the library has set: a comma would be another prompt. For this thread, and undone afterwards.
 */
#ifndef LW_TEXT_JINJA_C_LOCALE_H
#define LW_TEXT_JINJA_C_LOCALE_H

#include <locale.h>

typedef struct c_locale {
    locale_t own, before;
} c_locale;

static inline c_locale c_locale_enter(void)
{
    const locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (c_locale){ .own = own, .before = uselocale(own) };
}

static inline void c_locale_leave(c_locale locale)
{
    (void)uselocale(locale.before);
    if (locale.own != (locale_t)0) freelocale(locale.own);
}

#endif

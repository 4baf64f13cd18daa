/* `lanewise serve` over the model of fake_lanewise.c: the same command line, the same server; and memory that
 * one thread can be told not to find (the linker puts __wrap_x in the place of x).
 */
#include "cli/verbs.h"
#include "fake_lanewise.h"

#include <signal.h>
#include <stdlib.h>

static _Thread_local bool is_starved;

void fake_starve(bool starves)
{
    is_starved = starves;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return is_starved ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_starved ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return is_starved ? NULL : __real_realloc(old, bytes);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    lw_term term = lw_term_make(NULL);
    term.api_keys = getenv("LANEWISE_API_KEY");
    return lw_out_finish(lw_verb_serve(&term, argc - 1, argv + 1));
}

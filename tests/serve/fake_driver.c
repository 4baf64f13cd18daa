/* `lanewise serve` over the model of fake_lanewise.c: the same command line, the same server. */
#include "cli/verbs.h"

#include <signal.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    lw_term term = lw_term_make(NULL);
    term.api_keys = getenv("LANEWISE_API_KEY");
    return lw_out_finish(lw_verb_serve(&term, argc - 1, argv + 1));
}

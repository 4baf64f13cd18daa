/* The verbs of the command line, one file each. argv starts after the verb; each returns an exit code
 * (term.h). */
#ifndef LW_CLI_VERBS_H
#define LW_CLI_VERBS_H

#include "cli/options.h"
#include "cli/term.h"

/* Its first digits, with "-changed" behind them where the tree was; "unknown" where nothing tells. */
const char *lw_commit(void);

int lw_verb_run(const lw_term *term, int argc, char **argv);
int lw_verb_serve(const lw_term *term, int argc, char **argv);
int lw_verb_info(const lw_term *term, int argc, char **argv);
int lw_verb_tokenize(const lw_term *term, int argc, char **argv);
int lw_verb_devices(const lw_term *term, int argc, char **argv);
int lw_verb_check(const lw_term *term, int argc, char **argv);
int lw_verb_receipts(const lw_term *term, int argc, char **argv);
int lw_verb_bench(const lw_term *term, int argc, char **argv);

#endif

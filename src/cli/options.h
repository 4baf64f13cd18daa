/* The one option parser of the command line. A verb describes its options in a table; parsing, range checks,
 * texts of errors and --help all come from that table.
 *
 *   --name VALUE, --name=VALUE, -n VALUE; "--" ends the options; a lone "-" is an argument; the last of
 * several wins.
 */
#ifndef LW_CLI_OPTIONS_H
#define LW_CLI_OPTIONS_H

#include "base/buf.h"
#include "base/status.h"

/* Values of an option that may be given several times; borrowed from argv. */
enum { LW_OPTION_LIST_MAX = 32 };
typedef struct lw_option_list {
    const char *values[LW_OPTION_LIST_MAX];
    uint32_t count;
} lw_option_list;

/* Exactly one of flag, text, list, u32, u64 and real is set: it says what the option takes and where it goes.
 */
typedef struct lw_option {
    const char *name;  /* "max-tokens" */
    char letter;       /* 'p' for -p; 0: none */
    const char *value; /* how help spells the value: "N"; NULL for a flag */
    const char *help;
    bool *flag;
    const char **text; /* borrowed from argv */
    lw_option_list *list;
    uint32_t *u32;
    uint64_t *u64;
    double *real;
    bool *given;               /* told that the option was there; may be NULL */
    const char *choices;       /* text: the only values, separated by '|'; NULL: any */
    uint64_t min, max;         /* u32 and u64, both included */
    double real_min, real_max; /* real, both included */
} lw_option;

enum { LW_OPTIONS_MAX = 40, LW_ARGUMENTS_MAX = 2 };

/* What a verb takes. */
typedef struct lw_usage {
    const char *verb;
    const char *arguments; /* "MODEL [TEXT]" */
    uint32_t arguments_min, arguments_max;
    const char *summary;  /* a paragraph for --help */
    const char *examples; /* lines for --help */
    const lw_option *options;
    size_t option_count;
} lw_usage;

typedef struct lw_arguments {
    const char *values[LW_ARGUMENTS_MAX];
    uint32_t count;
    bool help; /* --help was there; nothing else was checked after it */
} lw_arguments;

/* Reads argv[0, argc), which starts after the verb. LW_BAD_INPUT names the option, the value and what is
 * allowed. */
lw_status lw_options_parse(const lw_usage *usage, int argc, char **argv, lw_arguments *out, lw_diag *d)
    LW_MUST_USE;

/* Appends the --help text. */
lw_status lw_options_help(const lw_usage *usage, lw_buf *out) LW_MUST_USE;

/* Parses; prints help (to stdout) or the usage error (to stderr) itself. False: the verb ends with
 * *exit_code. */
bool lw_options_ready(const lw_usage *usage, int argc, char **argv, lw_arguments *out, int *exit_code)
    LW_MUST_USE;

/* Prints "lanewise: text" and where help is to be found; returns the exit code of usage errors. */
int lw_usage_error(const char *verb, const char *format, ...) LW_PRINTF(2, 3);

#endif

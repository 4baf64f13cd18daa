/* The terminal: what the process was started with, colours, the progress line, Ctrl-C, and how errors are
 * printed. main makes one lw_term and passes it to the verb. The signal flag in term.c is the only mutable
 * global.
 *
 * Exit codes: 0 done, 1 failed, 2 the command line was wrong, 130 ended by Ctrl-C. A reader that closes our
 * standard output has what it wanted: the process ends quietly with 0.
 */
#ifndef LW_CLI_TERM_H
#define LW_CLI_TERM_H

#include "base/kept.h"
#include "model/checkpoint.h"
#include "device/device.h"

#include <jansson.h>

enum { LW_EXIT_OK = 0, LW_EXIT_FAILED = 1, LW_EXIT_USAGE = 2, LW_EXIT_INTERRUPTED = 130 };

typedef struct lw_term {
    bool in_is_terminal, out_is_terminal, err_is_terminal;
    bool has_color; /* of standard output: a terminal, and NO_COLOR is not set */
    const char *api_keys; /* LANEWISE_API_KEY, or NULL */
    const char *ze_loader, *xpu_kernels; /* LANEWISE_ZE_LOADER and LANEWISE_XPU_KERNELS, or NULL */
    const char *without;                 /* LANEWISE_XPU_WITHOUT, or NULL */
    const char *cache_home, *home; /* XDG_CACHE_HOME and HOME, or NULL */
    char xpu_images[LW_KEPT_PATH_BYTES]; /* the folder below them; empty: there is none */
} lw_term;

/* First of all: opens what the caller closed of the standard streams, so that no other file or connection
 * gets their numbers, and what is meant for them. */
void lw_streams_guard(void);

/* no_color: the value of NO_COLOR, or NULL. Any text but the empty one switches colours off. */
lw_term lw_term_make(const char *no_color);

/* "lanewise: text" on stderr; returns the exit code of failures. */
int lw_term_error(const char *format, ...) LW_PRINTF(1, 2);

/* A line of status on stderr that is drawn over itself; silent unless stderr is a terminal. */
typedef struct lw_progress_line {
    const char *what; /* "loading" */
    bool shown;       /* stderr is a terminal */
    uint32_t percent; /* last drawn; above 100: none yet */
} lw_progress_line;

lw_progress_line lw_progress_line_make(const lw_term *term, const char *what);
void lw_progress_line_step(lw_progress_line *line, uint64_t done, uint64_t total);
void lw_progress_line_clear(lw_progress_line *line);
/* The line as a device's progress; line is borrowed. */
lw_progress lw_progress_of_line(lw_progress_line *line);

/* From here the first Ctrl-C sets a flag (and interrupts a waiting read); a second one ends the process. */
void lw_interrupt_arm(void);
bool lw_interrupted(void);
/* Sleeps until standard input has something to read or a Ctrl-C came, also one just before the call: false
 * for that. A terminal gives one line a read, so nothing waits in stdio's buffer when this is asked. */
bool lw_interrupt_wait_input(void);

/* Writes to standard output and flushes. False: nobody reads any more (quiet), or the write failed; the
 * stream keeps the mark, so lw_out_finish reports it even where a caller does not look. */
bool lw_out_write(const char *bytes, size_t count);

/* Prints one JSON object and a line end to standard output and frees it. False as above, or memory ran out
 * and nothing was printed: then lw_out_finish says so. */
bool lw_out_json(json_t *object);

/* Flushes standard output at the end of the process and turns exit_code into the final one. */
int lw_out_finish(int exit_code);

/* Reads all of file (name in texts); more than bytes_max is refused. *bytes is freed by the caller. */
lw_status lw_read_all(int file, const char *name, size_t bytes_max, char **bytes, size_t *count, lw_diag *d)
    LW_MUST_USE;

#endif

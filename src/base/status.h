/* How the world's failures travel: a status, and a text written where the failure happened.
 * Every fallible function returns lw_status and takes an lw_diag last; the caller may pass NULL when
 * it does not want the text. The programmer's own mistakes are LW_ASSERT, on in every build.
 */
#ifndef LW_BASE_STATUS_H
#define LW_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#define LW_MUST_USE __attribute__((warn_unused_result))
#define LW_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#define LW_UNUSED __attribute__((unused))
#define LW_NORETURN __attribute__((noreturn))

typedef enum lw_status {
    LW_OK = 0,
    LW_BAD_INPUT,    /* a request, option or text that cannot be right */
    LW_BAD_MODEL,    /* a model file that contradicts itself or its format */
    LW_UNSUPPORTED,  /* well formed, but not served here */
    LW_NOT_FOUND,    /* a file or name that is absent */
    LW_NO_ROOM,      /* memory or a named limit */
    LW_IO,           /* the operating system refused a read or write */
    LW_DEVICE_LOST,  /* the device is gone; nothing is retried on it */
    LW_CANCELLED,    /* the asker went away */
    LW_STATUS_COUNT
} lw_status;

enum { LW_DIAG_BYTES = 2048 }; /* lists of missing tensors are long; longer ones are cut with a count */

typedef struct lw_diag {
    char text[LW_DIAG_BYTES]; /* NUL-terminated; valid after a status other than LW_OK */
} lw_diag;

/* Writes the text into d (if not NULL) and returns status, so that `return lw_fail(d, LW_IO, ...)` reads
 * well. */
lw_status lw_fail(lw_diag *d, lw_status status, const char *format, ...) LW_PRINTF(3, 4);

/* Puts "prefix: " before the text that a callee left in d; returns status. */
lw_status lw_fail_prefix(lw_diag *d, lw_status status, const char *format, ...) LW_PRINTF(3, 4);

/* A short lower-case name: "ok", "bad input", ... Never NULL. */
const char *lw_status_name(lw_status status);

LW_NORETURN void lw_assert_failed(const char *condition, const char *file, int line);
#define LW_ASSERT(condition) \
    do { \
        if (!(condition)) lw_assert_failed(#condition, __FILE__, __LINE__); \
    } while (0)

#endif

/* Statuses and their texts. Called from everywhere; allocates nothing. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {
    [LW_OK] = "ok",
    [LW_BAD_INPUT] = "bad input",
    [LW_BAD_MODEL] = "bad model",
    [LW_UNSUPPORTED] = "unsupported",
    [LW_NOT_FOUND] = "not found",
    [LW_NO_ROOM] = "no room",
    [LW_IO] = "input/output error",
    [LW_DEVICE_LOST] = "device lost",
    [LW_CANCELLED] = "cancelled",
};
_Static_assert(sizeof status_names / sizeof status_names[0] == LW_STATUS_COUNT, "the last status has a name");

const char *lw_status_name(lw_status status)
{
    if ((unsigned)status >= LW_STATUS_COUNT || status_names[status] == NULL) return "unknown status";
    return status_names[status];
}

lw_status lw_fail(lw_diag *d, lw_status status, const char *format, ...)
{
    LW_ASSERT(status != LW_OK);
    if (d == NULL) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(d->text, sizeof d->text, format, args);
    va_end(args);
    return status;
}

lw_status lw_fail_prefix(lw_diag *d, lw_status status, const char *format, ...)
{
    LW_ASSERT(status != LW_OK);
    if (d == NULL) return status;
    lw_diag inner = *d;
    va_list args;
    va_start(args, format);
    const int prefix_bytes = vsnprintf(d->text, sizeof d->text, format, args);
    va_end(args);
    const size_t at = prefix_bytes < 0 ? 0 : (size_t)prefix_bytes;
    if (at + 2 < sizeof d->text) {
        memcpy(d->text + at, ": ", 2);
        const size_t room = sizeof d->text - at - 3;
        const size_t count = strnlen(inner.text, room);
        memcpy(d->text + at + 2, inner.text, count);
        d->text[at + 2 + count] = '\0';
    }
    return status;
}

void lw_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "lanewise: a broken assumption: %s (%s:%d). This is a bug; please report it.\n",
            condition, file, line);
    abort();
}

/* Statuses of the inside become results of the outside, with the field that is at fault. */
#include "api/api.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const lw_result results[] = {
    [LW_OK] = LW_RESULT_OK,
    [LW_BAD_INPUT] = LW_RESULT_BAD_INPUT,
    [LW_BAD_MODEL] = LW_RESULT_BAD_MODEL,
    [LW_UNSUPPORTED] = LW_RESULT_UNSUPPORTED,
    [LW_NOT_FOUND] = LW_RESULT_NOT_FOUND,
    [LW_NO_ROOM] = LW_RESULT_NO_ROOM,
    [LW_IO] = LW_RESULT_IO,
    [LW_DEVICE_LOST] = LW_RESULT_DEVICE_LOST,
    [LW_CANCELLED] = LW_RESULT_CANCELLED,
};
_Static_assert(sizeof results / sizeof results[0] == LW_STATUS_COUNT, "every status has a result");

lw_result lw__api_result_of(lw_status status)
{
    LW_ASSERT((unsigned)status < LW_STATUS_COUNT);
    return results[status];
}

lw_result lw__api_fail(lw_error *error, lw_result result, const char *field, const char *format, ...)
{
    if (error == NULL) return result;
    *error = (lw_error){ .wanted = 0 };
    snprintf(error->field, sizeof error->field, "%s", field == NULL ? "" : field);
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return result;
}

lw_result lw__api_status(lw_error *error, lw_status status, const char *field, const lw_diag *d)
{
    const lw_result result = lw__api_result_of(status);
    return result == LW_RESULT_OK ? result : lw__api_fail(error, result, field, "%s", d->text);
}

lw_result lw__api_counts(lw_error *error, lw_result result, const char *field, uint64_t wanted,
                         uint64_t there)
{
    if (error == NULL) return result;
    error->wanted = wanted;
    error->there = there;
    snprintf(error->field, sizeof error->field, "%s", field);
    return result;
}

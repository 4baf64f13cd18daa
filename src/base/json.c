/* JSON in a memory that may run out; see json.h. Two guards, since jansson does not look at failures of the
 * buffer that holds the token it reads:
 *   1. Its allocations pass through here (those of the program that it had before stay below). After the
 *      first that fails, all others of the same parse do, so that no string is copied from a damaged token.
 *   2. The text is read as the second element of an array, whose first is a string as long as the longest
 *      token: that one makes the buffer grow, and no number, which jansson would assert about, does.
 */
#include "base/json.h"

#include "base/buf.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What jansson calls has no argument of ours. */
static pthread_once_t is_installed = PTHREAD_ONCE_INIT;
static json_malloc_t take_below; /* written once */
static _Thread_local bool is_loading, has_failed;

static void *take(size_t bytes)
{
    if (is_loading && has_failed) return NULL;
    void *block = take_below(bytes);
    if (block == NULL) has_failed = true;
    return block;
}

static void install(void)
{
    json_free_t free_below;
    json_get_alloc_funcs(&take_below, &free_below);
    json_set_alloc_funcs(take, free_below);
}

void lw_json_install(void)
{
    pthread_once(&is_installed, install);
}

/* Bytes of the longest string, number or word as it is spelled, quotes included. */
static size_t longest_token(const char *bytes, size_t count)
{
    size_t longest = 0, begin = 0;
    bool in_string = false;
    for (size_t at = 0; at < count; at++) {
        if (in_string && bytes[at] == '\\') {
            at++;
            continue;
        }
        const bool is_quote = bytes[at] == '"';
        const bool parts = !in_string && memchr("{}[]:, \t\r\n", bytes[at], 10) != NULL;
        if (!is_quote && !parts) continue;
        if (at + 1 - begin > longest) longest = at + 1 - begin;
        if (is_quote) in_string = !in_string;
        begin = is_quote && in_string ? at : at + 1;
    }
    return count - begin > longest && count > begin ? count - begin : longest;
}

/* Arrays and objects inside each other; a value in the innermost counts as one more to jansson, and so does
 * the array around the text. */
enum { PART_COUNT = 5, NESTING_MAX = JSON_PARSER_MAX_DEPTH - 2 };

static bool nests_too_deep(const char *bytes, size_t count)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < count; at++) {
        if (in_string && bytes[at] == '\\') at++;
        else if (bytes[at] == '"') in_string = !in_string;
        else if (!in_string && (bytes[at] == '[' || bytes[at] == '{') && ++depth > NESTING_MAX) return true;
        else if (!in_string && (bytes[at] == ']' || bytes[at] == '}') && depth > 0) depth--;
    }
    return false;
}

/* Jansson's own code stands in the last byte of the text. */
static void refuse_depth(json_error_t *error)
{
    *error = (json_error_t){ .line = -1, .column = -1 };
    snprintf(error->text, sizeof error->text - 1, "nested deeper than %d levels", NESTING_MAX);
    error->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_stack_overflow;
}

/* The array's text in parts; a part without bytes is filler. */
typedef struct source {
    struct {
        const char *bytes;
        size_t count;
    } parts[PART_COUNT];
    size_t part;
} source;

static size_t feed(void *out, size_t room, void *context)
{
    source *from = context;
    while (from->part < PART_COUNT && from->parts[from->part].count == 0) from->part++;
    if (from->part == PART_COUNT) return 0;
    const char *bytes = from->parts[from->part].bytes;
    const size_t left = from->parts[from->part].count, count = left < room ? left : room;
    if (bytes == NULL) memset(out, 'x', count);
    else memcpy(out, bytes, count);
    if (bytes != NULL) from->parts[from->part].bytes += count;
    from->parts[from->part].count -= count;
    return count;
}

static json_t *load_second(const char *bytes, size_t count, size_t flags)
{
    source from = { .parts = { { "[\"", 2 },
                               { NULL, longest_token(bytes, count) },
                               { "\",", 2 },
                               { bytes, count },
                               { "]", 1 } } };
    json_t *both = json_load_callback(feed, &from, flags, NULL);
    json_t *root = json_array_size(both) == 2 ? json_incref(json_array_get(both, 1)) : NULL;
    json_decref(both);
    const bool is_any = (flags & JSON_DECODE_ANY) != 0 || json_is_array(root) || json_is_object(root);
    if (is_any) return root;
    json_decref(root);
    return NULL;
}

json_t *lw_json_load(const char *bytes, size_t count, size_t flags, json_error_t *error)
{
    lw_json_install();
    json_error_t unheard;
    if (error == NULL) error = &unheard;
    has_failed = false;
    /* The array around it would pass jansson's limit, and the text would be read without the second guard. */
    if (nests_too_deep(bytes, count)) {
        refuse_depth(error);
        return NULL;
    }
    is_loading = true;
    json_t *root = load_second(bytes, count, flags);
    /* What is wrong with a text, and where, is told of the text alone. */
    if (root == NULL && !has_failed) root = json_loadb(bytes, count, flags, error);
    is_loading = false;
    if (!lw_json_take_failure()) return root;
    json_decref(root);
    *error = (json_error_t){ .text = "" };
    return NULL;
}

json_t *lw_json_text(const char *bytes, size_t count)
{
    json_t *text = json_stringn(bytes, count);
    if (text != NULL) return text;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    lw_status status = LW_OK;
    for (size_t at = 0; at < count && status == LW_OK;) {
        /* The longest valid code point here: 4 bytes at most. */
        size_t bytes_here = 0;
        for (size_t k = 1; k <= 4 && at + k <= count && bytes_here == 0; k++) {
            json_t *one = json_stringn(bytes + at, k);
            if (one != NULL) bytes_here = k;
            json_decref(one);
        }
        status = bytes_here > 0 ? lw_buf_append(&buf, bytes + at, bytes_here)
                                : lw_buf_append_text(&buf, "\xEF\xBF\xBD");
        at += bytes_here > 0 ? bytes_here : 1;
    }
    if (status == LW_OK) text = json_stringn(buf.bytes, buf.count);
    lw_buf_deinit(&buf);
    return text;
}

bool lw_json_has_failed(void)
{
    return has_failed;
}

bool lw_json_take_failure(void)
{
    const bool failed = has_failed;
    has_failed = false;
    return failed;
}

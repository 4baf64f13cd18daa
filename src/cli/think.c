/* Think tags; see think.h. */
#include "cli/think.h"

#include <string.h>

size_t lw_think_scan(lw_think *think, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *tag = think->inside ? LW_THINK_CLOSE : LW_THINK_OPEN;
        /* A tag's first byte stands nowhere else in it, so a failed match restarts at this byte or the next.
         */
        if (bytes[i] != tag[think->matched]) think->matched = 0;
        if (bytes[i] == tag[think->matched]) think->matched++;
        if (tag[think->matched] != '\0') continue;
        think->matched = 0;
        think->inside = !think->inside;
        return i + 1;
    }
    return count;
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

bool lw_think_ends_open(const char *bytes, size_t count)
{
    const size_t tag_bytes = strlen(LW_THINK_OPEN);
    while (count > 0 && is_space(bytes[count - 1])) count--;
    return count >= tag_bytes && memcmp(bytes + count - tag_bytes, LW_THINK_OPEN, tag_bytes) == 0;
}

/* [begin, end) without white space at its ends. */
static void trim(const char *text, size_t *begin, size_t *end)
{
    while (*begin < *end && is_space(text[*begin])) *begin += 1;
    while (*end > *begin && is_space(text[*end - 1])) *end -= 1;
}

lw_think_parts lw_think_split(const char *text, size_t count, bool is_inside)
{
    const lw_think_parts whole = { .content = text, .content_bytes = count };
    size_t begin = 0;
    if (!is_inside) {
        while (begin < count && is_space(text[begin])) begin++;
        const size_t tag_bytes = strlen(LW_THINK_OPEN);
        if (count - begin < tag_bytes || memcmp(text + begin, LW_THINK_OPEN, tag_bytes) != 0) return whole;
        begin += tag_bytes;
    }
    lw_think think = { .inside = true };
    const size_t after = begin + lw_think_scan(&think, text + begin, count - begin);
    if (think.inside) return whole;
    size_t end = after - strlen(LW_THINK_CLOSE), content_begin = after, content_end = count;
    trim(text, &begin, &end);
    trim(text, &content_begin, &content_end);
    return (lw_think_parts){
        .reasoning = text + begin,
        .reasoning_bytes = end - begin,
        .content = text + content_begin,
        .content_bytes = content_end - content_begin,
    };
}

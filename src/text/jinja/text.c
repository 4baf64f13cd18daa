/* UTF-8 steps and searches; see text.h. */
#include "text/jinja/text.h"

size_t lw__jinja_char_bytes(const char *bytes, size_t count)
{
    const unsigned char c = (unsigned char)bytes[0];
    const size_t whole = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return whole < count ? whole : count;
}

uint32_t lw__jinja_decode(const char *bytes, size_t count)
{
    static const unsigned char masks[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    const size_t whole = lw__jinja_char_bytes(bytes, count);
    uint32_t code = (unsigned char)bytes[0] & masks[whole];
    for (size_t i = 1; i < whole; i++) code = code << 6 | ((unsigned char)bytes[i] & 0x3F);
    return code;
}

size_t lw__jinja_encode(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = count - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(heads[count] | code);
    return count;
}

bool lw__jinja_is_utf8(const char *bytes, size_t count)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    for (size_t i = 0; i < count;) {
        const unsigned char c = (unsigned char)bytes[i];
        const size_t whole = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if ((c >= 0x80 && c < 0xC2) || c > 0xF4 || whole > count - i) return false;
        for (size_t k = 1; k < whole; k++)
            if (((unsigned char)bytes[i + k] & 0xC0) != 0x80) return false;
        const uint32_t code = lw__jinja_decode(bytes + i, whole);
        if (code < least[whole] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
        i += whole;
    }
    return true;
}

static bool is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
        c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t lw__jinja_space_bytes(const char *bytes, size_t count)
{
    if (count == 0 || !is_space(lw__jinja_decode(bytes, count))) return 0;
    return lw__jinja_char_bytes(bytes, count);
}

static size_t char_begin(lw_text text, size_t end)
{
    do end--;
    while (end > 0 && ((unsigned char)text.bytes[end] & 0xC0) == 0x80);
    return end;
}

size_t lw__jinja_trim_right(lw_text text)
{
    size_t end = text.count;
    while (end > 0) {
        const size_t begin = char_begin(text, end);
        if (lw__jinja_space_bytes(text.bytes + begin, end - begin) == 0) break;
        end = begin;
    }
    return end;
}

size_t lw__jinja_trim_left(lw_text text)
{
    size_t begin = 0;
    while (begin < text.count) {
        const size_t bytes = lw__jinja_space_bytes(text.bytes + begin, text.count - begin);
        if (bytes == 0) break;
        begin += bytes;
    }
    return text.count - begin;
}

size_t lw__jinja_length(lw_text text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.count; i++) count += ((unsigned char)text.bytes[i] & 0xC0) != 0x80;
    return count;
}

size_t lw__jinja_find(lw_text text, lw_text part, size_t from)
{
    if (from > text.count || part.count > text.count - from) return SIZE_MAX;
    if (part.count == 0) return from;
    const char *at = memmem(text.bytes + from, text.count - from, part.bytes, part.count);
    return at == NULL ? SIZE_MAX : (size_t)(at - text.bytes);
}

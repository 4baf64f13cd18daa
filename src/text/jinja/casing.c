/* Upper, lower and title case as Python's str methods give them: the simple mappings come from utf8proc,
 * those to several characters stand in the table (Unicode SpecialCasing, its unconditional part). Each new
 * byte has the origin of the character it stands for.
 */
#include "text/jinja/run.h"

#include <utf8proc.h>

enum { CASE_CHARS_MAX = 3, SIGMA = 0x3A3, SIGMA_FINAL = 0x3C2, SIGMA_SMALL = 0x3C3, DOTTED_I = 0x130,
    DOT_ABOVE = 0x307 };

static const struct special_case {
    uint32_t code;
    uint32_t upper[CASE_CHARS_MAX];
    uint32_t title[CASE_CHARS_MAX];
} special_cases[] = {
    { 0x00DF, { 0x0053, 0x0053 }, { 0x0053, 0x0073 } },
    { 0x0149, { 0x02BC, 0x004E }, { 0x02BC, 0x004E } },
    { 0x01F0, { 0x004A, 0x030C }, { 0x004A, 0x030C } },
    { 0x0390, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
    { 0x03B0, { 0x03A5, 0x0308, 0x0301 }, { 0x03A5, 0x0308, 0x0301 } },
    { 0x0587, { 0x0535, 0x0552 }, { 0x0535, 0x0582 } },
    { 0x1E96, { 0x0048, 0x0331 }, { 0x0048, 0x0331 } },
    { 0x1E97, { 0x0054, 0x0308 }, { 0x0054, 0x0308 } },
    { 0x1E98, { 0x0057, 0x030A }, { 0x0057, 0x030A } },
    { 0x1E99, { 0x0059, 0x030A }, { 0x0059, 0x030A } },
    { 0x1E9A, { 0x0041, 0x02BE }, { 0x0041, 0x02BE } },
    { 0x1F50, { 0x03A5, 0x0313 }, { 0x03A5, 0x0313 } },
    { 0x1F52, { 0x03A5, 0x0313, 0x0300 }, { 0x03A5, 0x0313, 0x0300 } },
    { 0x1F54, { 0x03A5, 0x0313, 0x0301 }, { 0x03A5, 0x0313, 0x0301 } },
    { 0x1F56, { 0x03A5, 0x0313, 0x0342 }, { 0x03A5, 0x0313, 0x0342 } },
    { 0x1F80, { 0x1F08, 0x0399 }, { 0x1F88 } },
    { 0x1F81, { 0x1F09, 0x0399 }, { 0x1F89 } },
    { 0x1F82, { 0x1F0A, 0x0399 }, { 0x1F8A } },
    { 0x1F83, { 0x1F0B, 0x0399 }, { 0x1F8B } },
    { 0x1F84, { 0x1F0C, 0x0399 }, { 0x1F8C } },
    { 0x1F85, { 0x1F0D, 0x0399 }, { 0x1F8D } },
    { 0x1F86, { 0x1F0E, 0x0399 }, { 0x1F8E } },
    { 0x1F87, { 0x1F0F, 0x0399 }, { 0x1F8F } },
    { 0x1F88, { 0x1F08, 0x0399 }, { 0x1F88 } },
    { 0x1F89, { 0x1F09, 0x0399 }, { 0x1F89 } },
    { 0x1F8A, { 0x1F0A, 0x0399 }, { 0x1F8A } },
    { 0x1F8B, { 0x1F0B, 0x0399 }, { 0x1F8B } },
    { 0x1F8C, { 0x1F0C, 0x0399 }, { 0x1F8C } },
    { 0x1F8D, { 0x1F0D, 0x0399 }, { 0x1F8D } },
    { 0x1F8E, { 0x1F0E, 0x0399 }, { 0x1F8E } },
    { 0x1F8F, { 0x1F0F, 0x0399 }, { 0x1F8F } },
    { 0x1F90, { 0x1F28, 0x0399 }, { 0x1F98 } },
    { 0x1F91, { 0x1F29, 0x0399 }, { 0x1F99 } },
    { 0x1F92, { 0x1F2A, 0x0399 }, { 0x1F9A } },
    { 0x1F93, { 0x1F2B, 0x0399 }, { 0x1F9B } },
    { 0x1F94, { 0x1F2C, 0x0399 }, { 0x1F9C } },
    { 0x1F95, { 0x1F2D, 0x0399 }, { 0x1F9D } },
    { 0x1F96, { 0x1F2E, 0x0399 }, { 0x1F9E } },
    { 0x1F97, { 0x1F2F, 0x0399 }, { 0x1F9F } },
    { 0x1F98, { 0x1F28, 0x0399 }, { 0x1F98 } },
    { 0x1F99, { 0x1F29, 0x0399 }, { 0x1F99 } },
    { 0x1F9A, { 0x1F2A, 0x0399 }, { 0x1F9A } },
    { 0x1F9B, { 0x1F2B, 0x0399 }, { 0x1F9B } },
    { 0x1F9C, { 0x1F2C, 0x0399 }, { 0x1F9C } },
    { 0x1F9D, { 0x1F2D, 0x0399 }, { 0x1F9D } },
    { 0x1F9E, { 0x1F2E, 0x0399 }, { 0x1F9E } },
    { 0x1F9F, { 0x1F2F, 0x0399 }, { 0x1F9F } },
    { 0x1FA0, { 0x1F68, 0x0399 }, { 0x1FA8 } },
    { 0x1FA1, { 0x1F69, 0x0399 }, { 0x1FA9 } },
    { 0x1FA2, { 0x1F6A, 0x0399 }, { 0x1FAA } },
    { 0x1FA3, { 0x1F6B, 0x0399 }, { 0x1FAB } },
    { 0x1FA4, { 0x1F6C, 0x0399 }, { 0x1FAC } },
    { 0x1FA5, { 0x1F6D, 0x0399 }, { 0x1FAD } },
    { 0x1FA6, { 0x1F6E, 0x0399 }, { 0x1FAE } },
    { 0x1FA7, { 0x1F6F, 0x0399 }, { 0x1FAF } },
    { 0x1FA8, { 0x1F68, 0x0399 }, { 0x1FA8 } },
    { 0x1FA9, { 0x1F69, 0x0399 }, { 0x1FA9 } },
    { 0x1FAA, { 0x1F6A, 0x0399 }, { 0x1FAA } },
    { 0x1FAB, { 0x1F6B, 0x0399 }, { 0x1FAB } },
    { 0x1FAC, { 0x1F6C, 0x0399 }, { 0x1FAC } },
    { 0x1FAD, { 0x1F6D, 0x0399 }, { 0x1FAD } },
    { 0x1FAE, { 0x1F6E, 0x0399 }, { 0x1FAE } },
    { 0x1FAF, { 0x1F6F, 0x0399 }, { 0x1FAF } },
    { 0x1FB2, { 0x1FBA, 0x0399 }, { 0x1FBA, 0x0345 } },
    { 0x1FB3, { 0x0391, 0x0399 }, { 0x1FBC } },
    { 0x1FB4, { 0x0386, 0x0399 }, { 0x0386, 0x0345 } },
    { 0x1FB6, { 0x0391, 0x0342 }, { 0x0391, 0x0342 } },
    { 0x1FB7, { 0x0391, 0x0342, 0x0399 }, { 0x0391, 0x0342, 0x0345 } },
    { 0x1FBC, { 0x0391, 0x0399 }, { 0x1FBC } },
    { 0x1FC2, { 0x1FCA, 0x0399 }, { 0x1FCA, 0x0345 } },
    { 0x1FC3, { 0x0397, 0x0399 }, { 0x1FCC } },
    { 0x1FC4, { 0x0389, 0x0399 }, { 0x0389, 0x0345 } },
    { 0x1FC6, { 0x0397, 0x0342 }, { 0x0397, 0x0342 } },
    { 0x1FC7, { 0x0397, 0x0342, 0x0399 }, { 0x0397, 0x0342, 0x0345 } },
    { 0x1FCC, { 0x0397, 0x0399 }, { 0x1FCC } },
    { 0x1FD2, { 0x0399, 0x0308, 0x0300 }, { 0x0399, 0x0308, 0x0300 } },
    { 0x1FD3, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
    { 0x1FD6, { 0x0399, 0x0342 }, { 0x0399, 0x0342 } },
    { 0x1FD7, { 0x0399, 0x0308, 0x0342 }, { 0x0399, 0x0308, 0x0342 } },
    { 0x1FE2, { 0x03A5, 0x0308, 0x0300 }, { 0x03A5, 0x0308, 0x0300 } },
    { 0x1FE3, { 0x03A5, 0x0308, 0x0301 }, { 0x03A5, 0x0308, 0x0301 } },
    { 0x1FE4, { 0x03A1, 0x0313 }, { 0x03A1, 0x0313 } },
    { 0x1FE6, { 0x03A5, 0x0342 }, { 0x03A5, 0x0342 } },
    { 0x1FE7, { 0x03A5, 0x0308, 0x0342 }, { 0x03A5, 0x0308, 0x0342 } },
    { 0x1FF2, { 0x1FFA, 0x0399 }, { 0x1FFA, 0x0345 } },
    { 0x1FF3, { 0x03A9, 0x0399 }, { 0x1FFC } },
    { 0x1FF4, { 0x038F, 0x0399 }, { 0x038F, 0x0345 } },
    { 0x1FF6, { 0x03A9, 0x0342 }, { 0x03A9, 0x0342 } },
    { 0x1FF7, { 0x03A9, 0x0342, 0x0399 }, { 0x03A9, 0x0342, 0x0345 } },
    { 0x1FFC, { 0x03A9, 0x0399 }, { 0x1FFC } },
    { 0xFB00, { 0x0046, 0x0046 }, { 0x0046, 0x0066 } },
    { 0xFB01, { 0x0046, 0x0049 }, { 0x0046, 0x0069 } },
    { 0xFB02, { 0x0046, 0x004C }, { 0x0046, 0x006C } },
    { 0xFB03, { 0x0046, 0x0046, 0x0049 }, { 0x0046, 0x0066, 0x0069 } },
    { 0xFB04, { 0x0046, 0x0046, 0x004C }, { 0x0046, 0x0066, 0x006C } },
    { 0xFB05, { 0x0053, 0x0054 }, { 0x0053, 0x0074 } },
    { 0xFB06, { 0x0053, 0x0054 }, { 0x0053, 0x0074 } },
    { 0xFB13, { 0x0544, 0x0546 }, { 0x0544, 0x0576 } },
    { 0xFB14, { 0x0544, 0x0535 }, { 0x0544, 0x0565 } },
    { 0xFB15, { 0x0544, 0x053B }, { 0x0544, 0x056B } },
    { 0xFB16, { 0x054E, 0x0546 }, { 0x054E, 0x0576 } },
    { 0xFB17, { 0x0544, 0x053D }, { 0x0544, 0x056D } },
};

static const struct special_case *find_special(uint32_t code)
{
    size_t low = 0, high = sizeof special_cases / sizeof special_cases[0];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (special_cases[middle].code == code) return &special_cases[middle];
        if (special_cases[middle].code < code) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static bool is_cased(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
        category == UTF8PROC_CATEGORY_LT;
}

/* Characters that a final sigma looks through. */
static bool is_case_ignorable(uint32_t code)
{
    if (code == '\'' || code == '.' || code == ':' || code == '^' || code == '`' || code == 0xA8) return true;
    if (code == 0xB7 || code == 0x2018 || code == 0x2019 || code == 0x2024 || code == 0x2027) return true;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
        category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK;
}

static bool cased_after(lw_text text, size_t at)
{
    while (at < text.count) {
        const uint32_t code = lw__jinja_decode(text.bytes + at, text.count - at);
        if (!is_case_ignorable(code)) return is_cased(code);
        at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
    }
    return false;
}

static bool cased_before(lw_text text, size_t at)
{
    while (at > 0) {
        do at--;
        while (at > 0 && ((unsigned char)text.bytes[at] & 0xC0) == 0x80);
        const uint32_t code = lw__jinja_decode(text.bytes + at, text.count - at);
        if (!is_case_ignorable(code)) return is_cased(code);
    }
    return false;
}

static size_t map_lower(lw_text text, size_t at, uint32_t code, uint32_t to[static CASE_CHARS_MAX])
{
    if (code == DOTTED_I) {
        to[0] = 'i';
        to[1] = DOT_ABOVE;
        return 2;
    }
    to[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    if (code == SIGMA)
        to[0] = cased_before(text, at) && !cased_after(text, at + 2) ? SIGMA_FINAL : SIGMA_SMALL;
    return 1;
}

static size_t map_upper(uint32_t code, bool is_title, uint32_t to[static CASE_CHARS_MAX])
{
    const struct special_case *special = find_special(code);
    if (special == NULL) {
        to[0] = (uint32_t)(is_title ? utf8proc_totitle((utf8proc_int32_t)code)
                                    : utf8proc_toupper((utf8proc_int32_t)code));
        return 1;
    }
    memcpy(to, is_title ? special->title : special->upper, sizeof special->upper);
    size_t count = 1;
    while (count < CASE_CHARS_MAX && to[count] != 0) count++;
    return count;
}

lw_status lw__jinja_case(jrun *run, lw_text text, jcase how, lw_text *out)
{
    jbuild build = { .run = run };
    bool after_cased = false;
    TRY(lw__jinja_step(run, text.count));
    for (size_t at = 0; at < text.count;) {
        const uint32_t code = lw__jinja_decode(text.bytes + at, text.count - at);
        const bool is_upper = how == JCASE_UPPER;
        const bool is_title = (how == JCASE_CAPITAL && at == 0) || (how == JCASE_TITLE && !after_cased);
        uint32_t to[CASE_CHARS_MAX];
        const size_t count = is_upper || is_title ? map_upper(code, is_title, to)
            : map_lower(text, at, code, to);
        for (size_t i = 0; i < count; i++) {
            char bytes[LW_JINJA_CHAR_BYTES_MAX];
            const size_t whole = lw__jinja_encode(to[i], bytes);
            TRY(lw__jinja_put_bytes(&build, bytes, whole,
                                    text.origins == NULL ? LW_ORIGIN_TRUSTED : text.origins[at]));
        }
        after_cased = is_cased(code);
        at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
    }
    *out = lw__jinja_built(&build);
    return LW_OK;
}

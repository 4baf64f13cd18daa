/* UTF-8 as the tokenizer needs it, and canonical composition (NFC) that keeps the origin of every byte.
 * utf8proc holds the tables. Its own whole-text functions are not used: they lose origins, and they sort
 * combining marks in quadratic time, which a text of marks alone would turn into a hang.
 */
#include "text/text_internal.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

lw__utf8 lw__utf8_scan(const char *bytes, size_t count, size_t *used)
{
    const uint8_t *b = (const uint8_t *)bytes;
    *used = 1;
    if (b[0] < 0x80) return LW__UTF8_WHOLE;
    if (b[0] < 0xC2 || b[0] > 0xF4) return LW__UTF8_BAD;
    const size_t whole = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    /* The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF. */
    const uint8_t low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < whole; i++) {
        if (i == count) return LW__UTF8_PART;
        if (b[i] < (i == 1 ? low : 0x80) || b[i] > (i == 1 ? high : 0xBF)) return LW__UTF8_BAD;
        *used = i + 1;
    }
    return LW__UTF8_WHOLE;
}

bool lw__utf8_valid(const char *bytes, size_t count)
{
    for (size_t at = 0, used; at < count; at += used) {
        uint64_t eight = UINT64_MAX;
        if (count - at >= sizeof eight) memcpy(&eight, bytes + at, sizeof eight);
        if ((eight & 0x8080808080808080u) == 0) used = sizeof eight;
        else if (lw__utf8_scan(bytes + at, count - at, &used) != LW__UTF8_WHOLE) return false;
    }
    return true;
}

uint32_t lw__utf8_decode(const char *bytes, size_t *used)
{
    const uint8_t *b = (const uint8_t *)bytes;
    *used = b[0] < 0x80 ? 1 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (*used == 1) return b[0];
    if (*used == 2) return (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    if (*used == 3) return (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
    return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
}

size_t lw__utf8_encode(uint32_t point, char bytes[4])
{
    if (point < 0x80) {
        bytes[0] = (char)point;
        return 1;
    }
    const size_t count = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, point >>= 6) bytes[i] = (char)(0x80 | (point & 0x3F));
    const uint32_t lead = count == 2 ? 0xC0 : count == 3 ? 0xE0 : 0xF0;
    bytes[0] = (char)(lead | point);
    return count;
}

bool lw__is_white(uint32_t point)
{
    if (point < 0x80) return point == ' ' || (point >= 0x09 && point <= 0x0D);
    return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A)
        || point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

void lw__text_buf_deinit(lw__text_buf *buf)
{
    lw_buf_deinit(&buf->bytes);
    lw_buf_deinit(&buf->origins);
}

lw_text lw__text_buf_view(const lw__text_buf *buf, bool has_origins)
{
    return (lw_text){
        .bytes = buf->bytes.bytes,
        .origins = has_origins ? (const uint8_t *)buf->origins.bytes : NULL,
        .count = buf->bytes.count,
    };
}

static void text_buf_clear(lw__text_buf *buf)
{
    lw_buf_clear(&buf->bytes);
    lw_buf_clear(&buf->origins);
}

/* Copies text[begin, end) with its origins. */
static lw_status text_buf_copy(lw__text_buf *buf, lw_text text, size_t begin, size_t end)
{
    lw_status status = lw_buf_append(&buf->bytes, text.bytes + begin, end - begin);
    if (status == LW_OK && text.origins != NULL) {
        status = lw_buf_append(&buf->origins, text.origins + begin, end - begin);
    }
    return status;
}

/* Appends a piece whose bytes share one origin; origin < 0: origins are not kept. */
static lw_status text_buf_put(lw__text_buf *buf, const char *bytes, size_t count, int origin)
{
    const uint8_t same[4] = { (uint8_t)origin, (uint8_t)origin, (uint8_t)origin, (uint8_t)origin };
    LW_ASSERT(count <= sizeof same);
    lw_status status = lw_buf_append(&buf->bytes, bytes, count);
    if (status == LW_OK && origin >= 0) status = lw_buf_append(&buf->origins, same, count);
    return status;
}

/* The origin of text[begin, end) taken together, or -1 when origins are not kept. */
static int origin_of(lw_text text, size_t begin, size_t end)
{
    if (text.origins == NULL) return -1;
    for (size_t i = begin; i < end; i++) {
        if (text.origins[i] != LW_ORIGIN_TRUSTED) return LW_ORIGIN_OUTSIDE;
    }
    return LW_ORIGIN_TRUSTED;
}

lw_status lw__utf8_repair(lw_text text, lw__text_buf *out)
{
    text_buf_clear(out);
    size_t kept = 0;
    for (size_t at = 0, used; at < text.count; at += used) {
        if (lw__utf8_scan(text.bytes + at, text.count - at, &used) == LW__UTF8_WHOLE) continue;
        lw_status status = text_buf_copy(out, text, kept, at);
        if (status == LW_OK) status = text_buf_put(out, replacement, 3, origin_of(text, at, at + used));
        if (status != LW_OK) return status;
        kept = at + used;
    }
    return text_buf_copy(out, text, kept, text.count);
}

/* ---- NFC ---- */

enum { ACTIVE_END = 0x30000 }; /* planes 0 to 2; nothing above them composes, decomposes or is reordered */

/* A code point is active if it has a combining class, is changed by NFC alone, or may join what stands before
 * it. Text without active code points is normal, and normalisation never reaches across the place before one
 * that is not. */
struct lw__nfc {
    uint64_t active[ACTIVE_END / 64];
};

struct lw__nfc_item {
    uint32_t point;
    uint8_t class;
    int8_t origin;
};

static bool is_active(const lw__nfc *nfc, uint32_t point)
{
    return point >= 0x300 && point < ACTIVE_END && (nfc->active[point / 64] >> (point % 64) & 1) != 0;
}

static void set_active(lw__nfc *nfc, uint32_t point)
{
    LW_ASSERT(point < ACTIVE_END);
    nfc->active[point / 64] |= (uint64_t)1 << (point % 64);
}

enum { DECOMPOSED_MAX = 32 }; /* code points of one canonical decomposition; the longest known has 4 */

static size_t decompose(uint32_t point, int32_t out[DECOMPOSED_MAX])
{
    int bound = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)point, out, DECOMPOSED_MAX,
                                                           UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &bound);
    LW_ASSERT(count > 0 && count <= DECOMPOSED_MAX);
    return (size_t)count;
}

static size_t compose_in_place(int32_t *points, size_t count)
{
    const utf8proc_ssize_t left = utf8proc_normalize_utf32(points, (utf8proc_ssize_t)count,
                                                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    LW_ASSERT(left > 0);
    return (size_t)left;
}

lw__nfc *lw__nfc_make(lw_arena *arena)
{
    lw__nfc *nfc = lw_arena_take(arena, sizeof *nfc);
    if (nfc == NULL) return NULL;
    for (uint32_t point = 0; point < ACTIVE_END; point++) {
        if (point >= 0xD800 && point < 0xE000) continue;
        int32_t parts[DECOMPOSED_MAX];
        if (utf8proc_get_property((utf8proc_int32_t)point)->combining_class != 0) set_active(nfc, point);
        const size_t count = decompose(point, parts);
        if (count == 1 && parts[0] == (int32_t)point) continue;
        for (size_t i = 1; i < count; i++) set_active(nfc, (uint32_t)parts[i]);
        if (compose_in_place(parts, count) != 1 || parts[0] != (int32_t)point) set_active(nfc, point);
    }
    return nfc;
}

bool lw__nfc_is_plain(const lw__nfc *nfc, const char *bytes, size_t count)
{
    for (size_t at = 0, used = 1; at < count; at += used) {
        /* Code points below U+0300 are the bytes below CC and those that follow them. */
        if ((uint8_t)bytes[at] < 0xCC) used = 1;
        else if (is_active(nfc, lw__utf8_decode(bytes + at, &used))) return false;
    }
    return true;
}

/* Decomposes text[begin, end) into scratch->items; *count is how many. */
static lw_status run_decompose(lw__nfc_scratch *scratch, lw_text text, size_t begin, size_t end,
                               size_t *count)
{
    *count = 0;
    for (size_t at = begin, used; at < end; at += used) {
        int32_t parts[DECOMPOSED_MAX];
        const size_t part_count = decompose(lw__utf8_decode(text.bytes + at, &used), parts);
        if (*count + part_count > scratch->room) {
            const size_t room = size_max(2 * scratch->room, 64 + part_count);
            lw__nfc_item *items = realloc(scratch->items, room * sizeof *items);
            if (items != NULL) scratch->items = items;
            lw__nfc_item *sorted = realloc(scratch->sorted, room * sizeof *sorted);
            if (sorted != NULL) scratch->sorted = sorted;
            if (items == NULL || sorted == NULL) return LW_NO_ROOM;
            scratch->room = room;
        }
        const int origin = origin_of(text, at, at + used);
        for (size_t i = 0; i < part_count; i++) {
            const uint8_t class = (uint8_t)utf8proc_get_property(parts[i])->combining_class;
            scratch->items[(*count)++] = (lw__nfc_item){ (uint32_t)parts[i], class, (int8_t)origin };
        }
    }
    return LW_OK;
}

/* Sorts items[begin, end) by class, equal classes in order: by counting, so that a long run costs no more. */
static void sort_marks(lw__nfc_scratch *scratch, size_t begin, size_t end)
{
    lw__nfc_item *items = scratch->items;
    bool in_order = true;
    for (size_t i = begin + 1; i < end; i++) in_order = in_order && items[i - 1].class <= items[i].class;
    if (in_order) return;
    size_t starts[257] = { 0 };
    for (size_t i = begin; i < end; i++) starts[items[i].class + 1]++;
    for (size_t c = 1; c < 257; c++) starts[c] += starts[c - 1];
    for (size_t i = begin; i < end; i++) scratch->sorted[starts[items[i].class]++] = items[i];
    memcpy(items + begin, scratch->sorted, (end - begin) * sizeof *items);
}

static void run_sort(lw__nfc_scratch *scratch, size_t count)
{
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = begin + 1;
        if (scratch->items[begin].class == 0) continue;
        while (end < count && scratch->items[end].class != 0) end++;
        sort_marks(scratch, begin, end);
    }
}

/* Joins what composes; returns how many items are left. */
static size_t run_compose(lw__nfc_item *items, size_t count)
{
    size_t kept = 0;
    lw__nfc_item *starter = NULL;
    int class_before = -1; /* of the item before, if it stands after the starter */
    for (size_t i = 0; i < count; i++) {
        const lw__nfc_item item = items[i];
        int32_t pair[2] = { starter == NULL ? 0 : (int32_t)starter->point, (int32_t)item.point };
        if (starter != NULL && class_before < item.class && compose_in_place(pair, 2) == 1) {
            starter->point = (uint32_t)pair[0];
            if (item.origin > starter->origin) starter->origin = item.origin;
            continue;
        }
        items[kept] = item;
        if (item.class == 0) starter = &items[kept];
        class_before = item.class == 0 ? -1 : item.class;
        kept++;
    }
    return kept;
}

static lw_status run_apply(lw__nfc_scratch *scratch, lw_text text, size_t begin, size_t end,
                           lw__text_buf *out)
{
    size_t count;
    lw_status status = run_decompose(scratch, text, begin, end, &count);
    if (status != LW_OK) return status;
    run_sort(scratch, count);
    count = run_compose(scratch->items, count);
    for (size_t i = 0; i < count && status == LW_OK; i++) {
        char bytes[4];
        const size_t used = lw__utf8_encode(scratch->items[i].point, bytes);
        status = text_buf_put(out, bytes, used, scratch->items[i].origin);
    }
    return status;
}

lw_status lw__nfc_apply(const lw__nfc *nfc, lw__nfc_scratch *scratch, lw_text text, lw__text_buf *out)
{
    text_buf_clear(out);
    size_t kept = 0, before = 0, at = 0, used;
    /* A run is one code point that is not active and all active ones after it. */
    while (at < text.count) {
        if (!is_active(nfc, lw__utf8_decode(text.bytes + at, &used))) {
            before = at;
            at += used;
            continue;
        }
        size_t end = at;
        while (end < text.count && is_active(nfc, lw__utf8_decode(text.bytes + end, &used))) end += used;
        lw_status status = text_buf_copy(out, text, kept, before);
        if (status == LW_OK) status = run_apply(scratch, text, before, end, out);
        if (status != LW_OK) return status;
        kept = before = at = end;
    }
    return text_buf_copy(out, text, kept, text.count);
}

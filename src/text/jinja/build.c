/* Texts under construction; see run.h. Room doubles, and what is outgrown stays in the arena until the
 * end. */
#include "text/jinja/run.h"

#include "base/size.h"

enum { ROOM_BYTES_MIN = 32 };

static lw_status reserve(jbuild *build, size_t more)
{
    jrun *run = build->run;
    size_t count;
    if (!size_add(build->count, more, &count) || count > run->limits.output_bytes)
        return lw__jinja_fail(run, LW_NO_ROOM, "a text grows beyond %zu bytes", run->limits.output_bytes);
    if (count <= build->room) return LW_OK;
    const size_t room = size_max(size_max(build->room * 2, count), ROOM_BYTES_MIN);
    char *bytes;
    uint8_t *origins;
    TRY(lw__jinja_take(run, room, 1, &bytes));
    TRY(lw__jinja_take(run, room, 1, &origins));
    if (build->count > 0) {
        memcpy(bytes, build->bytes, build->count);
        memcpy(origins, build->origins, build->count);
    }
    build->bytes = bytes;
    build->origins = origins;
    build->room = room;
    return LW_OK;
}

lw_status lw__jinja_put(jbuild *build, lw_text text)
{
    if (text.count == 0) return LW_OK;
    TRY(lw__jinja_step(build->run, text.count));
    TRY(reserve(build, text.count));
    memcpy(build->bytes + build->count, text.bytes, text.count);
    if (text.origins != NULL) memcpy(build->origins + build->count, text.origins, text.count);
    else memset(build->origins + build->count, LW_ORIGIN_TRUSTED, text.count);
    build->has_outside |= text.origins != NULL;
    build->count += text.count;
    return LW_OK;
}

lw_status lw__jinja_put_bytes(jbuild *build, const char *bytes, size_t count, uint8_t origin)
{
    if (count == 0) return LW_OK;
    TRY(reserve(build, count));
    memcpy(build->bytes + build->count, bytes, count);
    memset(build->origins + build->count, origin, count);
    build->has_outside |= origin != LW_ORIGIN_TRUSTED;
    build->count += count;
    return LW_OK;
}

lw_status lw__jinja_put_word(jbuild *build, const char *word, uint8_t origin)
{
    return lw__jinja_put_bytes(build, word, strlen(word), origin);
}

lw_text lw__jinja_built(const jbuild *build)
{
    return (lw_text){ .bytes = build->count == 0 ? "" : build->bytes,
                      .origins = build->has_outside ? build->origins : NULL,
                      .count = build->count };
}

lw_status lw__jinja_concat(jrun *run, lw_text first, lw_text second, lw_text *out)
{
    jbuild *grow = &run->grow;
    const bool continues = first.count > 0 && first.bytes == grow->bytes && first.count == grow->count;
    if (!continues) {
        *grow = (jbuild){ .run = run };
        TRY(lw__jinja_put(grow, first));
    }
    TRY(lw__jinja_put(grow, second));
    *out = lw__jinja_built(grow);
    return LW_OK;
}

lw_status lw__jinja_escape(jrun *run, lw_text text, lw_text *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    jbuild build = { .run = run };
    size_t begin = 0;
    for (size_t i = 0; i < text.count; i++) {
        const char *found = text.bytes[i] == '\0' ? NULL : strchr(from, text.bytes[i]);
        if (found == NULL) continue;
        TRY(lw__jinja_put(&build, text_cut(text, begin, i)));
        TRY(lw__jinja_put_word(&build, to[found - from],
                               text.origins == NULL ? LW_ORIGIN_TRUSTED : text.origins[i]));
        begin = i + 1;
    }
    TRY(lw__jinja_put(&build, text_cut(text, begin, text.count)));
    *out = lw__jinja_built(&build);
    return LW_OK;
}

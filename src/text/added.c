/* Added tokens: text that becomes one id wherever it stands, before any merge. A trie gives the longest token
 * that begins at a byte; the walk goes left to right and never looks back, as the Hugging Face library does.
 */
#include "text/text_internal.h"

#include "base/size.h"

#include <string.h>

struct lw__trie_node {
    uint32_t child, sibling; /* LW__NO_INDEX: none */
    uint32_t token;          /* first token that ends here, or LW__NO_INDEX */
    uint8_t byte;
};

static uint32_t node_make(lw__added *added, uint8_t byte)
{
    const uint32_t index = added->node_count++;
    added->nodes[index] = (lw__trie_node){ LW__NO_INDEX, LW__NO_INDEX, LW__NO_INDEX, byte };
    return index;
}

/* The node of a first byte, or LW__NO_INDEX. */
static uint32_t node_first(const lw__added *added, char byte)
{
    const uint32_t index = added->first[(uint8_t)byte];
    return index == 0 ? LW__NO_INDEX : index;
}

static uint32_t node_child(const lw__added *added, uint32_t at, char byte)
{
    uint32_t child = added->nodes[at].child;
    while (child != LW__NO_INDEX && added->nodes[child].byte != (uint8_t)byte)
        child = added->nodes[child].sibling;
    return child;
}

static void token_insert(lw__added *added, uint32_t index)
{
    lw__added_token *token = &added->tokens[index];
    uint32_t at = node_first(added, token->text[0]);
    if (at == LW__NO_INDEX) {
        at = node_make(added, (uint8_t)token->text[0]);
        added->first[(uint8_t)token->text[0]] = at;
    }
    for (uint32_t i = 1; i < token->count; i++) {
        uint32_t next = node_child(added, at, token->text[i]);
        if (next == LW__NO_INDEX) {
            next = node_make(added, (uint8_t)token->text[i]);
            added->nodes[next].sibling = added->nodes[at].child;
            added->nodes[at].child = next;
        }
        at = next;
    }
    uint32_t *link = &added->nodes[at].token;
    while (*link != LW__NO_INDEX) link = &added->tokens[*link].same_next;
    *link = index;
    token->same_next = LW__NO_INDEX;
}

lw_status lw__added_init(lw__added *added, lw_arena *arena, lw__added_token *tokens, uint32_t count)
{
    size_t node_room = 1; /* node 0 is no node, so that 0 in first means none */
    for (uint32_t i = 0; i < count; i++) {
        LW_ASSERT(tokens[i].count > 0);
        if (!size_add(node_room, tokens[i].count, &node_room) || node_room >= LW__NO_INDEX) return LW_NO_ROOM;
    }
    *added = (lw__added){
        .tokens = tokens,
        .token_count = count,
        .nodes = lw_arena_take_array(arena, node_room, sizeof *added->nodes),
        .node_count = 1,
    };
    if (added->nodes == NULL) return LW_NO_ROOM;
    for (uint32_t i = 0; i < count; i++) token_insert(added, i);
    return LW_OK;
}

/* ---- the walk ---- */

static bool is_trusted(lw_text text, size_t begin, size_t end)
{
    if (text.origins == NULL) return true;
    for (size_t i = begin; i < end; i++) {
        if (text.origins[i] != LW_ORIGIN_TRUSTED) return false;
    }
    return true;
}

/* The first token of a chain that may match text[begin, end), or LW__NO_INDEX. */
static uint32_t token_allowed(const lw__added *added, const lw__added_walk *walk, uint32_t index, size_t end)
{
    for (; index != LW__NO_INDEX; index = added->tokens[index].same_next) {
        if (!added->tokens[index].special || walk->specials == LW_SPECIALS_ALWAYS) break;
        if (walk->specials == LW_SPECIALS_TRUSTED && is_trusted(walk->text, walk->at, end)) break;
    }
    return index;
}

/* The longest allowed token that begins at walk->at, or LW__NO_INDEX. */
static uint32_t token_longest(const lw__added *added, const lw__added_walk *walk)
{
    uint32_t longest = LW__NO_INDEX;
    size_t end = walk->at;
    uint32_t node = node_first(added, walk->text.bytes[end++]);
    while (node != LW__NO_INDEX) {
        const uint32_t token = token_allowed(added, walk, added->nodes[node].token, end);
        if (token != LW__NO_INDEX) longest = token;
        if (end == walk->text.count) break;
        node = node_child(added, node, walk->text.bytes[end++]);
    }
    return longest;
}

/* Where the code point that ends at end begins. */
static size_t point_begin(lw_text text, size_t end)
{
    size_t begin = end - 1;
    while (begin > 0 && ((uint8_t)text.bytes[begin] & 0xC0) == 0x80) begin--;
    return begin;
}

static bool is_word_at(const lw__added *added, const lw__added_walk *walk, size_t begin)
{
    size_t used;
    (void)lw__utf8_decode(walk->text.bytes + begin, &used);
    return pcre2_match(added->word, (PCRE2_SPTR)walk->text.bytes + begin, used, 0,
                       PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, walk->match, NULL) >= 0;
}

static bool stands_alone(const lw__added *added, const lw__added_walk *walk, size_t begin, size_t end)
{
    if (begin > 0 && is_word_at(added, walk, point_begin(walk->text, begin))) return false;
    return end == walk->text.count || !is_word_at(added, walk, end);
}

static size_t white_begin(lw_text text, size_t end)
{
    while (end > 0) {
        size_t used;
        const size_t begin = point_begin(text, end);
        if (!lw__is_white(lw__utf8_decode(text.bytes + begin, &used))) break;
        end = begin;
    }
    return end;
}

static size_t white_end(lw_text text, size_t begin)
{
    while (begin < text.count) {
        size_t used;
        if (!lw__is_white(lw__utf8_decode(text.bytes + begin, &used))) break;
        begin += used;
    }
    return begin;
}

bool lw__added_next(const lw__added *added, lw__added_walk *walk, lw__added_match *found)
{
    const lw_text text = walk->text;
    for (;;) {
        while (walk->at < text.count && added->first[(uint8_t)text.bytes[walk->at]] == 0) walk->at++;
        if (walk->at >= text.count) return false;
        const uint32_t index = token_longest(added, walk);
        if (index == LW__NO_INDEX) {
            walk->at++;
            continue;
        }
        const lw__added_token *token = &added->tokens[index];
        const size_t begin = walk->at, end = begin + token->count;
        walk->at =
            end; /* also past a token that does not stand alone, and before the white space that one strips */
        if (token->single_word && !stands_alone(added, walk, begin, end)) continue;
        found->id = token->id;
        found->begin = token->strip_left ? size_max(white_begin(text, begin), walk->done) : begin;
        found->end = token->strip_right ? white_end(text, end) : end;
        /* A token of white space that the token before has stripped away leaves nothing. */
        if (found->begin < found->end) return true;
    }
}

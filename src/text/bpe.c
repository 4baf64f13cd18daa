/* The vocabulary and the merges of byte-level BPE. A word is merged by joining the adjacent pair of the
 * lowest rank, leftmost on ties, until no pair has a rule. Short words do it by scanning an array, long ones
 * through a heap over a linked list; both give the same ids.
 */
#include "text/text_internal.h"

#include "base/rng.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* ---- bytes as characters ---- */

/* Printable bytes stand for themselves; the others, in order, for U+0100 and up. */
static bool byte_is_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

size_t lw__byte_char(uint8_t byte, char text[4])
{
    if (byte_is_itself(byte)) return lw__utf8_encode(byte, text);
    uint32_t point = 0x100;
    for (unsigned b = 0; b < byte; b++) point += !byte_is_itself(b);
    return lw__utf8_encode(point, text);
}

enum { SHIFTED_COUNT = 68 }; /* bytes that do not stand for themselves: 33 + 34 + 1 */

int lw__byte_of(uint32_t point)
{
    if (point < 0x100) return byte_is_itself(point) ? (int)point : -1;
    if (point >= 0x100 + SHIFTED_COUNT) return -1;
    const unsigned index = point - 0x100;
    if (index <= 0x20) return (int)index;
    return index == SHIFTED_COUNT - 1 ? 0xAD : (int)(0x7F + index - 0x21);
}

/* ---- vocabulary ---- */

uint64_t lw__hash_bytes(const char *bytes, size_t count)
{
    uint64_t hash = count * 0x9E3779B97F4A7C15u, word;
    for (; count >= 8; bytes += 8, count -= 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, bytes, count);
    return lw_rng_mix(hash ^ word);
}

/* A power of two that leaves at least half of the slots empty. */
static size_t slots_for(size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    return slots;
}

lw_status lw__vocab_init(lw__vocab *vocab, lw_arena *arena, uint32_t id_room)
{
    LW_ASSERT(id_room <= LW_LIMIT_VOCAB);
    const size_t slots = slots_for(id_room);
    *vocab = (lw__vocab){
        .tokens = lw_arena_take_array(arena, id_room, sizeof *vocab->tokens),
        .id_room = id_room,
        .slots = lw_arena_take_array(arena, slots, sizeof *vocab->slots),
        .slot_mask = (uint32_t)(slots - 1),
    };
    return vocab->tokens == NULL || vocab->slots == NULL ? LW_NO_ROOM : LW_OK;
}

/* The slot that holds text, or the empty one where it belongs. */
static uint32_t *vocab_slot(const lw__vocab *vocab, const char *text, size_t count)
{
    uint32_t at = (uint32_t)lw__hash_bytes(text, count) & vocab->slot_mask;
    for (; vocab->slots[at] != 0; at = (at + 1) & vocab->slot_mask) {
        const lw__token *token = &vocab->tokens[vocab->slots[at] - 1];
        if (token->text_count == count && memcmp(token->text, text, count) == 0) break;
    }
    return &vocab->slots[at];
}

int32_t lw__vocab_find(const lw__vocab *vocab, const char *text, size_t count)
{
    return (int32_t)*vocab_slot(vocab, text, count) - 1;
}

void lw__vocab_add(lw__vocab *vocab, uint32_t id, const char *text, size_t count)
{
    LW_ASSERT(id < vocab->id_room && count <= LW_LIMIT_TOKEN_BYTES);
    LW_ASSERT((vocab->tokens[id].flags & LW__TOKEN_NAMED) == 0);
    uint32_t *slot = vocab_slot(vocab, text, count);
    LW_ASSERT(*slot == 0);
    *slot = id + 1;
    vocab->tokens[id] = (lw__token){
        .text = text, .text_count = (uint32_t)count,
        .bytes = text, .bytes_count = (uint32_t)count,
        .flags = LW__TOKEN_NAMED,
    };
    if (id >= vocab->id_count) vocab->id_count = id + 1;
}

/* ---- merges ---- */

lw_status lw__bpe_init(lw__bpe *bpe, const lw__vocab *vocab, lw_arena *arena, size_t merge_count)
{
    LW_ASSERT(merge_count <= LW_LIMIT_MERGES);
    const size_t slots = slots_for(merge_count);
    *bpe = (lw__bpe){
        .vocab = vocab,
        .slots = lw_arena_take_array(arena, slots, sizeof *bpe->slots),
        .slot_mask = (uint32_t)(slots - 1),
    };
    if (bpe->slots == NULL) return LW_NO_ROOM;
    for (size_t i = 0; i < slots; i++) bpe->slots[i].rank = LW__RANK_NONE;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[4];
        const size_t count = lw__byte_char((uint8_t)byte, text);
        bpe->byte_ids[byte] = lw__vocab_find(vocab, text, count);
    }
    return LW_OK;
}

/* The slot of a pair: its rule, or an empty slot whose rank is LW__RANK_NONE. */
static inline lw__merge *merge_slot(const lw__bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    uint32_t at = (uint32_t)hash & bpe->slot_mask;
    for (;; at = (at + 1) & bpe->slot_mask) {
        lw__merge *merge = &bpe->slots[at];
        if (merge->rank == LW__RANK_NONE || (merge->left == left && merge->right == right)) return merge;
    }
}

void lw__bpe_add(lw__bpe *bpe, lw__merge merge)
{
    LW_ASSERT(merge.rank < LW__RANK_NONE);
    *merge_slot(bpe, merge.left, merge.right) = merge;
}

lw_status lw__ids_reserve(lw_ids *list, size_t more)
{
    size_t count, bytes;
    if (!size_add(list->count, more, &count)) return LW_NO_ROOM;
    if (count <= list->room) return LW_OK;
    const size_t room = size_max(count, list->room < SIZE_MAX / 2 ? size_max(2 * list->room, 64) : count);
    if (!size_mul(room, sizeof *list->ids, &bytes)) return LW_NO_ROOM;
    int32_t *ids = realloc(list->ids, bytes);
    if (ids == NULL) return LW_NO_ROOM;
    list->ids = ids;
    list->room = room;
    return LW_OK;
}

/* ---- short words ---- */

enum { SCAN_MAX = 64 }; /* a word of up to this many bytes is merged by scanning */

/* ranks[i] and made[i] are of the pair that begins at symbol i. */
typedef struct scan {
    uint32_t ids[SCAN_MAX];
    uint32_t ranks[SCAN_MAX];
    uint32_t made[SCAN_MAX];
    size_t count;
} scan;

static inline void scan_pair(const lw__bpe *bpe, scan *s, size_t at)
{
    const lw__merge *merge = merge_slot(bpe, s->ids[at], s->ids[at + 1]);
    s->ranks[at] = merge->rank;
    s->made[at] = merge->id;
}

static void scan_join(const lw__bpe *bpe, scan *s, size_t at)
{
    s->ids[at] = s->made[at];
    const size_t tail = s->count - at - 2;
    memmove(s->ids + at + 1, s->ids + at + 2, tail * sizeof *s->ids);
    memmove(s->ranks + at + 1, s->ranks + at + 2, tail * sizeof *s->ranks);
    memmove(s->made + at + 1, s->made + at + 2, tail * sizeof *s->made);
    s->count--;
    if (at > 0) scan_pair(bpe, s, at - 1);
    if (at + 1 < s->count) scan_pair(bpe, s, at);
}

static void scan_encode(const lw__bpe *bpe, lw_text word, lw_ids *out)
{
    scan s = { .count = word.count };
    for (size_t i = 0; i < word.count; i++) s.ids[i] = (uint32_t)bpe->byte_ids[(uint8_t)word.bytes[i]];
    for (size_t i = 0; i + 1 < word.count; i++) scan_pair(bpe, &s, i);
    while (s.count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < s.count; i++) best = s.ranks[i] < s.ranks[best] ? i : best;
        if (s.ranks[best] == LW__RANK_NONE) break;
        scan_join(bpe, &s, best);
    }
    for (size_t i = 0; i < s.count; i++) out->ids[out->count++] = (int32_t)s.ids[i];
}

/* ---- long words ---- */

struct lw__bpe_node {
    uint32_t id;
    uint32_t before, after;  /* neighbours; LW__NO_INDEX at the ends */
    uint32_t rank,
        made; /* of the pair with the one after; LW__RANK_NONE if it has no rule or the node is gone */
};

/* A binary heap of rank << 32 | node: the smallest is the lowest rank, leftmost on ties. Entries are not
 * removed when their pair goes away; they are told by the node's rank, which then differs. Every join takes
 * one entry and puts at most two, so that entries never number more than twice the bytes of the word. */
typedef struct pair_heap {
    uint64_t *entries;
    size_t count;
} pair_heap;

static void heap_put(pair_heap *heap, uint64_t entry)
{
    size_t at = heap->count++;
    for (; at > 0 && heap->entries[(at - 1) / 2] > entry; at = (at - 1) / 2) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
    }
    heap->entries[at] = entry;
}

static uint64_t heap_take(pair_heap *heap)
{
    const uint64_t top = heap->entries[0], moved = heap->entries[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && heap->entries[child + 1] < heap->entries[child]) child++;
        if (heap->entries[child] >= moved) break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = moved;
    return top;
}

static void pair_put(const lw__bpe *bpe, lw__bpe_node *nodes, pair_heap *heap, uint32_t at)
{
    lw__bpe_node *node = &nodes[at];
    node->rank = LW__RANK_NONE;
    if (node->after == LW__NO_INDEX) return;
    const lw__merge *merge = merge_slot(bpe, node->id, nodes[node->after].id);
    if (merge->rank == LW__RANK_NONE) return;
    node->rank = merge->rank;
    node->made = merge->id;
    heap_put(heap, (uint64_t)merge->rank << 32 | at);
}

static void pair_join(const lw__bpe *bpe, lw__bpe_node *nodes, pair_heap *heap, uint32_t at)
{
    lw__bpe_node *node = &nodes[at], *gone = &nodes[node->after];
    node->id = node->made;
    node->after = gone->after;
    if (gone->after != LW__NO_INDEX) nodes[gone->after].before = at;
    gone->rank = LW__RANK_NONE;
    if (node->before != LW__NO_INDEX) pair_put(bpe, nodes, heap, node->before);
    pair_put(bpe, nodes, heap, at);
}

static lw_status heap_reserve(lw__bpe_scratch *scratch, size_t count)
{
    if (count <= scratch->room) return LW_OK;
    free(scratch->nodes);
    free(scratch->heap);
    scratch->room = 0;
    scratch->nodes = malloc(count * sizeof *scratch->nodes);
    scratch->heap = malloc(2 * count * sizeof *scratch->heap);
    if (scratch->nodes == NULL || scratch->heap == NULL) return LW_NO_ROOM;
    scratch->room = count;
    return LW_OK;
}

static lw_status heap_encode(const lw__bpe *bpe, lw__bpe_scratch *scratch, lw_text word, lw_ids *out)
{
    const lw_status status = heap_reserve(scratch, word.count);
    if (status != LW_OK) return status;
    lw__bpe_node *nodes = scratch->nodes;
    const uint32_t count = (uint32_t)word.count;
    for (uint32_t i = 0; i < count; i++) {
        nodes[i] = (lw__bpe_node){
            .id = (uint32_t)bpe->byte_ids[(uint8_t)word.bytes[i]],
            .before = i == 0 ? LW__NO_INDEX : i - 1,
            .after = i + 1 == count ? LW__NO_INDEX : i + 1,
        };
    }
    pair_heap heap = { .entries = scratch->heap };
    for (uint32_t i = 0; i < count; i++) pair_put(bpe, nodes, &heap, i);
    while (heap.count > 0) {
        const uint64_t entry = heap_take(&heap);
        const uint32_t at = (uint32_t)entry;
        if (nodes[at].rank == (uint32_t)(entry >> 32)) pair_join(bpe, nodes, &heap, at);
    }
    for (uint32_t at = 0; at != LW__NO_INDEX; at = nodes[at].after)
        out->ids[out->count++] = (int32_t)nodes[at].id;
    return LW_OK;
}

/* ---- words ---- */

/* The id of a word that is one token by itself, or -1. */
static int32_t whole_word(const lw__bpe *bpe, lw_text word)
{
    char text[LW__WHOLE_TEXT_MAX + 4];
    size_t count = 0;
    for (size_t i = 0; i < word.count; i++) {
        if (count > LW__WHOLE_TEXT_MAX) return -1;
        count += lw__byte_char((uint8_t)word.bytes[i], text + count);
    }
    const int32_t id = lw__vocab_find(bpe->vocab, text, count);
    return id >= 0 && (bpe->vocab->tokens[id].flags & LW__TOKEN_MODEL) != 0 ? id : -1;
}

lw_status lw__bpe_encode(const lw__bpe *bpe, lw__bpe_scratch *scratch, lw_text word, bool with_heap,
                         lw_ids *out, lw_diag *d)
{
    LW_ASSERT(word.count > 0);
    if (word.count > LW_LIMIT_WORD_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "one word of the text has %zu bytes; at most %d are encoded",
                       word.count, LW_LIMIT_WORD_BYTES);
    }
    for (size_t i = 0; i < word.count; i++) {
        const uint8_t byte = (uint8_t)word.bytes[i];
        if (bpe->byte_ids[byte] >= 0) continue;
        return lw_fail(d, LW_UNSUPPORTED, "the text has a byte 0x%02X, for which the vocabulary has no token",
                       byte);
    }
    lw_status status = lw__ids_reserve(out, word.count);
    if (status != LW_OK) return lw_fail(d, status, "no memory for the ids of a text");
    const int32_t whole = bpe->ignore_merges ? whole_word(bpe, word) : -1;
    if (whole >= 0) {
        out->ids[out->count++] = whole;
        return LW_OK;
    }
    if (word.count <= SCAN_MAX && !with_heap) {
        scan_encode(bpe, word, out);
        return LW_OK;
    }
    status = heap_encode(bpe, scratch, word, out);
    return status == LW_OK ? LW_OK : lw_fail(d, status, "no memory to merge a word of %zu bytes", word.count);
}

/* Merging: the scan, the heap and a plain reference agree on random rules and words. */
#include "text_made.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { LETTERS = 3, RULES_MAX = 60, WORD_MAX = 200 };

typedef struct rules {
    lw_arena arena;
    lw__vocab vocab;
    lw__bpe bpe;
    lw__merge merges[RULES_MAX];
    size_t count;
} rules;

static void byte_characters_go_both_ways(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        size_t used;
        const size_t count = lw__byte_char((uint8_t)byte, text);
        assert_int_equal(lw__byte_of(lw__utf8_decode(text, &used)), byte);
        assert_int_equal(used, count);
    }
    char text[4];
    assert_int_equal(lw__byte_char(' ', text), 2);
    assert_memory_equal(text, "\u0120", 2);
    assert_int_equal(lw__byte_char('\n', text), 2);
    assert_memory_equal(text, "\u010a", 2);
    assert_int_equal(lw__byte_char(0xAD, text), 2);
    assert_memory_equal(text, "\u0143", 2);
    int known = 0;
    for (uint32_t point = 0; point < 0x11000; point++) known += lw__byte_of(point) >= 0;
    assert_int_equal(known, 256);
}

static void rules_make(rules *r, lw_rng *rng)
{
    static const char letters[] = "abc";
    lw_arena_init(&r->arena, 64 << 20);
    assert_int_equal(lw__vocab_init(&r->vocab, &r->arena, 1024), LW_OK);
    for (uint32_t i = 0; i < LETTERS; i++) lw__vocab_add(&r->vocab, i, letters + i, 1);
    assert_int_equal(lw__bpe_init(&r->bpe, &r->vocab, &r->arena, RULES_MAX), LW_OK);
    r->count = 0;
    uint32_t id_count = LETTERS;
    for (uint32_t rank = 0; rank < RULES_MAX; rank++) {
        const uint32_t left = (uint32_t)lw_rng_below(rng, id_count),
                       right = (uint32_t)lw_rng_below(rng, id_count);
        const lw__token *a = &r->vocab.tokens[left], *b = &r->vocab.tokens[right];
        char text[64];
        if (a->text_count + b->text_count > 24) continue;
        const int count =
            snprintf(text, sizeof text, "%.*s%.*s", (int)a->text_count, a->text, (int)b->text_count, b->text);
        int32_t id = lw__vocab_find(&r->vocab, text, (size_t)count);
        if (id < 0) {
            id = (int32_t)id_count++;
            lw__vocab_add(&r->vocab, (uint32_t)id, lw_arena_copy_text(&r->arena, text, (size_t)count),
                          (size_t)count);
        }
        bool is_known = false;
        for (size_t i = 0; i < r->count; i++)
            is_known |= r->merges[i].left == left && r->merges[i].right == right;
        if (is_known) continue;
        r->merges[r->count] = (lw__merge){ left, right, rank, (uint32_t)id };
        lw__bpe_add(&r->bpe, r->merges[r->count++]);
    }
}

/* The definition: the first rule that applies anywhere, at its leftmost place, until none applies. */
static size_t merge_plainly(const rules *r, uint32_t *ids, size_t count)
{
    for (size_t rule = 0; rule < r->count;) {
        const lw__merge *m = &r->merges[rule++];
        for (size_t i = 0; i + 1 < count; i++) {
            if (ids[i] != m->left || ids[i + 1] != m->right) continue;
            ids[i] = m->id;
            memmove(ids + i + 1, ids + i + 2, (count - i - 2) * sizeof *ids);
            count--;
            rule = 0;
            break;
        }
    }
    return count;
}

static void check_word(const rules *r, lw__bpe_scratch *scratch, const char *word, size_t count)
{
    uint32_t plain[WORD_MAX];
    for (size_t i = 0; i < count; i++) plain[i] = (uint32_t)(word[i] - 'a');
    const size_t plain_count = merge_plainly(r, plain, count);
    for (int with_heap = 0; with_heap < 2; with_heap++) {
        lw_ids ids = { .ids = NULL };
        const lw_text text = { .bytes = word, .count = count };
        assert_int_equal(lw__bpe_encode(&r->bpe, scratch, text, with_heap != 0, &ids, NULL), LW_OK);
        assert_int_equal(ids.count, plain_count);
        assert_memory_equal(ids.ids, plain, plain_count * sizeof *plain);
        lw_ids_deinit(&ids);
    }
}

static void scan_heap_and_definition_agree(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(3);
    lw__bpe_scratch scratch = { .room = 0 };
    for (int round = 0; round < 150; round++) {
        rules r;
        rules_make(&r, &rng);
        for (int w = 0; w < 20; w++) {
            char word[WORD_MAX];
            const size_t count = 1 + lw_rng_below(&rng, w < 15 ? 64 : WORD_MAX);
            for (size_t i = 0; i < count; i++) word[i] = (char)('a' + lw_rng_below(&rng, LETTERS));
            check_word(&r, &scratch, word, count);
        }
        char same[WORD_MAX];
        memset(same, 'a' + round % LETTERS, sizeof same);
        for (size_t count = 62; count < 68; count++) check_word(&r, &scratch, same, count);
        lw_arena_deinit(&r.arena);
    }
    free(scratch.nodes);
    free(scratch.heap);
}

/* The control: with its first rule gone a word must come out another way. */
static void the_comparison_can_fail(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(3);
    rules r;
    rules_make(&r, &rng);
    uint32_t with[] = { r.merges[0].left, r.merges[0].right },
             without[] = { r.merges[0].left, r.merges[0].right };
    assert_int_equal(merge_plainly(&r, with, 2), 1);
    r.merges[0].left = UINT32_MAX;
    assert_int_equal(merge_plainly(&r, without, 2), 2);
    lw_arena_deinit(&r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_characters_go_both_ways),
        cmocka_unit_test(scan_heap_and_definition_agree),
        cmocka_unit_test(the_comparison_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

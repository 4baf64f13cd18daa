/* The hash of a traced row: FNV-1a over the bytes of float bits, and every bit of a row counts. */
#include "cli/trace.h"

#include "base/float16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void hash_is_fnv1a_of_the_bytes(void **state)
{
    (void)state;
    assert_true(lw_trace_hash(NULL, 0) == 0xCBF29CE484222325u);
    const float word[] = { lw_float_of_bits(0x6E6F6863u) }; /* "chon", the first byte lowest */
    uint64_t expected = 0xCBF29CE484222325u;
    for (const char *byte = "chon"; *byte != '\0'; byte++)
        expected = (expected ^ (uint8_t)*byte) * 0x100000001B3u;
    assert_true(lw_trace_hash(word, 1) == expected);
}

static void every_bit_counts(void **state)
{
    (void)state;
    float row[] = { 1.0f, 0.0f, -3.5f };
    const uint64_t before = lw_trace_hash(row, 3);
    for (unsigned i = 0; i < 96; i++) {
        const float kept = row[i / 32];
        row[i / 32] = lw_float_of_bits(lw_bits_of_float(kept) ^ (1u << i % 32));
        assert_true(lw_trace_hash(row, 3) != before);
        row[i / 32] = kept;
    }
    assert_true(lw_trace_hash(row, 3) == before);
    row[1] = -0.0f;
    assert_true(lw_trace_hash(row, 3) != before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_fnv1a_of_the_bytes),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

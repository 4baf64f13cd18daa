/* Admission as a table of cases: what fits, what is refused and what the refusal says. */
#include "lane/admit.h"

#include "lane/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* One full group of 1 MiB pages and one of reach 128 with 0.5 MiB pages: a lane of 1,024 positions is 16 MiB
 * + 2 MiB. */
#define MIB ((uint64_t)1 << 20)

/* What a round takes for each of its rows, and for each with logits. */
typedef struct round_costs { uint64_t row, wanted; } round_costs;

static uint64_t round_bytes(void *context, uint32_t rows_max, uint32_t wanted_max)
{
    const round_costs *costs = context;
    const unsigned __int128 bytes =
        (unsigned __int128)costs->row * rows_max + (unsigned __int128)costs->wanted * wanted_max;
    return bytes < UINT64_MAX ? (uint64_t)bytes : UINT64_MAX;
}

static round_costs rounds_free = { 0, 0 };

static lw_admit base(void)
{
    return (lw_admit){ .free_bytes = 1000 * MIB,
                       .reserve_bytes = 100 * MIB,
                       .fixed_bytes = 400 * MIB,
                       .round_bytes = round_bytes,
                       .round_context = &rounds_free,
                       .group_count = 2,
                       .reaches = { 0, 128 },
                       .page_bytes = { MIB, MIB / 2 },
                       .rows_max = 32,
                       .context_model = 4096,
                       .context = 1024 };
}

typedef struct admit_case {
    const char *name;
    uint32_t lanes, context;
    uint64_t free_mib, cache_mib; /* cache UINT64_MAX: auto */
    lw_status status;
    uint32_t lanes_chosen, pages_full, pages_sliding;
    const char *text[2];          /* parts of the refusal */
} admit_case;

static const admit_case cases[] = {
    { "auto takes 8 at most", 0, 1024, 1000, 0, LW_OK, 8, 128, 32, { NULL, NULL } },
    { "auto takes what fits", 0, 1024, 572, 0, LW_OK, 4, 64, 16, { NULL, NULL } },
    { "auto, exactly one", 0, 1024, 518, 0, LW_OK, 1, 16, 4, { NULL, NULL } },
    { "one byte less than one",
      0,
      1024,
      517,
      0,
      LW_NO_ROOM,
      0,
      0,
      0,
      { "no lane fits", "--context 960 would fit" } },
    { "a number is taken as it is", 5, 1024, 1000, 0, LW_OK, 5, 80, 20, { NULL, NULL } },
    { "a number that does not fit",
      9,
      1024,
      640,
      0,
      LW_NO_ROOM,
      0,
      0,
      0,
      { "--parallel 9", "--parallel 7" } },
    { "more lanes than are served", 65, 1024, 9000, 0, LW_BAD_INPUT, 0, 0, 0, { "--parallel 65", "64" } },
    { "no page fits", 1, 1024, 500, 0, LW_NO_ROOM, 0, 0, 0, { "no lane fits", "0.00 GiB are left" } },
    { "weights alone do not fit",
      1,
      1024,
      499,
      0,
      LW_NO_ROOM,
      0,
      0,
      0,
      { "the model wants 0.39", "0.49 GiB are free" } },
    { "context over the model's", 1, 4097, 1000, 0, LW_BAD_INPUT, 0, 0, 0, { "--context 4097", "4096" } },
    { "context left open", 1, 0, 1000, 0, LW_OK, 1, 64, 4, { NULL, NULL } },
    { "entries get pages in step", 2, 1024, 1000, 36, LW_OK, 2, 64, 16, { NULL, NULL } },
    { "entries take what is left", 2, 1024, 554, UINT64_MAX, LW_OK, 2, 48, 12, { NULL, NULL } },
    { "entries that do not fit",
      2,
      1024,
      554,
      19,
      LW_NO_ROOM,
      0,
      0,
      0,
      { "--prompt-cache", "2 lanes leave" } },
};

static void every_case_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const admit_case *c = &cases[i];
        lw_admit in = base();
        lw_admitted out;
        lw_diag d = { "" };
        in.lanes = c->lanes;
        in.context = c->context;
        in.free_bytes = c->free_mib * MIB;
        in.cache_bytes = c->cache_mib == UINT64_MAX ? LW_ADMIT_CACHE_AUTO : c->cache_mib * MIB;
        const lw_status status = lw_admit_choose(&in, &out, &d);
        const bool same = status == c->status && out.lanes == c->lanes_chosen &&
                          out.page_counts[0] == c->pages_full && out.page_counts[1] == c->pages_sliding;
        if (!same) {
            fail_msg("%s: status %d, %u lanes, pages %u and %u: %s", c->name, status, out.lanes,
                     out.page_counts[0], out.page_counts[1], d.text);
        }
        for (size_t j = 0; j < 2 && c->text[j] != NULL; j++) {
            if (strstr(d.text, c->text[j]) == NULL)
                fail_msg("%s: \"%s\" lacks \"%s\"", c->name, d.text, c->text[j]);
        }
    }
}

/* Whatever the numbers, what is chosen fits into what is free, and one lane more would not (or was not asked
 * for). */
static void what_is_chosen_fits(void **state)
{
    (void)state;
    for (uint64_t free_mib = 400; free_mib < 1200; free_mib += 7) {
        for (uint32_t context = 64; context <= 4096; context += 448) {
            lw_admit in = base();
            lw_admitted out;
            in.free_bytes = free_mib * MIB;
            in.context = context;
            in.cache_bytes = LW_ADMIT_CACHE_AUTO;
            round_costs costs = { MIB / 5, MIB / 3 };
            in.round_context = &costs;
            in.wanted_rows = (uint32_t)free_mib % 20;
            if (lw_admit_choose(&in, &out, NULL) != LW_OK) continue;
            const uint64_t pools = out.page_counts[0] * MIB + out.page_counts[1] * (MIB / 2);
            const uint64_t rounds = out.rows_max * costs.row + out.wanted_max * costs.wanted;
            assert_true(pools + rounds + in.fixed_bytes + in.reserve_bytes <= in.free_bytes);
            const uint64_t lanes = out.lanes * out.lane_bytes + rounds + in.wanted_rows * costs.wanted;
            assert_true(out.lanes == 8 ||
                        lanes + out.lane_bytes + in.fixed_bytes + in.reserve_bytes > in.free_bytes);
            assert_true(out.page_counts[0] >= out.lanes * lw_pages_needed(0, context, 32));
        }
    }
}

/* Logits are counted for the rows that rounds of so many lanes may want, and for no more than a round has. */
static void logits_are_counted_as_lanes_want_them(void **state)
{
    (void)state;
    static const struct { uint32_t wanted_rows, lanes, wanted_max; uint64_t logits_mib; } rows[] = {
        { 1, 1, 1, 1 }, { 4, 1, 4, 4 }, { 4, 2, 8, 8 }, { 16, 4, 32, 32 }, { 32, 1, 32, 32 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lw_admit in = base();
        lw_admitted out;
        lw_diag d = { "" };
        in.round_context = &(round_costs){ 0, MIB };
        in.wanted_rows = rows[i].wanted_rows;
        in.lanes = rows[i].lanes;
        in.free_bytes = (500 + 18 * rows[i].lanes + rows[i].logits_mib) * MIB;
        assert_int_equal(lw_admit_choose(&in, &out, &d), LW_OK);
        assert_int_equal(out.wanted_max, rows[i].wanted_max);
        in.lanes = 0;
        assert_int_equal(lw_admit_choose(&in, &out, &d), LW_OK);
        assert_true(out.lanes >= rows[i].lanes);
        in.lanes = rows[i].lanes;
        in.free_bytes--;
        assert_int_equal(lw_admit_choose(&in, &out, &d), LW_NO_ROOM);
        in.free_bytes += 1 + MIB / 2;
        in.cache_bytes = MIB;
        /* Entries cannot have what logits take. */
        assert_int_equal(lw_admit_choose(&in, &out, &d), LW_NO_ROOM);
        assert_non_null(strstr(d.text, "--prompt-cache"));
    }
}

/* A chunk whose rounds do not fit is refused, with what it wants and what would fit. Three lanes of 18 MiB
 * and 32 rows of 1 MiB take 86 of the 500 MiB beside the model and the reserve. */
static void rounds_count_against_the_memory(void **state)
{
    (void)state;
    static const struct { uint32_t rows, lanes; uint64_t free_mib; const char *text[3];
    } refused[] = {
        { 32, 1, 549, { "rounds of 32 rows 0.03", "0.05 GiB are left", "--chunk 16 or --context 960" } },
        { 32, 3, 585, { "rounds of 32 rows 0.03", "0.08 GiB are left", "--chunk 16, --parallel 2" } },
        { 1024,
          1,
          1517,
          { "rounds of 1024 rows 1.00", "0.99 GiB are left", "--chunk 512 or --context 960" } },
        /* At the shortest context as many rows are of use as a page has positions. */
        { 1024, 1, 550, { "rounds of 1024 rows 1.00", "0.05 GiB are left", "; --chunk 32 would fit" } },
        { 1024,
          1,
          516,
          { "rounds of 1024 rows 1.00", "0.02 GiB are left", "less of both --chunk and --context" } },
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        lw_admit in = base();
        lw_admitted out;
        lw_diag d = { "" };
        in.round_context = &(round_costs){ MIB, 0 };
        in.rows_max = refused[i].rows;
        in.lanes = refused[i].lanes;
        in.free_bytes = refused[i].free_mib * MIB;
        assert_int_equal(lw_admit_choose(&in, &out, &d), LW_NO_ROOM);
        for (size_t j = 0; j < 3; j++) {
            if (strstr(d.text, refused[i].text[j]) == NULL)
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, d.text, refused[i].text[j]);
        }
    }
    lw_admit in = base();
    lw_admitted out;
    in.round_context = &(round_costs){ MIB, 0 };
    in.lanes = 3;
    in.free_bytes = 586 * MIB;
    assert_int_equal(lw_admit_choose(&in, &out, NULL), LW_OK);
    assert_int_equal(out.rows_max, 32);
    in.context = 64;                                        /* rows that no stream has are not counted */
    in.rows_max = 100;
    assert_int_equal(lw_admit_choose(&in, &out, NULL), LW_OK);
    assert_int_equal(out.rows_max, 64);
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    lw_admit in = base();
    lw_admitted out;
    in.page_bytes[0] = UINT64_MAX / 2;
    assert_int_equal(lw_admit_choose(&in, &out, NULL), LW_NO_ROOM);
    in = base();
    in.round_context = &(round_costs){ 0, UINT64_MAX / 2 };
    in.wanted_rows = 3;
    assert_int_equal(lw_admit_choose(&in, &out, NULL), LW_NO_ROOM);
    in = base();
    in.fixed_bytes = UINT64_MAX;
    assert_int_equal(lw_admit_choose(&in, &out, NULL), LW_NO_ROOM);
    assert_int_equal(out.lanes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_of_the_table),
        cmocka_unit_test(what_is_chosen_fits),
        cmocka_unit_test(logits_are_counted_as_lanes_want_them),
        cmocka_unit_test(rounds_count_against_the_memory),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

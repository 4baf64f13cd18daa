/* A plan of every op that reaches across rows or columns, for any device: plan_law.h's bench records it. The
 * residual is fp32; every input of an op that may be a view is one.
 */
#ifndef LW_TESTS_PLAN_ROWS_H
#define LW_TESTS_PLAN_ROWS_H

#include "plan_law.h"

enum { WIDTH = 64, MID = 45, HEADS = 3, TAPS = 4 };

static inline void record_rows(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_sref tail = lw_plan_state_tail(p, "tail", MID, 2);
    const lw_sref conv = lw_plan_state_tail(p, "conv", 24, TAPS);
    const lw_sref kv = lw_plan_state_kv(p, "kv", 1, 8, 0);
    lw_plan_entry_begin(p, "main");
    const lw_ref all = lw_plan_embed(p, dense(b, rng, VOCAB, WIDTH)), x = lw_plan_view(p, all, 9, MID);
    const lw_ref heads = lw_plan_take_heads(p, x, (lw_head_columns){ HEADS, MID / HEADS, 4, 7 });
    const lw_ref both = lw_plan_concat(p, lw_plan_view(p, x, 5, 24), heads);
    lw_plan_tail_store(p, tail, both);
    const lw_ref before = lw_plan_tail_before(p, tail);
    const lw_wref taps = vector(b, rng, 24, TAPS), bias = vector(b, rng, 1, 24);
    const lw_ref mixed = lw_plan_conv_silu(p, conv, lw_plan_view(p, before, 11, 24), taps, bias);
    lw_plan_kv_store(p, kv, lw_plan_view(p, mixed, 3, 8), lw_plan_view(p, before, 1, 8));
    const lw_ref seen = lw_plan_attend_from(p, kv, lw_plan_view(p, both, 7, 16),
                                            (lw_attention){ .heads = 2, .first = 1, .scale = 0.35f });
    const lw_ref normed = lw_plan_norm_gate(p, lw_plan_concat(p, seen, mixed), lw_plan_view(p, before, 2, 40),
                                            vector(b, rng, 1, 40), (lw_norm_gate){ 8, 1e-5f, true });
    const lw_ref last = lw_plan_norm_gate(p, normed, lw_plan_view(p, x, 4, 40), vector(b, rng, 8, 1),
                                          (lw_norm_gate){ 8, 1e-5f, false });
    const lw_ref gated = lw_plan_head_gate(p, lw_plan_view(p, last, 6, 24), lw_plan_view(p, x, 2, 24));
    const lw_ref full = lw_plan_concat(p, gated, lw_plan_view(p, last, 0, 40));
    const lw_ref wide = lw_plan_linear(p, full, dense(b, rng, WIDTH + 6, WIDTH), LW_TYPE_F32);
    const lw_ref biased = lw_plan_bias(p, lw_plan_view(p, wide, 3, MID), vector(b, rng, MID, 1));
    const lw_ref squared = lw_plan_relu2(p, lw_plan_view(p, biased, 0, MID));
    const lw_ref residual = lw_plan_add(p, lw_plan_widen(p, lw_plan_view(p, x, 0, MID)), squared);
    const lw_ref wanted = lw_plan_take_wanted(p, residual);
    const lw_ref out = lw_plan_rms_norm(p, wanted, vector(b, rng, 1, MID), 1e-5f, LW_NORM_TWICE);
    const lw_ref end = lw_plan_concat(p, out, lw_plan_take_wanted(p, lw_plan_view(p, last, 0, WIDTH - MID)));
    lw_plan_entry_end(p, lw_plan_linear(p, end, dense(b, rng, VOCAB, WIDTH), LW_TYPE_F32));
}

/* Every way of running them gives what a stream alone, token by token, gives. */
static inline void check_law(bench *b, lw_rng *rng, kept *alone)
{
    static const uint32_t starts[] = { 0, 1, 2, 60, 63, 64, 127 };
    kept *other = kept_make(b);
    for (size_t i = 0; i < 6; i++) {
        const size_t cut = i < 2 ? LENGTH : i < 4 ? 70 : 5;
        streams_run(b, other, rng, cut, LENGTH, i % 2 == 0 ? TOGETHER : MIXED);
        for (size_t l = 0; l < LANES; l++) assert_true(kept_same(b, alone, other, l, LENGTH));
    }
    windows_run(b, other, rng, 12, LENGTH);
    for (size_t l = 0; l < LANES; l++) assert_true(kept_same(b, alone, other, l, LENGTH));
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        kept *tree = kept_make(b);
        tree_run(b, tree, rng, starts[i], OPEN);
        assert_true(kept_same(b, alone, tree, 0, starts[i] + OPEN));
        assert_false(kept_same(b, alone, tree, 0, LENGTH)); /* rows that did not run */
        kept_free(b, tree);
    }
    b->tokens[0][100] = next_token(b->tokens[0][100]); /* planted: later rows and no earlier ones change */
    streams_run(b, other, rng, 70, LENGTH, TOGETHER);
    assert_true(kept_same(b, alone, other, 0, 100));
    assert_false(kept_same(b, alone, other, 0, 101));
    assert_true(kept_same(b, alone, other, 1, LENGTH));
    kept_free(b, other);
}

#endif

/* What the laws of chains share: a small draft head in memory, streams of random tokens, and running windows
 * of them and chains on one device.
 */
#ifndef LW_TESTS_CHAIN_CASE_H
#define LW_TESTS_CHAIN_CASE_H

#include "cpu_law.h"

#include "ops/record.h"

enum { VOCAB = 128, WIDTH = 64, HEADS = 2, DIM = 32, TAPS = 3, PAGES = 4, LANES = 3, ROWS_MAX = 256 };

typedef struct matrix {
    lw_tensor tensor;
    lw_weight weight;
    lw_bf16 *numbers;
} matrix;

typedef struct chain_case {
    lw_rng rng;
    matrix embed, conv, q, k, v, out;
    lw_plan plan;
    const lw_device_table *table;
    lw_device *device;
    lw_exec *exec;
    uint32_t pages[LANES][PAGES];
    int32_t ids[LANES][PAGES * LW_PAGE_POSITIONS];
    uint32_t count[LANES];
    float logits[LANES][LW_CHAIN_STEPS_MAX][VOCAB]; /* what draw was shown */
    bool wanders;                                   /* draw takes other tokens than the likeliest */
} chain_case;

static inline lw_wref matrix_make(chain_case *c, matrix *m, uint32_t rows, uint32_t cols)
{
    const float size = rows == VOCAB ? 1.0f : 0.2f;
    m->numbers = law_bf(&c->rng, (size_t)rows * cols, size);
    m->tensor = (lw_tensor){ .name = "w", .file = "memory", .dtype = LW_DTYPE_BF16, .dim_count = 2,
                             .dims = { rows, cols }, .bytes = (const uint8_t *)m->numbers,
                             .byte_count = (size_t)rows * cols * sizeof *m->numbers };
    m->weight = (lw_weight){ .name = "w", .stack_count = 1, .rows = rows, .cols = cols, .map = LW_MAP_BF16,
                             .code_bits = 16, .global_scale = 1.0f, .codes = &m->tensor };
    return lw_plan_weight(&c->plan, &m->weight);
}

/* Both entries keep the head's keys, values and inputs; the model's own logits are of no interest here, but
 * they differ from the head's. */
static inline void plan_make(chain_case *c)
{
    lw_plan *p = &c->plan;
    assert_int_equal(lw_plan_init(p, NULL), LW_OK);
    const lw_wref embed = matrix_make(c, &c->embed, VOCAB, WIDTH),
                  conv = matrix_make(c, &c->conv, WIDTH, TAPS);
    const lw_wref q = matrix_make(c, &c->q, HEADS * DIM, WIDTH),
                  k = matrix_make(c, &c->k, HEADS * DIM, WIDTH);
    const lw_wref v = matrix_make(c, &c->v, HEADS * DIM, WIDTH), out = matrix_make(c, &c->out, VOCAB, WIDTH);
    const lw_sref kv = lw_plan_state_kv(p, "head", HEADS, DIM, 0);
    const lw_sref tail = lw_plan_state_tail(p, "head inputs", WIDTH, TAPS);
    for (uint32_t entry = 0; entry < 2; entry++) {
        lw_plan_entry_begin(p, entry == LW_ENTRY_MAIN ? "main" : "head");
        lw_ref x = lw_plan_embed(p, embed);
        if (entry == LW_ENTRY_MAIN) x = lw_plan_add(p, x, x); /* the true values differ from the head's own */
        x = lw_plan_short_conv(p, tail, x, conv);
        lw_plan_kv_store(p, kv, lw_plan_linear(p, x, k, LW_TYPE_BF16), lw_plan_linear(p, x, v, LW_TYPE_BF16));
        const lw_ref y = lw_plan_attend(p, kv, lw_plan_linear(p, x, q, LW_TYPE_BF16), HEADS, 0.5f);
        const lw_ref wanted = lw_plan_take_wanted(p, lw_plan_add(p, x, y));
        lw_plan_entry_end(p, lw_plan_linear(p, wanted, out, LW_TYPE_F32));
    }
}

/* The device whose law it is, and how it is opened: the program's own. */
typedef struct chain_device {
    const lw_device_table *table;
    lw_device_options options;
} chain_device;
static chain_device chain_device_of(void);

static inline void case_open(chain_case *c, uint64_t seed)
{
    lw_diag d = { "" };
    const chain_device device = chain_device_of();
    *c = (chain_case){ .rng = law_rng(seed), .table = device.table };
    plan_make(c);
    const lw_exec_options exec = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX,
                                   .page_counts = { LANES * PAGES, LANES * PAGES } };
    if (c->table->open(&device.options, &c->device, &d) != LW_OK) fail_msg("%s", d.text);
    if (c->table->compile(c->device, &c->plan, &exec, &c->exec, &d) != LW_OK) fail_msg("%s", d.text);
    for (uint32_t i = 0; i < LANES * PAGES; i++) c->pages[i % LANES][i / LANES] = i;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < PAGES * LW_PAGE_POSITIONS; i++)
            c->ids[lane][i] = (int32_t)lw_rng_below(&c->rng, VOCAB);
    }
}

static inline void case_close(chain_case *c)
{
    matrix *const all[] = { &c->embed, &c->conv, &c->q, &c->k, &c->v, &c->out };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]->numbers);
    c->table->exec_close(c->exec);
    c->table->close(c->device);
    lw_plan_deinit(&c->plan);
}

static inline lw_batch_lane lane_of(const chain_case *c, uint32_t lane, uint32_t committed)
{
    return (lw_batch_lane){ .committed = committed, .page_count = PAGES,
                            .pages = { c->pages[lane], c->pages[lane] } };
}

typedef struct span {
    uint32_t lane, begin, count;
} span;

/* Runs tokens as one chain of rows over at; their logits into out[count][VOCAB] when it is given. */
static inline void window_run(chain_case *c, uint32_t entry, span at, const int32_t *tokens, float *out)
{
    lw_row rows[ROWS_MAX];
    const lw_batch_lane l = lane_of(c, at.lane, at.begin);
    for (uint32_t i = 0; i < at.count; i++) {
        rows[i] = (lw_row){ .token = tokens[i], .position = at.begin + i, .slot = at.begin + i,
                            .parent = (int32_t)i - 1, .wanted = true };
    }
    const lw_batch batch = { .rows = rows, .row_count = at.count, .lanes = &l, .lane_count = 1 };
    lw_ticket ticket;
    assert_int_equal(c->table->submit(c->exec, entry, &batch, &ticket, NULL), LW_OK);
    assert_int_equal(c->table->wait(c->exec, ticket, NULL), LW_OK);
    for (uint32_t i = 0; out != NULL && i < at.count; i++) {
        const float *logits;
        assert_int_equal(c->table->read_logits(c->exec, i, &logits, NULL), LW_OK);
        memcpy(out + (size_t)i * VOCAB, logits, VOCAB * sizeof *out);
    }
}

static inline void prompts_run(chain_case *c, const uint32_t counts[LANES])
{
    for (uint32_t lane = 0; lane < LANES; lane++) {
        c->count[lane] = counts[lane];
        window_run(c, LW_ENTRY_MAIN, (span){ lane, 0, counts[lane] }, c->ids[lane], NULL);
    }
}

static inline int32_t likeliest(const float *logits)
{
    int32_t best = 0;
    for (int32_t id = 1; id < VOCAB; id++) best = logits[id] > logits[best] ? id : best;
    return best;
}

static inline void draw(void *context, const lw_chain_step *step, int32_t *tokens)
{
    chain_case *c = context;
    for (uint32_t row = 0; row < step->row_count; row++) {
        const float *logits = step->logits + row * step->stride;
        memcpy(c->logits[row][step->index], logits, VOCAB * sizeof *logits);
        tokens[row] = c->wanders ? (int32_t)((row * 31 + step->index * 17) % VOCAB) : likeliest(logits);
    }
}

/* Runs the chains of all lanes, each from its next token on. */
static inline void chain_run(chain_case *c, const uint32_t steps[LANES], bool calls,
                      int32_t tokens[LANES][LW_CHAIN_STEPS_MAX])
{
    lw_row rows[LANES];
    lw_batch_lane lanes[LANES];
    lw_ticket ticket;
    for (uint32_t r = 0; r < LANES; r++) {
        /* Lanes in another order than rows. */
        lanes[LANES - 1 - r] = lane_of(c, r, c->count[r]);
        rows[r] = (lw_row){ .token = c->ids[r][c->count[r]], .lane = LANES - 1 - r, .position = c->count[r],
                            .slot = c->count[r], .parent = -1, .wanted = true };
    }
    const lw_chain chain = { .rows = rows, .steps = steps, .row_count = LANES, .lanes = lanes,
                             .lane_count = LANES, .draw = calls ? draw : NULL, .context = c };
    assert_int_equal(c->table->submit_chain(c->exec, &chain, &ticket, NULL), LW_OK);
    assert_int_equal(c->table->wait(c->exec, ticket, NULL), LW_OK);
    for (uint32_t r = 0; r < LANES; r++) {
        const int32_t *drawn;
        assert_int_equal(c->table->read_chain(c->exec, r, &drawn, NULL), LW_OK);
        memcpy(tokens[r], drawn, steps[r] * sizeof *drawn);
    }
}

/* The rows that the chain of a lane ran: its first token and what it drew, less the last. */
static inline void rows_of(const chain_case *c, uint32_t lane, const int32_t *drawn, int32_t *tokens)
{
    tokens[0] = c->ids[lane][c->count[lane]];
    memcpy(tokens + 1, drawn, (LW_CHAIN_STEPS_MAX - 1) * sizeof *tokens);
}

#endif

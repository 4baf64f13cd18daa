/* The law of chains on the cpu device, with a small draft head: what a chain of one submission draws for
 * several lanes is, bit for bit, what its rows give one by one, and as one window; and once the forward
 * itself has run over the slots that a chain wrote, nothing of the chain is left.
 */
#include "cpu_law.h"
#include "device/cpu/cpu.h"

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

static lw_wref matrix_make(chain_case *c, matrix *m, uint32_t rows, uint32_t cols)
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
static void plan_make(chain_case *c)
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

static void case_open(chain_case *c, uint64_t seed)
{
    lw_diag d = { "" };
    *c = (chain_case){ .rng = law_rng(seed), .table = &lw_device_cpu };
    plan_make(c);
    const lw_device_options device = { .threads = 2, .isa = getenv("LW_TEST_ISA") };
    const lw_exec_options exec = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX,
                                   .page_counts = { LANES * PAGES, LANES * PAGES } };
    if (c->table->open(&device, &c->device, &d) != LW_OK) fail_msg("%s", d.text);
    if (c->table->compile(c->device, &c->plan, &exec, &c->exec, &d) != LW_OK) fail_msg("%s", d.text);
    for (uint32_t i = 0; i < LANES * PAGES; i++) c->pages[i % LANES][i / LANES] = i;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < PAGES * LW_PAGE_POSITIONS; i++)
            c->ids[lane][i] = (int32_t)lw_rng_below(&c->rng, VOCAB);
    }
}

static void case_close(chain_case *c)
{
    matrix *const all[] = { &c->embed, &c->conv, &c->q, &c->k, &c->v, &c->out };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]->numbers);
    c->table->exec_close(c->exec);
    c->table->close(c->device);
    lw_plan_deinit(&c->plan);
}

static lw_batch_lane lane_of(const chain_case *c, uint32_t lane, uint32_t committed)
{
    return (lw_batch_lane){ .committed = committed, .page_count = PAGES,
                            .pages = { c->pages[lane], c->pages[lane] } };
}

typedef struct span {
    uint32_t lane, begin, count;
} span;

/* Runs tokens as one chain of rows over at; their logits into out[count][VOCAB] when it is given. */
static void window_run(chain_case *c, uint32_t entry, span at, const int32_t *tokens, float *out)
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

static void prompts_run(chain_case *c, const uint32_t counts[LANES])
{
    for (uint32_t lane = 0; lane < LANES; lane++) {
        c->count[lane] = counts[lane];
        window_run(c, LW_ENTRY_MAIN, (span){ lane, 0, counts[lane] }, c->ids[lane], NULL);
    }
}

static int32_t likeliest(const float *logits)
{
    int32_t best = 0;
    for (int32_t id = 1; id < VOCAB; id++) best = logits[id] > logits[best] ? id : best;
    return best;
}

static int32_t draw(void *context, uint32_t row, uint32_t step, const float *logits)
{
    chain_case *c = context;
    memcpy(c->logits[row][step], logits, VOCAB * sizeof *logits);
    return c->wanders ? (int32_t)((row * 31 + step * 17) % VOCAB) : likeliest(logits);
}

/* Runs the chains of all lanes, each from its next token on. */
static void chain_run(chain_case *c, const uint32_t steps[LANES], bool calls,
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
static void rows_of(const chain_case *c, uint32_t lane, const int32_t *drawn, int32_t *tokens)
{
    tokens[0] = c->ids[lane][c->count[lane]];
    memcpy(tokens + 1, drawn, (LW_CHAIN_STEPS_MAX - 1) * sizeof *tokens);
}

static void a_chain_is_its_rows_one_by_one_and_as_a_window(void **state)
{
    (void)state;
    static chain_case c;
    static const uint32_t counts[LANES] = { 61, 130, 1 };
    static const uint32_t steps[LANES] = { LW_CHAIN_STEPS_MAX, 5, 1 };
    case_open(&c, 11);
    prompts_run(&c, counts);
    for (int pass = 0; pass < 2; pass++) {
        int32_t drawn[LANES][LW_CHAIN_STEPS_MAX] = { { 0 } }, plain[LANES][LW_CHAIN_STEPS_MAX];
        c.wanders = pass == 1;
        chain_run(&c, steps, true, drawn);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const span all = { lane, counts[lane], steps[lane] };
            int32_t tokens[LW_CHAIN_STEPS_MAX];
            float one[VOCAB], window[LW_CHAIN_STEPS_MAX][VOCAB];
            rows_of(&c, lane, drawn[lane], tokens);
            for (uint32_t j = 0; j < steps[lane]; j++) {
                window_run(&c, LW_ENTRY_HEAD, (span){ lane, counts[lane] + j, 1 }, &tokens[j], one);
                assert_memory_equal(one, c.logits[lane][j], sizeof one);
            }
            window_run(&c, LW_ENTRY_HEAD, all, tokens, window[0]);
            assert_memory_equal(window, c.logits[lane], steps[lane] * sizeof one);
            /* Planted control: another first token is seen by every later step. */
            tokens[0] ^= 1;
            window_run(&c, LW_ENTRY_HEAD, all, tokens, window[0]);
            for (uint32_t j = 0; j < steps[lane]; j++)
                assert_memory_not_equal(window[j], c.logits[lane][j], sizeof one);
        }
        if (c.wanders) continue;
        chain_run(&c, steps, false, plain);
        for (uint32_t lane = 0; lane < LANES; lane++)
            assert_memory_equal(plain[lane], drawn[lane], steps[lane] * sizeof(int32_t));
    }
    case_close(&c);
}

/* A chain, then the true rows over its slots, then a chain further on: the last one is what it is where the
 * first never ran. */
static void nothing_of_a_chain_is_left_once_true_rows_ran(void **state)
{
    (void)state;
    static chain_case c;
    static const uint32_t counts[LANES] = { 62, 100, 7 }, further[LANES] = { 68, 106, 13 };
    static const uint32_t steps[LANES] = { 6, 6, 6 };
    float fresh[LANES][LW_CHAIN_STEPS_MAX][VOCAB];
    int32_t drawn[LANES][LW_CHAIN_STEPS_MAX];
    case_open(&c, 12);
    prompts_run(&c, further);
    chain_run(&c, steps, true, drawn);
    memcpy(fresh, c.logits, sizeof fresh);
    prompts_run(&c, counts);
    c.wanders = true;
    chain_run(&c, steps, true, drawn);
    c.wanders = false;
    /* Planted control: without the true rows the chain shows. */
    memcpy(c.count, further, sizeof further);
    chain_run(&c, steps, true, drawn);
    for (uint32_t lane = 0; lane < LANES; lane++)
        assert_memory_not_equal(c.logits[lane], fresh[lane], 6 * sizeof fresh[0][0]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const span rows = { lane, counts[lane], further[lane] - counts[lane] };
        window_run(&c, LW_ENTRY_MAIN, rows, c.ids[lane] + counts[lane], NULL);
    }
    chain_run(&c, steps, true, drawn);
    for (uint32_t lane = 0; lane < LANES; lane++)
        assert_memory_equal(c.logits[lane], fresh[lane], 6 * sizeof fresh[0][0]);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_its_rows_one_by_one_and_as_a_window),
        cmocka_unit_test(nothing_of_a_chain_is_left_once_true_rows_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

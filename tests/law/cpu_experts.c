/* Linears of experts against linears over each matrix alone, bit for bit, in any company and any parts; and
 * the expert ops of a plan, rows together against rows alone.
 * LW_TEST_ISA names one instruction set, without it each that the CPU has is tried; LW_TEST_THREADS (2) says
 * how many threads run the plan.
 */
#include "cpu_law.h"
#include "../ref/ref_ops.h"
#include "device/cpu/cpu.h"
#include "device/cpu/experts.h"
#include "ops/record.h"

#include <fenv.h>

enum { X_ROWS = 96, TOP_MAX = 8, Y_GAP = 3, X_GAP = 5, GUARD = 0xA5A5, NAN_BF16 = 0x7FC1 };

static void each_isa(void (*test)(const lw_cpu_kernels *kernels))
{
    const char *only = getenv("LW_TEST_ISA");
    bool found = false;
    for (const lw_cpu_kernels *const *at = lw_cpu_available(); *at != NULL; at++) {
        if (only != NULL && strcmp(only, (*at)->isa) != 0) continue;
        found = true;
        test(*at);
    }
    if (!found) printf("SKIPPED: this CPU has no %s\n", only);
}

/* ---- stacks as a checkpoint stores them ---- */

typedef struct kind {
    uint32_t bits, group;      /* 16 bits: dense bf16 */
    uint32_t members, rows, cols, top;
} kind;

static const kind kinds[] = {
    { 4, 32, 16, 37, 96, 3 }, { 4, 64, 9, 130, 192, 6 }, { 8, 64, 5, 65, 128, 2 }, { 8, 32, 4, 1, 32, 4 },
    { 16, 0, 12, 51, 77, 4 }, { 4, 64, 64, 16, 64, 8 },  { 6, 128, 3, 200, 256, 1 },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct stack {
    kind kind;
    uint8_t *codes;
    uint16_t *scales, *biases;
    lw_tensor tensors[3];
    lw_weight weight;
} stack;

static size_t row_bytes(const kind *k) { return (size_t)k->cols * k->bits / 8; }
static size_t row_groups(const kind *k) { return k->group == 0 ? 0 : k->cols / k->group; }

/* Members [first, first + count) as a weight. The tensors are the stack's own. */
static lw_weight part_of(const stack *s, lw_tensor tensors[3], uint32_t first, uint32_t count)
{
    const kind *const k = &s->kind;
    const size_t rows = (size_t)count * k->rows, skipped = (size_t)first * k->rows;
    const lw_dtype codes_type = k->group == 0 ? LW_DTYPE_BF16 : LW_DTYPE_U8;
    tensors[0] = (lw_tensor){ .name = "codes", .file = "memory", .dtype = codes_type,
                              .bytes = s->codes + skipped * row_bytes(k), .byte_count = rows * row_bytes(k) };
    for (int i = 1; i < 3; i++) {
        const uint16_t *const from = (i == 1 ? s->scales : s->biases) + skipped * row_groups(k);
        tensors[i] = (lw_tensor){ .name = "scales", .file = "memory", .dtype = LW_DTYPE_BF16,
                                  .bytes = (const uint8_t *)from, .byte_count = rows * row_groups(k) * 2 };
    }
    const bool dense = k->group == 0;
    return (lw_weight){
        .name = "test.experts", .stack_count = count, .rows = k->rows, .cols = k->cols,
        .map = dense ? LW_MAP_BF16 : LW_MAP_INTEGER, .code_bits = k->bits, .group = k->group,
        .scale_type = LW_DTYPE_BF16, .has_bias = !dense, .global_scale = 1.0f, .codes = &tensors[0],
        .scales = dense ? NULL : &tensors[1], .biases = dense ? NULL : &tensors[2],
    };
}

static void stack_init(stack *s, const kind *k, lw_rng *rng)
{
    *s = (stack){ .kind = *k };
    const size_t rows = (size_t)k->members * k->rows, bytes = rows * row_bytes(k);
    s->codes = law_make(bytes, 1);
    s->scales = law_make(rows * row_groups(k), sizeof *s->scales);
    s->biases = law_make(rows * row_groups(k), sizeof *s->biases);
    for (size_t i = 0; i < bytes; i++) s->codes[i] = (uint8_t)lw_rng_next(rng);
    for (size_t i = 0; k->group == 0 && i < bytes / 2; i++) {
        const uint16_t value = lw_bf16_of_float(lw_rng_normal(rng));
        memcpy(s->codes + i * 2, &value, sizeof value);
    }
    for (size_t i = 0; i < rows * row_groups(k); i++) {
        const float scale = 0.1f * lw_rng_normal(rng), middle = (float)(1u << (k->bits - 1));
        s->scales[i] = lw_bf16_of_float(scale);
        s->biases[i] = lw_bf16_of_float(-scale * (middle + lw_rng_normal(rng)));
    }
    s->weight = part_of(s, s->tensors, 0, k->members);
}

static void stack_deinit(stack *s)
{
    free(s->codes);
    free(s->scales);
    free(s->biases);
}

static lw_cpu_weight *repacked(const lw_cpu_kernels *kernels, const lw_weight *weight)
{
    lw_diag d;
    lw_cpu_weight *out;
    if (lw_cpu_weight_make(kernels, weight, NULL, &out, &d) != LW_OK) fail_msg("%s", d.text);
    return out;
}

/* ---- each matrix alone ---- */

static void *prepared_make(size_t bytes)
{
    void *const memory = aligned_alloc(64, size_round_up(bytes, 64));
    assert_non_null(memory);
    memset(memory, 0xFF, bytes);
    return memory;
}

/* (members, X_ROWS, rows): what every vector of x gives with every matrix, by linears. */
static lw_bf16 *linears(const lw_cpu_kernels *kernels, const stack *s, const lw_bf16 *x, size_t x_stride)
{
    const kind *const k = &s->kind;
    lw_bf16 *const y = law_make((size_t)k->members * X_ROWS * k->rows, sizeof *y);
    void *const prepared = prepared_make(lw_cpu_prepared_bytes(kernels, k->cols, X_ROWS));
    for (uint32_t m = 0; m < k->members; m++) {
        lw_tensor tensors[3];
        const lw_weight alone = part_of(s, tensors, m, 1);
        lw_cpu_weight *const weight = repacked(kernels, &alone);
        const lw_cpu_linear_args args = {
            .weight = weight, .x = x, .x_stride = x_stride, .y = y + (size_t)m * X_ROWS * k->rows,
            .y_stride = k->rows, .rows = X_ROWS, .prepared = prepared,
        };
        LAW_RUN(kernels->linear_prepare, &args, 1);
        LAW_RUN(kernels->linear_run, &args, 1);
        lw_cpu_weight_free(weight);
    }
    free(prepared);
    return y;
}

/* ---- rows and who they choose ---- */

typedef enum crowd {
    CROWD_EVEN,     /* any experts */
    CROWD_SAME,     /* all rows the same ones */
    CROWD_ONE,      /* all rows one expert, and others besides */
    CROWD_COUNT
} crowd;

typedef struct expert_case {
    const lw_cpu_kernels *kernels;
    const stack *stack;
    const lw_cpu_weight *weight;
    const lw_bf16 *x, *want;
    size_t x_stride;
    bool x_per_slot;
    uint32_t rows;
    uint32_t drawn[X_ROWS * TOP_MAX];   /* which of the X_ROWS vectors each row, or each slot, has */
    float route[X_ROWS * 2 * TOP_MAX];
} expert_case;

static bool holds(const float *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == (float)id) return true;
    return false;
}

static void draw_rows(expert_case *c, uint32_t rows, crowd kind_of_crowd, lw_rng *rng)
{
    const uint32_t members = c->stack->kind.members, top = c->stack->kind.top;
    c->rows = rows;
    for (uint32_t i = 0; i < rows * top; i++) c->drawn[i] = (uint32_t)lw_rng_below(rng, X_ROWS);
    for (uint32_t r = 0; r < rows; r++) {
        float *const ids = c->route + r * 2 * top;
        for (uint32_t s = 0; s < top; s++) {
            uint32_t id = (uint32_t)lw_rng_below(rng, members);
            if (kind_of_crowd == CROWD_SAME && r > 0) id = (uint32_t)c->route[s];
            if (kind_of_crowd == CROWD_ONE && s == 0) id = members - 1;
            while (holds(ids, s, id)) id = (id + 1) % members;
            ids[s] = (float)id;
            ids[top + s] = NAN;
        }
    }
}

static uint32_t x_vectors(const expert_case *c) { return c->rows * (c->x_per_slot ? c->stack->kind.top : 1); }

static lw_cpu_expert_tables tables_make(uint32_t vectors, uint32_t members)
{
    return (lw_cpu_expert_tables){
        .vectors_max = vectors, .members_max = members,
        .x_rows = law_make(vectors, sizeof(uint32_t)), .y_rows = law_make(vectors, sizeof(uint32_t)),
        .of_row = law_make(vectors, sizeof(uint8_t *)), .ends = law_make(members + 1, sizeof(uint32_t)),
        .loads = law_make(members, sizeof(lw_cpu_expert_load)),
    };
}

static void tables_free(lw_cpu_expert_tables *t)
{
    free(t->x_rows);
    free(t->y_rows);
    free(t->of_row);
    free(t->ends);
    free(t->loads);
}

/* (rows * top, weight rows + Y_GAP): one call of the op. */
static lw_bf16 *run(const expert_case *c, unsigned parts)
{
    const kind *const k = &c->stack->kind;
    const size_t y_stride = k->rows + Y_GAP, vectors = (size_t)c->rows * k->top;
    lw_bf16 *const y = law_make(vectors * y_stride, sizeof *y);
    lw_bf16 *const x = law_make(x_vectors(c) * c->x_stride, sizeof *x);
    for (size_t i = 0; i < vectors * y_stride; i++) y[i] = GUARD;
    for (uint32_t i = 0; i < x_vectors(c); i++)
        memcpy(x + i * c->x_stride, c->x + c->drawn[i] * c->x_stride, c->x_stride * sizeof *x);
    lw_cpu_expert_tables tables = tables_make((uint32_t)vectors, k->members);
    const lw_cpu_expert_args args = {
        .kernels = c->kernels, .tables = &tables, .x_per_slot = c->x_per_slot, .route = c->route,
        .route_stride = 2 * k->top, .top = k->top,
        .linear = { .weight = c->weight, .x = x, .x_stride = c->x_stride, .y = y, .y_stride = y_stride,
                    .rows = c->rows,
                    .prepared = prepared_make(lw_cpu_expert_prepared_bytes(c->kernels, k->cols,
                                                                           (uint32_t)vectors)) },
    };
    lw_cpu_experts_sort(&args);
    LAW_RUN(lw_cpu_experts_prepare, &args, parts);
    LAW_RUN(lw_cpu_experts_run, &args, parts);
    tables_free(&tables);
    free(args.linear.prepared);
    free(x);
    return y;
}

/* Whether every slot of y has the bits of its own vector through its own expert alone; planted: through the
 * expert's neighbour, or of the neighbouring row. */
typedef struct planted { uint32_t expert, row; } planted;

static bool is_alone(const expert_case *c, const lw_bf16 *y, planted wrong)
{
    const kind *const k = &c->stack->kind;
    bool same = true;
    for (uint32_t i = 0; i < c->rows * k->top; i++) {
        const uint32_t id = (uint32_t)c->route[i / k->top * 2 * k->top + i % k->top];
        const uint32_t member = (id + wrong.expert) % k->members;
        const uint32_t from = (c->drawn[c->x_per_slot ? i : i / k->top] + wrong.row) % X_ROWS;
        const lw_bf16 *const want = c->want + ((size_t)member * X_ROWS + from) * k->rows;
        const lw_bf16 *const got = y + (size_t)i * (k->rows + Y_GAP);
        same = same && memcmp(got, want, k->rows * sizeof *got) == 0;
        for (size_t n = k->rows; n < k->rows + Y_GAP; n++) assert_int_equal(got[n], GUARD);
    }
    return same;
}

static void check_case(expert_case *c, lw_rng *rng)
{
    static const uint32_t counts[] = { 1, 2, 3, 8, 17, 64, X_ROWS };
    const uint32_t some = law_long() ? 6 : 1;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] * CROWD_COUNT * some; i++) {
        const uint32_t rows = counts[i / CROWD_COUNT % (sizeof counts / sizeof counts[0])];
        draw_rows(c, rows, (crowd)(i % CROWD_COUNT), rng);
        const unsigned parts = 1 + (unsigned)lw_rng_below(rng, i % 4 == 3 ? 40 : LAW_PARTS_MAX);
        lw_bf16 *const y = run(c, parts);
        if (!is_alone(c, y, (planted){ 0 }))
            fail_msg("%s: %u rows in %u parts, crowd %zu: not the bits of linears alone", c->kernels->isa,
                     rows, parts, i % CROWD_COUNT);
        assert_false(is_alone(c, y, (planted){ .expert = 1 }));
        assert_false(is_alone(c, y, (planted){ .row = 1 }));
        free(y);
    }
}

static void check_kind(const lw_cpu_kernels *kernels, const kind *k, lw_rng *rng)
{
    stack s;
    stack_init(&s, k, rng);
    expert_case c = { .kernels = kernels, .stack = &s, .x_stride = k->cols + X_GAP };
    lw_bf16 *const x = law_bf(rng, X_ROWS * c.x_stride, 1.0f);
    for (size_t i = 0; i < X_ROWS * c.x_stride; i++)
        if (i % c.x_stride >= k->cols) x[i] = NAN_BF16;
    lw_bf16 *const want = linears(kernels, &s, x, c.x_stride);
    lw_cpu_weight *const weight = repacked(kernels, &s.weight);
    c.x = x;
    c.want = want;
    c.weight = weight;
    for (int per_slot = 0; per_slot < 2; per_slot++) {
        c.x_per_slot = per_slot != 0;
        check_case(&c, rng);
    }
    lw_cpu_weight_free(weight);
    free(want);
    free(x);
    stack_deinit(&s);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x311);
    fenv_t mode;
    assert_int_equal(fegetenv(&mode), 0);
    if (kernels->thread_setup != NULL) kernels->thread_setup();
    for (size_t i = 0; i < KINDS; i++) check_kind(kernels, &kinds[i], &rng);
    assert_int_equal(fesetenv(&mode), 0);
    printf("%s: %d kinds\n", kernels->isa, KINDS);
}

static void a_slot_has_the_bits_of_a_linear_over_its_expert(void **state)
{
    (void)state;
    each_isa(law_of_isa);
}

/* ---- how the work is shared out ---- */

enum { BLOCKS_MAX = 64 };

/* A kernel that counts the blocks that it is given, in y. */
static void count_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    uint8_t *const counts = args->y;
    for (uint32_t b = begin; b < end; b++) counts[args->member * BLOCKS_MAX + b]++;
}

static uint32_t sum_of(const uint8_t *counts, size_t count)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += counts[i];
    return sum;
}

/* Every block of every chosen matrix once; with one row, shares apart by two pairs of blocks at most. */
static void check_shares(const expert_case *c, lw_cpu_expert_args *args, unsigned parts, uint32_t blocks)
{
    const uint32_t members = c->stack->kind.members;
    uint8_t *const counts = law_make(members, BLOCKS_MAX);
    uint32_t before = 0, least = UINT32_MAX, most = 0;
    args->linear.y = counts;
    for (unsigned part = 0; part < parts; part++) {
        lw_cpu_experts_run(args, part, parts);
        const uint32_t after = sum_of(counts, (size_t)members * BLOCKS_MAX);
        least = after - before < least ? after - before : least;
        most = after - before > most ? after - before : most;
        before = after;
    }
    for (uint32_t m = 0; m < members; m++) {
        bool chosen = false;
        for (uint32_t r = 0; r < c->rows; r++)
            chosen = chosen || holds(c->route + r * 2 * args->top, args->top, m);
        for (uint32_t b = 0; b < BLOCKS_MAX; b++)
            assert_int_equal(counts[m * BLOCKS_MAX + b], chosen && b < blocks);
    }
    if (c->rows == 1) assert_true(most - least <= 4);
    free(counts);
}

static void shares_of_isa(const lw_cpu_kernels *kernels)
{
    static const kind of = { 4, 32, 24, 200, 32, 8 };
    lw_rng rng = law_rng(0x313);
    stack s;
    stack_init(&s, &of, &rng);
    lw_cpu_kernels counting = *kernels;
    counting.linear_blocks = count_blocks;
    lw_cpu_weight *const weight = repacked(kernels, &s.weight);
    const uint32_t blocks = (uint32_t)size_round_up(size_div_up(of.rows, kernels->block_cols), 2);
    assert_true(blocks <= BLOCKS_MAX);
    expert_case c = { .kernels = &counting, .stack = &s };
    lw_cpu_expert_tables tables = tables_make(X_ROWS * of.top, of.members);
    for (uint32_t rows = 1; rows <= X_ROWS; rows += 1 + 2 * rows) {
        for (unsigned parts = 1; parts < 70; parts += 1 + parts / 3) {
            draw_rows(&c, rows, (crowd)(parts % CROWD_COUNT), &rng);
            lw_cpu_expert_args args = {
                .kernels = &counting, .tables = &tables, .route = c.route, .route_stride = 2 * of.top,
                .top = of.top, .linear = { .weight = weight, .rows = rows },
            };
            lw_cpu_experts_sort(&args);
            check_shares(&c, &args, parts, blocks);
        }
    }
    tables_free(&tables);
    lw_cpu_weight_free(weight);
    stack_deinit(&s);
}

static void every_block_is_one_parts_and_shares_are_equal(void **state)
{
    (void)state;
    each_isa(shares_of_isa);
}

/* ---- in a plan ---- */

enum { TOKENS = 96, HIDDEN = 128, INNER = 70, EXPERTS = 16, TOP = 4, BATCH_MAX = 64 };

typedef enum member_of_plan {
    EMBED, ROUTER, BIAS, GATE, UP, DOWN, SHARED, HEAD, OWN_BIAS, STACKS
} member_of_plan;

/* A weight of each shape that the plan has; BIAS is one row of bf16, OWN_BIAS one for each expert. */
static const kind plan_kinds[STACKS] = {
    [EMBED] = { 16, 0, 1, TOKENS, HIDDEN, 0 },      [ROUTER] = { 16, 0, 1, EXPERTS, HIDDEN, 0 },
    [BIAS] = { 16, 0, 1, 1, EXPERTS, 0 },           [GATE] = { 4, 64, EXPERTS, INNER, HIDDEN, 0 },
    [UP] = { 4, 64, EXPERTS, HIDDEN, HIDDEN, 0 },   [DOWN] = { 16, 0, EXPERTS, HIDDEN, INNER, 0 },
    [SHARED] = { 4, 64, 1, HIDDEN, HIDDEN, 0 },     [HEAD] = { 16, 0, 1, 32, HIDDEN, 0 },
    [OWN_BIAS] = { 16, 0, EXPERTS, 1, HIDDEN, 0 },
};

static const lw_route_params route_params = { .kind = LW_ROUTER_SIGMOID, .experts = EXPERTS, .top = TOP,
                                              .groups = 1, .top_groups = 1, .normalise = true,
                                              .scale = 2.5f };

typedef struct plan_case {
    const lw_cpu_kernels *kernels;
    stack stacks[STACKS];
    lw_plan plan;
    lw_device *device;
    lw_exec *exec;
} plan_case;

/* Linears of the same x stand between those of experts, so that a prepared x that is taken for another one
 * shows. */
static void record(plan_case *c)
{
    lw_plan *const p = &c->plan;
    lw_wref w[STACKS];
    for (int i = 0; i < STACKS; i++) w[i] = lw_plan_weight(p, &c->stacks[i].weight);
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, w[EMBED]);
    const lw_ref scores = lw_plan_linear(p, x, w[ROUTER], LW_TYPE_F32);
    const lw_ref route = lw_plan_route(p, scores, w[BIAS], &route_params);
    const lw_ref gate = lw_plan_expert_linear(p, x, route, w[GATE]);
    const lw_ref up = lw_plan_expert_linear(p, x, route, w[UP]);
    const lw_ref shared = lw_plan_linear(p, x, w[SHARED], LW_TYPE_BF16);
    const lw_ref down = lw_plan_expert_linear(p, gate, route, w[DOWN]);
    const lw_ref again = lw_plan_expert_linear(p, x, route, w[UP]);
    const lw_ref wide = lw_plan_expert_linear_f32(p, x, route, w[UP]);
    const lw_ref biased = lw_plan_expert_bias(p, wide, route, w[OWN_BIAS]);
    lw_ref sum = lw_plan_add(p, shared, lw_plan_expert_sum(p, down, route));
    sum = lw_plan_add(p, sum, lw_plan_expert_sum(p, up, route));
    sum = lw_plan_add(p, sum, lw_plan_expert_sum(p, again, route));
    sum = lw_plan_add(p, sum, lw_plan_expert_sum(p, biased, route));
    lw_plan_entry_end(p, lw_plan_linear(p, lw_plan_take_wanted(p, sum), w[HEAD], LW_TYPE_F32));
}

static void plan_open(plan_case *c, lw_rng *rng)
{
    lw_diag d = { "" };
    const char *asked = getenv("LW_TEST_THREADS");
    const uint32_t threads = asked == NULL ? 2 : (uint32_t)strtoul(asked, NULL, 10);
    for (int i = 0; i < STACKS; i++) stack_init(&c->stacks[i], &plan_kinds[i], rng);
    assert_int_equal(lw_plan_init(&c->plan, &d), LW_OK);
    record(c);
    const lw_device_options options = { .threads = threads, .isa = c->kernels->isa };
    const lw_exec_options exec = { .rows_max = BATCH_MAX, .wanted_max = BATCH_MAX };
    const lw_device_table *const cpu = &lw_device_cpu;
    if (cpu->open(&options, &c->device, &d) != LW_OK) fail_msg("%s", d.text);
    if (cpu->compile(c->device, &c->plan, &exec, &c->exec, &d) != LW_OK) fail_msg("%s", d.text);
}

static void plan_close(plan_case *c)
{
    const lw_device_table *const cpu = &lw_device_cpu;
    cpu->exec_close(c->exec);
    cpu->close(c->device);
    lw_plan_deinit(&c->plan);
    for (int i = 0; i < STACKS; i++) stack_deinit(&c->stacks[i]);
}

/* Logits of one batch, (count, vocab). */
static void forward(plan_case *c, const int32_t *tokens, uint32_t count, float *logits)
{
    const lw_device_table *const cpu = &lw_device_cpu;
    const uint32_t vocab = c->plan.vocab;
    const lw_batch_lane lane = { .committed = 0 };
    lw_row rows[BATCH_MAX];
    for (uint32_t r = 0; r < count; r++)
        rows[r] = (lw_row){ .token = tokens[r], .position = r, .slot = r, .parent = (int32_t)r - 1,
                            .wanted = true };
    const lw_batch batch = { .rows = rows, .row_count = count, .lanes = &lane, .lane_count = 1 };
    lw_ticket ticket;
    assert_int_equal(cpu->submit(c->exec, 0, &batch, &ticket, NULL), LW_OK);
    assert_int_equal(cpu->wait(c->exec, ticket, NULL), LW_OK);
    for (uint32_t r = 0; r < count; r++) {
        const float *row = NULL;
        assert_int_equal(cpu->read_logits(c->exec, r, &row, NULL), LW_OK);
        memcpy(logits + (size_t)r * vocab, row, vocab * sizeof *row);
    }
}

/* One row through one matrix, by a linear. */
static void through_as(const plan_case *c, member_of_plan which, uint32_t member, const lw_bf16 *x, void *y,
                       bool y_f32)
{
    lw_tensor tensors[3];
    const lw_weight alone = part_of(&c->stacks[which], tensors, member, 1);
    lw_cpu_weight *const weight = repacked(c->kernels, &alone);
    const lw_cpu_linear_args args = {
        .weight = weight, .x = x, .y = y, .y_f32 = y_f32, .rows = 1,
        .prepared = prepared_make(lw_cpu_prepared_bytes(c->kernels, alone.cols, 1)),
    };
    LAW_RUN(c->kernels->linear_prepare, &args, 1);
    LAW_RUN(c->kernels->linear_run, &args, 1);
    free(args.prepared);
    lw_cpu_weight_free(weight);
}

static void through(const plan_case *c, member_of_plan which, uint32_t member, const lw_bf16 *x, void *y)
{
    through_as(c, which, member, x, y, which == ROUTER || which == HEAD);
}

/* UP of one expert and the bias of another, the same one unless a mistake is planted, in FP64 but for the
 * product: no further from it than one rounding to bf16 and one of the fp32 sum. */
static void through_biased(const plan_case *c, uint32_t member, uint32_t biased, const lw_bf16 *x, lw_bf16 *y)
{
    float wide[HIDDEN];
    lw_bf16 bias[HIDDEN];
    through_as(c, UP, member, x, wide, true);
    memcpy(bias, c->stacks[OWN_BIAS].codes + (size_t)biased * sizeof bias, sizeof bias);
    for (int i = 0; i < HIDDEN; i++) {
        const double exact = (double)wide[i] + (double)lw_float_of_bf16(bias[i]);
        y[i] = lw_bf16_of_float((float)exact);
        const double got = (double)lw_float_of_bf16(y[i]);
        assert_true(fabs(got - exact) <= (REF_EPS_BF16 + REF_EPS_F32) * fabs(exact));
    }
}

/* sum + the chosen x, into sum. */
static void add_experts(const plan_case *c, const lw_bf16 *x, const float *weights, lw_bf16 *sum)
{
    lw_bf16 experts[HIDDEN];
    const lw_cpu_expert_sum_args of = { .x = x, .x_stride = HIDDEN, .weights = weights, .y = experts,
                                        .rows = 1, .slots = TOP, .width = HIDDEN };
    const lw_cpu_pair_args add = { .a = sum, .b = experts, .y = sum, .rows = 1, .width = HIDDEN };
    LAW_RUN(c->kernels->expert_sum, &of, 1);
    LAW_RUN(c->kernels->add, &add, 1);
}

/* What record says, kernel after kernel; planted, turn: biases of the expert so many slots on. */
static void forward_by_kernels(const plan_case *c, int32_t token, uint32_t turn, float *logits)
{
    lw_bf16 x[HIDDEN], gate[INNER], sum[HIDDEN], up[TOP * HIDDEN], down[TOP * HIDDEN], row[EXPERTS];
    lw_bf16 biased[TOP * HIDDEN];
    float scores[EXPERTS], bias[EXPERTS], route[2 * TOP], scratch[64];
    memcpy(x, c->stacks[EMBED].codes + (size_t)token * sizeof x, sizeof x);
    memcpy(row, c->stacks[BIAS].codes, sizeof row);
    for (int e = 0; e < EXPERTS; e++) bias[e] = lw_float_of_bf16(row[e]);
    through(c, ROUTER, 0, x, scores);
    assert_true(lw_cpu_route_scratch_floats(EXPERTS) <= sizeof scratch / sizeof *scratch);
    const lw_cpu_route_args args = { .logits = scores, .bias = bias, .y = route, .scratch = scratch,
                                     .rows = 1, .params = route_params };
    LAW_RUN(c->kernels->route, &args, 1);
    through(c, SHARED, 0, x, sum);
    for (uint32_t s = 0; s < TOP; s++) {
        through(c, GATE, (uint32_t)route[s], x, gate);
        through(c, DOWN, (uint32_t)route[s], gate, down + s * HIDDEN);
        through(c, UP, (uint32_t)route[s], x, up + s * HIDDEN);
        through_biased(c, (uint32_t)route[s], (uint32_t)route[(s + turn) % TOP], x, biased + s * HIDDEN);
    }
    add_experts(c, down, route + TOP, sum);
    add_experts(c, up, route + TOP, sum);
    add_experts(c, up, route + TOP, sum);
    add_experts(c, biased, route + TOP, sum);
    through(c, HEAD, 0, sum, logits);
}

/* Every token alone: the plan's bits are those of the kernels. */
static void forward_each(plan_case *c, float *alone)
{
    const size_t vocab = c->plan.vocab;
    float *const want = law_make(vocab, sizeof *want);
    for (int32_t t = 0; t < TOKENS; t++) {
        forward(c, &t, 1, alone + (size_t)t * vocab);
        if (t % 8 != 0 && !law_long()) continue;
        forward_by_kernels(c, t, 0, want);
        assert_true(isfinite(want[0]));
        assert_memory_equal(alone + (size_t)t * vocab, want, vocab * sizeof *want);
        forward_by_kernels(c, t, 1, want);
        assert_memory_not_equal(alone + (size_t)t * vocab, want, vocab * sizeof *want);
    }
    free(want);
}

static void plan_of_isa(const lw_cpu_kernels *kernels)
{
    static plan_case c;
    lw_rng rng = law_rng(0x312);
    c = (plan_case){ .kernels = kernels };
    plan_open(&c, &rng);
    const size_t vocab = c.plan.vocab;
    float *const alone = law_make((size_t)TOKENS * vocab, sizeof *alone);
    float *const together = law_make((size_t)BATCH_MAX * vocab, sizeof *together);
    forward_each(&c, alone);
    for (uint32_t count = 1; count <= BATCH_MAX; count += 1 + count / 2) {
        int32_t tokens[BATCH_MAX];
        for (uint32_t r = 0; r < count; r++) tokens[r] = (int32_t)lw_rng_below(&rng, TOKENS);
        forward(&c, tokens, count, together);
        for (uint32_t r = 0; r < count; r++) {
            const float *const row = together + r * vocab;
            const size_t token = (size_t)tokens[r], other = (token + 1) % TOKENS;
            assert_memory_equal(row, alone + token * vocab, vocab * sizeof *row);
            assert_memory_not_equal(row, alone + other * vocab, vocab * sizeof *row);
        }
    }
    free(alone);
    free(together);
    plan_close(&c);
}

static void a_plan_with_experts_keeps_the_row_law(void **state)
{
    (void)state;
    each_isa(plan_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_has_the_bits_of_a_linear_over_its_expert),
        cmocka_unit_test(every_block_is_one_parts_and_shares_are_equal),
        cmocka_unit_test(a_plan_with_experts_keeps_the_row_law),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

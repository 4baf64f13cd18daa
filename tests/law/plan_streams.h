/* The ways in which streams come, for plan_law.h, which includes this. */
#ifndef LW_TESTS_PLAN_STREAMS_H
#define LW_TESTS_PLAN_STREAMS_H

static inline lw_status exec_open(bench *b, lw_diag *d)
{
    lw_exec_options options = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX };
    if (b->into != NULL) options.trace = (lw_trace){ .row = on_row, .context = b };
    for (uint32_t g = 0; g < b->plan.reach_count; g++) options.page_counts[g] = LANES * PAGES;
    return b->table->compile(b->device, &b->plan, &options, &b->exec, d);
}

/* Streams begin again: nothing is committed, pages are dealt in an order of their own. */
static inline void streams_begin(bench *b, kept *into, lw_rng *shuffle)
{
    uint32_t *flat = &b->pages[0][0];
    for (uint32_t i = 0; i < LANES * PAGES; i++) flat[i] = i;
    for (uint32_t i = LANES * PAGES; i > 1; i--) {
        const size_t j = lw_rng_below(shuffle, i);
        const uint32_t page = flat[i - 1];
        flat[i - 1] = flat[j];
        flat[j] = page;
    }
    for (size_t l = 0; l < LANES; l++) {
        b->lanes[l] = (lw_batch_lane){ .page_count = PAGES };
        for (uint32_t g = 0; g < b->plan.reach_count; g++) b->lanes[l].pages[g] = b->pages[l];
    }
    b->into = into;
    lw_diag d = { "" };
    if (b->table->open(&b->options, &b->device, &d) != LW_OK || exec_open(b, &d) != LW_OK)
        fail_msg("%s", d.text);
}

static inline void streams_end(bench *b)
{
    b->table->exec_close(b->exec);
    b->table->close(b->device);
    b->exec = NULL;
    b->device = NULL;
}

static inline void row_add(bench *b, size_t lane, size_t kept_lane, lw_row row)
{
    assert_true(b->row_count < ROWS_MAX);
    row.lane = (uint32_t)lane;
    row.wanted = is_wanted(row.position);
    b->row_lane[b->row_count] = kept_lane;
    b->rows[b->row_count++] = row;
}

static inline int32_t next_token(int32_t token)
{
    return (token + 1) % VOCAB;
}

/* count rows that follow one another; those from right on bring other tokens, and nobody checks them. */
static inline void window_add(bench *b, size_t lane, size_t count, size_t right)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t position = b->lanes[lane].committed + (uint32_t)i;
        const int32_t token = b->tokens[lane][position];
        row_add(b, lane, i < right ? lane : LANE_NONE,
                (lw_row){ .token = i < right ? token : next_token(token), .position = position,
                          .slot = position, .parent = i == 0 ? -1 : (int32_t)b->row_count - 1 });
    }
}

static inline lw_status batch_run(bench *b, lw_diag *d)
{
    lw_ticket ticket;
    const lw_batch batch = { .rows = b->rows, .row_count = b->row_count, .lanes = b->lanes,
                             .lane_count = LANES };
    lw_status status = b->table->submit(b->exec, 0, &batch, &ticket, d);
    if (status == LW_OK) status = b->table->wait(b->exec, ticket, d);
    b->row_count = 0;
    return status;
}

static inline void batch_must_run(bench *b)
{
    lw_diag d = { "" };
    if (b->row_count > 0 && batch_run(b, &d) != LW_OK) fail_msg("%s", d.text);
}

typedef enum company { ALONE, TOGETHER, MIXED } company;

static inline bool is_turn_of(company how, size_t turn, size_t lane)
{
    if (how == ALONE) return turn % LANES == lane;
    return how == TOGETHER || turn % 3 != lane + 1;
}

/* Both streams up to length, in cuts of up to cut rows; whole where cut is length. */
static inline void streams_run(bench *b, kept *into, lw_rng *rng, size_t cut, size_t length, company how)
{
    streams_begin(b, into, rng);
    for (size_t turn = 0; b->lanes[0].committed < length || b->lanes[1].committed < length; turn++) {
        size_t counts[LANES] = { 0 };
        for (size_t l = 0; l < LANES; l++) {
            if (!is_turn_of(how, turn, l)) continue;
            const size_t left = length - b->lanes[l].committed;
            counts[l] = cut >= length ? left : size_min(1 + lw_rng_below(rng, cut), left);
            window_add(b, l, counts[l], counts[l]);
        }
        batch_must_run(b);
        for (size_t l = 0; l < LANES; l++) b->lanes[l].committed += (uint32_t)counts[l];
    }
    streams_end(b);
}

/* Both streams up to length, in windows of up to width rows of which any number from the front is kept, none
 * too: the rest guessed wrong, or was right and is dropped all the same. */
static inline void windows_run(bench *b, kept *into, lw_rng *rng, size_t width, size_t length)
{
    streams_begin(b, into, rng);
    while (b->lanes[0].committed < length || b->lanes[1].committed < length) {
        size_t keeps[LANES] = { 0 };
        for (size_t l = 0; l < LANES; l++) {
            const size_t count = size_min(1 + lw_rng_below(rng, width), length - b->lanes[l].committed);
            if (count == 0) continue;
            const size_t right = lw_rng_below(rng, count + 1);
            keeps[l] = lw_rng_below(rng, right + 1);
            window_add(b, l, count, right);
        }
        batch_must_run(b);
        for (size_t l = 0; l < LANES; l++) b->lanes[l].committed += (uint32_t)keeps[l];
    }
    streams_end(b);
}

/* Open rows of lane 0 at scattered slots, a wrong sibling before each. */
static inline void tree_add(bench *b, uint32_t committed, uint32_t open)
{
    int32_t parent = -1;
    for (uint32_t i = 0; i < open; i++) {
        const uint32_t position = committed + i, slot = committed + (i * 4 + 3) % open;
        const int32_t token = b->tokens[0][position];
        row_add(b, 0, LANE_NONE, (lw_row){ .token = next_token(token), .position = position,
                                           .slot = slot + open, .parent = parent });
        row_add(b, 0, 0, (lw_row){ .token = token, .position = position, .slot = slot, .parent = parent });
        parent = (int32_t)b->row_count - 1;
    }
}

/* Lane 0 up to committed, then such a tree. */
static inline void tree_run(bench *b, kept *into, lw_rng *rng, uint32_t committed, uint32_t open)
{
    streams_begin(b, into, rng);
    window_add(b, 0, committed, committed);
    batch_must_run(b);
    b->lanes[0].committed = committed;
    tree_add(b, committed, open);
    batch_must_run(b);
    streams_end(b);
}

#endif

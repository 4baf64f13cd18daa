/* The run half of the linear op: tiles of rows times panels of blocks, and the stores. Included by
 * linear.inc.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_RUN_INC_H
#define LW_DEVICE_CPU_LINEAR_RUN_INC_H

/* Tiles of the same blocks, group by group or in turns of some groups, so that a panel is read once. */
static void run_tiles(const tile *t, uint32_t count)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t groups = w->group_count, some = (uint32_t)size_max(1, TURN_BYTES / t->group_step);
    const uint32_t turn = count == 1 || some > groups ? groups : some;
    for (uint32_t begin = 0, end; begin < groups; begin = end) {
        end = groups - begin < turn ? groups : begin + turn;
        for (uint32_t i = 0; i < count; i++) tiles[w->form][t[i].rows](&t[i], begin, end);
    }
}

/* Rows [begin, end), whole tiles, of blocks [first, last) of one panel. */
static void run_panel(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                      uint32_t last)
{
    float acc[TILES_TOGETHER * BLOCKS_MAX * ROWS_MAX * LANES] __attribute__((aligned(64)));
    tile t[TILES_TOGETHER];
#if defined(LINEAR_PAIRS)
    const lw_cpu_weight *const w = args->weight;
    vi table_low = { 0 }, table_high = { 0 };
    if (w->read == LW__READ_PAIRS && w->form != LW__FORM_BF16) {
        table_low = w->form == LW__FORM_TABLE4 ? pair_values(w->table) : pair_table(w->low.bits, 0);
        table_high = pair_table(w->high.bits, w->low.bits);
    }
#endif
    for (uint32_t row = begin; row < end;) {
        uint32_t count = 0;
        float *sums = acc;
        for (; count < TILES_TOGETHER && row < end; row += t[count++].rows) {
            t[count] = tile_of(args, row, first, last);
            t[count].acc = sums;
            sums += t[count].block_count * t[count].rows * LANES;
#if defined(LINEAR_PAIRS)
            t[count].table_low = table_low;
            t[count].table_high = table_high;
#endif
        }
        memset(acc, 0, (size_t)(sums - acc) * sizeof *acc);
        run_tiles(t, count);
        for (uint32_t i = 0; i < count; i++)
            store_sums(args, first, t[i].block_count, t[i].row, t[i].rows, t[i].acc);
    }
}

enum {
    DECODED_PAIR = LW__BLOCKS_UNIT * LW__GROUP_MAX * LANES,
    DECODED_MAX = DECODED_BYTES / 4 > DECODED_PAIR ? DECODED_BYTES / 4 : DECODED_PAIR,
};

/* Rows and blocks that share decoded groups. */
typedef struct decoded_job {
    tile tiles[ROWS_KEPT_MAX];
    uint32_t count, first;
    float acc[ROWS_KEPT_MAX * BLOCKS_MAX * LANES] __attribute__((aligned(64)));
    float values[DECODED_MAX] __attribute__((aligned(64)));
} decoded_job;

static void run_decoded_group(decoded_job *job, uint32_t g)
{
    const tile *const t = job->tiles;
    const lw_cpu_weight *const w = t->weight;
    const size_t block_words = (size_t)w->group * LANES;
    const uint8_t *const group = t->groups + g * t->group_step;
    for (uint32_t b = 0; b < t->block_count; b++) {
        const uint8_t *const block = group + b * w->group_bytes;
        ask_for(block + 2 * t->group_step, w->group_bytes);
        decoders[w->form](w, block, job->values + b * block_words);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        const spot s = {
            .group = group,
            .words = (const uint8_t *)job->values,
            .words_step = block_words * sizeof *job->values,
            .x = t[i].x + (size_t)g * w->group * t[i].rows,
            .sums = t[i].sums + (size_t)g * t[i].rows,
            .acc = t[i].acc,
        };
        decoded_tiles[t[i].rows](&t[i], &s);
    }
}

/* As run_panel, a few blocks after the others, each group decoded once for all rows. */
static void run_decoded(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                        uint32_t last)
{
    const uint32_t together = blocks_kept((size_t)args->weight->group * LANES * sizeof(float));
    decoded_job job;
    for (uint32_t block = first, next; block < last; block = next) {
        next = last - block < together ? last : block + together;
        float *sums = job.acc;
        job.count = 0;
        for (uint32_t row = begin; row < end; row += job.tiles[job.count++].rows) {
            tile *const t = &job.tiles[job.count];
            *t = tile_of(args, row, block, next);
            t->acc = sums;
            sums += t->block_count * t->rows * LANES;
        }
        memset(job.acc, 0, (size_t)(sums - job.acc) * sizeof *sums);
        for (uint32_t g = 0; g < args->weight->group_count; g++) run_decoded_group(&job, g);
        for (uint32_t i = 0; i < job.count; i++) {
            const tile *const t = &job.tiles[i];
            store_sums(args, block, t->block_count, t->row, t->rows, t->acc);
        }
    }
}

void LW_LINEAR(blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = args->weight;
    LW_ASSERT(w->block_cols == LANES);
    LW_ASSERT(args->member < w->stack_count);
    LW_ASSERT(end <= w->block_count);
    if (w->int8 != NULL) {
        w->int8->blocks(args, begin, end);
        return;
    }
    const size_t row_bytes = lw__prepared_x_words(w) * sizeof(float);
    for (uint32_t row = 0, rows; row < args->rows; row += rows) {
        rows = rows_together(args, row, row_bytes, tile_height);
        for (uint32_t block = begin, next; block < end; block = next) {
            next = block - block % LW__PANEL_BLOCKS + LW__PANEL_BLOCKS;
            if (next > end) next = end;
            if (is_direct(args)) run_panel(args, row, row + rows, block, next);
            else run_decoded(args, row, row + rows, block, next);
        }
    }
}

void LW_LINEAR(run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->weight->block_count, LW__BLOCKS_UNIT, part, parts, &begin, &end);
    LW_LINEAR(blocks)(args, (uint32_t)begin, (uint32_t)end);
}

#endif

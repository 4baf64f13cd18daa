/* Many rows of linear_int8.inc.h, which includes it: a group of a panel is decoded to bytes once for all of
 * their tiles, which then run on bytes as few rows do on codes.
 */
#ifndef LW_DEVICE_CPU_LINEAR_INT8_DECODED_INC_H
#define LW_DEVICE_CPU_LINEAR_INT8_DECODED_INC_H

/* What the codes of a form are decoded to. */
LINEAR_INLINE int bytes_of(int form)
{
#if defined(I8_SUM_LIMIT)
    if (form == LW__FORM_INT8) return BYTES_SPLIT;
    if (form == LW__FORM_INT6) return BYTES_63;
    if (form == LW__FORM_INT5 || form == LW__FORM_TABLE4) return BYTES_31;
#else
    (void)form;
#endif
    return BYTES_15;
}

/* One group of one block, as the inner loop of few rows makes it of the words: (k / 4, plane) vectors. */
LINEAR_INLINE void group_decode(int form, const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes)
{
    step at = { .words = group + w->words_at, .table = vi_load_table(w->table_codes) };
    for (uint32_t i = 0; i < w->group / 4 / (uint32_t)fours_of(form); i++) {
        if (high_bits_of(form) > 0) at.high[0] = high_word(form, group + w->high_at, i);
        LINEAR_UNROLL
        for (int j = 0; j < fours_of(form) * planes_of(form); j++) {
            const vi codes = codes_at(form, &at, 0, j / planes_of(form), j % planes_of(form));
            vi_store((int32_t *)(void *)(bytes + j * VECTOR_BYTES), codes);
        }
        at.words += step_bytes_of(form);
        bytes += fours_of(form) * planes_of(form) * VECTOR_BYTES;
    }
}

typedef struct decoder {
    void (*run)(const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes);
    uint32_t bytes_form, planes;
} decoder;
#define DECODE_MAKE(form) \
    static void decode_##form(const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes) \
    { \
        group_decode(form, w, group, bytes); \
    }
EACH_FORM(DECODE_MAKE)
static decoder decoder_of(lw__form form)
{
#define DECODE_CASE(form) \
    case form: return (decoder){ decode_##form, (uint32_t)bytes_of(form), (uint32_t)planes_of(form) };
    switch ((int)form) { EACH_FORM(DECODE_CASE) default: LW_ASSERT(false); return (decoder){ 0 }; }
}

enum {
    BYTES_PAIR = LW__GROUP_MAX * PLANES_MAX * LW__BLOCKS_UNIT * LANES,
    BYTES_MAX = DECODED_BYTES > BYTES_PAIR ? DECODED_BYTES : BYTES_PAIR,
};

/* Rows and blocks that share decoded groups. */
typedef struct decoded_job {
    tile tiles[ROWS_KEPT_MAX];
    uint32_t count;
    float acc[ROWS_KEPT_MAX * BLOCKS_MAX * LANES] __attribute__((aligned(64)));
    uint8_t bytes[BYTES_MAX] __attribute__((aligned(64)));
} decoded_job;

static void run_decoded_group(decoded_job *job, const decoder *d, uint32_t g, const uint8_t *group,
                              uint32_t blocks)
{
    const lw_cpu_weight *const w = job->tiles->weight;
    const size_t block_bytes = (size_t)w->group * d->planes * LANES;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *const block = group + b * w->group_bytes;
        ask_for(block + 2 * LW__PANEL_BLOCKS * w->group_bytes, w->group_bytes);
        d->run(w, block, job->bytes + b * block_bytes);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        spot s = spot_of(&job->tiles[i], g, group);
        s.words = job->bytes;
        s.words_step = block_bytes;
        runs[d->bytes_form][job->tiles[i].rows](&job->tiles[i], blocks, &s);
    }
}

/* Rows [begin, end), whole tiles, of blocks [first, last) of one panel, each group decoded once. */
static void run_decoded(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                        uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    const decoder d = decoder_of(w->form);
    const uint32_t together = blocks_kept((size_t)w->group * d.planes * LANES);
    decoded_job job;
    for (uint32_t block = first, next; block < last; block = next) {
        next = last - block < together ? last : block + together;
        float *acc = job.acc;
        job.count = 0;
        for (uint32_t row = begin; row < end; row += job.tiles[job.count++].rows) {
            job.tiles[job.count] = tile_of(args, row, acc);
            acc += (next - block) * job.tiles[job.count].rows * LANES;
        }
        memset(job.acc, 0, (size_t)(acc - job.acc) * sizeof *acc);
        const uint8_t *group = lw__group_at(w, args->member, block, 0);
        for (uint32_t g = 0; g < w->group_count; g++, group += group_step_of(w, block))
            run_decoded_group(&job, &d, g, group, next - block);
        for (uint32_t i = 0; i < job.count; i++)
            store_sums(args, block, next - block, job.tiles[i].row, job.tiles[i].rows, job.tiles[i].acc);
    }
}

#endif

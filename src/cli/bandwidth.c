/* Read bandwidth; see bandwidth.h. Each thread reads its own share, which it also wrote, so pages lie near
 * it. */
#include "cli/bandwidth.h"

#include "base/clock.h"
#include "base/pool.h"

#include <stdlib.h>

enum { PROBE_BYTES = 256 << 20, PASSES = 4, ADDERS = 8, PAGE_BYTES = 4096 };

typedef struct probe {
    uint64_t *words;
    size_t count;
    uint64_t sums[LW_POOL_THREADS_MAX];
} probe;

static void write_share(void *context, unsigned part, unsigned parts)
{
    probe *p = context;
    size_t begin, end;
    lw_pool_share(p->count, PAGE_BYTES, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) p->words[i] = i;
}

/* Several adders: one chain of additions would be slower than memory. */
static void read_share(void *context, unsigned part, unsigned parts)
{
    probe *p = context;
    size_t begin, end;
    uint64_t sums[ADDERS] = { 0 };
    lw_pool_share(p->count, PAGE_BYTES, part, parts, &begin, &end);
    for (size_t i = begin; i + ADDERS <= end; i += ADDERS) {
        for (size_t j = 0; j < ADDERS; j++) sums[j] += p->words[i + j];
    }
    for (size_t j = 0; j < ADDERS; j++) p->sums[part] += sums[j];
}

lw_status lw_bandwidth_measure(uint32_t threads, double *bytes_per_second, lw_diag *d)
{
    lw_pool *pool = NULL;
    probe p = { .words = malloc(PROBE_BYTES), .count = PROBE_BYTES / sizeof(uint64_t) };
    lw_status status = LW_OK;
    *bytes_per_second = 0.0;
    if (p.words == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for a probe of %d bytes", PROBE_BYTES);
    if (status == LW_OK) status = lw_pool_open(threads, NULL, &pool, d);
    if (status == LW_OK) lw_pool_run(pool, write_share, &p);
    for (int pass = 0; pass < PASSES && status == LW_OK; pass++) {
        const uint64_t begin = lw_clock_ns();
        lw_pool_run(pool, read_share, &p);
        const double rate = PROBE_BYTES * 1e9 / (double)(lw_clock_ns() - begin);
        if (rate > *bytes_per_second) *bytes_per_second = rate;
    }
    /* The sums are looked at, so that the reads cannot be left out. */
    uint64_t sum = 0;
    for (unsigned i = 0; i < LW_POOL_THREADS_MAX; i++) sum += p.sums[i];
    const uint64_t expected = PASSES * (uint64_t)p.count / 2 * (p.count - 1);
    if (status == LW_OK && sum != expected) status = lw_fail(d, LW_IO, "the bandwidth probe read wrong sums");
    if (pool != NULL) lw_pool_close(pool);
    free(p.words);
    return status;
}

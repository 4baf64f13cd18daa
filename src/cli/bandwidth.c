/* Read bandwidth; see bandwidth.h. Each thread reads its own share, which it also wrote, so pages lie near
 * it. */
#include "cli/bandwidth.h"

#include "base/clock.h"
#include "base/pool.h"
#include "device/cpu/huge.h"

enum { PROBE_BYTES = 512 << 20, PASSES = 4, AHEAD_BYTES = 4096, LINE_BYTES = 64 };

typedef struct probe {
    uint64_t *words;
    size_t count;
    uint64_t sums[LW_POOL_THREADS_MAX];
} probe;

uint64_t lw_bandwidth_read(const void *at, size_t bytes)
{
    typedef uint64_t wide __attribute__((vector_size(16)));
    enum { WIDE = LW_BANDWIDTH_UNIT / (int)sizeof(wide) };
    const uint8_t *const from = at;
    wide sums[WIDE] = { 0 };
    for (size_t i = 0; i < bytes; i += LW_BANDWIDTH_UNIT) {
        for (size_t k = 0; k < LW_BANDWIDTH_UNIT; k += LINE_BYTES)
            __builtin_prefetch(from + i + AHEAD_BYTES + k);
        const wide *const words = (const wide *)(const void *)(from + i);
        /* Several adders: one chain of additions would be slower than memory. */
        for (int k = 0; k < WIDE; k++) sums[k] += words[k];
    }
    for (int k = 1; k < WIDE; k++) sums[0] += sums[k];
    return sums[0][0] + sums[0][1];
}

static void write_share(void *context, unsigned part, unsigned parts)
{
    probe *p = context;
    size_t begin, end;
    lw_pool_share(PROBE_BYTES, LW_BANDWIDTH_UNIT, part, parts, &begin, &end);
    for (size_t i = begin / sizeof *p->words; i < end / sizeof *p->words; i++) p->words[i] = i;
}

static void read_share(void *context, unsigned part, unsigned parts)
{
    probe *p = context;
    size_t begin, end;
    lw_pool_share(PROBE_BYTES, LW_BANDWIDTH_UNIT, part, parts, &begin, &end);
    p->sums[part] += lw_bandwidth_read((const uint8_t *)p->words + begin, end - begin);
}

lw_status lw_bandwidth_measure(uint32_t threads, double *bytes_per_second, lw_diag *d)
{
    lw_pool *pool = NULL;
    probe p = { .words = lw_huge_make(PROBE_BYTES), .count = PROBE_BYTES / sizeof(uint64_t) };
    lw_status status = LW_OK;
    *bytes_per_second = 0.0;
    if (p.words == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for a probe of %d bytes", PROBE_BYTES);
    if (status == LW_OK) status = lw_pool_open(threads, NULL, &pool, d);
    if (status == LW_OK) lw_pool_hold(pool);
    if (status == LW_OK) lw_pool_run(pool, write_share, &p);
    for (int pass = 0; pass < PASSES && status == LW_OK; pass++) {
        const uint64_t begin = lw_clock_ns();
        lw_pool_run(pool, read_share, &p);
        const double rate = PROBE_BYTES * 1e9 / (double)(lw_clock_ns() - begin);
        if (rate > *bytes_per_second) *bytes_per_second = rate;
    }
    if (status == LW_OK) lw_pool_release(pool);
    /* The sums are looked at, so that the reads cannot be left out. */
    uint64_t sum = 0;
    for (unsigned i = 0; i < LW_POOL_THREADS_MAX; i++) sum += p.sums[i];
    const uint64_t expected = PASSES * (uint64_t)p.count / 2 * (p.count - 1);
    if (status == LW_OK && sum != expected) status = lw_fail(d, LW_IO, "the bandwidth probe read wrong sums");
    if (pool != NULL) lw_pool_close(pool);
    lw_huge_free(p.words, PROBE_BYTES);
    return status;
}

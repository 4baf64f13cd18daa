/* Speed of the linear op: one shape, every row count asked for, beside a read-bandwidth probe of the same
 *   process. linear_speed [--act-int8] [isa] [rows-out] [cols-in] [bits] [group] [threads] [row counts...]
 * Prints, per row count, GB/s of weight bytes and their share of the probe, GMAC/s and their share of what
 * the multiply-add of that instruction set does on as many threads, and the cost in single rows. Every figure
 * is a median; the row counts and the probes take turns, so that a busy machine slows all alike.
 */
#include "base/clock.h"
#include "base/float16.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cli/bandwidth.h"
#include "device/cpu/huge.h"
#include "../tests/law/linear_tables.h"
#include "linear_peak.h"

#include <stdlib.h>
#include <string.h>

enum { COUNTS_MAX = 16, TURNS = 9, PROBE_BYTES = 256 << 20, FLUSH_ABOVE = 64 << 20 };

typedef struct job {
    const lw_cpu_kernels *kernels;
    lw_cpu_linear_args args;
    const uint8_t *probe;
    linear_peak peak;
    uint64_t sums[LW_POOL_THREADS_MAX * 8];
} job;

static void prepare(void *context, unsigned part, unsigned parts)
{
    const job *j = context;
    j->kernels->linear_prepare(&j->args, part, parts);
}

static void multiply(void *context, unsigned part, unsigned parts)
{
    const job *j = context;
    j->kernels->linear_run(&j->args, part, parts);
}

static void read_all(void *context, unsigned part, unsigned parts)
{
    job *j = context;
    size_t begin, end;
    lw_pool_share(PROBE_BYTES, LW_BANDWIDTH_UNIT, part, parts, &begin, &end);
    j->sums[part * 8] = lw_bandwidth_read(j->probe + begin, end - begin);
}

static void multiply_only(void *context, unsigned part, unsigned parts)
{
    (void)parts;
    job *j = context;
    const float sum = j->peak.run(0.25f);
    memcpy(&j->sums[part * 8], &sum, sizeof sum);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* One thread is timed by the CPU time that it got, so that neighbours on a busy machine count for less. */
static uint64_t now_ns(const lw_pool *pool)
{
    struct timespec t;
    if (lw_pool_threads(pool) > 1) return lw_clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Seconds of one call, averaged over enough of them to last some milliseconds. */
static double time_rows(lw_pool *pool, job *j, uint32_t rows, double work)
{
    j->args.rows = rows;
    const int calls = work * rows > 2e8 ? 1 : (int)(2e8 / (work * rows)) + 1;
    const uint64_t begin = now_ns(pool);
    for (int i = 0; i < calls; i++) {
        lw_pool_run(pool, prepare, j);
        lw_pool_run(pool, multiply, j);
    }
    return (double)(now_ns(pool) - begin) * 1e-9 / calls;
}

/* shape: outputs, inputs, bits of a code, columns of a group. */
static lw_cpu_weight *weight_of(const lw_cpu_kernels *kernels, const uint32_t shape[4], bool x_int8,
                                lw_pool *pool)
{
    const uint32_t rows = shape[0], cols = shape[1], bits = shape[2], group = shape[3];
    const size_t code_bytes = (size_t)rows * cols / 8 * bits, scale_bytes = (size_t)rows * (cols / group) * 2;
    uint8_t *const codes = malloc(code_bytes), *const scales = malloc(scale_bytes);
    if (codes == NULL || scales == NULL) return NULL;
    lw_rng rng = lw_rng_make(1);
    for (size_t i = 0; i + 8 <= code_bytes; i += 8) memcpy(codes + i, &(uint64_t){ lw_rng_next(&rng) }, 8);
    for (size_t i = 0; i < scale_bytes; i += 2) memcpy(scales + i, &(uint16_t){ lw_bf16_of_float(0.01f) }, 2);
    const lw_tensor code = { .name = "codes", .file = "", .dtype = LW_DTYPE_U8, .bytes = codes,
        .byte_count = code_bytes };
    const lw_tensor scale = { .name = "scales", .file = "", .dtype = LW_DTYPE_BF16, .bytes = scales,
                              .byte_count = scale_bytes };
    const bool dense = bits == 16;
    const lw_weight weight = {
        .name = "speed", .stack_count = 1, .rows = rows, .cols = cols,
        .map = dense ? LW_MAP_BF16 : LW_MAP_INTEGER,
        .code_bits = bits, .group = dense ? 0 : group, .scale_type = LW_DTYPE_BF16, .has_bias = !dense,
        .global_scale = 1.0f, .x_int8 = x_int8 && !dense, .codes = &code, .scales = &scale, .biases = &scale,
    };
    lw_diag d;
    lw_cpu_weight *out;
    const uint64_t begin = lw_clock_ns();
    if (lw_cpu_weight_make(kernels, &weight, pool, &out, &d) != LW_OK) fprintf(stderr, "%s\n", d.text);
    else printf("repacked %.1f MB in %.2f s\n", (double)lw_cpu_weight_bytes(out) * 1e-6,
                (double)(lw_clock_ns() - begin) * 1e-9);
    free(codes);
    free(scales);
    return out;
}

static const lw_cpu_kernels *find(linear_table *tables, size_t count, const char *isa)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(tables[i].kernels.isa, isa) == 0 && tables[i].can_run) return &tables[i].kernels;
    return NULL;
}

static double time_run(lw_pool *pool, lw_pool_fn *fn, job *j)
{
    const uint64_t begin = now_ns(pool);
    lw_pool_run(pool, fn, j);
    return (double)(now_ns(pool) - begin) * 1e-9;
}

static void report(lw_pool *pool, job *j, const uint32_t *counts, int count)
{
    static double seconds[COUNTS_MAX][TURNS];
    double probe[TURNS], peak[TURNS] = { 0 };
    const double macs = (double)lw_cpu_weight_rows(j->args.weight) * lw_cpu_weight_cols(j->args.weight);
    const double bytes = (double)lw_cpu_weight_bytes(j->args.weight);
    for (int turn = 0; turn < TURNS; turn++) {
        probe[turn] = PROBE_BYTES / time_run(pool, read_all, j) * 1e-9;
        if (j->peak.run != NULL)
            peak[turn] = j->peak.products * lw_pool_threads(pool) / time_run(pool, multiply_only, j) * 1e-9;
        for (int i = 0; i < count; i++) seconds[i][turn] = time_rows(pool, j, counts[i], macs);
    }
    const double probe_gbs = median(probe, TURNS), peak_gmacs = median(peak, TURNS);
    printf("probe %.1f GB/s, peak %.1f GMAC/s\n%6s %10s %8s %8s %8s %8s %8s\n", probe_gbs, peak_gmacs, "rows",
           "us", "GB/s", "share", "GMAC/s", "share", "x one");
    const double one = median(seconds[0], TURNS);
    for (int i = 0; i < count; i++) {
        const double s = median(seconds[i], TURNS), gbs = bytes / s * 1e-9;
        const double gmacs = macs * counts[i] / s * 1e-9;
        printf("%6u %10.1f %8.2f %7.0f%% %8.1f %7.0f%% %8.2f\n", counts[i], s * 1e6, gbs,
               100 * gbs / probe_gbs, gmacs, j->peak.run == NULL ? 0.0 : 100 * gmacs / peak_gmacs, s / one);
    }
}

int main(int argc, char **argv)
{
    const bool x_int8 = argc > 1 && strcmp(argv[1], "--act-int8") == 0;
    if (x_int8) argc--, argv++;
    const char *const isa = argc > 1 ? argv[1] : "avx2";
    uint32_t numbers[5] = { 2048, 2048, 4, 64, 1 }, counts[COUNTS_MAX] = { 1, 2, 4, 8, 16, 64 };
    int count = 6;
    for (int i = 2; i < argc && i < 7; i++) numbers[i - 2] = (uint32_t)strtoul(argv[i], NULL, 10);
    if (argc > 7) count = 0;
    for (int i = 7; i < argc && count < COUNTS_MAX; i++)
        counts[count++] = (uint32_t)strtoul(argv[i], NULL, 10);
    uint32_t rows_max = 1;
    for (int i = 0; i < count; i++) rows_max = counts[i] > rows_max ? counts[i] : rows_max;

    linear_table tables[LINEAR_TABLES_MAX];
    static job j;
    j.kernels = find(tables, linear_tables(tables), isa);
    lw_diag d;
    lw_pool *pool;
    if (j.kernels == NULL) return fprintf(stderr, "this CPU has no %s\n", isa), 1;
    if (lw_pool_open(numbers[4], j.kernels->thread_setup, &pool, &d) != LW_OK)
        return fprintf(stderr, "%s\n", d.text), 1;
    lw_cpu_weight *const weight = weight_of(j.kernels, numbers, x_int8, pool);
    uint8_t *const probe = lw_huge_make(PROBE_BYTES);
    lw_bf16 *const x = malloc((size_t)rows_max * numbers[1] * sizeof *x);
    lw_bf16 *const y = malloc((size_t)rows_max * numbers[0] * sizeof *y);
    void *const prepared = lw_huge_make(lw_cpu_prepared_bytes(j.kernels, numbers[1], rows_max));
    if (weight == NULL || probe == NULL || x == NULL || y == NULL || prepared == NULL) return 1;
    memset(probe, 1, PROBE_BYTES);
    for (size_t i = 0; i < (size_t)rows_max * numbers[1]; i++)
        x[i] = lw_bf16_of_float((float)(i % 17) - 8.0f);
    j.probe = probe;
    j.peak = linear_peak_of(isa, x_int8);
    j.args = (lw_cpu_linear_args){ .weight = weight, .x = x, .x_stride = numbers[1], .y = y,
        .y_stride = numbers[0],
                                   .prepared = prepared };
    report(pool, &j, counts, count);
    lw_pool_close(pool);
    lw_cpu_weight_free(weight);
    return 0;
}

/* What the law tests of the cpu kernels share: random bf16 rows, the row counts, running a kernel in parts,
 * printing the seed, and the long mode (LW_TEST_LONG).
 */
#ifndef LW_TESTS_CPU_LAW_H
#define LW_TESTS_CPU_LAW_H

#include "base/float16.h"
#include "base/rng.h"
#include "base/size.h"
#include "device/cpu/kernels.h"
#include "model/checkpoint.h"
#include "device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAW_ROWS_MAX = 257, LAW_PARTS_MAX = 3 };
static const size_t law_rows[] = { 1, 2, 3, 5, 8, 15, 16, 17, 33, 64, LAW_ROWS_MAX };
enum { LAW_ROWS_COUNT = sizeof law_rows / sizeof law_rows[0] };

/* Runs a kernel in parts, last part first: no part may lean on an earlier one. */
#define LAW_RUN(kernel, args, parts)                                                  \
    do {                                                                              \
        for (unsigned part_ = (parts); part_-- > 0;) (kernel)((args), part_, (parts)); \
    } while (0)

static inline bool law_long(void)
{
    return getenv("LW_TEST_LONG") != NULL;
}

static inline lw_rng law_rng(uint64_t seed)
{
    printf("seed %llu\n", (unsigned long long)seed);
    return lw_rng_make(seed);
}

static inline void *law_make(size_t count, size_t item_bytes)
{
    void *p = calloc(count + 1, item_bytes);
    assert_non_null(p);
    return p;
}

static inline lw_bf16 *law_bf(lw_rng *rng, size_t count, float size)
{
    lw_bf16 *p = law_make(count, sizeof *p);
    for (size_t i = 0; i < count; i++) p[i] = lw_bf16_of_float(size * lw_rng_normal(rng));
    return p;
}

static inline float *law_floats(lw_rng *rng, size_t count, float size)
{
    float *p = law_make(count, sizeof *p);
    for (size_t i = 0; i < count; i++) p[i] = size * lw_rng_normal(rng);
    return p;
}

static inline double *law_doubles_of_bf(const lw_bf16 *x, size_t count)
{
    double *p = law_make(count, sizeof *p);
    for (size_t i = 0; i < count; i++) p[i] = (double)lw_float_of_bf16(x[i]);
    return p;
}

static inline double *law_doubles(const float *x, size_t count)
{
    double *p = law_make(count, sizeof *p);
    for (size_t i = 0; i < count; i++) p[i] = (double)x[i];
    return p;
}

/* Says which sets run here and which do not; calls test for each that does. */
static inline void law_each_isa(void (*test)(const lw_cpu_kernels *kernels))
{
    static const char *const names[] = { "avx512bf16", "avx512vnni", "avx512f", "avx2", "generic" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const lw_cpu_kernels *const *at = lw_cpu_available();
        while (*at != NULL && strcmp((*at)->isa, names[i]) != 0) at++;
        if (*at == NULL) printf("skipped %s: this CPU cannot run it\n", names[i]);
        else test(*at);
    }
}

/* How often |got - want| exceeds its bound; prints the worst. A NaN exceeds every bound. */
typedef struct law_score {
    size_t count, over;
    double worst;       /* largest error / bound */
} law_score;

static inline void law_compare(law_score *score, lw_bf16 got, double want, double bound)
{
    const double error = fabs((double)lw_float_of_bf16(got) - want);
    score->count++;
    if (!(error <= bound)) score->over++;
    if (!(error / bound <= score->worst)) score->worst = error / bound;
}

#endif

/* Prints what one drawn row costs: milliseconds per row for each setting, on peaked and on flat logits.
 * Usage: sample_speed [vocab [rows]]. One thread; the best of several batches, so that a shared machine's
 * pauses fall out.
 */
#include "base/clock.h"
#include "base/limits.h"
#include "base/rng.h"
#include "lane/sample.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct setting {
    const char *name;
    lw_sampling sampling;
} setting;

static const setting settings[] = {
    { "greedy", { .temperature = 0.0 } },
    { "full", { .temperature = 1.0 } },
    { "top_k 50", { .temperature = 1.0, .top_k = 50 } },
    { "top_p 0.95", { .temperature = 1.0, .top_p = 0.95 } },
    { "min_p 0.05", { .temperature = 1.0, .min_p = 0.05 } },
    { "top_k 20, top_p 0.95", { .temperature = 0.6, .top_k = 20, .top_p = 0.95 } },
    { "top_k 100000, top_p 0.95", { .temperature = 1.0, .top_k = 100000, .top_p = 0.95 } },
};

typedef struct shape {
    const char *name;
    float spread;
} shape;

static const shape shapes[] = { { "peaked", 3.0f }, { "wide", 1.0f }, { "flat", 0.01f }, { "equal", 0.0f } };

enum { BATCHES = 25 };

static double row_ms(lw_sampler *sampler, const lw_sampling *sampling, const float *logits, uint32_t vocab,
                     uint32_t rows)
{
    uint64_t best_ns = UINT64_MAX;
    uint64_t position = 0;
    lw_diag d;
    for (int batch = 0; batch < BATCHES; batch++) {
        const uint64_t begin_ns = lw_clock_ns();
        for (uint32_t i = 0; i < rows; i++) {
            int32_t token;
            if (lw_sampler_draw(sampler, sampling, logits, vocab, position++, &token, &d) != LW_OK) {
                fprintf(stderr, "sample_speed: %s\n", d.text);
                exit(1);
            }
        }
        const uint64_t ns = lw_clock_ns() - begin_ns;
        if (ns < best_ns) best_ns = ns;
    }
    return (double)best_ns / rows * 1e-6;
}

int main(int argc, char **argv)
{
    const long vocab_asked = argc > 1 ? strtol(argv[1], NULL, 10) : 248320;
    const long rows_asked = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    if (vocab_asked < 1 || vocab_asked > LW_LIMIT_VOCAB || rows_asked < 1 || rows_asked > 1000000) {
        fprintf(stderr, "usage: sample_speed [vocab [rows]]\n");
        return 2;
    }
    const uint32_t vocab = (uint32_t)vocab_asked;
    lw_diag d;
    lw_sampler *sampler = NULL;
    float *logits = calloc(vocab, sizeof *logits);
    if (logits == NULL || lw_sampler_make(vocab, &sampler, &d) != LW_OK) {
        fprintf(stderr, "sample_speed: no memory for %u logits\n", vocab);
        free(logits);
        return 1;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        lw_rng rng = lw_rng_make(1);
        for (uint32_t id = 0; id < vocab; id++) logits[id] = shapes[s].spread * lw_rng_normal(&rng);
        if (s == 0) logits[vocab / 2] = 24.0f; /* a clear favourite, as a language model mostly has one */
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
            printf("%-7s %-26s %8.3f ms\n", shapes[s].name, settings[i].name,
                   row_ms(sampler, &settings[i].sampling, logits, vocab, (uint32_t)rows_asked));
    }
    lw_sampler_free(sampler);
    free(logits);
    return 0;
}

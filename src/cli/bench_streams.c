/* Random prompts through a core without drafts and cache; see bench_streams.h. */
#include "cli/bench_streams.h"

#include "base/clock.h"
#include "base/rng.h"

#include <stdlib.h>

typedef struct crowd {
    uint32_t streams, started, ended;
    uint32_t tokens;             /* of all streams while all of them ran */
    lw_status status;
    lw_diag diag;
} crowd;

typedef struct reader {
    crowd *crowd;
    lw_request request;          /* borrowed by the core until it ended */
    uint32_t tokens;
} reader;

static bool on_token(void *context, const lw_token_event *event)
{
    reader *r = context;
    (void)event;
    if (r->tokens++ == 0) r->crowd->started++;
    else r->crowd->tokens++;
    return true;
}

static void on_end(void *context, const lw_end_event *event)
{
    crowd *c = ((reader *)context)->crowd;
    c->ended++;
    if (event->status == LW_OK || c->status != LW_OK) return;
    c->status = lw_fail(&c->diag, event->status, "%s", event->text);
}

static lw_status submit(lw_core *core, const lw_bench_streams *what, const int32_t *prompts, reader *readers,
                        lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < what->streams && status == LW_OK; i++) {
        uint64_t id;
        readers[i].request = (lw_request){ .prompt = prompts + (size_t)i * what->prompt,
                                           .prompt_count = what->prompt,
                                           .tokens_max = what->tokens,
                                           .ignore_end = true,
                                           .logprobs = -1,
                                           .token = on_token,
                                           .end = on_end,
                                           .context = &readers[i] };
        status = lw_core_submit(core, &readers[i].request, &id, d);
    }
    return status;
}

/* Whole rounds are timed, so each stream has one token of each. */
static lw_status run(lw_core *core, crowd *c, double *tokens_per_s, lw_diag *d)
{
    while (c->started < c->streams && c->ended == 0 && lw_core_round(core)) continue;
    const uint64_t begin = lw_clock_ns();
    c->tokens = 0;
    while (c->ended == 0 && lw_core_round(core)) continue;
    const uint64_t ns = lw_clock_ns() - begin;
    if (c->status != LW_OK) return lw_fail(d, c->status, "%s", c->diag.text);
    if (c->tokens == 0)
        return lw_fail(d, LW_BAD_INPUT, "%u streams never ran together: give longer replies", c->streams);
    *tokens_per_s = c->tokens * 1e9 / (double)ns;
    return LW_OK;
}

static lw_status core_run(lw_engine *engine, const lw_bench_streams *what, const int32_t *prompts,
                          reader *readers, lw_streams_result *out, lw_diag *d)
{
    lw_core_options options = lw_engine_core_options(engine);
    lw_core_device device;
    lw_core *core = NULL;
    options.cache_bytes = 0;
    options.drafts_max = options.copy_match = options.head_drafts = 0;
    lw_status status = lw_engine_lend(engine, &device, d);
    if (status != LW_OK) return status;
    status = lw_core_open(&device, &options, &core, d);
    if (status == LW_OK) status = submit(core, what, prompts, readers, d);
    if (status == LW_OK) status = run(core, readers->crowd, &out->tokens_per_s, d);
    if (status == LW_OK) {
        const lw_core_counts counts = lw_core_read_counts(core);
        out->rounds = counts.rounds;
        out->rounds_ahead = counts.rounds_ahead;
    }
    lw_core_close(core);
    lw_engine_return(engine);
    return status;
}

lw_status lw_bench_streams_run(lw_engine *engine, const lw_bench_streams *what, lw_streams_result *out,
                               lw_diag *d)
{
    const size_t count = (size_t)what->streams * what->prompt;
    crowd c = { .streams = what->streams };
    int32_t *prompts = calloc(count, sizeof *prompts);
    reader *readers = calloc(what->streams, sizeof *readers);
    lw_status status = LW_OK;
    *out = (lw_streams_result){ .rounds = 0 };
    if (prompts == NULL || readers == NULL)
        status = lw_fail(d, LW_NO_ROOM, "no memory for the prompts of %u streams", what->streams);
    if (status == LW_OK) {
        lw_rng rng = lw_rng_make(what->streams);
        for (size_t i = 0; i < count; i++)
            prompts[i] = (int32_t)lw_rng_below(&rng, lw_engine_vocab(engine));
        for (uint32_t i = 0; i < what->streams; i++) readers[i].crowd = &c;
        status = core_run(engine, what, prompts, readers, out, d);
    }
    free(readers);
    free(prompts);
    return status;
}

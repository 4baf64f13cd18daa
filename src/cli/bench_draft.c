/* A device around the real one, whose draft head says what it is told; see bench_draft.h. */
#include "cli/bench_draft.h"

#include "base/clock.h"
#include "base/rng.h"
#include "lane/costs.h"

#include <stdlib.h>
#include <string.h>

const double lw_draft_shares[LW_DRAFT_ROWS] = { 0.0, 0.9, 0.7, 0.0 };

enum { PLAIN_ROW = 0 };

/* The exec of the device around: it knows what the model will draw. */
struct lw_exec {
    lw_core_device real;
    const int32_t *known; /* [known_end] by position */
    uint32_t known_end;
    double share; /* of drafts that are right */
    lw_rng rng;
    uint32_t position, steps; /* of the one chain in flight */
    int32_t tokens[LW_CHAIN_STEPS_MAX];
};

struct lw_draft_bench {
    lw_engine *engine;
    lw_exec exec;
    lw_core *core;
    int32_t *known; /* [context] prompt and reply */
    uint32_t tokens_max, prompt_count;
    /* of the reply in hand */
    bool is_plain, is_same;
    uint32_t tokens;
    uint64_t first_ns, last_ns;
    bool has_ended;
    lw_end_event end;
    lw_diag diag;
};

/* ---- the device around ---- */

static lw_status around_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                               lw_diag *d)
{
    return exec->real.table->submit(exec->real.exec, entry, batch, ticket, d);
}

static lw_status around_wait(lw_exec *exec, lw_ticket ticket, lw_diag *d)
{
    return exec->real.table->wait(exec->real.exec, ticket, d);
}

static lw_status around_read_logits(lw_exec *exec, uint32_t index, const float **logits, lw_diag *d)
{
    return exec->real.table->read_logits(exec->real.exec, index, logits, d);
}

static lw_status around_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    LW_ASSERT(chain->row_count == 1);
    exec->position = chain->rows[0].position;
    exec->steps = chain->steps[0];
    return exec->real.table->submit_chain(exec->real.exec, chain, ticket, d);
}

static lw_status around_read_chain(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d)
{
    const int32_t *drawn = NULL;
    const lw_status status = exec->real.table->read_chain(exec->real.exec, row, &drawn, d);
    for (uint32_t i = 0; status == LW_OK && i < exec->steps; i++) {
        const uint32_t at = exec->position + 1 + i;
        const int32_t right = at < exec->known_end ? exec->known[at] : drawn[i];
        const int32_t wrong = (int32_t)(((uint32_t)right + 1) % exec->real.plan->vocab);
        exec->tokens[i] = lw_rng_unit(&exec->rng) < exec->share ? right : wrong;
    }
    *tokens = exec->tokens;
    return status;
}

static lw_status around_page_copy(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d)
{
    return exec->real.table->page_copy(exec->real.exec, group, from, to, d);
}

/* What a core calls; the real device is opened and closed by its engine. */
static const lw_device_table around = {
    .name = "drafts of given luck",
    .submit = around_submit,
    .wait = around_wait,
    .read_logits = around_read_logits,
    .submit_chain = around_submit_chain,
    .read_chain = around_read_chain,
    .page_copy = around_page_copy,
};

/* ---- a reply ---- */

static bool on_token(void *context, const lw_token_event *event)
{
    lw_draft_bench *b = context;
    const uint32_t at = b->prompt_count + b->tokens++;
    b->last_ns = lw_clock_ns();
    if (b->tokens == 1) b->first_ns = b->last_ns;
    if (b->is_plain) b->known[at] = event->id;
    b->is_same = b->is_same && b->known[at] == event->id;
    return true;
}

static void on_end(void *context, const lw_end_event *event)
{
    lw_draft_bench *b = context;
    b->end = *event;
    b->has_ended = true;
    if (event->status == LW_OK) return;
    const lw_status status = lw_fail(&b->diag, event->status, "%s", event->text);
    LW_ASSERT(status != LW_OK);
}

static lw_status reply_run(lw_draft_bench *b, uint32_t row, lw_draft_result *out, lw_diag *d)
{
    const lw_request request = { .prompt = b->known,
                                 .prompt_count = b->prompt_count,
                                 .tokens_max = b->tokens_max,
                                 .ignore_end = true,
                                 .draft = row != PLAIN_ROW,
                                 .logprobs = -1,
                                 .token = on_token,
                                 .end = on_end,
                                 .context = b };
    uint64_t id = 0;
    b->is_plain = row == PLAIN_ROW;
    b->is_same = true;
    b->has_ended = false;
    b->tokens = 0;
    b->exec.share = lw_draft_shares[row];
    b->exec.rng = lw_rng_make(row);
    b->exec.known_end = b->is_plain ? 0 : b->prompt_count + b->tokens_max;
    const lw_status status = lw_core_submit(b->core, &request, &id, d);
    if (status != LW_OK) return status;
    while (!b->has_ended && lw_core_round(b->core)) continue;
    LW_ASSERT(b->has_ended);
    if (b->end.status != LW_OK) return lw_fail(d, b->end.status, "%s", b->diag.text);
    if (!b->is_same) return lw_fail(d, LW_BAD_MODEL, "drafts changed a token of the reply");
    *out = (lw_draft_result){ .tokens_per_s = (b->tokens - 1) * 1e9 / (double)(b->last_ns - b->first_ns),
                              .rounds = b->end.counts.rounds,
                              .drafted = b->end.counts.drafted,
                              .kept = b->end.counts.kept };
    return LW_OK;
}

lw_status lw_draft_bench_run(lw_draft_bench *b, const int32_t *prompt, uint32_t prompt_count,
                             lw_draft_result results[LW_DRAFT_ROWS], lw_diag *d)
{
    lw_status status = LW_OK;
    memcpy(b->known, prompt, prompt_count * sizeof *prompt);
    b->prompt_count = prompt_count;
    for (uint32_t row = 0; row < LW_DRAFT_ROWS && status == LW_OK; row++)
        status = reply_run(b, row, &results[row], d);
    return status;
}

/* ---- opening ---- */

static lw_status core_open(lw_draft_bench *b, lw_diag *d)
{
    lw_timings timings;
    const uint32_t rows_max = lw_engine_chunk_rows(b->engine), wanted_max = lw_engine_wanted_max(b->engine);
    lw_status status = lw_costs_time(&b->exec.real, rows_max, wanted_max, &timings, d);
    if (status != LW_OK) return status;
    lw_core_options options = lw_engine_core_options(b->engine);
    options.costs = timings.rounds.items;
    options.cost_count = timings.rounds.count;
    options.head_costs = timings.steps.items;
    options.head_cost_count = timings.steps.count;
    options.copy_match = 0; /* random models repeat themselves: copies would be luck of their own */
    options.cache_bytes = 0;
    lw_core_device device = b->exec.real;
    device.table = &around;
    device.exec = &b->exec;
    device.goes_ahead = false; /* every round is timed, with drafts or without */
    return lw_core_open(&device, &options, &b->core, d);
}

lw_status lw_draft_bench_open(lw_engine *engine, uint32_t tokens, lw_draft_bench **out, lw_diag *d)
{
    *out = NULL;
    LW_ASSERT(lw_engine_plan(engine)->entry_count > LW_ENTRY_HEAD && lw_engine_lanes(engine) == 1);
    lw_draft_bench *b = calloc(1, sizeof *b);
    if (b == NULL) return lw_fail(d, LW_NO_ROOM, "no memory to measure drafts");
    lw_status status = lw_engine_lend(engine, &b->exec.real, d);
    if (status != LW_OK) {
        free(b);
        return status;
    }
    b->engine = engine;
    b->tokens_max = tokens;
    b->known = calloc(lw_engine_context(engine), sizeof *b->known);
    b->exec.known = b->known;
    if (b->known == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for a reply of %u tokens", tokens);
    if (status == LW_OK) status = core_open(b, d);
    if (status == LW_OK) *out = b;
    else lw_draft_bench_close(b);
    return status;
}

void lw_draft_bench_close(lw_draft_bench *b)
{
    if (b == NULL) return;
    lw_core_close(b->core);
    lw_engine_return(b->engine);
    free(b->known);
    free(b);
}

/* Running the reference prompts; see check.h. */
#include "cli/check.h"

#include "base/float16.h"

#include <math.h>
#include <string.h>

double lw_check_distance(const float *ours, const float *reference, size_t count)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double apart = (double)ours[i] - (double)reference[i];
        difference += apart * apart;
        norm += (double)reference[i] * (double)reference[i];
    }
    return sqrt(difference) / sqrt(norm);
}

double lw_check_ratio(const lw_check *check, uint32_t plane, uint32_t prompt)
{
    const uint32_t begin = prompt < LW_CHECK_PROMPTS ? prompt : 0;
    const uint32_t end = prompt < LW_CHECK_PROMPTS ? prompt + 1 : LW_CHECK_PROMPTS;
    double distance = 0.0, gap = 0.0;
    for (uint32_t j = begin; j < end; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        const size_t first = (size_t)plane * p->row_count;
        for (uint32_t i = 0; i < p->row_count; i++) {
            distance += check->distance[j][first + i];
            gap += (double)p->gap[first + i];
        }
    }
    return distance / gap;
}

lw_status lw_check_make(lw_check *check, lw_diag *d)
{
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const size_t count = ((size_t)check->ref.layer_count + 1) * check->ref.prompts[j].row_count;
        check->distance[j] = lw_arena_take_array(&check->arena, count, sizeof *check->distance[j]);
        if (check->distance[j] == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %zu distances", count);
        for (size_t i = 0; i < count; i++) check->distance[j][i] = (double)NAN;
    }
    return LW_OK;
}

/* The index of a stored row by its position; false if it is not stored. */
static bool stored_row(const lw_check_prompt *prompt, uint32_t position, uint32_t *index)
{
    for (uint32_t i = 0; i < prompt->row_count; i++) {
        if (prompt->rows[i] != (int32_t)position) continue;
        *index = i;
        return true;
    }
    return false;
}

/* 0 for the embedding, 1 + N for the residual stream after layer N; false for other values. */
static bool plane_of(const lw_check *check, const lw_op *op, const lw_value *value, uint32_t *plane)
{
    if (value->width != check->ref.width || op->kind == LW_OP_TAKE_WANTED)
        return false;
    *plane = 0;
    if (op->kind == LW_OP_EMBED) return true;
    if (strncmp(value->name, "layer.", 6) != 0 || value->name[6] == '\0') return false;
    uint32_t layer = 0;
    for (const char *digit = value->name + 6; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9' || layer > LW_LIMIT_LAYERS) return false;
        layer = layer * 10 + (uint32_t)(*digit - '0');
    }
    *plane = layer + 1;
    return layer < check->ref.layer_count;
}

static bool embed_is_right(const float *ours, const float *reference, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++) {
        const float rounded = lw_float_of_bf16(lw_bf16_of_float(reference[i]));
        if (lw_bits_of_float(ours[i]) != lw_bits_of_float(rounded)) return false;
    }
    return true;
}

static void on_row(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values)
{
    lw_check *check = context;
    const lw_check_prompt *prompt = check->prompt;
    uint32_t plane, index;
    if (prompt == NULL || !plane_of(check, op, value, &plane)) return;
    if (!stored_row(prompt, check->first + row, &index)) return;
    const size_t at = (size_t)plane * prompt->row_count + index;
    const float *reference = prompt->hidden + at * check->ref.width;
    check->prompt_distance[at] = lw_check_distance(values, reference, check->ref.width);
    if (plane != 0) return;
    check->embed_rows++;
    check->embed_rows_wrong += !embed_is_right(values, reference, check->ref.width);
}

lw_trace lw_check_trace(lw_check *check)
{
    return (lw_trace){ .row = on_row, .context = check };
}

/* Ties go to the lowest id. A NaN is never above, so a broken row has top 0 or whatever finite value leads.
 */
static uint32_t top_of(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

/* How far logits[top] lies above all others. */
static double lead_of(const float *logits, uint32_t count, uint32_t top)
{
    double second = -(double)INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (i != top && (double)logits[i] > second) second = (double)logits[i];
    }
    return (double)logits[top] - second;
}

static void tops_count(lw_check_tops *tops, bool is_same, double margin)
{
    if (is_same) tops->same++;
    else if (margin > LW_CHECK_MARGIN) tops->wrong++;
    else tops->near_ties++;
}

/* Compares the logits of a stored row with the reference's. */
static void compare_logits(lw_check *check, const float *ours, const float *reference)
{
    const uint32_t vocab = check->ref.vocab;
    const double distance = lw_check_distance(ours, reference, vocab);
    check->logit_rows++;
    check->logit_distance_sum += distance;
    if (!(distance <= check->logit_distance_max)) check->logit_distance_max = distance;
    const uint32_t top = top_of(reference, vocab);
    tops_count(&check->tops, top_of(ours, vocab) == top, lead_of(reference, vocab, top));
}

/* Looks at the logits of one forward of count rows from check->first on: those of stored rows, and from the
 * prompt's last row on those that choose greedy tokens. */
static lw_status read_rows(lw_check *check, const lw_check_prompt *p, lw_stream *stream, uint32_t count,
                           lw_diag *d)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t position = check->first + i;
        const uint32_t logit_first = p->row_count - p->logit_row_count;
        uint32_t index = 0;
        const bool is_stored = stored_row(p, position, &index) && index >= logit_first;
        const bool is_greedy = position + 1 >= p->id_count && position + 1 - p->id_count < p->greedy_count;
        if (!is_stored && !is_greedy) continue;
        const float *logits = NULL;
        const lw_status status = lw_stream_logits(stream, i, &logits, d);
        if (status != LW_OK) return status;
        if (is_stored)
            compare_logits(check, logits, p->logits + (size_t)(index - logit_first) * check->ref.vocab);
        if (!is_greedy) continue;
        const uint32_t step = position + 1 - p->id_count;
        const bool is_same = (int32_t)top_of(logits, check->ref.vocab) == p->greedy[step];
        tops_count(&check->greedy, is_same, (double)p->margin[step]);
    }
    return LW_OK;
}

/* Runs ids from where the stream stands, in forwards of at most the engine's rows. */
static lw_status run_ids(lw_check *check, const lw_check_prompt *p, lw_stream *stream, const int32_t *ids,
                         uint32_t count, uint32_t chunk, lw_diag *d)
{
    for (uint32_t done = 0; done < count;) {
        const uint32_t rows = count - done < chunk ? count - done : chunk;
        check->first = lw_stream_committed(stream);
        lw_status status = lw_stream_forward(stream, ids + done, rows, LW_WANTED_ALL, d);
        if (status == LW_OK) status = read_rows(check, p, stream, rows, d);
        if (status != LW_OK) return status;
        lw_stream_commit(stream, rows);
        done += rows;
    }
    return LW_OK;
}

lw_status lw_check_run(lw_check *check, lw_engine *engine, lw_stream *stream, lw_progress_line *line,
                       lw_diag *d)
{
    const uint32_t chunk = lw_engine_chunk_rows(engine);
    if (lw_engine_vocab(engine) != check->ref.vocab) {
        return lw_fail(d, LW_BAD_MODEL, "the model has %u logits and its references %u",
                       lw_engine_vocab(engine), check->ref.vocab);
    }
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        lw_progress_line_step(line, j, LW_CHECK_PROMPTS);
        lw_stream_reset(stream);
        check->prompt = p;
        check->prompt_distance = check->distance[j];
        lw_status status = run_ids(check, p, stream, p->ids, p->id_count, chunk, d);
        /* The reference's own tokens are fed: one flipped near-tie must not end the comparison. */
        if (status == LW_OK) status = run_ids(check, p, stream, p->greedy, p->greedy_count - 1, chunk, d);
        if (status != LW_OK) return lw_fail_prefix(d, status, "prompt p%u", j);
    }
    lw_progress_line_clear(line);
    return LW_OK;
}

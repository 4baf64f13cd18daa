/* Running the reference prompts; see check.h. */
#include "cli/check.h"

#include "base/float16.h"

#include <math.h>
#include <stdlib.h>
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

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double lw_check_median(double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(values[i])) return (double)NAN;
    }
    if (count == 0) return (double)NAN;
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2.0;
}

/* The mean, or the median where rows choose experts. */
static double typical(const lw_check *check, size_t count)
{
    double sum = 0.0;
    if (check->has_experts) return lw_check_median(check->sorted, count);
    for (size_t i = 0; i < count; i++) sum += check->sorted[i];
    return sum / (double)count;
}

/* Half open: one prompt, or all of them. */
typedef struct prompts {
    uint32_t begin, end;
} prompts;

static prompts prompts_of(uint32_t prompt)
{
    if (prompt < LW_CHECK_PROMPTS) return (prompts){ prompt, prompt + 1 };
    return (prompts){ 0, LW_CHECK_PROMPTS };
}

static double typical_gap(const lw_check *check, uint32_t plane, prompts in)
{
    size_t count = 0;
    for (uint32_t j = in.begin; j < in.end; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        const float *gap = p->gap + (size_t)plane * p->row_count;
        for (uint32_t i = 0; i < p->row_count; i++) check->sorted[count++] = (double)gap[i];
    }
    return typical(check, count);
}

double lw_check_ratio(const lw_check *check, uint32_t plane, uint32_t prompt)
{
    const prompts in = prompts_of(prompt);
    size_t count = 0;
    for (uint32_t j = in.begin; j < in.end; j++) {
        const uint32_t rows = check->ref.prompts[j].row_count;
        const double *distance = check->distance[j] + (size_t)plane * rows;
        for (uint32_t i = 0; i < rows; i++) check->sorted[count++] = distance[i];
    }
    const double distance = typical(check, count);
    return distance / typical_gap(check, plane, in);
}

double lw_check_draft_ratio(const lw_check *check, uint32_t prompt)
{
    const prompts in = prompts_of(prompt);
    size_t count = 0;
    for (uint32_t j = in.begin; j < in.end; j++) {
        const uint32_t rows = check->ref.prompts[j].draft_row_count;
        for (uint32_t i = 0; i < rows; i++) check->sorted[count++] = check->head.distance[j][i];
    }
    const double distance = typical(check, count);
    return distance / typical_gap(check, check->ref.layer_count, in);
}

static double *distances_take(lw_check *check, size_t count)
{
    double *distance = lw_arena_take_array(&check->arena, count, sizeof *distance);
    for (size_t i = 0; distance != NULL && i < count; i++) distance[i] = (double)NAN;
    return distance;
}

lw_status lw_check_make(lw_check *check, lw_diag *d)
{
    size_t rows = 0;
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        check->distance[j] = distances_take(check, ((size_t)check->ref.layer_count + 1) * p->row_count);
        check->head.distance[j] = distances_take(check, p->draft_row_count);
        if (check->distance[j] == NULL || check->head.distance[j] == NULL)
            return lw_fail(d, LW_NO_ROOM, "no memory for the distances of %u rows", p->row_count);
        rows += (size_t)p->row_count + p->draft_row_count;
    }
    check->sorted = distances_take(check, rows);
    return check->sorted != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory to sort %zu rows", rows);
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

/* A stored row of the forward. */
static void layer_row(lw_check *check, uint32_t plane, uint32_t index, const float *values)
{
    const lw_check_prompt *prompt = &check->ref.prompts[check->prompt];
    const size_t at = (size_t)plane * prompt->row_count + index;
    const float *reference = prompt->hidden + at * check->ref.width;
    check->distance[check->prompt][at] = lw_check_distance(values, reference, check->ref.width);
    if (plane != 0) return;
    check->embed_rows++;
    check->embed_rows_wrong += !embed_is_right(values, reference, check->ref.width);
}

/* The head's row at a position is the reference's draft row before it: it takes the token at the position and
 * the hidden row before that. */
static bool draft_row(const lw_check_prompt *prompt, uint32_t position, uint32_t *row)
{
    if (position == 0 || position >= prompt->id_count) return false;
    *row = position - 1;
    return true;
}

/* An output of the head; the last ones are stored. */
static void head_row(lw_check *check, uint32_t position, const float *values)
{
    const lw_check_prompt *prompt = &check->ref.prompts[check->prompt];
    uint32_t row;
    if (!draft_row(prompt, position, &row)) return;
    const uint32_t unstored = prompt->id_count - 1 - prompt->draft_row_count;
    if (row < unstored) return;
    const float *reference = prompt->draft_hidden + (size_t)(row - unstored) * check->ref.width;
    check->head.distance[check->prompt][row - unstored] =
        lw_check_distance(values, reference, check->ref.width);
}

static void on_row(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values)
{
    lw_check *check = context;
    const uint32_t position = check->first + row;
    uint32_t plane, index;
    if (check->pass == LW_CHECK_HEAD) {
        if (strcmp(value->name, "head") == 0 && value->width == check->ref.width)
            head_row(check, position, values);
        return;
    }
    if (check->pass != LW_CHECK_FORWARD) return;
    if (!stored_row(&check->ref.prompts[check->prompt], position, &index)) return;
    if (plane_of(check, op, value, &plane)) layer_row(check, plane, index, values);
    lw_check_experts_row(check, op, index, values);
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

static void tops_count(lw_check_tops *tops, bool is_same, double lead)
{
    if (is_same) tops->same++;
    else if (lead <= LW_CHECK_MARGIN) tops->near_ties++;
    else tops->wrong++;
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
static lw_status read_rows(lw_check *check, lw_stream *stream, uint32_t count, lw_diag *d)
{
    const lw_check_prompt *p = &check->ref.prompts[check->prompt];
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

/* Whether a position's row is known to have the reference's experts, or needs none. */
static bool has_their_experts(const lw_check *check, uint32_t position)
{
    uint32_t index;
    if (!check->has_experts) return true;
    return check->router_count > 0 &&
           stored_row(&check->ref.prompts[check->prompt], position, &index) &&
           lw_check_is_unflipped(check, check->router_count, check->prompt, index);
}

/* The same for the head: the lead of another draft is ours over the reference's. */
static lw_status read_drafts(lw_check *check, lw_stream *stream, uint32_t count, lw_diag *d)
{
    const lw_check_prompt *p = &check->ref.prompts[check->prompt];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row;
        if (!draft_row(p, check->first + i, &row)) continue;
        const float *logits = NULL;
        const lw_status status = lw_stream_logits(stream, i, &logits, d);
        if (status != LW_OK) return status;
        const uint32_t top = top_of(logits, check->ref.vocab), theirs = (uint32_t)p->drafts[row];
        const double lead = (double)logits[top] - (double)logits[theirs];
        if (!(lead <= LW_CHECK_MARGIN) && !has_their_experts(check, row)) check->head.unjudged++;
        else tops_count(&check->head.drafts, top == theirs, lead);
    }
    return LW_OK;
}

/* The head over rows that the forward just computed, and the forward again: the head left its own rows where
 * the hidden ones were. */
static lw_status run_head(lw_check *check, lw_stream *stream, const int32_t *ids, uint32_t rows, lw_diag *d)
{
    check->pass = LW_CHECK_HEAD;
    lw_status status = lw_stream_forward_entry(stream, LW_ENTRY_HEAD, ids, rows, LW_WANTED_ALL, d);
    check->pass = LW_CHECK_UNSEEN;
    if (status == LW_OK) status = read_drafts(check, stream, rows, d);
    if (status == LW_OK) status = lw_stream_forward(stream, ids, rows, LW_WANTED_NONE, d);
    return status;
}

/* Runs ids from where the stream stands, in forwards of at most chunk rows. */
static lw_status run_ids(lw_check *check, lw_stream *stream, const int32_t *ids, uint32_t count,
                         uint32_t chunk, lw_diag *d)
{
    for (uint32_t done = 0; done < count;) {
        const uint32_t rows = count - done < chunk ? count - done : chunk;
        check->first = lw_stream_committed(stream);
        check->pass = LW_CHECK_FORWARD;
        lw_status status = lw_stream_forward(stream, ids + done, rows, LW_WANTED_ALL, d);
        check->pass = LW_CHECK_UNSEEN;
        if (status == LW_OK) status = read_rows(check, stream, rows, d);
        if (status == LW_OK && check->head.is_there && ids == check->ref.prompts[check->prompt].ids)
            status = run_head(check, stream, ids + done, rows, d);
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
    const bool has_head = lw_engine_plan(engine)->entry_count > LW_ENTRY_HEAD;
    check->head.is_there = has_head && check->ref.has_drafts;
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        const lw_check_prompt *p = &check->ref.prompts[j];
        lw_progress_line_step(line, j, LW_CHECK_PROMPTS);
        lw_stream_reset(stream);
        check->prompt = j;
        lw_status status = run_ids(check, stream, p->ids, p->id_count, chunk, d);
        /* The reference's own tokens are fed: one flipped near-tie must not end the comparison. */
        if (status == LW_OK) status = run_ids(check, stream, p->greedy, p->greedy_count - 1, chunk, d);
        if (status != LW_OK) return lw_fail_prefix(d, status, "prompt p%u", j);
    }
    lw_progress_line_clear(line);
    return LW_OK;
}

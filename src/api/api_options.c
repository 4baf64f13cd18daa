/* The range of every option, in one place; what is refused is named. */
#include "api/api.h"

#include "base/limits.h"
#include "base/pool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Copies a struct that begins with its own byte count. What the caller's version lacks keeps its value in
 * out; what this version lacks has to be zero. */
static lw_result struct_copy(const void *from, void *out, size_t bytes, lw_error *error)
{
    uint32_t theirs;
    memcpy(&theirs, from, sizeof theirs);
    if (theirs < sizeof theirs)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "struct_bytes",
                            "struct_bytes is %u; set it to sizeof the options", theirs);
    for (size_t i = bytes; i < theirs; i++) {
        if (((const unsigned char *)from)[i] != 0)
            return lw__api_fail(error, LW_RESULT_UNSUPPORTED, "struct_bytes",
                                "an option is set that version %s does not know", LW_VERSION);
    }
    memcpy(out, from, theirs < bytes ? theirs : bytes);
    return LW_RESULT_OK;
}

typedef struct whole_range {
    const char *field;
    uint64_t value, max;
} whole_range;

static lw_result wholes_check(const whole_range *ranges, size_t count, lw_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].value > ranges[i].max)
            return lw__api_fail(error, LW_RESULT_BAD_INPUT, ranges[i].field,
                                "%s is %" PRIu64 "; at most %" PRIu64 " is served", ranges[i].field,
                                ranges[i].value, ranges[i].max);
    }
    return LW_RESULT_OK;
}

void lw_model_options_init(lw_model_options *options)
{
    *options = (lw_model_options){ .struct_bytes = sizeof *options, .cache_bytes = -1, .mtp_drafts = -1 };
}

lw_result lw__api_model_options(const lw_model_options *options, lw_model_options *out, lw_error *error)
{
    lw_model_options_init(out);
    const lw_result result = options == NULL ? LW_RESULT_OK : struct_copy(options, out, sizeof *out, error);
    if (result != LW_RESULT_OK) return result;
    const whole_range ranges[] = {
        { "threads", out->threads, LW_POOL_THREADS_MAX },
        { "lanes", out->lanes, LW__API_LANES_MAX },
        { "context", out->context, LW_LIMIT_CONTEXT },
        { "chunk_rows", out->chunk_rows, LW__API_CHUNK_ROWS_MAX },
        { "queue", out->queue, LW__API_QUEUE_MAX },
        { "round_ms", out->round_ms, LW__API_ROUND_MS_MAX },
        { "drafts_max", out->drafts_max, LW__API_DRAFTS_MAX },
        { "mtp_drafts", out->mtp_drafts < 0 ? 0 : (uint64_t)out->mtp_drafts, LW__API_MTP_DRAFTS_MAX },
        { "draft_match", out->draft_match, LW__API_DRAFT_MATCH_MAX },
    };
    if (out->draft_match == 1 || out->draft_match == 2)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "draft_match",
                            "draft_match is %u; it must be at least 3", out->draft_match);
    if (out->mtp_drafts < 0) out->mtp_drafts = LW__API_MTP_DRAFTS_USUAL;
    if (out->drafts_max == 0) out->drafts_max = LW__API_DRAFTS_USUAL;
    return wholes_check(ranges, sizeof ranges / sizeof ranges[0], error);
}

typedef struct real_range {
    const char *field;
    double value, min, max;
    bool min_is_out;       /* the least value itself is refused */
} real_range;

/* Written so that NaN fails. */
static bool is_inside(const real_range *range)
{
    if (!(range->value >= range->min && range->value <= range->max)) return false;
    return !(range->min_is_out && range->value <= range->min);
}

static lw_result sampling_check(const lw_sampling_options *s, lw_error *error)
{
    const real_range ranges[] = {
        { "temperature", s->temperature, 0, 100, false },
        { "top_p", s->top_p, 0, 1, true },
        { "min_p", s->min_p, 0, 1, false },
        { "repetition_penalty", s->repetition_penalty, 0, 10, true },
        { "presence_penalty", s->presence_penalty, -2, 2, false },
        { "frequency_penalty", s->frequency_penalty, -2, 2, false },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!is_inside(&ranges[i]))
            return lw__api_fail(error, LW_RESULT_BAD_INPUT, ranges[i].field,
                                "%s is %g; it must be %s %g and at most %g", ranges[i].field, ranges[i].value,
                                ranges[i].min_is_out ? "above" : "at least", ranges[i].min, ranges[i].max);
    }
    return LW_RESULT_OK;
}

static lw_result biases_check(const lw_model *model, const lw_request_options *options, lw_error *error)
{
    if (options->bias_count > LW__API_BIASES_MAX)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "logit_bias", "logit_bias has %zu tokens; at most %d",
                            options->bias_count, LW__API_BIASES_MAX);
    for (size_t i = 0; i < options->bias_count; i++) {
        const lw_token_bias *bias = &options->biases[i];
        if (bias->id < 0 || (uint32_t)bias->id >= model->facts.vocab)
            return lw__api_fail(error, LW_RESULT_BAD_INPUT, "logit_bias",
                                "logit_bias names token %d; the vocabulary has %u", bias->id,
                                model->facts.vocab);
        const bool forbids = isinf(bias->bias) && bias->bias < 0;
        if (!forbids && !(bias->bias >= -100.0f && bias->bias <= 100.0f))
            return lw__api_fail(error, LW_RESULT_BAD_INPUT, "logit_bias",
                                "logit_bias of token %d is %g; it must be from -100 to 100", bias->id,
                                (double)bias->bias);
    }
    return LW_RESULT_OK;
}

void lw_request_options_init(const lw_model *model, lw_request_options *options)
{
    *options = (lw_request_options){
        .struct_bytes = sizeof *options,
        .sampling = model->facts.sampling,
        .tokens_max = -1,
        .top_logprobs = -1,
    };
}

lw_result lw__api_request_options(const lw_model *model, const lw_request_options *options,
                                  lw_request_options *out, lw_error *error)
{
    lw_request_options_init(model, out);
    if (options == NULL) return LW_RESULT_OK;
    lw_result result = struct_copy(options, out, sizeof *out, error);
    if (result == LW_RESULT_OK) result = sampling_check(&out->sampling, error);
    if (result == LW_RESULT_OK) result = biases_check(model, out, error);
    if (result != LW_RESULT_OK) return result;
    if (out->has_seed && out->seed > INT64_MAX)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "seed", "seed is %" PRIu64 "; it must be below 2^63",
                            out->seed);
    if (out->top_logprobs < -1 || out->top_logprobs > LW__API_LOGPROBS_MAX)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "top_logprobs",
                            "top_logprobs is %d; it must be from 0 to %d, or -1 for none", out->top_logprobs,
                            LW__API_LOGPROBS_MAX);
    return LW_RESULT_OK;
}

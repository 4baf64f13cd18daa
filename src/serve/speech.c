/* Text of a reply; see speech.h. */
#include "serve/speech.h"

#include <string.h>

lw_result lw_speech_open(lw_speech *speech, const lw_model *model, const lw_speech_options *options)
{
    lw_model_facts facts;
    lw_model_read_facts(model, &facts);
    *speech = (lw_speech){ .model = model,
                           .think_open = facts.think_open,
                           .think_close = facts.think_close,
                           .splits = options->splits,
                           .reasoning = lw_reasoning_make(options->is_inside && options->splits) };
    lw_stops_init(&speech->stops, options->stops, options->stop_count);
    lw_buf_init(&speech->text, 0);
    return lw_text_reader_open(model, false, &speech->reader);
}

void lw_speech_close(lw_speech *speech)
{
    lw_stops_deinit(&speech->stops);
    lw_buf_deinit(&speech->text);
    if (speech->reader != NULL) lw_text_reader_close(speech->reader);
    *speech = (lw_speech){ .reader = NULL };
}

/* Text that no stop string holds any more, into its channel. */
static lw_status speak(lw_speech *speech, const char *bytes, size_t count, lw_spoken *spoken)
{
    if (!speech->splits) return lw_buf_append(&spoken->content, bytes, count);
    const bool is_reasoning = lw_reasoning_channel(&speech->reasoning) == LW_CHANNEL_REASONING;
    return lw_reasoning_text(&speech->reasoning, bytes, count,
                             is_reasoning ? &spoken->reasoning : &spoken->content);
}

static lw_status push(lw_speech *speech, const char *bytes, size_t count, lw_spoken *spoken)
{
    lw_buf_clear(&speech->text);
    const lw_status status = lw_stops_push(&speech->stops, bytes, count, &speech->text);
    if (status != LW_OK || speech->text.count == 0) return status;
    return speak(speech, speech->text.bytes, speech->text.count, spoken);
}

static lw_status flush_stops(lw_speech *speech, lw_spoken *spoken)
{
    lw_buf_clear(&speech->text);
    const lw_status status = lw_stops_flush(&speech->stops, &speech->text);
    if (status != LW_OK || speech->text.count == 0) return status;
    return speak(speech, speech->text.bytes, speech->text.count, spoken);
}

/* The bytes of an unfinished code point come out as they must before a tag. */
static lw_status finish_reader(lw_speech *speech, lw_spoken *spoken)
{
    size_t count;
    const char *bytes = lw_text_reader_finish(speech->reader, &count);
    return push(speech, bytes, count, spoken);
}

/* The tag is text for the stop strings, so that one may name it; unless one ends in it, it moves the channel
 * and is not spoken. */
static lw_result push_tag(lw_speech *speech, const char *tag, bool is_open, lw_spoken *spoken)
{
    const size_t count = strlen(tag);
    if (finish_reader(speech, spoken) != LW_OK) return LW_RESULT_NO_ROOM;
    lw_text_reader_close(speech->reader);
    const lw_result result = lw_text_reader_open(speech->model, false, &speech->reader);
    if (result != LW_RESULT_OK || speech->stops.is_stopped) return result;

    lw_buf_clear(&speech->text);
    lw_status status = lw_stops_push(&speech->stops, tag, count, &speech->text);
    if (status == LW_OK) status = lw_stops_flush(&speech->stops, &speech->text);
    if (status != LW_OK) return LW_RESULT_NO_ROOM;
    const size_t before = speech->stops.is_stopped ? speech->text.count : speech->text.count - count;
    if (before > 0) status = speak(speech, speech->text.bytes, before, spoken);
    if (status != LW_OK) return LW_RESULT_NO_ROOM;
    if (speech->stops.is_stopped) return LW_RESULT_OK;
    const bool moved = speech->splits && (is_open ? lw_reasoning_open(&speech->reasoning)
                                                  : lw_reasoning_close(&speech->reasoning));
    if (!moved) status = speak(speech, tag, count, spoken);
    return status == LW_OK ? LW_RESULT_OK : LW_RESULT_NO_ROOM;
}

static bool is_tag(const lw_speech *speech, int32_t id, const char *tag)
{
    if (tag == NULL) return false;
    size_t count;
    const char *bytes = lw_text_of_id(speech->model, id, &count);
    return bytes != NULL && count == strlen(tag) && memcmp(bytes, tag, count) == 0;
}

lw_result lw_speech_token(lw_speech *speech, int32_t id, lw_spoken *spoken)
{
    const bool was_inside = speech->reasoning.state == LW_REASONING_INSIDE;
    lw_result result = LW_RESULT_OK;
    if (is_tag(speech, id, speech->think_open)) {
        result = push_tag(speech, speech->think_open, true, spoken);
    } else if (is_tag(speech, id, speech->think_close)) {
        result = push_tag(speech, speech->think_close, false, spoken);
    } else {
        size_t count;
        const char *bytes = lw_text_reader_push(speech->reader, id, &count);
        if (push(speech, bytes, count, spoken) != LW_OK) result = LW_RESULT_NO_ROOM;
    }
    speech->reasoning_tokens += was_inside || speech->reasoning.state == LW_REASONING_INSIDE;
    speech->tokens++;
    if (!speech->stops.is_stopped && speech->stops.held.count == 0) speech->tokens_free = speech->tokens;
    return result;
}

lw_result lw_speech_finish(lw_speech *speech, lw_spoken *spoken)
{
    if (speech->stops.is_stopped) return LW_RESULT_OK;
    if (finish_reader(speech, spoken) != LW_OK) return LW_RESULT_NO_ROOM;
    return flush_stops(speech, spoken) == LW_OK ? LW_RESULT_OK : LW_RESULT_NO_ROOM;
}

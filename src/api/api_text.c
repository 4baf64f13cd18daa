/* Ids to text. A reader's memory is taken when it is opened, so that pushing cannot fail. */
#include "api/api.h"

#include <stdlib.h>

struct lw_text_reader {
    const lw_tokenizer *tokenizer;
    lw_detokenizer detokenizer;
    lw_buf text;
};

lw_result lw_text_reader_open(const lw_model *model, bool show_specials, lw_text_reader **out)
{
    *out = NULL;
    lw_text_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return LW_RESULT_NO_ROOM;
    *reader = (lw_text_reader){ .tokenizer = model->tokenizer };
    reader->detokenizer.show_specials = show_specials;
    /* Each ill-formed byte becomes a U+FFFD of three, and up to four bytes wait from earlier ids. */
    lw_buf_init(&reader->text, 0);
    if (lw_buf_reserve(&reader->text,
                       3 * ((size_t)model->token_bytes_max + sizeof reader->detokenizer.pending)) != LW_OK) {
        lw_text_reader_close(reader);
        return LW_RESULT_NO_ROOM;
    }
    *out = reader;
    return LW_RESULT_OK;
}

void lw_text_reader_close(lw_text_reader *reader)
{
    if (reader == NULL) return;
    lw_buf_deinit(&reader->text);
    free(reader);
}

static const char *reader_text(const lw_text_reader *reader, lw_status status, size_t *count)
{
    LW_ASSERT(status == LW_OK);
    *count = reader->text.count;
    return reader->text.count > 0 ? reader->text.bytes : "";
}

const char *lw_text_reader_push(lw_text_reader *reader, int32_t id, size_t *count)
{
    lw_buf_clear(&reader->text);
    const lw_status status = lw_detokenizer_push(&reader->detokenizer, reader->tokenizer, id, &reader->text);
    return reader_text(reader, status, count);
}

const char *lw_text_reader_finish(lw_text_reader *reader, size_t *count)
{
    lw_buf_clear(&reader->text);
    const lw_status status = lw_detokenizer_finish(&reader->detokenizer, &reader->text);
    return reader_text(reader, status, count);
}

const char *lw_text_of_id(const lw_model *model, int32_t id, size_t *count)
{
    const lw_text text = lw_tokenizer_bytes(model->tokenizer, id);
    *count = text.count;
    return text.count > 0 ? text.bytes : "";
}

bool lw_text_is_special(const lw_model *model, int32_t id)
{
    return lw_tokenizer_is_special(model->tokenizer, id);
}

/* libFuzzer entry for tokenizer files and the texts that they encode: the input is the JSON, a NUL, one byte
 * of options, and the text. Beside the sanitizers' checks: an encoding is the same the second time (from the
 * cache), and decoding in steps gives valid UTF-8.
 */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

static void check(bool condition)
{
    if (!condition) abort();
}

static void decode(const lw_tokenizer *tokenizer, const lw_ids *ids)
{
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_detokenizer detokenizer = { .show_specials = true };
    lw_status status = LW_OK;
    for (size_t i = 0; i < ids->count && status == LW_OK; i++) {
        check(ids->ids[i] >= 0 && (uint32_t)ids->ids[i] < lw_tokenizer_id_count(tokenizer));
        status = lw_detokenizer_push(&detokenizer, tokenizer, ids->ids[i], &text);
    }
    if (status == LW_OK) status = lw_detokenizer_finish(&detokenizer, &text);
    check(status != LW_OK || detokenizer.pending_count == 0);
    lw_buf_deinit(&text);
}

static void encode(const lw_tokenizer *tokenizer, const uint8_t *bytes, size_t count, uint8_t flags)
{
    lw_token_scratch *scratch;
    lw_diag d;
    if (lw_token_scratch_make(tokenizer, &scratch, &d) != LW_OK) return;
    uint8_t *origins = malloc(count + 1);
    for (size_t i = 0; origins != NULL && i < count; i++) origins[i] = (bytes[i] >> (flags >> 5)) & 1;
    const lw_text text = {
        .bytes = (const char *)bytes, .count = count, .origins = (flags & 8) != 0 ? origins : NULL,
    };
    const lw_encode_options options = { .specials = (lw_specials)(flags % 3),
                                        .post_process = (flags & 4) != 0 };
    lw_ids first = { .ids = NULL }, second = { .ids = NULL };
    const lw_status status = lw_tokenizer_encode(tokenizer, scratch, text, &options, &first, &d);
    check(status == lw_tokenizer_encode(tokenizer, scratch, text, &options, &second, &d));
    check(first.count == second.count);
    check(first.count == 0 || memcmp(first.ids, second.ids, first.count * sizeof *first.ids) == 0);
    decode(tokenizer, &first);
    lw_ids_deinit(&first);
    lw_ids_deinit(&second);
    free(origins);
    lw_token_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    const uint8_t *nul = count == 0 ? NULL : memchr(data, 0, count);
    const size_t json_count = nul == NULL ? count : (size_t)(nul - data);
    lw_tokenizer *tokenizer;
    lw_diag d;
    if (lw_tokenizer_parse((const char *)data, json_count, "fuzz", &tokenizer, &d) != LW_OK) return 0;
    if (nul != NULL && count - json_count > 2) encode(tokenizer, nul + 2, count - json_count - 2, nul[1]);
    lw_tokenizer_close(tokenizer);
    return 0;
}

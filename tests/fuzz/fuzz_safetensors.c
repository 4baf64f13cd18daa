/* Any bytes as a safetensors file, once as they are and once as the header of a file whose length is right,
 * so that mutations reach the header's grammar. Every byte of every accepted tensor is read.
 */
#include "model/checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

static void parse_and_read(const uint8_t *bytes, size_t count)
{
    lw_safetensors *file;
    lw_diag d;
    if (lw_safetensors_parse(bytes, count, "fuzz", &file, &d) != LW_OK) {
        LW_ASSERT(file == NULL && strnlen(d.text, sizeof d.text) < sizeof d.text);
        return;
    }
    unsigned sum = 0;
    for (size_t i = 0; i < lw_safetensors_count(file); i++) {
        const lw_tensor *tensor = lw_safetensors_tensor(file, i);
        char shape[64];
        LW_ASSERT(lw_safetensors_find(file, tensor->name) == tensor);
        for (size_t b = 0; b < tensor->byte_count; b++) sum += tensor->bytes[b];
        lw_tensor_shape(tensor, shape, sizeof shape);
    }
    LW_ASSERT(lw_safetensors_count(file) > 0 || sum == 0);
    lw_safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    enum { DATA_BYTES = 64 };
    const uint64_t header_bytes = count;
    parse_and_read(data, count);
    uint8_t *whole = malloc(8 + count + DATA_BYTES);
    if (whole == NULL) return 0;
    memcpy(whole, &header_bytes, 8);
    if (count > 0) memcpy(whole + 8, data, count);
    memset(whole + 8 + count, 0, DATA_BYTES);
    parse_and_read(whole, 8 + count + DATA_BYTES);
    free(whole);
    return 0;
}

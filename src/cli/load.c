/* Opening models for the verbs; see load.h. */
#include "cli/load.h"

#include "base/pool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK_ROWS_MAX = 8192 };

size_t lw_load_options_table(lw_load_options *load, lw_option table[LW_LOAD_OPTIONS_COUNT])
{
    const lw_option options[LW_LOAD_OPTIONS_COUNT] = {
        { .name = "threads",
          .value = "N",
          .u32 = &load->threads,
          .min = 1,
          .max = LW_POOL_THREADS_MAX,
          .help = "threads that compute; default: one for each fast core" },
        { .name = "isa",
          .value = "X",
          .text = &load->isa,
          .choices = "generic|avx2|avx512|avx512f|avx512vnni|avx512bf16|avx512amx",
          .help = "instruction set; default: the best" },
        { .name = "device",
          .value = "NAME",
          .text = &load->device,
          .help = "what computes, as `lanewise devices` names it; default: cpu" },
        { .name = "context",
          .value = "N",
          .u32 = &load->context,
          .min = 1,
          .max = LW_LIMIT_CONTEXT,
          .help = "tokens of prompt and reply; default: the model's, at most 32768" },
        { .name = "chunk",
          .value = "N",
          .u32 = &load->chunk,
          .min = 1,
          .max = CHUNK_ROWS_MAX,
          .help = "prompt rows computed together; changes speed, never the reply" },
        { .name = "act-int8",
          .flag = &load->act_int8,
          .help = "activations enter linears in int8: faster prompts, and other replies" },
        { .name = "kv-int8",
          .flag = &load->kv_int8,
          .help = "keep keys and values in int8: half the memory a token, and other replies" },
    };
    memcpy(table, options, sizeof options);
    return LW_LOAD_OPTIONS_COUNT;
}

lw_device_options lw_load_device_options(const lw_load_options *load, const lw_term *term)
{
    return (lw_device_options){ .threads = load->threads, .isa = load->isa, .ze_loader = term->ze_loader,
                                .xpu_kernels = term->xpu_kernels, .xpu_images = term->xpu_images,
                                .without = term->without };
}

lw_status lw_path_join(char text[LW_PATH_BYTES], const char *dir, const char *file, lw_diag *d)
{
    const int count = snprintf(text, LW_PATH_BYTES, "%s/%s", dir, file);
    if (count < 0 || count >= LW_PATH_BYTES)
        return lw_fail(d, LW_NO_ROOM, "the path of %s is too long", file);
    return LW_OK;
}

lw_status lw_load_checkpoint(lw_loaded *loaded, const char *dir, lw_diag *d)
{
    struct stat place;
    if (stat(dir, &place) != 0)
        return lw_fail(d, LW_NOT_FOUND,
                       "model %s: %s; a model is a folder with config.json and *.safetensors", dir,
                       strerror(errno));
    if (!S_ISDIR(place.st_mode))
        return lw_fail(d, LW_BAD_INPUT,
                       "model %s is a file; give the folder that holds config.json and *.safetensors", dir);
    return lw_checkpoint_open(dir, &loaded->checkpoint, d);
}

lw_status lw_load_tokenizer(lw_loaded *loaded, lw_diag *d)
{
    char path[LW_PATH_BYTES];
    lw_status status = lw_family_end_ids(loaded->checkpoint, loaded->end_ids, &loaded->end_id_count, d);
    if (status == LW_OK)
        status = lw_path_join(path, lw_checkpoint_dir(loaded->checkpoint), "tokenizer.json", d);
    if (status == LW_OK) status = lw_tokenizer_open(path, &loaded->tokenizer, d);
    if (status == LW_OK) status = lw_token_scratch_make(loaded->tokenizer, &loaded->scratch, d);
    return status;
}

lw_status lw_load_chat(lw_loaded *loaded, lw_diag *d)
{
    const lw_status status = lw_chat_template_open(lw_checkpoint_dir(loaded->checkpoint), &loaded->chat, d);
    return status == LW_NOT_FOUND ? LW_OK : status;
}

lw_engine_options lw_load_engine_options(const lw_load_options *options, const lw_term *term)
{
    return (lw_engine_options){
        .device = options->device,
        .device_options = lw_load_device_options(options, term),
        .lanes = options->lanes != 0 ? options->lanes : 1,
        .context = options->context,
        .chunk_rows = options->chunk,
        .wanted_rows = options->wanted,
        .head = options->head,
        .act_int8 = options->act_int8,
        .kv_int8 = options->kv_int8,
    };
}

lw_status lw_load_engine(lw_loaded *loaded, const lw_load_options *options, const lw_term *term,
                         lw_trace trace, lw_diag *d)
{
    lw_progress_line line = lw_progress_line_make(term, "loading");
    lw_engine_options engine_options = lw_load_engine_options(options, term);
    engine_options.progress = lw_progress_of_line(&line);
    engine_options.trace = trace;
    lw_status status = lw_engine_open(loaded->checkpoint, &engine_options, &loaded->engine, d);
    lw_progress_line_clear(&line);
    if (status == LW_OK) status = lw_stream_open(loaded->engine, &loaded->stream, d);
    return status;
}

void lw_loaded_close(lw_loaded *loaded)
{
    if (loaded->stream != NULL) lw_stream_close(loaded->stream);
    if (loaded->engine != NULL) lw_engine_close(loaded->engine);
    if (loaded->chat != NULL) lw_chat_template_close(loaded->chat);
    if (loaded->scratch != NULL) lw_token_scratch_free(loaded->scratch);
    if (loaded->tokenizer != NULL) lw_tokenizer_close(loaded->tokenizer);
    if (loaded->checkpoint != NULL) lw_checkpoint_close(loaded->checkpoint);
    *loaded = (lw_loaded){ .engine = NULL };
}

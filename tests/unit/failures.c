/* Memory that runs out: the n-th allocation of a call fails, for every n until none is left to fail. Each
 * time the call returns an error with a text and no object, and keeps no memory, mapping or descriptor.
 *
 * The linker hands this program's calls of the allocating functions to the __wrap_ ones below (see the
 * Makefile), and jansson is given them too. What other libraries allocate inside themselves never fails here.
 */
#include "family_tiny.h"

#include "api/api.h"
#include "base/arena.h"
#include "base/size.h"
#include "lane/engine.h"
#include "ops/plan.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static const char model_dir[] = "models/lfm3-mlx4";

enum {
    OWN_EACH = 1000,          /* failures up to here are tried one by one; then n grows by a third */
    JSON_EACH = 60,           /* where jansson's count */
    GROWTH = 3,
    SYSTEM_PAGE_BYTES = 4096, /* mappings are counted in these; all lengths here are multiples, or files */
};

/* What is held now, and which allocation fails. */
static struct {
    uint64_t blocks, mapped_bytes;
    uint64_t seen, fail_at;   /* fail_at 0: none */
    bool fails_json;          /* what jansson asks for may be the n-th */
} memory;

static bool is_failing(void)
{
    if (memory.fail_at == 0) return false;
    return ++memory.seen == memory.fail_at;
}

static void *counted(void *block)
{
    if (block != NULL) memory.blocks++;
    return block;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *block);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);

int __wrap_asprintf(char **out, const char *format, ...) LW_PRINTF(2, 3);

void *__wrap_malloc(size_t bytes) { return is_failing() ? NULL : counted(__real_malloc(bytes)); }

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_failing() ? NULL : counted(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (is_failing()) return NULL;
    void *const moved = __real_realloc(block, bytes);
    return block == NULL ? counted(moved) : moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_failing() ? NULL : counted(__real_aligned_alloc(alignment, bytes));
}

char *__wrap_strdup(const char *text) { return is_failing() ? NULL : counted(__real_strdup(text)); }

int __wrap_asprintf(char **out, const char *format, ...)
{
    if (is_failing()) return -1;
    va_list args;
    va_start(args, format);
    const int bytes = vasprintf(out, format, args);
    va_end(args);
    if (bytes >= 0) memory.blocks++;
    return bytes;
}

void __wrap_free(void *block)
{
    if (block != NULL) memory.blocks--;
    __real_free(block);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (is_failing()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *const map = __real_mmap(at, bytes, protection, flags, fd, offset);
    if (map != MAP_FAILED) memory.mapped_bytes += size_round_up(bytes, SYSTEM_PAGE_BYTES);
    return map;
}

int __wrap_munmap(void *at, size_t bytes)
{
    memory.mapped_bytes -= size_round_up(bytes, SYSTEM_PAGE_BYTES);
    return __real_munmap(at, bytes);
}

static void *json_block(size_t bytes)
{
    return memory.fails_json ? __wrap_malloc(bytes) : counted(__real_malloc(bytes));
}

/* ---- trying ---- */

/* Makes something and closes it again; on failure its outputs are empty. */
typedef lw_status attempt(const void *context, lw_diag *d);

static int lowest_free_descriptor(void)
{
    const int fd = dup(STDIN_FILENO);
    if (fd >= 0) close(fd);
    return fd;
}

/* What one attempt came to. */
typedef struct outcome {
    bool has_failed;          /* an allocation did */
    lw_status status;
    const char *mistake;      /* NULL: none */
    lw_diag diag;
} outcome;

static const char *mistake_of(const outcome *o)
{
    if (!o->has_failed) return o->status == LW_OK ? NULL : "fails by itself";
    if (o->status == LW_OK) return "goes on";
    if (o->diag.text[0] == '\0') return "says nothing";
    return o->status == LW_NO_ROOM || o->status == LW_IO ? NULL : "blames something else";
}

/* Runs once with the n-th allocation failing. */
static outcome try_failing(attempt *run, const void *context, uint64_t n)
{
    const uint64_t blocks = memory.blocks, mapped_bytes = memory.mapped_bytes;
    const int fd = lowest_free_descriptor();
    outcome o = { .status = LW_OK };
    memory.seen = 0;
    memory.fail_at = n;
    o.status = run(context, &o.diag);
    memory.fail_at = 0;
    o.has_failed = memory.seen >= n;
    o.mistake = mistake_of(&o);
    if (lowest_free_descriptor() != fd) o.mistake = "keeps a descriptor";
    if (memory.mapped_bytes != mapped_bytes) o.mistake = "keeps a mapping";
    if (memory.blocks != blocks) o.mistake = "keeps memory";
    return o;
}

static void fail_some(const char *what, attempt *run, const void *context)
{
    uint64_t n = 1, tried = 0;
    const uint64_t each = memory.fails_json ? JSON_EACH : OWN_EACH;
    for (outcome o;; tried++, n += n <= each ? 1 : n / GROWTH) {
        o = try_failing(run, context, n);
        if (o.mistake != NULL)
            fail_msg("%s, allocation %llu fails: %s (%s: %s)", what, (unsigned long long)n, o.mistake,
                     lw_status_name(o.status), o.diag.text);
        if (!o.has_failed) break;
    }
    printf("%s, %s: %llu of %llu allocations\n", what, memory.fails_json ? "and jansson" : "by itself",
           (unsigned long long)tried, (unsigned long long)memory.seen);
    assert_true(tried > 0);
}

/* jansson's are many, and hide the others where n goes in steps. */
static void fail_each(const char *what, attempt *run, const void *context)
{
    memory.fails_json = false;
    fail_some(what, run, context);
    memory.fails_json = true;
    fail_some(what, run, context);
}

/* ---- what is tried ---- */

static lw_status open_checkpoint(const void *context, lw_diag *d)
{
    (void)context;
    lw_checkpoint *checkpoint = NULL;
    const lw_status status = lw_checkpoint_open(model_dir, &checkpoint, d);
    assert_true((status == LW_OK) == (checkpoint != NULL));
    lw_checkpoint_close(checkpoint);
    return status;
}

/* A checkpoint without failures; what a family reads of it lives as long as the checkpoint does. */
static lw_checkpoint *checkpoint_spared(const char *dir)
{
    lw_diag d;
    lw_checkpoint *checkpoint;
    const uint64_t fail_at = memory.fail_at;
    memory.fail_at = 0;
    if (lw_checkpoint_open(dir, &checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    memory.fail_at = fail_at;
    return checkpoint;
}

static lw_status run_stream(lw_engine *engine, lw_diag *d)
{
    static const int32_t ids[] = { 5, 6, 7 };
    lw_stream *stream = NULL;
    lw_status status = lw_stream_open(engine, &stream, d);
    assert_true((status == LW_OK) == (stream != NULL));
    if (status == LW_OK) status = lw_stream_forward(stream, ids, 3, LW_WANTED_LAST, d);
    lw_stream_close(stream);
    return status;
}

typedef struct engine_case {
    const char *dir;
    lw_engine_options options;
} engine_case;

/* context: engine_case. The family's record is part of it. */
static lw_status open_engine(const void *context, lw_diag *d)
{
    const engine_case *c = context;
    lw_checkpoint *const checkpoint = checkpoint_spared(c->dir);
    lw_engine *engine = NULL;
    lw_status status = lw_engine_open(checkpoint, &c->options, &engine, d);
    assert_true((status == LW_OK) == (engine != NULL));
    if (status == LW_OK) status = run_stream(engine, d);
    lw_engine_close(engine);
    lw_checkpoint_close(checkpoint);
    return status;
}

static const char text[] = "Read it twice, then once more: 3 + 4 = 7.";

static lw_status open_tokenizer(const void *context, lw_diag *d)
{
    (void)context;
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer.json", model_dir);
    lw_tokenizer *tokenizer = NULL;
    lw_token_scratch *scratch = NULL;
    lw_ids ids = { 0 };
    lw_status status = lw_tokenizer_open(path, &tokenizer, d);
    assert_true((status == LW_OK) == (tokenizer != NULL));
    if (status == LW_OK) status = lw_token_scratch_make(tokenizer, &scratch, d);
    if (status == LW_OK)
        status = lw_tokenizer_encode(tokenizer, scratch, (lw_text){ .bytes = text, .count = sizeof text - 1 },
                                     &(lw_encode_options){ 0 }, &ids, d);
    assert_true((status == LW_OK) == (ids.count > 0));
    lw_ids_deinit(&ids);
    lw_token_scratch_free(scratch);
    lw_tokenizer_close(tokenizer);
    return status;
}

static lw_status render_chat(const void *context, lw_diag *d)
{
    const lw_chat_input input = { .messages = context, .add_generation_prompt = true };
    lw_chat_template *chat = NULL;
    lw_chat_prompt prompt = { 0 };
    lw_status status = lw_chat_template_open(model_dir, &chat, d);
    assert_true((status == LW_OK) == (chat != NULL));
    if (status == LW_OK) {
        status = lw_chat_render(chat, &input, &prompt, d);
        assert_true((status == LW_OK) == (prompt.text.count > 0));
    }
    lw_chat_prompt_deinit(&prompt);
    lw_chat_template_close(chat);
    return status;
}

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be brief, and kind.\"}]},"
    "{\"role\":\"user\",\"content\":\"How warm is it in Paris now?\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"weather\",\"arguments\":"
    "\"{\\\"name_of_the_place\\\":\\\"Paris\\\",\\\"x\\\":0.1234567890123456}\"}}]},"
    "{\"role\":\"tool\",\"content\":\"21\"}],\"add_generation_prompt\":true}";

static lw_status read_conversation(const void *context, lw_diag *d)
{
    (void)context;
    lw__chat_request request;
    lw_error error = { .text = "" };
    const lw_result result = lw__chat_request_read(conversation, sizeof conversation - 1, &request, &error);
    if (result == LW_RESULT_OK) {
        const json_t *asked = json_array_get(request.messages, 2);
        const json_t *call = json_array_get(json_object_get(asked, "tool_calls"), 0);
        const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
        assert_int_equal(json_array_size(request.messages), 4);
        assert_string_equal(json_string_value(json_object_get(arguments, "name_of_the_place")), "Paris");
    }
    lw__chat_request_deinit(&request);
    if (result == LW_RESULT_OK) return LW_OK;
    return lw_fail(d, result == LW_RESULT_NO_ROOM ? LW_NO_ROOM : LW_BAD_INPUT, "%s", error.text);
}

/* ---- the tests ---- */

static void a_checkpoint_fails_whole(void **state)
{
    (void)state;
    fail_each("checkpoint", open_checkpoint, NULL);
}

static void fail_each_of_engine(const char *what, const char *dir, const char *device)
{
    engine_case c = { .dir = dir,
                      .options = { .device = device, .context = 64, .chunk_rows = 8, .head = true } };
    c.options.device_options.threads = 1;
    if (strcmp(device, "cpu") == 0) c.options.device_options.isa = "generic";
    memory.fails_json = false; /* the checkpoint has read all JSON */
    fail_some(what, open_engine, &c);
}

static void an_engine_fails_whole(void **state)
{
    (void)state;
    fail_each_of_engine("engine, null", model_dir, "null");
    fail_each_of_engine("engine, cpu", model_dir, "cpu");
}

/* Families with recurrences, experts and draft heads, as tiny models. */
static void an_engine_of_every_family_fails_whole(void **state)
{
    (void)state;
    const folder qwen = made_qwen_make(&(made_qwen){ .is_mlx = true, .norms = 1.0 });
    const folder nemotron = made_nemotron_make();
    fail_each_of_engine("qwen3_5, cpu", qwen.path, "cpu");
    fail_each_of_engine("nemotron_h, null", nemotron.path, "null");
    fail_each_of_engine("nemotron_h, cpu", nemotron.path, "cpu");
    folder_free(&qwen);
    folder_free(&nemotron);
}

static void a_tokenizer_fails_whole(void **state)
{
    (void)state;
    fail_each("tokenizer", open_tokenizer, NULL);
}

static void a_chat_fails_whole(void **state)
{
    (void)state;
    json_t *const messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", "Be brief.",
                                       "role", "user", "content", text);
    assert_non_null(messages);
    fail_each("chat", render_chat, messages);
    json_decref(messages);
}

static void a_conversation_fails_whole(void **state)
{
    (void)state;
    fail_each("conversation", read_conversation, NULL);
}

/* ---- planted controls: what each check must catch ---- */


typedef struct mistaken {
    const char *word;          /* the mistake that is made, as mistake_of and try_failing name it */
    lw_status status;
    bool is_silent;
} mistaken;

static lw_status make_mistake(const void *context, lw_diag *d)
{
    const mistaken *const m = context;
    void *const block = malloc(100), *const kept = malloc(100);
    void *const map = mmap(NULL, SYSTEM_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool failed = block == NULL || kept == NULL || map == MAP_FAILED;
    if (map != MAP_FAILED && strcmp(m->word, "keeps a mapping") != 0) munmap(map, SYSTEM_PAGE_BYTES);
    free(kept);
    if (strcmp(m->word, "keeps a descriptor") == 0) assert_true(dup(STDIN_FILENO) >= 0);
    free(block);
    if (!failed) return LW_OK;
    return m->is_silent ? m->status : lw_fail(d, m->status, "a text");
}

static void a_mistake_is_seen(void **state)
{
    (void)state;
    static const mistaken mistakes[] = {
        { "goes on", LW_OK, true },
        { "says nothing", LW_NO_ROOM, true },
        { "blames something else", LW_BAD_MODEL, false },
        { "keeps a mapping", LW_NO_ROOM, false },
        { "keeps a descriptor", LW_NO_ROOM, false },
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const outcome o = try_failing(make_mistake, &mistakes[i], 1);
        assert_non_null(o.mistake);
        assert_string_equal(o.mistake, mistakes[i].word);
    }
    const mistaken right = { "", LW_NO_ROOM, false };
    for (uint64_t n = 1; n <= 4; n++) {
        const outcome o = try_failing(make_mistake, &right, n);
        assert_null(o.mistake);
        assert_true(o.has_failed == (n < 4));
    }
}

/* Its block is kept for good, outside of what the leak check of a sanitizer would call lost. */
static void *kept_for_good;

static lw_status keep_a_block(const void *context, lw_diag *d)
{
    (void)context;
    kept_for_good = malloc(100);
    void *const other = malloc(100);
    if (kept_for_good == NULL || other == NULL) return lw_fail(d, LW_NO_ROOM, "a text");
    free(other);
    free(kept_for_good);
    return LW_OK;
}

static void a_kept_block_is_seen(void **state)
{
    (void)state;
    assert_string_equal(try_failing(keep_a_block, NULL, 2).mistake, "keeps memory");
    free(kept_for_good);
}

int main(void)
{
    json_set_alloc_funcs(json_block, __wrap_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mistake_is_seen),
        cmocka_unit_test(a_kept_block_is_seen),
        cmocka_unit_test(a_checkpoint_fails_whole),
        cmocka_unit_test(an_engine_fails_whole),
        cmocka_unit_test(an_engine_of_every_family_fails_whole),
        cmocka_unit_test(a_tokenizer_fails_whole),
        cmocka_unit_test(a_chat_fails_whole),
        cmocka_unit_test(a_conversation_fails_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

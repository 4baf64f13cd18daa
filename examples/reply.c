/* One turn of a chat: opens a model folder, asks, prints the reply as it is made.
 *
 *   cc reply.c $(pkg-config --cflags --libs lanewise) -o reply
 *   ./reply MODEL 'What is a lane?'
 */
#include <lanewise.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char *what, const lw_error *error)
{
    fprintf(stderr, "reply: %s: %s\n", what, error->text);
    return EXIT_FAILURE;
}

/* The request as lw_prompt_chat reads it; the caller frees it. Control characters become spaces. */
static char *request_make(const char *question)
{
    static const char begin[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"";
    static const char end[] = "\"}]}";
    char *request = malloc(sizeof begin + 2 * strlen(question) + sizeof end);
    if (request == NULL) return NULL;
    char *at = request + strlen(begin);
    memcpy(request, begin, strlen(begin));
    for (; *question != '\0'; question++) {
        const unsigned char c = (unsigned char)*question;
        if (c == '"' || c == '\\') *at++ = '\\';
        *at++ = c < 0x20 ? ' ' : (char)c;
    }
    memcpy(at, end, sizeof end);
    return request;
}

static lw_result prompt_make(const lw_model *model, const char *question, lw_prompt **prompt, lw_error *error)
{
    char *request = request_make(question);
    if (request == NULL) {
        snprintf(error->text, sizeof error->text, "no memory for the question");
        return LW_RESULT_NO_ROOM;
    }
    const lw_result result = lw_prompt_chat(model, request, strlen(request), prompt, error);
    free(request);
    return result;
}

static void print_text(const char *text, size_t count)
{
    fwrite(text, 1, count, stdout);
    fflush(stdout);
}

/* Steps the model until the reply has ended, and prints its text on the way. */
static int reply_print(lw_model *model, lw_reply *reply, lw_text_reader *reader)
{
    for (;;) {
        lw_event event;
        size_t count;
        lw_reply_read(reply, &event);
        if (event.kind == LW_EVENT_TOKEN && !event.is_end_token) {
            const char *text = lw_text_reader_push(reader, event.id, &count);
            print_text(text, count);
        }
        if (event.kind == LW_EVENT_END) {
            const char *text = lw_text_reader_finish(reader, &count);
            print_text(text, count);
            print_text("\n", 1);
            if (event.end == LW_END_FAILED) fprintf(stderr, "reply: %s\n", event.error);
            return event.end == LW_END_FAILED ? EXIT_FAILURE : EXIT_SUCCESS;
        }
        if (event.kind == LW_EVENT_NONE) {
            bool worked;
            lw_error error;
            if (lw_model_step(model, &worked, &error) != LW_RESULT_OK) return failed("step", &error);
        }
    }
}

static int answer(lw_model *model, const char *question)
{
    lw_error error;
    lw_prompt *prompt;
    if (prompt_make(model, question, &prompt, &error) != LW_RESULT_OK) return failed("prompt", &error);

    lw_request_options options;
    lw_request_options_init(model, &options);
    options.tokens_max = 200;
    lw_reply *reply;
    const lw_result result = lw_reply_open(model, prompt, &options, &reply, &error);
    lw_prompt_free(prompt);
    if (result != LW_RESULT_OK) return failed("request", &error);

    lw_text_reader *reader;
    int code = EXIT_FAILURE;
    if (lw_text_reader_open(model, false, &reader) == LW_RESULT_OK) code = reply_print(model, reply, reader);
    lw_text_reader_close(reader);
    lw_reply_close(reply);
    return code;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: reply MODEL QUESTION\n");
        return EXIT_FAILURE;
    }
    lw_error error;
    lw_model *model;
    if (lw_model_open(argv[1], NULL, &model, &error) != LW_RESULT_OK) return failed(argv[1], &error);
    const int code = answer(model, argv[2]);
    lw_model_close(model);
    return code;
}

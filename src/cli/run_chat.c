/* `lanewise run --chat`: turns from standard input, with their history as the template's messages.
 * The stream keeps what it has computed, so a turn computes only what is new in its prompt.
 */
#include "cli/run.h"

#include "cli/think.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum turn_input { TURN_TEXT, TURN_END, TURN_INTERRUPTED, TURN_FAILED } turn_input;

/* Reads one line without its end into *line (getline's buffer). */
static turn_input read_turn(const lw_run *run, char **line, size_t *room, size_t *count)
{
    lw_interrupt_arm();
    if (run->term.in_is_terminal && run->term.out_is_terminal && !lw_out_write("> ", 2)) return TURN_END;
    if (run->term.in_is_terminal && !lw_interrupt_wait_input()) return TURN_INTERRUPTED;
    errno = 0;
    const ssize_t got = getline(line, room, stdin);
    if (lw_interrupted()) return TURN_INTERRUPTED;
    if (got < 0 && ferror(stdin)) {
        lw_term_error("standard input: %s", strerror(errno));
        return TURN_FAILED;
    }
    if (got < 0) return TURN_END;
    *count = (size_t)got;
    if (*count > 0 && (*line)[*count - 1] == '\n') *count -= 1;
    return TURN_TEXT;
}

static lw_status history_add_reply(json_t *history, const lw_reply *reply, lw_diag *d)
{
    const char *text = reply->text.count > 0 ? reply->text.bytes : "";
    const lw_think_parts parts = lw_think_split(text, reply->text.count, reply->opened_by_prompt);
    const lw_status status = lw_run_add_message(history, "assistant", parts.content, parts.content_bytes, d);
    if (status != LW_OK || parts.reasoning == NULL) return status;
    json_t *message = json_array_get(history, json_array_size(history) - 1);
    json_t *reasoning = json_stringn(parts.reasoning, parts.reasoning_bytes);
    if (json_object_set_new(message, "reasoning_content", reasoning) == 0) return LW_OK;
    return lw_fail(d, LW_NO_ROOM, "no memory for a reasoning of %zu bytes", parts.reasoning_bytes);
}

/* Answers the user's text and keeps both in the history. */
static lw_status take_turn(lw_run *run, json_t *history, const char *text, size_t count, bool *reader_gone,
                           lw_diag *d)
{
    lw_ids prompt = { .ids = NULL };
    lw_reply reply = { .seed = 0 };
    lw_status status = lw_run_add_message(history, "user", text, count, d);
    if (status == LW_OK) status = lw_run_chat_ids(run, history, &prompt, d);
    if (status == LW_OK) status = lw_run_reply(run, &prompt, &reply, d);
    if (status == LW_OK) lw_run_report(run, &reply);
    if (status == LW_OK) status = history_add_reply(history, &reply, d);
    *reader_gone = reply.reader_gone;
    lw_reply_deinit(&reply);
    lw_ids_deinit(&prompt);
    return status;
}

static int turns(lw_run *run, json_t *history)
{
    lw_diag d;
    char *line = NULL;
    size_t room = 0, count = 0;
    bool reader_gone = false;
    lw_status status = LW_OK;
    turn_input input = TURN_TEXT;
    if (run->text != NULL) status = take_turn(run, history, run->text, strlen(run->text), &reader_gone, &d);
    while (status == LW_OK && !reader_gone) {
        input = read_turn(run, &line, &room, &count);
        if (input != TURN_TEXT) break;
        if (!lw_run_is_blank(line, count)) status = take_turn(run, history, line, count, &reader_gone, &d);
    }
    free(line);
    if (status != LW_OK) return lw_term_error("%s", d.text);
    if (input == TURN_FAILED) return LW_EXIT_FAILED;
    if (run->term.in_is_terminal && run->term.out_is_terminal) lw_out_write("\n", 1);
    return input == TURN_INTERRUPTED ? LW_EXIT_INTERRUPTED : LW_EXIT_OK;
}

int lw_run_chat(lw_run *run)
{
    lw_diag d;
    json_t *history = json_array();
    int code = LW_EXIT_OK;
    const char *system = run->system;
    if (system != NULL && lw_run_add_message(history, "system", system, strlen(system), &d) != LW_OK) {
        code = lw_term_error("%s", d.text);
    }
    if (code == LW_EXIT_OK) code = turns(run, history);
    json_decref(history);
    return code;
}

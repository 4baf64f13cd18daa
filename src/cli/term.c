/* Terminal, signals and standard streams; see term.h. */
#include "cli/term.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PERCENT_NONE = 101, READ_BYTES = 64 << 10 };

static volatile sig_atomic_t interrupt_flag;

static void interrupt_noted(int number)
{
    (void)number;
    interrupt_flag = 1;
}

void lw_interrupt_arm(void)
{
    /* No SA_RESTART: a read of the next line must end. Reset: a second Ctrl-C works even where nobody asks
     * the flag. */
    struct sigaction action = { .sa_handler = interrupt_noted, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&action.sa_mask);
    interrupt_flag = 0;
    sigaction(SIGINT, &action, NULL);
}

bool lw_interrupted(void)
{
    return interrupt_flag != 0;
}

bool lw_interrupt_wait_input(void)
{
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    int ready = 0;
    while (!lw_interrupted() && ready == 0) {
        ready = ppoll(&input, 1, NULL, &before);
        if (ready < 0 && errno == EINTR) ready = 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !lw_interrupted();
}

void lw_streams_guard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* The wrong way round, so that using it fails as using a closed stream does. */
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

lw_term lw_term_make(const char *no_color)
{
    lw_term term = {
        .in_is_terminal = isatty(STDIN_FILENO) == 1,
        .out_is_terminal = isatty(STDOUT_FILENO) == 1,
        .err_is_terminal = isatty(STDERR_FILENO) == 1,
    };
    term.has_color = term.out_is_terminal && (no_color == NULL || *no_color == '\0');
    return term;
}

int lw_term_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("lanewise: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return LW_EXIT_FAILED;
}

lw_progress_line lw_progress_line_make(const lw_term *term, const char *what)
{
    return (lw_progress_line){ .what = what, .shown = term->err_is_terminal, .percent = PERCENT_NONE };
}

void lw_progress_line_step(lw_progress_line *line, uint64_t done, uint64_t total)
{
    if (!line->shown || total == 0) return;
    const uint32_t percent = (uint32_t)(100.0 * (double)(done < total ? done : total) / (double)total);
    if (percent == line->percent) return;
    line->percent = percent;
    fprintf(stderr, "\r%s %3u%%", line->what, percent);
    fflush(stderr);
}

void lw_progress_line_clear(lw_progress_line *line)
{
    if (line->percent == PERCENT_NONE) return;
    line->percent = PERCENT_NONE;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

static void line_step(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    lw_progress_line_step(context, bytes_done, bytes_total);
}

lw_progress lw_progress_of_line(lw_progress_line *line)
{
    return (lw_progress){ .step = line_step, .context = line };
}

bool lw_out_write(const char *bytes, size_t count)
{
    if (count > 0 && fwrite(bytes, 1, count, stdout) != count) return false;
    return fflush(stdout) == 0;
}

static int dump_chunk(const char *bytes, size_t count, void *context)
{
    (void)context;
    return fwrite(bytes, 1, count, stdout) == count ? 0 : -1;
}

bool lw_out_json(json_t *object)
{
    /* Twelve digits: a double as text that people read, without the noise of the last bits. */
    const bool done = object != NULL && !lw_json_has_failed() &&
                      json_dump_callback(object, dump_chunk, NULL, JSON_REAL_PRECISION(12)) == 0;
    json_decref(object);
    return done && lw_out_write("\n", 1);
}

static bool reader_is_gone(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

int lw_out_finish(int exit_code)
{
    if (lw_json_has_failed()) exit_code = lw_term_error("no memory for a JSON object");
    errno = 0;
    const bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!failed || reader_is_gone()) return exit_code;
    /* The reason of an earlier failed write is lost: the stream keeps a mark only. */
    return lw_term_error("cannot write to standard output: %s",
                         errno != 0 ? strerror(errno) : "a write failed");
}

lw_status lw_read_all(int file, const char *name, size_t bytes_max, char **bytes, size_t *count, lw_diag *d)
{
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_status status = LW_OK;
    for (ssize_t got = 1; got != 0 && status == LW_OK;) {
        if (lw_buf_reserve(&text, READ_BYTES) != LW_OK) {
            status = lw_fail(d, LW_NO_ROOM, "%s: no memory after %zu bytes", name, text.count);
            break;
        }
        got = read(file, text.bytes + text.count, READ_BYTES);
        if (got < 0 && errno == EINTR && !lw_interrupted()) continue;
        if (got < 0) status = lw_fail(d, LW_IO, "%s: %s", name, strerror(errno));
        else text.count += (size_t)got;
        if (text.count > bytes_max)
            status = lw_fail(d, LW_NO_ROOM, "%s: longer than the limit of %zu bytes", name, bytes_max);
    }
    if (status != LW_OK) {
        lw_buf_deinit(&text);
        return status;
    }
    text.bytes[text.count] = '\0';
    *bytes = text.bytes;
    *count = text.count;
    return LW_OK;
}

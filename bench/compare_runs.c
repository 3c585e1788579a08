/* Children whose output and messages are files in memory. */
#include "bench/compare_runs.h"

#include "bench/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NO_START = 127 };

static enum status run_child(char *const *argv, int output, int messages, int *exit_code)
{
    const pid_t parent = getpid();
    int status;
    pid_t child = fork();
    if (child < 0)
        return FAIL(ERR_IO, "cannot start a process: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(output, STDOUT_FILENO) < 0 ||
            dup2(messages, STDERR_FILENO) < 0)
            _exit(EXIT_NO_START);
        execv(argv[0], argv);
        _exit(EXIT_NO_START);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return FAIL(ERR_IO, "%s: %s", argv[0], strerror(errno));
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return OK;
}

/* The only record moves to the end of `to`. */
static enum status take_record(const char *program, int exit_code, struct results *from,
                               struct results *to)
{
    if (exit_code == EXIT_NO_START)
        return FAIL(ERR_USAGE, "%s: cannot be started; name a bench program", program);
    if (from->count != 1 && exit_code == 0)
        return FAIL(ERR_USAGE, "%s: %zu records on standard output; leave --output out of the arguments",
                    program, from->count);
    if (from->count != 1 || exit_code != 0) {
        const char *reason = from->count ? json_text(from->records[0], "reason") : NULL;
        return FAIL(ERR_IO, "%s: the run ended with exit code %d: %s", program, exit_code,
                    reason ? reason : "no record");
    }
    cJSON **grown = realloc(to->records, (to->count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu records", to->count + 1);
    to->records = grown;
    grown[to->count++] = from->records[0];
    from->count = 0;
    return OK;
}

static void show_messages(int messages)
{
    char text[4096];
    ssize_t n = pread(messages, text, sizeof text, 0);
    if (n > 0)
        fwrite(text, 1, (size_t)n, stderr);
}

static enum status run_with(char *const *argv, int output, int messages, struct results *to)
{
    int exit_code = 0;
    char path[40];
    struct results got = {0};
    if (output < 0 || messages < 0)
        return FAIL(ERR_IO, "no file in memory: %s", strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", output);
    TRY(run_child(argv, output, messages, &exit_code));
    enum status status = results_read(path, &got);
    if (status == OK)
        status = take_record(argv[0], exit_code, &got, to);
    if (status != OK)
        show_messages(messages);
    results_free(&got);
    return status;
}

static enum status run_once(char *const *argv, struct results *to)
{
    int output = memfd_create("record", MFD_CLOEXEC), messages = memfd_create("messages", MFD_CLOEXEC);
    enum status status = run_with(argv, output, messages, to);
    close(output);
    close(messages);
    return status;
}

enum status compare_runs(const char *const programs[2], const char *const *arguments, size_t count,
                         int samples, struct results out[2])
{
    static const char *const names[2] = {"BASE", "NEW"};
    out[0] = out[1] = (struct results){0};
    char **argv = calloc(count + 3, sizeof *argv);
    if (!argv)
        return FAIL(ERR_MEMORY, "no memory for a command line");
    argv[1] = (char[]){"run"};
    for (size_t i = 0; i < count; i++)
        argv[2 + i] = (char *)arguments[i]; /* exec does not change its words */
    struct progress progress;
    progress_open(&progress, 2 * (size_t)samples, 0);
    enum status status = OK;
    for (int i = 0; i < 2 * samples && status == OK; i++) {
        int side = (i + i / 2) % 2; /* 0 1 1 0 0 1 1 0 */
        argv[0] = (char *)programs[side];
        progress_begin(&progress, names[side]);
        status = run_once(argv, &out[side]);
        progress_end(&progress, status == OK ? "ok" : "error", NULL);
    }
    free(argv);
    return status;
}

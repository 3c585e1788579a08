/* Starting MPI processes for a point of a sweep. */
#include "bench/mpirun.h"

#include "bench/launch.h"
#include "bench/point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_LAUNCHER "mpirun --oversubscribe -n {n}"

const struct option mpirun_opt_launcher = {
    .name = "launcher", .type = OPTION_TEXT, .fallback = "",
    .help = "with --transport mpi outside mpirun: the command that starts the ranks of a point, {n} being "
            "their number; default: " DEFAULT_LAUNCHER ", as root with --allow-run-as-root"};

bool mpirun_is_needed(const struct option_set *point)
{
    return strcmp(option_text(point, &point_opt_transport), "mpi") == 0 && !launch_has_begun();
}

/* ---- the command ---- */

static enum status append(char **words, size_t *count, const char *word)
{
    words[*count] = strdup(word);
    if (!words[*count])
        return FAIL(ERR_MEMORY, "no memory for a command line");
    ++*count;
    return OK;
}

/* "-n{n}" -> "-n4" */
static enum status append_filled(char **words, size_t *count, const char *word, int ranks)
{
    char filled[1024];
    const char *place = strstr(word, "{n}");
    if (!place)
        return append(words, count, word);
    snprintf(filled, sizeof filled, "%.*s%d%s", (int)(place - word), word, ranks, place + 3);
    return append(words, count, filled);
}

static enum status append_launcher(char **words, size_t *count, const char *launcher, int ranks)
{
    char *copy = strdup(launcher), *rest = NULL;
    if (!copy)
        return FAIL(ERR_MEMORY, "no memory for a command line");
    enum status status = OK;
    for (char *word = strtok_r(copy, " ", &rest); word && status == OK; word = strtok_r(NULL, " ", &rest))
        status = append_filled(words, count, word, ranks);
    free(copy);
    return status;
}

static enum status append_program(char **words, size_t *count)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return FAIL(ERR_IO, "cannot tell where this program is");
    path[length] = '\0';
    return append(words, count, path);
}

static enum status fill(char **words, const char *launcher, int ranks, char *const *argv)
{
    size_t count = 0;
    bool is_default = !*launcher;
    TRY(append_launcher(words, &count, is_default ? DEFAULT_LAUNCHER : launcher, ranks));
    if (is_default && geteuid() == 0)
        TRY(append(words, &count, "--allow-run-as-root"));
    TRY(append_program(words, &count));
    for (size_t i = 1; argv[i]; i++)
        TRY(append(words, &count, argv[i]));
    return OK;
}

enum status mpirun_argv(const char *launcher, int ranks, char *const *argv, char ***out)
{
    size_t room = strlen(launcher) + sizeof DEFAULT_LAUNCHER + 4;
    if (*launcher && !strstr(launcher, "{n}"))
        return FAIL(ERR_USAGE, "--launcher \"%.200s\": {n}, the number of ranks, is missing", launcher);
    for (size_t i = 0; argv[i]; i++)
        room++;
    char **words = calloc(room, sizeof *words);
    if (!words)
        return FAIL(ERR_MEMORY, "no memory for a command line");
    enum status status = fill(words, launcher, ranks, argv);
    if (status == OK) {
        *out = words;
        return OK;
    }
    for (size_t i = 0; words[i]; i++)
        free(words[i]);
    free(words);
    return status;
}

/* ---- what it says ---- */

/* "ditto: [rank 1/4] error: timeout: TEXT": the status and the text, else false. */
static bool is_our_error(const char *line, enum status *status, const char **text)
{
    const char *error = strncmp(line, "ditto: ", 7) == 0 ? strstr(line, "error: ") : NULL;
    if (!error)
        return false;
    error += strlen("error: ");
    for (int code = OK + 1; code < STATUS_COUNT; code++) {
        const char *name = status_name((enum status)code);
        size_t length = strlen(name);
        if (strncmp(error, name, length) == 0 && error[length] == ':') {
            *status = (enum status)code;
            *text = error + length + 1 + (error[length + 1] == ' ');
            return true;
        }
    }
    return false;
}

/* Open MPI: "mpirun noticed that process rank 1 with PID 7 on node x exited on signal 9 (Killed)."; others
 * name the rank too. */
static bool is_launchers(const char *line)
{
    return strncmp(line, "ditto: ", 7) != 0 && (strstr(line, "rank ") || strstr(line, "RANK ")) &&
           (strstr(line, "signal") || strstr(line, "exit") || strstr(line, "EXIT"));
}

bool mpirun_explain(const char *messages, enum status *status, char *out, size_t size)
{
    char line[512];
    bool is_explained = false;
    for (const char *at = messages; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        const char *text = line;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (is_our_error(line, status, &text)) {
            snprintf(out, size, "%s", text);
            return true;
        }
        if (is_explained || !is_launchers(line))
            continue;
        *status = ERR_INTERNAL;
        snprintf(out, size, "%s", line);
        is_explained = true;
    }
    return is_explained;
}

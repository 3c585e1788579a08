/* Figures beside the data and the script that remake them. */
#include "bench/plot_gnuplot.h"

#include "bench/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_FOUND = 127, SMALLEST_FIGURE = 500 };

/* Runs gnuplot on NAME.gp in the folder; its messages go to NAME.log there. */
static enum status run_gnuplot(const char *folder, const char *name, const char *format, int *exit_code)
{
    char settings[200], script[100], messages[100];
    snprintf(settings, sizeof settings, "format='%s'; output='%s.partial.%s'", format, name, format);
    snprintf(script, sizeof script, "%s.gp", name);
    snprintf(messages, sizeof messages, "%s.log", name);
    pid_t child = fork();
    if (child < 0)
        return FAIL(ERR_IO, "cannot start gnuplot: %s", strerror(errno));
    if (child == 0) {
        if (chdir(folder) != 0)
            _exit(1);
        int log = open(messages, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (log < 0 || dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0)
            _exit(1);
        execlp("gnuplot", "gnuplot", "-e", settings, script, (char *)NULL);
        _exit(EXIT_NOT_FOUND);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return FAIL(ERR_IO, "gnuplot: %s", strerror(errno));
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return OK;
}

enum status plot_gnuplot_place(const char *folder, const char *name, const char *ending,
                               char out[FILES_PATH])
{
    if (snprintf(out, FILES_PATH, "%s/%s.%s", folder, name, ending) >= FILES_PATH)
        return FAIL(ERR_USAGE, "--output %.80s...: the path is too long", folder);
    return OK;
}

/* gnuplot does not notice a full disk. */
static bool is_cut_off(const char *path, const char *format)
{
    static const char *const ends[][2] = {{"svg", "</svg>"}, {"pdf", "%%EOF"}, {"png", "IEND"}};
    char last[16] = "";
    FILE *file = fopen(path, "re");
    size_t n = 0;
    if (file && fseek(file, -(long)sizeof last, SEEK_END) == 0)
        n = fread(last, 1, sizeof last, file);
    if (file)
        fclose(file);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(format, ends[i][0]) == 0)
            return !memmem(last, n, ends[i][1], strlen(ends[i][1]));
    return false;
}

static enum status explain_failure(const char *folder, const char *name, int exit_code)
{
    char log[FILES_PATH], *text = NULL;
    size_t bytes = 0;
    if (exit_code == EXIT_NOT_FOUND)
        return FAIL(ERR_IO, "gnuplot is not installed; on Debian: apt-get install gnuplot-nox");
    TRY(plot_gnuplot_place(folder, name, "log", log));
    TRY(json_read_file(log, &text, &bytes));
    enum status status = FAIL(ERR_IO, "gnuplot failed on %s/%s.gp (exit code %d): %.300s", folder, name,
                              exit_code, bytes ? text : "the figure is empty or cut off; is the disk full?");
    free(text);
    return status;
}

enum status plot_gnuplot_draw(const char *folder, const char *name, const char *format)
{
    char ending[40], partial[FILES_PATH], final[FILES_PATH], log[FILES_PATH];
    int exit_code = 0;
    struct stat info;
    snprintf(ending, sizeof ending, "partial.%.10s", format);
    TRY(plot_gnuplot_place(folder, name, ending, partial));
    TRY(plot_gnuplot_place(folder, name, format, final));
    TRY(plot_gnuplot_place(folder, name, "log", log));
    TRY(run_gnuplot(folder, name, format, &exit_code));
    enum status status = OK;
    if (exit_code != 0 || stat(partial, &info) != 0 || info.st_size < SMALLEST_FIGURE ||
        is_cut_off(partial, format))
        status = explain_failure(folder, name, exit_code);
    else if (rename(partial, final) != 0)
        status = FAIL(ERR_IO, "%s: cannot write: %s", final, strerror(errno));
    unlink(log);
    if (status != OK)
        unlink(partial);
    return status;
}

enum status plot_gnuplot_append(FILE *out, const char *name)
{
    char relative[100], path[FILES_PATH], *text = NULL;
    size_t bytes = 0;
    snprintf(relative, sizeof relative, "plots/%s.gp", name);
    TRY(files_find_data(relative, path));
    TRY(json_read_file(path, &text, &bytes));
    fwrite(text, 1, bytes, out);
    free(text);
    return OK;
}

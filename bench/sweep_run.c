/* Children of a sweep: their command lines, and what becomes of them. */
#include "bench/sweep_run.h"

#include "bench/launch.h"
#include "bench/mpirun.h"
#include "bench/point.h"
#include "bench/record.h"
#include "bench/run_options.h"
#include "bench/sweep_child.h"
#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "--name=value" at the end of a child's command line. */
static void add_word(char **argv, size_t *count, const char *name, const char *value)
{
    int n = value ? asprintf(&argv[*count], "--%s=%s", name, value)
                  : asprintf(&argv[*count], "--%s", name);
    ASSERT(n > 0);
    ++*count;
}

static void folder_path(const struct sweep *sweep, const char *name, char out[FILES_PATH])
{
    snprintf(out, FILES_PATH, "%.*s/%s", FILES_PATH - 32, sweep->folder, name);
}

/* A point in this process, whose ranks are those that mpirun started. */
static void run_inside(char **argv, struct sweep_child_end *end)
{
    struct cli cli;
    int argc = 0;
    while (argv[argc])
        argc++;
    enum status status = cli_parse(&command_run, argc, argv, &cli);
    cli.is_within_sweep = true;
    if (status == OK)
        status = command_run.run(&cli);
    cli_free(&cli);
    status_clear();
    *end = (struct sweep_child_end){.exit_code = status == OK ? 0 : 1};
}

static enum status start_child(struct sweep *sweep, char **argv, bool is_launcher,
                               struct sweep_child_end *end)
{
    char messages[FILES_PATH], result[FILES_PATH];
    folder_path(sweep, "messages", messages);
    folder_path(sweep, "record.jsonl", result);
    const struct sweep_child_request request = {
        .argv = argv,
        .is_launcher = is_launcher,
        .result_path = result,
        .timeout_s = option_real(&sweep->options, &sweep_opt_point_timeout),
        .memory_bytes = (uint64_t)option_int(&sweep->options, &sweep_opt_point_memory) << 20,
        .stderr_path = messages,
        .tick = progress_tick,
        .context = &sweep->progress,
    };
    return sweep_child_run(&request, end);
}

/* Runs "run ..." for the point with so many ranks: inside, in a child, or in a launcher's children. */
static enum status start_ranks(struct sweep *sweep, const struct sweep_point *point, int ranks, char **argv,
                         struct sweep_child_end *end)
{
    if (launch_has_begun()) {
        run_inside(argv, end);
        return OK;
    }
    if (!mpirun_is_needed(point->options))
        return start_child(sweep, argv, false, end);
    char **words = NULL;
    TRY(mpirun_argv(option_text(&sweep->options, &mpirun_opt_launcher), ranks, argv, &words));
    enum status status = start_child(sweep, words, true, end);
    sweep_point_free_argv(words);
    return status;
}

/* Everything the child printed, without the last newline; NULL when it cannot be read. */
static char *read_messages(const struct sweep *sweep)
{
    char path[FILES_PATH], *text = NULL;
    size_t bytes = 0;
    folder_path(sweep, "messages", path);
    if (json_read_file(path, &text, &bytes) != OK) {
        status_clear();
        return NULL;
    }
    while (bytes > 0 && text[bytes - 1] == '\n')
        text[--bytes] = '\0';
    return text;
}

/* The last line the child printed; "" when there is none. */
static void last_message(const struct sweep *sweep, char *out, size_t size)
{
    char *text = read_messages(sweep);
    const char *line = text ? strrchr(text, '\n') : NULL;
    snprintf(out, size, "%s", line ? line + 1 : text ? text : "");
    free(text);
}

/* What a launcher's processes and itself said of their end. */
static bool explained_by_launcher(const struct sweep *sweep, enum status *status, char *reason,
                                  size_t size)
{
    char *text = read_messages(sweep);
    bool is_explained = text && mpirun_explain(text, status, reason, size);
    free(text);
    return is_explained;
}

/* What became of a child that left no record. */
static enum status judge_end(const struct sweep *sweep, const struct sweep_child_end *end, char *reason,
                             size_t size)
{
    char message[400];
    last_message(sweep, message, sizeof message);
    const char *separator = *message ? "; its last message: " : "";
    if (end->is_interrupted) {
        snprintf(reason, size, "stopped by a signal while it ran");
        return ERR_INTERRUPTED;
    }
    if (end->is_timed_out) {
        snprintf(reason, size, "not done within --point-timeout %s s%s%s",
                 option_text(&sweep->options, &sweep_opt_point_timeout), separator, message);
        return ERR_TIMEOUT;
    }
    enum status explained;
    if (end->is_launcher && explained_by_launcher(sweep, &explained, reason, size))
        return explained;
    if (end->signal == SIGKILL && !end->is_launcher) { /* a launcher is small */
        snprintf(reason, size, "killed, most likely by the kernel for want of memory%s%s", separator,
                 message);
        return ERR_MEMORY;
    }
    if (end->signal != 0)
        snprintf(reason, size, "died of signal %d (%s)%s%s", end->signal, strsignal(end->signal),
                 separator, message);
    else
        snprintf(reason, size, "ended with exit code %d and no record%s%s", end->exit_code, separator,
                 message);
    return ERR_INTERNAL;
}

/* The record a child left, or NULL. */
cJSON *sweep_run_take_record(const char *path)
{
    struct results results;
    cJSON *record = NULL;
    if (access(path, F_OK) == 0 && results_read(path, &results) == OK && results.count > 0) {
        record = results.records[results.count - 1];
        results.count--;
        results_free(&results);
    }
    status_clear();
    unlink(path);
    return record;
}

/* The reference of a point is a child of its own, before the first point that needs it. Where it is
 * impossible the points still run; `why` then says so. */
static enum status ensure_reference(struct sweep *sweep, const struct sweep_point *point, char *why,
                                    size_t size)
{
    char path[2 * FILES_PATH];
    why[0] = '\0';
    snprintf(path, sizeof path, "%s/%s.safetensors", sweep->refs, point->reference_id);
    if (!*point->reference_id || access(path, R_OK) == 0)
        return OK;
    char **argv = NULL;
    size_t count = 0;
    TRY(sweep_point_argv(point, sweep->cli->argv[0], 2, &argv, &count));
    add_word(argv, &count, run_opt_reference_cache.name, sweep->refs);
    add_word(argv, &count, run_opt_reference_only.name, NULL);
    struct sweep_child_end end;
    enum status status = start_ranks(sweep, point, 1, argv, &end);
    sweep_point_free_argv(argv);
    TRY(status);
    if (end.is_interrupted)
        return ERR_INTERRUPTED;
    if (end.exit_code != 0) {
        char reason[480];
        judge_end(sweep, &end, reason, sizeof reason);
        snprintf(why, size, "no reference: %s", reason);
        log_warn("%s: %s", point->label, why);
    } else if (!launch_has_begun() && !sweep->lacks_refs && access(path, R_OK) != 0) {
        sweep->lacks_refs = true;
        log_warn("%s: the reference could not be kept there; every point computes its own again", sweep->refs);
    }
    return OK;
}

static void set_error_reason(cJSON *record, const char *why)
{
    cJSON_DeleteItemFromObjectCaseSensitive(record, "error_reason");
    json_add_text(record, "error_reason", why);
}

enum status sweep_run_child(struct sweep *sweep, const struct sweep_point *point, cJSON **record)
{
    char **argv = NULL, path[FILES_PATH], why[512], start[21];
    size_t count = 0;
    clock_utc(start);
    struct sweep_child_end end = {.is_interrupted = true};
    enum status status = ensure_reference(sweep, point, why, sizeof why);
    if (status != OK && status != ERR_INTERRUPTED)
        return status;
    folder_path(sweep, "record.jsonl", path);
    if (status == OK) {
        TRY(sweep_point_argv(point, sweep->cli->argv[0], 3, &argv, &count));
        add_word(argv, &count, run_opt_output.name, path);
        if (*why)
            add_word(argv, &count, point_opt_reference.name, "none");
        else if (*point->reference_id)
            add_word(argv, &count, run_opt_reference_cache.name, sweep->refs);
        status = start_ranks(sweep, point, (int)option_int(point->options, &point_opt_gpus), argv, &end);
        sweep_point_free_argv(argv);
        TRY(status);
    }
    *record = sweep_run_take_record(path);
    if (*record && *why)
        set_error_reason(*record, why);
    if (!*record) {
        char reason[600];
        status = judge_end(sweep, &end, reason, sizeof reason);
        *record = sweep_point_record(point, status, reason, sweep->cli->argc, sweep->cli->argv, start);
    }
    return OK;
}

/* ---- the folder for what children write ---- */

enum status sweep_run_make_folder(struct sweep *sweep)
{
    const char *parent = getenv("TMPDIR");
    snprintf(sweep->folder, sizeof sweep->folder, "%.*s/ditto-sweep.XXXXXX", FILES_PATH - 64,
             parent && *parent ? parent : "/tmp");
    if (!mkdtemp(sweep->folder)) {
        enum status status =
            FAIL(ERR_IO, "%s: cannot create: %s; set TMPDIR", sweep->folder, strerror(errno));
        sweep->folder[0] = '\0';
        return status;
    }
    return OK;
}

void sweep_run_remove_folder(const struct sweep *sweep)
{
    static const char *const names[] = {"messages", "record.jsonl"};
    char path[FILES_PATH];
    if (!*sweep->folder)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        folder_path(sweep, names[i], path);
        unlink(path);
    }
    rmdir(sweep->folder);
}

/* bench sweep: many points, each in a child process, into one result file that can be resumed. */
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/launch.h"
#include "bench/mpirun.h"
#include "bench/parallel.h"
#include "bench/point.h"
#include "bench/progress.h"
#include "bench/remote.h"
#include "bench/record.h"
#include "bench/results.h"
#include "bench/run_options.h"
#include "bench/sweep_child.h"
#include "bench/sweep_estimate.h"
#include "bench/sweep_plan.h"
#include "bench/sweep_point.h"
#include "bench/table.h"
#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "results/sweep.jsonl",
    .help = "result file (JSON Lines); references are kept beside it in FILE.refs"};
static const struct option opt_resume = {
    .name = "resume", .type = OPTION_FLAG, .fallback = "",
    .help = "add only the points that the file has no record of, measured the same way"};
static const struct option opt_retry = {
    .name = "retry", .type = OPTION_TEXT, .fallback = "",
    .help = "with --resume: also run again what has one of these outcomes, as in error,timeout,oom"};
static const struct option opt_dry_run = {
    .name = "dry-run", .type = OPTION_FLAG, .fallback = "",
    .help = "list the points, with the memory that the rank with most will hold (from the simulator), and "
            "stop; nothing is written"};
static const struct option opt_point_timeout = {
    .name = "point-timeout", .type = OPTION_REAL, .fallback = "1800", .min = 0.05, .max = 1e6,
    .unit = "s", .help = "a point that takes longer is ended and recorded as timeout"};
static const struct option opt_point_memory = {
    .name = "point-memory", .type = OPTION_INT, .fallback = "0", .min = 0, .max = 1 << 24,
    .unit = "MiB", .help = "a point that asks for more is recorded as oom; 0: no limit"};
static const struct option opt_jobs = {
    .name = "jobs", .type = OPTION_INT, .fallback = "1", .min = 1, .max = 1024, .unit = "processes",
    .help = "simulated points (device sim) that run at the same time, also -j; measured ones never do, it "
            "would spoil their latency"};
static const struct option *const sweep_options[] = {
    &opt_output, &opt_resume, &opt_retry, &opt_dry_run, &opt_jobs, &opt_point_timeout, &opt_point_memory,
    &mpirun_opt_launcher, NULL};

/* A sweep under way. */
struct sweep {
    const struct cli *cli;
    struct option_set options; /* of sweep itself */
    struct sweep_plan plan;
    struct sweep_point *points;
    const char *output;
    char folder[FILES_PATH]; /* for what children write */
    char refs[FILES_PATH];   /* for references */
    struct results_file file;
    struct progress progress;
    size_t failed;
    enum status worst;
};

/* ---- planning ---- */

static enum status plan_points(struct sweep *sweep)
{
    sweep->points = calloc(sweep->plan.count + 1, sizeof *sweep->points);
    if (!sweep->points)
        return FAIL(ERR_MEMORY, "no memory for %zu points", sweep->plan.count);
    struct sweep_known_model known = {0};
    for (size_t i = 0; i < sweep->plan.count; i++) {
        char label[SWEEP_LABEL];
        TRY(remote_fill_options(&sweep->plan.points[i]));
        sweep_plan_label(&sweep->plan, &sweep->plan.points[i], label);
        TRY(sweep_point_plan(&sweep->plan.points[i], label, &known, &sweep->points[i]));
    }
    return OK;
}

static void list_points(const struct sweep *sweep)
{
    for (size_t i = 0; i < sweep->plan.count; i++) {
        const struct sweep_point *point = &sweep->points[i];
        uint64_t bytes = 0;
        printf("%s  %s", point->case_id, point->label);
        if (*point->reason)
            printf("  refused: %s\n", point->reason);
        else if (sweep_estimate_memory(point->options, &bytes) == OK)
            printf("  %.2f MiB\n", (double)bytes / 1048576.0);
        else
            printf("  memory unknown: %s\n", status_first()->text);
        status_clear();
    }
    printf("%zu points\n", sweep->plan.count);
}

/* Whether a record's outcome is named by --retry. */
static bool is_retried(const struct sweep *sweep, const cJSON *record)
{
    const char *status = json_text(record, "status");
    const char *list = option_text(&sweep->options, &opt_retry);
    for (size_t n; status && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(status) && strncmp(list, status, n) == 0)
            return true;
    }
    return false;
}

static enum status check_retry(const struct sweep *sweep)
{
    static const char *const known[] = {"unsupported", "error", "timeout", "oom"};
    const char *list = option_text(&sweep->options, &opt_retry);
    for (size_t n; *list; list += n + (list[n] == ',')) {
        bool is_known = false;
        n = strcspn(list, ",");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || (strlen(known[i]) == n && strncmp(list, known[i], n) == 0);
        if (!is_known)
            return FAIL(ERR_USAGE, "--retry %.60s: outcomes are error, timeout, oom and unsupported", list);
    }
    if (*option_text(&sweep->options, &opt_retry) &&
        !option_setting(&sweep->options, &opt_resume)->value.flag)
        return FAIL(ERR_USAGE, "--retry needs --resume");
    return OK;
}

/* Marks what the file has already. */
static enum status find_done(struct sweep *sweep, size_t *done)
{
    *done = 0;
    struct stat info;
    if (!sweep->file.is_regular || fstat(sweep->file.fd, &info) != 0 || info.st_size == 0)
        return OK;
    if (!option_setting(&sweep->options, &opt_resume)->value.flag)
        return FAIL(ERR_USAGE,
                    "%s has records already; --resume adds the missing points, or name another "
                    "--output",
                    sweep->output);
    struct results results;
    enum status status = results_read(sweep->output, &results);
    for (size_t i = 0; i < sweep->plan.count && status == OK; i++) {
        for (size_t r = 0; r < results.count && !sweep->points[i].is_done; r++)
            sweep->points[i].is_done = !is_retried(sweep, results.records[r]) &&
                                       sweep_point_matches(&sweep->points[i], results.records[r]);
        *done += sweep->points[i].is_done;
    }
    results_free(&results);
    return status;
}

/* ---- children ---- */

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
        .timeout_s = option_real(&sweep->options, &opt_point_timeout),
        .memory_bytes = (uint64_t)option_int(&sweep->options, &opt_point_memory) << 20,
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
                 option_text(&sweep->options, &opt_point_timeout), separator, message);
        return ERR_TIMEOUT;
    }
    enum status explained;
    if (end->is_launcher && explained_by_launcher(sweep, &explained, reason, size))
        return explained;
    if (end->signal == SIGKILL) {
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
static cJSON *take_record(const char *path)
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
    }
    return OK;
}

static void set_error_reason(cJSON *record, const char *why)
{
    cJSON_DeleteItemFromObjectCaseSensitive(record, "error_reason");
    json_add_text(record, "error_reason", why);
}

static enum status run_child(struct sweep *sweep, const struct sweep_point *point, cJSON **record)
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
    *record = take_record(path);
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

static enum status make_folder(struct sweep *sweep)
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

static void remove_folder(const struct sweep *sweep)
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

/* ---- the sweep ---- */

static void count_failure(struct sweep *sweep, const char *status)
{
    static const enum status codes[] = {ERR_TIMEOUT, ERR_MEMORY, ERR_INTERNAL};
    if (strcmp(status, "ok") == 0 || strcmp(status, "unsupported") == 0)
        return;
    sweep->failed++;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(status, record_status(codes[i])) == 0 && codes[i] > sweep->worst)
            sweep->worst = codes[i];
}

/* Takes the record over. */
static enum status finish_point(struct sweep *sweep, cJSON *record)
{
    enum status status = results_append(&sweep->file, record);
    const char *outcome = json_text(record, "status");
    outcome = outcome ? outcome : "error";
    progress_end(&sweep->progress, outcome, json_text(record, "reason"));
    count_failure(sweep, outcome);
    if (status == OK && strcmp(outcome, "interrupted") == 0)
        status = ERR_INTERRUPTED;
    cJSON_Delete(record);
    return status;
}

static enum status run_point(struct sweep *sweep, struct sweep_point *point)
{
    cJSON *record = NULL;
    char start[21];
    progress_begin(&sweep->progress, point->label);
    clock_utc(start);
    if (*point->reason)
        record = sweep_point_record(point, ERR_UNSUPPORTED, point->reason, sweep->cli->argc,
                                    sweep->cli->argv, start);
    else
        TRY(run_child(sweep, point, &record));
    return finish_point(sweep, record);
}

/* ---- simulated points, several at a time ---- */

/* Which points those are. */
struct simulated {
    struct sweep *sweep;
    size_t *points, count;
};

static enum status take_name(const struct simulated *work, size_t index, const char *ending,
                             char out[FILES_PATH])
{
    int n = snprintf(out, FILES_PATH, "%s/%zu%s", work->sweep->folder, work->points[index], ending);
    return n < FILES_PATH ? OK : FAIL(ERR_USAGE, "TMPDIR: the path is too long");
}

/* In a process of its own, with a folder of its own. */
static enum status run_simulated(void *context, size_t index)
{
    struct simulated *work = context;
    struct sweep own = *work->sweep;
    struct results_file file;
    char path[FILES_PATH];
    cJSON *record = NULL;
    TRY(take_name(work, index, ".jsonl", path));
    TRY(take_name(work, index, "", own.folder));
    own.progress.is_terminal = false;
    if (mkdir(own.folder, 0700) != 0)
        return FAIL(ERR_IO, "%s: cannot create: %s", own.folder, strerror(errno));
    enum status status = run_child(&own, &own.points[work->points[index]], &record);
    if (status == OK)
        status = results_open(path, &file);
    if (status == OK) {
        status = results_append(&file, record);
        results_close(&file);
    }
    remove_folder(&own);
    return status;
}

static enum status take_simulated(void *context, size_t index)
{
    struct simulated *work = context;
    struct sweep *sweep = work->sweep;
    char path[FILES_PATH], now[21];
    TRY(take_name(work, index, ".jsonl", path));
    const struct sweep_point *point = &sweep->points[work->points[index]];
    cJSON *record = take_record(path);
    clock_utc(now);
    if (!record)
        record = sweep_point_record(point, ERR_INTERNAL, "its process ended without a record",
                                    sweep->cli->argc, sweep->cli->argv, now);
    sweep->points[work->points[index]].is_done = true;
    progress_begin(&sweep->progress, point->label);
    return finish_point(sweep, record);
}

static enum status run_simulated_points(struct sweep *sweep)
{
    int jobs = (int)option_int(&sweep->options, &opt_jobs);
    if (jobs == 1 || launch_has_begun())
        return OK;
    struct simulated work = {.sweep = sweep};
    work.points = calloc(sweep->plan.count + 1, sizeof *work.points);
    if (!work.points)
        return FAIL(ERR_MEMORY, "no memory for %zu points", sweep->plan.count);
    for (size_t i = 0; i < sweep->plan.count; i++) {
        const struct sweep_point *point = &sweep->points[i];
        if (!point->is_done && !*point->reason &&
            strcmp(option_text(point->options, &point_opt_device), "sim") == 0)
            work.points[work.count++] = i;
    }
    if (work.count == 0)
        log_warn("--jobs: no point is simulated; measured points run one at a time, use --device sim");
    const struct parallel parallel = {.count = work.count, .jobs = jobs, .run = run_simulated,
                                      .done = take_simulated, .context = &work};
    enum status status = parallel_run(&parallel);
    free(work.points);
    return status;
}

static enum status run_points(struct sweep *sweep)
{
    enum status status = run_simulated_points(sweep);
    for (size_t i = 0; i < sweep->plan.count && status == OK; i++) {
        if (sweep->points[i].is_done)
            continue;
        status = sweep_child_interrupted() ? ERR_INTERRUPTED : run_point(sweep, &sweep->points[i]);
        if (status == OK && launch_is_over())
            status = FAIL(ERR_PEER, "this MPI job ended with that point; %s keeps what is finished, "
                                    "--resume adds the rest",
                          sweep->output);
    }
    if (status == ERR_INTERRUPTED)
        return FAIL(ERR_INTERRUPTED, "%s keeps what is finished; --resume adds the rest",
                    sweep->output);
    return status;
}

static enum status show_table(const struct sweep *sweep)
{
    struct results results;
    enum status status = results_read(sweep->output, &results);
    if (status == OK) {
        results_drop_superseded(&results);
        status = table_print(stdout, &results);
    }
    results_free(&results);
    return status;
}

static enum status prepare(struct sweep *sweep)
{
    size_t done = 0;
    if (snprintf(sweep->refs, sizeof sweep->refs, "%s.refs", sweep->output) >=
        (int)sizeof sweep->refs)
        return FAIL(ERR_USAGE, "--output %.80s...: the path is too long", sweep->output);
    TRY(files_make_parent(sweep->output));
    TRY(results_open(sweep->output, &sweep->file));
    TRY(find_done(sweep, &done));
    progress_open(&sweep->progress, sweep->plan.count, done);
    return make_folder(sweep);
}

/* Options of sweep alone; the rest of the command line is the plan's. */
static enum status own_options(struct sweep *sweep)
{
    TRY(option_set_add(&sweep->options, sweep_options));
    for (size_t i = 0; i < sweep->cli->count; i++) {
        const struct cli_argument *argument = &sweep->cli->arguments[i];
        if (option_setting(&sweep->options, argument->option))
            TRY(option_assign(&sweep->options, argument->option->name, argument->text));
    }
    sweep->output = option_text(&sweep->options, &opt_output);
    return check_retry(sweep);
}

static enum status run_sweep(struct sweep *sweep)
{
    TRY(own_options(sweep));
    TRY(sweep_plan_build(sweep->cli, &sweep->plan));
    TRY(plan_points(sweep));
    if (option_setting(&sweep->options, &opt_dry_run)->value.flag) {
        list_points(sweep);
        return OK;
    }
    TRY(prepare(sweep));
    if (!launch_has_begun())
        sweep_child_block_signals();
    TRY(run_points(sweep));
    TRY(show_table(sweep));
    if (sweep->failed > 0)
        return FAIL(sweep->worst, "%zu of %zu points failed; %s says why", sweep->failed,
                    sweep->plan.count, sweep->output);
    return OK;
}

static enum status run(const struct cli *cli)
{
    struct sweep sweep = {.cli = cli, .file = {.fd = -1}, .worst = ERR_TIMEOUT};
    enum status status = run_sweep(&sweep);
    remove_folder(&sweep);
    results_close(&sweep.file);
    free(sweep.points);
    sweep_plan_free(&sweep.plan);
    option_set_free(&sweep.options);
    return status;
}

const struct command command_sweep = {
    .name = "sweep",
    .summary = "many points into one result file, resumable",
    .synopsis = "[FILE.json] [OPTIONS]",
    .description =
        "Runs every combination of the values given: options of a point take lists (--gpus 1,2,4), or a "
        "JSON file has them: {\"base\": {\"steps\": 20}, \"axes\": {\"strategy\": [\"tp\", "
        "\"tp-stale\"], \"gpus\": [1, 2]}, \"exclude\": [{\"strategy\": \"tp\", \"gpus\": 1}]}. "
        "Options on the command line replace those of the file. Combinations that differ only in what "
        "their strategy has no use for are one point.\n"
        "Each point runs in a process of its own: one that fails, hangs or runs out of memory becomes "
        "a record with its reason, and the sweep goes on. Interrupted, everything finished is kept; "
        "--resume completes it. At the end a table is printed.",
    .examples = "  bench sweep --strategy serial,tp,tp-stale --gpus 1,2,4 -o results/mine.jsonl\n"
                "  bench sweep bench/sweeps/quickstart.json -o results/quickstart.jsonl --resume\n",
    .takes_point = true,
    .uses_ranks = true,
    .operands_max = 1,
    .options = sweep_options,
    .run = run,
};

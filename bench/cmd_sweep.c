/* bench sweep: many points, each in a child process, into one result file that can be resumed. */
#include "bench/launch.h"
#include "bench/mpirun.h"
#include "bench/point.h"
#include "bench/remote.h"
#include "bench/sweep_child.h"
#include "bench/sweep_estimate.h"
#include "bench/sweep_points.h"
#include "bench/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
const struct option sweep_opt_point_timeout = {
    .name = "point-timeout", .type = OPTION_REAL, .fallback = "1800", .min = 0.05, .max = 1e6,
    .unit = "s", .help = "a point that takes longer is ended and recorded as timeout"};
const struct option sweep_opt_point_memory = {
    .name = "point-memory", .type = OPTION_INT, .fallback = "0", .min = 0, .max = 1 << 24,
    .unit = "MiB", .help = "a point that asks for more is recorded as oom; 0: no limit"};
const struct option sweep_opt_jobs = {
    .name = "jobs", .type = OPTION_INT, .fallback = "1", .min = 1, .max = 1024, .unit = "processes",
    .help = "simulated points (device sim) that run at the same time, also -j; measured ones never do, it "
            "would spoil their latency"};
static const struct option *const sweep_options[] = {
    &opt_output, &opt_resume, &opt_retry, &opt_dry_run, &sweep_opt_jobs, &sweep_opt_point_timeout, &sweep_opt_point_memory,
    &mpirun_opt_launcher, NULL};

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
        else if (sweep_estimate_memory(point, &bytes) == OK)
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

/* ---- the sweep ---- */

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
    if (!sweep->file.is_regular)
        return FAIL(ERR_USAGE, "--output %s: not a regular file, and a sweep reads its records again for the "
                               "table and for --resume", sweep->output);
    TRY(find_done(sweep, &done));
    progress_open(&sweep->progress, sweep->plan.count, done);
    return sweep_run_make_folder(sweep);
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
    TRY(sweep_points_run(sweep));
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
    sweep_run_remove_folder(&sweep);
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

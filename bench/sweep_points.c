/* One by one where latency is measured, side by side where it is computed. */
#include "bench/sweep_points.h"

#include "bench/launch.h"
#include "bench/parallel.h"
#include "bench/point.h"
#include "bench/record.h"
#include "bench/sweep_child.h"
#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* A point is done when its record is on the disk. */
static enum status keep_record(struct sweep *sweep, const cJSON *record)
{
    enum status status = results_append(&sweep->file, record);
    if (status != OK) {
        progress_end(&sweep->progress, "lost", status_first()->text);
        log_warn("%s keeps the points before this one; make room, then --resume adds the rest",
                 sweep->output);
        return status;
    }
    const char *outcome = json_text(record, "status");
    outcome = outcome ? outcome : "error";
    progress_end(&sweep->progress, outcome, json_text(record, "reason"));
    count_failure(sweep, outcome);
    return strcmp(outcome, "interrupted") == 0 ? ERR_INTERRUPTED : OK;
}

/* Takes the record over. */
static enum status finish_point(struct sweep *sweep, cJSON *record)
{
    enum status status = keep_record(sweep, record);
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
        TRY(sweep_run_child(sweep, point, &record));
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
    enum status status = sweep_run_child(&own, &own.points[work->points[index]], &record);
    if (status == OK)
        status = results_open(path, &file);
    if (status == OK) {
        status = results_append(&file, record);
        results_close(&file);
    }
    sweep_run_remove_folder(&own);
    return status;
}

static enum status take_simulated(void *context, size_t index)
{
    struct simulated *work = context;
    struct sweep *sweep = work->sweep;
    char path[FILES_PATH], now[21];
    TRY(take_name(work, index, ".jsonl", path));
    const struct sweep_point *point = &sweep->points[work->points[index]];
    cJSON *record = sweep_run_take_record(path);
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
    int jobs = (int)option_int(&sweep->options, &sweep_opt_jobs);
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

enum status sweep_points_run(struct sweep *sweep)
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

/* bench run: one point, one record. */
#include "bench/advice.h"
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/image.h"
#include "bench/measure.h"
#include "bench/record.h"
#include "bench/reference.h"
#include "bench/remote.h"
#include "bench/results.h"
#include "bench/run_options.h"
#include "bench/trace.h"
#include "common/clock.h"
#include "common/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct option run_opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "",
    .help = "file the record is appended to (JSON Lines); standard output when not given"};
const struct option run_opt_dump = {
    .name = "dump", .type = OPTION_TEXT, .fallback = "",
    .help = "safetensors file for the result: x_0 and the trajectory [steps, ...], F32"};
const struct option run_opt_image = {
    .name = "image", .type = OPTION_TEXT, .fallback = "",
    .help = "PNG file: reference, result and amplified difference side by side"};
const struct option run_opt_trace = {
    .name = "trace", .type = OPTION_TEXT, .fallback = "",
    .help = "time line of the last timed run, for chrome://tracing or ui.perfetto.dev"};
const struct option run_opt_reference_cache = {
    .name = "reference-cache", .type = OPTION_TEXT, .fallback = "",
    .help = "folder where computed references are kept and looked for; sweeps use it"};
const struct option run_opt_reference_only = {
    .name = "reference-only", .type = OPTION_FLAG, .fallback = "",
    .help = "compute the reference into --reference-cache and stop, without a record"};
static const struct option *const run_options[] = {
    &run_opt_output, &run_opt_dump, &run_opt_image, &run_opt_trace, &run_opt_reference_cache,
    &run_opt_reference_only, NULL};

/* One run under way. */
struct job {
    const struct cli *cli;
    struct option_set options;
    struct point point;
    struct measurement measurement;
    bool is_measured;
    struct reference reference;
    struct error_report error;
    bool is_compared;
    char error_reason[sizeof((struct failure *)0)->text];
    char start[21];
};

static const char *given(const struct job *job, const struct option *option)
{
    const char *text = option_text(&job->options, option);
    return *text ? text : NULL;
}

/* Why the error stays null; the failure behind it is used up. */
static void excuse_error(struct job *job, const char *why)
{
    snprintf(job->error_reason, sizeof job->error_reason, "%s", why);
    status_clear();
}

/* A named file must fit; a reference that cannot be computed only costs the error. */
static enum status find_reference(struct job *job)
{
    const char *choice = option_text(&job->options, &point_opt_reference);
    if (!job->measurement.x0) {
        excuse_error(job, "this device has no data to compare");
        return OK;
    }
    if (strcmp(choice, "none") == 0) {
        excuse_error(job, "--reference none");
        return OK;
    }
    bool is_auto = strcmp(choice, "auto") == 0;
    if (!is_auto) {
        TRY(reference_file(&job->point, choice, &job->reference));
    } else if (reference_serial(&job->point, &job->measurement,
                                given(job, &run_opt_reference_cache), &job->reference) != OK) {
        log_warn("no reference, the error stays unknown: %s; --reference FILE names one",
                 status_first()->text);
        excuse_error(job, status_first()->text);
        return OK;
    }
    TRY(reference_compare(&job->reference, &job->point, &job->measurement, &job->error));
    job->is_compared = true;
    return OK;
}

static enum status write_extras(const struct job *job)
{
    const struct measurement *m = &job->measurement;
    const char *dump = given(job, &run_opt_dump), *image = given(job, &run_opt_image);
    const char *trace = given(job, &run_opt_trace);
    if (!m->x0 && (dump || image))
        log_warn("--dump and --image: this device has no data; nothing is written");
    if (m->x0 && dump)
        TRY(reference_dump(dump, &job->point, m->x0, m->trajectory, (size_t)m->steps, NULL));
    if (m->x0 && image)
        TRY(image_write(image, &job->point, m->x0, job->reference.x0));
    return trace ? trace_write(trace, m) : OK;
}

static enum status measure(struct job *job)
{
    const struct measure_request request = {.want_output = job->point.device->memory != MEMORY_VIRTUAL,
                                            .want_trace = given(job, &run_opt_trace) != NULL};
    TRY(measure_point(&job->point, &request, &job->measurement));
    job->is_measured = true;
    advice_print(&job->point, &job->measurement);
    TRY(find_reference(job));
    return write_extras(job);
}

static enum status compute_reference_only(struct job *job)
{
    const char *cache = given(job, &run_opt_reference_cache);
    if (!cache)
        return FAIL(ERR_USAGE, "--reference-only needs --reference-cache");
    return reference_serial(&job->point, NULL, cache, &job->reference);
}

/* The failure in words: rank 3: text. */
static void describe_failure(enum status status, char *out, size_t size)
{
    const struct failure *first = status_first();
    if (first->code == OK)
        snprintf(out, size, "%s", status_text(status));
    else if (first->rank >= 0)
        snprintf(out, size, "rank %d: %s", first->rank, first->text);
    else
        snprintf(out, size, "%s", first->text);
}

static enum status emit(struct job *job, struct results_file *file, enum status outcome)
{
    char end[21], reason[600];
    clock_utc(end);
    if (outcome != OK)
        describe_failure(outcome, reason, sizeof reason);
    const struct record_facts facts = {
        .point = &job->point,
        .measurement = job->is_measured ? &job->measurement : NULL,
        .error = job->is_compared ? &job->error : NULL,
        .error_reason = job->error_reason,
        .status = outcome,
        .reason = outcome != OK ? reason : NULL,
        .argc = job->cli->argc,
        .argv = job->cli->argv,
        .start = job->start,
        .end = end,
    };
    cJSON *record = record_build(&facts);
    enum status status = results_append(file, record);
    cJSON_Delete(record);
    return outcome != OK ? outcome : status;
}

/* Found before anything is measured. */
static enum status check_place(const char *path)
{
    if (!path)
        return OK;
    struct files_output file;
    if (files_create(path, &file) != OK) {
        status_clear();
        return FAIL(ERR_USAGE, "%s: cannot write there; name a place in a folder that exists", path);
    }
    files_discard(&file);
    return OK;
}

static enum status run_job(struct job *job)
{
    TRY(cli_options(job->cli, &job->options));
    TRY(remote_fill_options(&job->options));
    enum status status = point_resolve(&job->options, &job->point);
    if (status == ERR_USAGE)
        return status;
    if (status == OK && option_setting(&job->options, &run_opt_reference_only)->value.flag)
        return compute_reference_only(job);
    if (status == OK)
        TRY(remote_check_ranks(&job->point, job->cli->is_within_sweep));
    const struct option *const places[] = {&run_opt_dump, &run_opt_image, &run_opt_trace};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        TRY(check_place(given(job, places[i])));
    struct results_file file;
    TRY(results_open(given(job, &run_opt_output), &file));
    if (status == OK)
        status = measure(job);
    if (status != ERR_USAGE)
        status = emit(job, &file, status);
    results_close(&file);
    return status;
}

static enum status run(const struct cli *cli)
{
    struct job job = {.cli = cli};
    clock_utc(job.start);
    enum status status = run_job(&job);
    error_report_free(&job.error);
    reference_free(&job.reference);
    measure_free(&job.measurement);
    point_close(&job.point);
    option_set_free(&job.options);
    return status;
}

const struct command command_run = {
    .name = "run",
    .summary = "one point: measures it, writes one record",
    .synopsis = "[OPTIONS]",
    .description =
        "Runs one strategy on one problem and writes one JSON record: latency, bytes sent, memory, and "
        "the error against the serial reference. How every number is defined: docs/measuring.md; the "
        "record field by field: docs/record.md.\n"
        "A combination that the strategy, device or model refuses gives a record with status "
        "unsupported and exit code 1.",
    .examples =
        "  bench run --strategy tp --gpus 4 --resolution 32\n"
        "  bench run --strategy tp-stale --stale-mode peers --gpus 4 --warmup-steps 2 --image error.png\n"
        "  bench run --model dit-s-2 --resolution 256 --steps 4 -o results/mine.jsonl\n",
    .takes_point = true,
    .uses_ranks = true,
    .options = run_options,
    .run = run,
};

/* A sweep under way, and one point of it in a child process. */
#ifndef BENCH_SWEEP_RUN_H
#define BENCH_SWEEP_RUN_H

#include "bench/cli.h"
#include "bench/files.h"
#include "bench/progress.h"
#include "bench/results.h"
#include "bench/sweep_plan.h"
#include "bench/sweep_point.h"
#include <stdbool.h>

struct sweep {
    const struct cli *cli;
    struct option_set options; /* of sweep itself */
    struct sweep_plan plan;
    struct sweep_point *points;
    const char *output;
    char folder[FILES_PATH]; /* for what children write */
    char refs[FILES_PATH];   /* for references */
    bool lacks_refs;         /* the user knows that they cannot be kept there */
    struct results_file file;
    struct progress progress;
    size_t failed;
    enum status worst;
};

/* Options of bench sweep that matter while points run. */
extern const struct option sweep_opt_point_timeout, sweep_opt_point_memory, sweep_opt_jobs;

/* The folder for what children write, in TMPDIR. */
enum status sweep_run_make_folder(struct sweep *) WARN_UNUSED;
void sweep_run_remove_folder(const struct sweep *);
/* Runs the point, before it its reference where that is missing. Whatever becomes of the child, *record says
 * it; free with cJSON_Delete. A failure is one of the sweep itself. */
enum status sweep_run_child(struct sweep *, const struct sweep_point *, cJSON **record) WARN_UNUSED;
/* The record that a child left, or NULL; the file is gone then. */
cJSON *sweep_run_take_record(const char *path);

#endif

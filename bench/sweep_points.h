/* All points of a sweep. */
#ifndef BENCH_SWEEP_POINTS_H
#define BENCH_SWEEP_POINTS_H

#include "bench/sweep_run.h"

/* Runs every point that is not done, and appends its record as it ends: simulated ones first and several at
 * a time with --jobs, the others one by one. Counts what failed. ERR_INTERRUPTED: by a signal. */
enum status sweep_points_run(struct sweep *) WARN_UNUSED;

#endif

/* Two builds of bench on one point, in turn, so that drift of the machine hits both alike. */
#ifndef BENCH_COMPARE_RUNS_H
#define BENCH_COMPARE_RUNS_H

#include "bench/results.h"

/* Runs `PROGRAM run ARGUMENTS` for both programs, `samples` times each: base new, new base, base new...
 * Every run is a process of its own and gives one record. ERR_USAGE: a program cannot be started, or the
 * arguments send the record elsewhere. ERR_IO: a program gave no good record; its messages then go to
 * stderr (else nowhere: that a single run is noisy says nothing here). Free both results in every case. */
enum status compare_runs(const char *const programs[2], const char *const *arguments, size_t count,
                         int samples, struct results out[2]) WARN_UNUSED;

#endif

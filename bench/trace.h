/* Time line of one timed run in Chrome's trace format (chrome://tracing, ui.perfetto.dev): a process a
 * rank, a row a lane. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include "bench/measure.h"

enum status trace_write(const char *path, const struct measurement *) WARN_UNUSED;

#endif

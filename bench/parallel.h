/* Several child processes at a time, for work that is not measured. */
#ifndef BENCH_PARALLEL_H
#define BENCH_PARALLEL_H

#include "common/status.h"
#include <stddef.h>

struct parallel {
    size_t count; /* pieces of work */
    int jobs;     /* at most so many at a time */
    /* In a child: does a piece; what it leaves goes through files. */
    enum status (*run)(void *context, size_t index);
    /* Here, as each ends, in any order. A failure ends the rest. */
    enum status (*done)(void *context, size_t index);
    void *context;
};

/* SIGCHLD, SIGINT and SIGTERM must be blocked. ERR_INTERRUPTED: a signal came; the running pieces got SIGTERM
 * and were done with, the others did not begin. ERR_IO: no process could be started. */
enum status parallel_run(const struct parallel *) WARN_UNUSED;

#endif

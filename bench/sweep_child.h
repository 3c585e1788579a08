/* One point of a sweep as a process of its own: whatever it does, the sweep goes on. */
#ifndef BENCH_SWEEP_CHILD_H
#define BENCH_SWEEP_CHILD_H

#include "common/status.h"
#include <stdbool.h>
#include <stdint.h>

struct sweep_child_request {
    char *const *argv;       /* NULL-terminated */
    bool is_launcher;        /* argv[0] is a program that starts this one; else this program itself */
    const char *result_path; /* OPTIONAL: a launcher that lives on for 5 s after this file was written is
                                ended: it may wait for hosts that it cannot reach any more */
    double timeout_s;        /* 0: none */
    uint64_t memory_bytes;   /* of private writable memory; 0: no limit */
    const char *stderr_path; /* file that takes the child's messages */
    void (*tick)(void *);    /* OPTIONAL: called every second */
    void *context;
};

struct sweep_child_end {
    int exit_code; /* -1: ended by `signal` */
    int signal;
    bool is_launcher; /* of what was asked for */
    bool is_timed_out, is_interrupted; /* ended by the sweep: the limit, or a signal to the sweep */
};

/* Blocks SIGCHLD, SIGINT and SIGTERM: from now on they are only taken by sweep_child_run. */
void sweep_child_block_signals(void);
/* Starts this program again with argv, or a launcher, and waits for it. A launcher is asked to end before
 * it is killed, so that it can end what it started. The child and its own children are killed when
 * time is up, when this process is interrupted, and when this process dies. ERR_IO: cannot start. */
enum status sweep_child_run(const struct sweep_child_request *, struct sweep_child_end *out) WARN_UNUSED;
/* True once SIGINT or SIGTERM is pending: a sweep stops before its next point. */
bool sweep_child_interrupted(void);

#endif

/* Progress of a sweep on stderr: one line that is rewritten on a terminal, plain lines otherwise. */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    size_t total, done, skipped; /* skipped: of total, in the file already */
    int64_t start_ns, point_ns;
    bool is_terminal;
    const char *label;
};

void progress_open(struct progress *, size_t total, size_t skipped);
/* A point begins; `label` stays valid until it ends. */
void progress_begin(struct progress *, const char *label);
/* Called now and then while the point runs. */
void progress_tick(void *progress);
/* The point ended with a record of this status. */
void progress_end(struct progress *, const char *status, const char *reason);

#endif

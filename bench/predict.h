/* What the simulator says of a published row. */
#ifndef BENCH_PREDICT_H
#define BENCH_PREDICT_H

#include "bench/published.h"

enum { PREDICT_ALL_STEPS = 0 };

struct prediction {
    enum status status; /* OK, or why there is none: ERR_MEMORY, ERR_UNSUPPORTED */
    char reason[256];
    double seconds;
    uint64_t peak_bytes; /* of the rank that holds most */
    int patches;         /* of pipefusion; 0: not one */
};

/* Runs the row on the platform. emulates: with the copies of the published code. steps: so many, the time
 * scaled to the row's (serial and tp, whose steps are alike); or PREDICT_ALL_STEPS. ERR_USAGE, ERR_FORMAT: the
 * row cannot be a point; other failures are the prediction's. */
enum status predict_row(const struct platform *, bool emulates, const struct published_row *, int steps,
                        struct prediction *out) WARN_UNUSED;

#endif

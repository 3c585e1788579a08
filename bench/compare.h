/* Two result files against each other: what became slower, larger or less exact.
 *
 * Points are joined by case_id. Bytes, memory and simulated time are exact: any difference is one.
 * Measured latency is a difference when Mann and Whitney's U test, corrected by Holm over all points,
 * says so at 5% and the ratio leaves the noise threshold. With fewer than 9 samples on a side the 95%
 * intervals of the medians must lie apart instead; with fewer than 6 it is not judged. Neither is a
 * latency of more ranks than cores. Errors within 5 x the noise floor on both sides are equal. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "bench/results.h"
#include "bench/stats.h"
#include <stdbool.h>

enum compare_aspect { COMPARE_LATENCY, COMPARE_BYTES, COMPARE_MEMORY, COMPARE_ERROR, COMPARE_ASPECTS };

/* What may grow by how much, as a fraction; INFINITY: anything goes. */
struct compare_limits {
    double of[COMPARE_ASPECTS];
    double simulated; /* latency of device sim */
    double missing;   /* points that are in BASE only, or fail now: how many */
    double noise;     /* a ratio of latencies within 1 +- noise is no difference */
    bool by_min;      /* of several records of a case: the least latency of each, not its median */
};
/* "latency=10%,bytes=0,missing=0"; what is not named is not judged, except that simulated latency is then
 * judged like latency. "none": nothing. ERR_USAGE says what is allowed. Leaves `noise` and `by_min`
 * alone. */
enum status compare_parse_limits(const char *text, struct compare_limits *) WARN_UNUSED;

enum compare_verdict {
    COMPARE_UNKNOWN,  /* neither side has it */
    COMPARE_UNJUDGED, /* `why` says why */
    COMPARE_SAME,
    COMPARE_LESS,
    COMPARE_MORE,
};

struct compare_change {
    enum compare_verdict verdict;
    double base, now; /* latency: us; bytes, memory: of the rank that grew most */
    double change;    /* now / base - 1 */
    const char *why;
    bool is_regression;
};

struct compare_case {
    const cJSON *base, *now; /* a record that represents the case; NULL: not on this side */
    bool is_lost;            /* ok in BASE, absent or failed in NEW */
    bool is_simulated;
    struct compare_change of[COMPARE_ASPECTS];
    struct stats_ratio ratio; /* of measured latency */
    double p;                 /* corrected; NAN: not tested */
    size_t base_samples, now_samples;
    bool overlaps;            /* the intervals of the medians do, or are not known */
};

struct comparison {
    struct compare_case *cases; /* in the order of BASE, then what only NEW has */
    size_t count, joined, regressed, lost, added;
};

/* A case with several records is represented by its last ok one; each record's median then is one
 * sample of its latency, as samples of one process are not independent. The records stay the caller's.
 * Free with compare_free in every case. */
enum status compare_results(const struct results *base, const struct results *now,
                            const struct compare_limits *, struct comparison *out) WARN_UNUSED;
void compare_free(struct comparison *);
/* Whether the limits are kept. */
bool compare_passes(const struct comparison *, const struct compare_limits *);

#endif

/* Measures one point: an error run (untimed, uncounted, keeps the trajectory), warm-up runs, timed runs.
 * How every number is defined: docs/measuring.md. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench/point.h"
#include "common/arena.h"
#include "common/meter.h"

struct rank_result {
    struct comm_counts counts;  /* of one timed run (the same in each: checked) */
    struct cost claim;
    struct memory_ledger memory;
    uint64_t moved_bytes;       /* by the transport's own count, of one run */
    uint64_t process_peak_bytes; /* resident memory of the rank's process at its most */
    double compute_us, exposed_us, bubble_us; /* medians over the timed runs */
    double start_skew_us;       /* this rank's start after the first rank's; the most over runs */
};

/* One interval of one lane of one rank, from the first rank's start. Plain data: it travels. */
struct trace_event {
    char name[24], lane[16];     /* "linear"; "compute", "comm", "send", "recv", "wait" */
    int rank, peer;              /* peer of a point-to-point link; else -1 */
    int step, layer, patch;      /* -1: none */
    enum traffic traffic;        /* of communication */
    int64_t begin_ps, end_ps;
};

struct measurement {
    int nranks, repeat, steps;
    bool is_oversubscribed;
    const char *attention;         /* of rank 0's device: see struct device; static */
    struct rank_result *ranks;     /* nranks */
    double *latency_us;            /* repeat: max over ranks, from a synchronised start */
    double *per_step_us;           /* steps: medians over runs of the time between the ends of steps,
                                      an end being the last rank's */
    double wall_full_us, wall_compute_us, wall_comm_us; /* medians; NAN: not measured. latency_us are
                                      the runs of --mode (full, unless compute or comm was asked) */
    /* The error run; NULL where there is no data (simulator). */
    float *x0;                     /* [frames, channels, height, width] */
    float *trajectory;             /* [steps, frames, channels, height, width] */
    size_t values;                 /* of x0 */
    struct trace_event *events;    /* with want_trace: of the last timed run, all ranks */
    size_t event_count, dropped_events;
};

struct measure_request {
    bool want_output;  /* do the error run */
    bool want_trace;
    bool splits_inner; /* noise floor: see struct device */
};

/* ERR_*: the first rank's own failure. Free with measure_free in every case. */
enum status measure_point(const struct point *, const struct measure_request *, struct measurement *)
    WARN_UNUSED;
void measure_free(struct measurement *);

/* The parts of measure_point, for ranks in other processes: every process makes the job, runs its rank,
 * and frees the job once all ranks have left. Only rank 0's `out` is filled. */
struct measure_job;
enum status measure_job_new(const struct point *, const struct measure_request *,
                            struct measurement *out, struct measure_job **) WARN_UNUSED;
enum status measure_job_rank(struct team *, void *job); /* a launch_fn */
void measure_job_free(struct measure_job *);            /* accepts NULL */

#endif

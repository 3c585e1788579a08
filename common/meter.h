/* What one rank measured: bytes by kind, time spent waiting, and, when a trace is asked for, every
 * operation on every lane. Fed by the wrappers of device and comm only; strategies merely say where in
 * the model they are. Uses time marks, so it works in wall, CUDA and virtual time alike. */
#ifndef COMMON_METER_H
#define COMMON_METER_H

#include "common/comm.h"
#include "common/lane.h"
#include <stdbool.h>

/* What runs: everything, arithmetic alone (communication is skipped and not counted), or communication
 * alone (arithmetic is skipped). The difference of the three gives exposed time and overlap. */
enum run_mode { RUN_FULL, RUN_COMPUTE, RUN_COMM };

/* One interval on one lane, for traces. Times are marks until meter_resolve. */
struct meter_event {
    const char *name;             /* static text: "linear", "all_gather" */
    const char *lane;             /* static text: "compute", "comm", "send", "recv", "wait" */
    int peer;                     /* of a point-to-point link; else -1 */
    int step, layer, patch;       /* -1: none */
    enum traffic traffic;         /* of communication */
    struct mark begin, end;
    int64_t begin_ps, end_ps;     /* after meter_resolve, from the start mark */
};

struct meter {
    struct lane_system *lanes;
    enum run_mode mode;
    bool is_counting;             /* off in the error run and in warm-up runs */
    bool is_tracing;
    int step, layer, patch;       /* where the rank is; -1: none */
    enum step_phase phase;
    struct comm_counts counts;
    /* waits of the current run: what the compute lane stood still for */
    struct meter_wait {
        struct mark begin, matched, end;
    } * waits;
    size_t wait_count, wait_capacity; /* kept only where marks have events; else summed at once: */
    int64_t waited_ps, bubble_ps;
    struct meter_event *events;
    size_t event_count, event_capacity;
    size_t dropped_events;        /* the trace was full: whoever writes it warns */
    struct mark start, stop;
    struct mark *step_ends;       /* steps entries, for latency per step */
    int step_capacity;            /* steps */
};

/* Sums of one run, in picoseconds, after meter_resolve. exposed: the compute lane stood still in
 * comm_wait; bubble: the part of it before the last peer had started the operation; compute: the rest
 * of the time from start to stop. */
struct meter_times {
    int64_t total_ps, compute_ps, exposed_ps, bubble_ps;
};

/* max_events bounds the trace (0: no trace); all memory is taken here, none inside timing. */
enum status meter_open(struct meter *, struct lane_system *, int steps, size_t max_waits,
                       size_t max_events) WARN_UNUSED;
void meter_close(struct meter *);
/* Forgets times, events and counts of the last run, and the lane system's marks with them. Called before
 * every run, the uncounted ones too. */
void meter_reset(struct meter *);

/* Called by strategies: where the rank is. A step is stale when it uses values of an earlier step. */
void meter_step(struct meter *, int step, enum step_phase phase);
enum status meter_step_end(struct meter *) WARN_UNUSED;
void meter_at(struct meter *, int layer, int patch);

/* Called by measure: around one run, while all lanes are idle (stop: after lane_sync). */
enum status meter_start(struct meter *) WARN_UNUSED;
enum status meter_stop(struct meter *) WARN_UNUSED;
/* After lane_sync: marks become times. */
void meter_resolve(struct meter *, struct meter_times *out);

/* Called by the wrappers. meter_begin returns an event index for meter_end, or -1 when not tracing. */
enum status meter_begin(struct meter *, const char *name, int *event) WARN_UNUSED;
enum status meter_end(struct meter *, int event) WARN_UNUSED;
/* One call, when is_counting and unless communication is skipped. */
void meter_count(struct meter *, enum comm_op, enum traffic, uint64_t payload, uint64_t sent);
enum status meter_wait_begin(struct meter *, struct mark *begin) WARN_UNUSED;
/* The wait ends now. Also traces it, and the ended operation (from matched to ended) on the lane "comm",
 * or on "send" and "recv" of its links. ERR_INTERNAL: more waits than meter_open was
 * told, where they must be kept. */
enum status meter_wait_end(struct meter *, const struct mark *begin, const struct comm_request *)
    WARN_UNUSED;

#endif

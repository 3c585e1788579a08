/* Everything one rank needs to run a strategy, made in order and taken down in reverse. */
#ifndef BENCH_RANK_SETUP_H
#define BENCH_RANK_SETUP_H

#include "bench/measure.h"

struct rank_setup {
    struct rank rank;
    struct meter meter;
    struct memory_ledger ledger;
    struct rank_result result;
    uint64_t moved_bytes;        /* of the last run */
    struct trace_event *events;  /* kept by rank_setup_keep_events */
    size_t event_count, dropped_events;
    int64_t start_ps;            /* of the run they are of, on the clock of the team */
    bool is_set_up;              /* the strategy's setup has ended well */
};

/* Collective: device, communicators, arenas, the strategy's setup. After a failure of any rank, close
 * once every rank has left. */
enum status rank_setup_open(struct rank_setup *, const struct point *, struct team *,
                            size_t max_events) WARN_UNUSED;
/* Idempotent; accepts a zeroed object. */
void rank_setup_close(struct rank_setup *);
/* Bytes moved by all communicators of the rank so far. */
uint64_t rank_setup_moved_bytes(const struct rank_setup *);
/* Copies the meter's events, with times, for rank_setup_gather_events. */
enum status rank_setup_keep_events(struct rank_setup *) WARN_UNUSED;
/* Collective: on rank 0, everybody's kept events (owned by the caller). */
enum status rank_setup_gather_events(struct rank_setup *, struct trace_event **out, size_t *count,
                                     size_t *dropped) WARN_UNUSED;

#endif

/* A measurement that ranks in other processes take part in: described on rank 0, made again on the others
 * from its options. They read their own slices of the model; rank 0 alone hashes and checks the file. */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include "bench/launch.h"
#include "bench/measure.h"

/* Text that remote_maker understands. Owner: the caller, with free(). */
enum status remote_describe(const struct point *, const struct measure_request *, char **out) WARN_UNUSED;
extern const struct launch_maker remote_maker;

/* When an outer launcher started this program and its ranks are used: transport mpi and all its ranks,
 * where the set does not say otherwise. */
enum status remote_fill_options(struct option_set *) WARN_UNUSED;
/* ERR_USAGE: the point is for another number of ranks than the outer launcher's; `may_be_fewer`: more. */
enum status remote_check_ranks(const struct point *, bool may_be_fewer) WARN_UNUSED;

#endif

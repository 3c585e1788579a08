/* What a point will hold, before it is run. */
#ifndef BENCH_SWEEP_ESTIMATE_H
#define BENCH_SWEEP_ESTIMATE_H

#include "bench/sweep_point.h"

/* Peak bytes of the rank that holds most: the strategy itself, run on device sim, where shapes are
 * allocated and nothing is computed. The workspace of another device's library is not in it. ERR_*: why
 * the point cannot be run at all. */
enum status sweep_estimate_memory(const struct sweep_point *, uint64_t *out) WARN_UNUSED;

#endif

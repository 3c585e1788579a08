/* An activation sharded over ranks along one of its dimensions, and the ways from one sharding to another
 * (dynamic sequence parallelism, arXiv:2403.10266, table 2): split, switch, gather.
 *
 * The activation is [size[0], ..., size[dims-1], width] of T, row major. Sharded along dimension i, rank r
 * holds part r of that dimension (partition_span) and all of the others, contiguous:
 * [size[0], ..., count_r, ..., size[dims-1], width]. Any sizes: a rank may hold nothing.
 *
 *   split    whole -> i     every rank takes its part of what all of them hold; nothing is sent
 *   switch   i -> j         one all-to-all of the shards
 *   gather   i -> whole     one all-gather of the shards
 *
 * Messages of a switch are exact, or padded: then every rank sends to every other a block of
 * ceil(size[i] / ranks) by ceil(size[j] / ranks), zeros where there is no data. Padding never leaves the
 * messages. */
#ifndef STRATEGIES_SHARDED_H
#define STRATEGIES_SHARDED_H

#include "strategies/strategy.h"

enum { SHARDED_MAX_DIMS = 4, SHARDED_WHOLE = -1 };

struct sharded_shape {
    int dims;
    size_t size[SHARDED_MAX_DIMS];
    size_t width; /* elements of T that always stay together */
    bool is_padded;
};

/* Elements that rank `rank` of `ranks` holds when the activation is sharded along `dim`, or
 * SHARDED_WHOLE. */
size_t sharded_elements(const struct sharded_shape *, int ranks, int rank, int dim);

/* A way from one sharding to another, made once and run many times. Not to be moved while it runs. */
struct sharded_route {
    struct sharded_shape shape;
    int from, to; /* dimensions, or SHARDED_WHOLE; not both */
    struct comm *comm;
    struct device *device;
    enum traffic traffic;
    struct devmem packed, received; /* messages; NONE where they can be sent or received in place */
    size_t packed_elements;
    size_t send_counts[COMM_MAX_RANKS], send_offsets[COMM_MAX_RANKS];
    size_t recv_counts[COMM_MAX_RANKS], recv_offsets[COMM_MAX_RANKS];
    bool is_even; /* every part sent or received is as large as the first */
};

/* Allocates message buffers from rank->scratch; the ranks are those of `comm`. */
enum status sharded_open(struct rank *, struct comm *, enum traffic, const struct sharded_shape *,
                         int from, int to, struct sharded_route *out) WARN_UNUSED;
/* dst = the activation in sharding `to`, from src in sharding `from`. Collective; waits. src and dst do
 * not overlap. */
enum status sharded_run(struct sharded_route *, struct devmem src, struct devmem dst) WARN_UNUSED;

/* Claims what rank `rank` of `ranks` sends in `times` runs of a switch, in synchronous steps. */
void sharded_cost(const struct sharded_shape *, int ranks, int rank, int from, int to, enum traffic,
                  enum dtype, uint64_t times, struct cost *);

#endif

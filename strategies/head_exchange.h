/* Ulysses' exchange (arXiv:2309.14509, section 3): ranks that hold consecutive chunks of a sequence with
 * all heads turn into ranks that hold all of these chunks with some of the heads, and back. One all-to-all
 * each way: the first carries q, k and v. The number of ranks divides the heads; chunks may be uneven, and
 * nothing is padded. */
#ifndef STRATEGIES_HEAD_EXCHANGE_H
#define STRATEGIES_HEAD_EXCHANGE_H

#include "strategies/sharded.h"

struct head_exchange {
    struct sharded_route to_heads, to_chunks;
    struct dit_extent extent; /* the chunks of all ranks of the exchange */
    size_t heads;             /* that this rank attends to */
    struct devmem qkv;        /* T [rows of the extent, 3 * heads * head_dim] */
    struct devmem attended;   /* T [rows of the extent, heads * head_dim] */
};

/* `chunks`: the region of all ranks of `comm`, in order, split over them as Splitting says. */
enum status head_exchange_open(struct rank *, struct comm *comm, struct region chunks,
                               struct head_exchange *out) WARN_UNUSED;
/* x->qkv from this rank's chunk: T [own rows, 3D]. */
enum status head_exchange_to_heads(struct head_exchange *x, struct devmem qkv) WARN_UNUSED;
/* This rank's chunk, T [own rows, D], from x->attended. */
enum status head_exchange_to_chunks(struct head_exchange *x, struct devmem attended) WARN_UNUSED;
/* Claims `times` exchanges there and back of rank `rank` of `ranks`. */
void head_exchange_cost(const struct problem *, struct region chunks, int ranks, int rank,
                        uint64_t times, struct cost *);

#endif

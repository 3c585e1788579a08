/* Ring attention (arXiv:2310.01889): queries stay, keys and values travel. In hop h the rank attends to the
 * chunk of rank me - h while it sends that chunk to its successor and receives the next one; the partial
 * results are merged by their log-sum-exp, in fp32, and rounded once at the end. N-1 hops; the last chunk is
 * not sent on. Any number of heads, chunks of any sizes, empty ones too. */
#ifndef STRATEGIES_RING_ATTENTION_H
#define STRATEGIES_RING_ATTENTION_H

#include "strategies/strategy.h"

struct ring_attention {
    struct dit *dit;
    struct comm *comm;
    const struct problem *problem;
    int chunks_each;          /* ranks of the group whose chunks one rank of the ring attends to */
    size_t heads, width;      /* width: heads * head_dim */
    struct dit_extent own;    /* the queries, and the chunk of keys this rank begins with */
    struct devmem kv[2];      /* T [rows of the largest chunk, 2 * width], rows K|V */
    struct devmem partial;    /* T [own rows, width] */
    struct devmem partial_lse;/* f [groups, heads, queries] */
    struct devmem sum, lse;   /* f [groups, heads, queries, head_dim], f [groups, heads, queries] */
    struct devmem rounded;    /* sum in T; NONE in fp32, where it is sum itself */
    struct comm_request hop;
};

/* Rank i of `comm` has the chunks of the group's ranks i * chunks_each and the following. */
enum status ring_attention_open(struct rank *, struct dit *, struct comm *comm, size_t heads,
                                int chunks_each, struct ring_attention *out) WARN_UNUSED;
/* attended T [own rows, width], of the own queries in qkv T [own rows, 3 * width] over the keys and
 * values of all ranks. Collective over `comm`. */
enum status ring_attention_run(struct ring_attention *, int block, struct devmem qkv,
                               struct devmem attended) WARN_UNUSED;
/* Claims `times` runs of rank `rank` of a ring of `ranks`. */
void ring_attention_cost(const struct problem *, size_t heads, int chunks_each, int ranks, int rank,
                         uint64_t times, struct cost *);

#endif

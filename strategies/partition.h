/* Pure rank arithmetic: who owns which tokens, heads, channels, blocks, patches, frames. Contiguous,
 * the first n mod parts get one more. No state, no errors: arguments are checked before. */
#ifndef STRATEGIES_PARTITION_H
#define STRATEGIES_PARTITION_H

#include <stddef.h>

struct span {
    size_t first, count;
};
/* Part `index` of n things split over `parts`. */
struct span partition_span(size_t n, int parts, int index);
/* Which part owns thing i. */
int partition_owner(size_t n, int parts, size_t i);
/* counts[parts], offsets[parts] of every part, in units of `unit` elements. */
void partition_table(size_t n, int parts, size_t unit, size_t *counts, size_t *offsets);

/* Where a rank stands in a mesh. Degrees fastest first: tp, ulysses, ring, pp, cfg; their product is the
 * number of ranks. tsp, dsp and distrifusion use one axis over all ranks of a cfg group ("tp"'s). */
enum axis { AXIS_TP, AXIS_ULYSSES, AXIS_RING, AXIS_PP, AXIS_CFG, AXES };
struct layout {
    int nranks;
    int degree[AXES];
};
int layout_coordinate(const struct layout *, int rank, enum axis);
/* Ranks of one cfg group: nranks / degree[AXIS_CFG]; group index and rank inside. */
int layout_group_size(const struct layout *);
int layout_group_rank(const struct layout *, int rank);

#endif

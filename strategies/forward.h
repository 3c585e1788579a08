/* A forward pass of one rank over its part of the latent whose halves end in partial sums: what most
 * strategies share. serial, tp and tp-stale hold the whole latent and differ in what happens between a
 * partial sum and the residual: `reduce`. Strategies that hold a tile of it (ulysses, ring, usp, tsp,
 * dsp) differ in how a half comes to its sum: `half`. */
#ifndef STRATEGIES_FORWARD_H
#define STRATEGIES_FORWARD_H

#include "strategies/strategy.h"

/* Leaves one half's sum of the extent's rows, to be added by the residual, in forward->partial. */
typedef enum status forward_half(struct rank *, int block, enum dit_half);

struct forward {
    struct dit dit;
    struct dit_extent extent; /* the rank's part of the latent */
    size_t rows;
    forward_half *half; /* OPTIONAL: NULL means dit_partial; set after opening */
    struct devmem hidden, partial; /* T [rows, D] */
    struct devmem noise;           /* T [tokens, token_values] */
};

/* `partial` is this rank's sum of a half; *sum (preset to it) is what the residual adds. */
typedef enum status forward_reduce(struct rank *, int step, int block, enum dit_half,
                                   struct devmem partial, struct devmem *sum);

/* The part split over `parts`, this rank's being `index`; every rank holds the whole latent. */
enum status forward_open(struct rank *, int parts, int index, struct forward *out) WARN_UNUSED;
/* Every rank holds its tile of the latent, and `part` of the model with buffers for max_rows rows or for
 * the tile's, whichever is more. */
enum status forward_open_tile(struct rank *, enum tiling, const struct dit_part *, size_t max_rows,
                              struct forward *out) WARN_UNUSED;
void forward_close(struct forward *);
/* One step's predicted noise, in forward->noise. reduce NULL: a half's sum is complete as it is. */
enum status forward_predict(struct rank *, struct forward *, int step, forward_reduce *reduce)
    WARN_UNUSED;

#endif

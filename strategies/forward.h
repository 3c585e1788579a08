/* A forward pass over a whole sequence whose halves end in partial sums: what serial, tp and tp-stale
 * share. They differ in what happens between a partial sum and the residual: `reduce`. */
#ifndef STRATEGIES_FORWARD_H
#define STRATEGIES_FORWARD_H

#include "strategies/strategy.h"

struct forward {
    struct dit dit;
    struct dit_extent extent; /* the whole latent */
    size_t rows;
    struct devmem hidden, partial; /* T [rows, D] */
    struct devmem noise;           /* T [tokens, token_values] */
};

/* `partial` is this rank's sum of a half; *sum (preset to it) is what the residual adds. */
typedef enum status forward_reduce(struct rank *, int step, int block, enum dit_half,
                                   struct devmem partial, struct devmem *sum);

/* The part split over `parts`, this rank's being `index`; every rank holds the whole latent. */
enum status forward_open(struct rank *, int parts, int index, struct forward *out) WARN_UNUSED;
void forward_close(struct forward *);
/* One step's predicted noise, in forward->noise. reduce NULL: one rank holds everything. */
enum status forward_predict(struct rank *, struct forward *, int step, forward_reduce *reduce)
    WARN_UNUSED;

#endif

/* The latent after every step, kept by the rank that stepped it and gathered afterwards: errors per step
 * and images come from here. Only in the untimed error run. */
#ifndef STRATEGIES_TRAJECTORY_H
#define STRATEGIES_TRAJECTORY_H

#include "strategies/strategy.h"

struct trajectory {
    int steps;
    size_t tokens, token_values; /* of all frames */
    float *values;               /* [steps, tokens, token_values] */
    unsigned char *is_kept;      /* [tokens] */
};

enum status trajectory_open(const struct problem *, struct trajectory **out) WARN_UNUSED;
void trajectory_close(struct trajectory *); /* accepts NULL */

/* Keeps the latent of `region` after `step`; latent: f [frames, tokens, token_values] of the region. A
 * no-op when the rank has no trajectory. */
enum status trajectory_keep(struct rank *, int step, struct region region, struct devmem latent)
    WARN_UNUSED;

/* Collective over the team: rank 0 completes its trajectory from everybody's parts. ERR_INTERNAL: a
 * token that nobody kept. */
enum status trajectory_gather(struct trajectory *, struct team *) WARN_UNUSED;
/* Tokens of one step to images: out [frames, channels, height, width]. */
void trajectory_unpatchify(const struct problem *, const float *tokens, float *out);
/* The inverse. */
void trajectory_patchify(const struct problem *, const float *image, float *tokens);

#endif

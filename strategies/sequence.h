/* Sequence parallelism by chunks: what ulysses, ring and usp share. Every rank holds all weights and its
 * chunk of the sequence: tokens of an image, frames of a video. An attention that stays within a chunk
 * (spatial blocks of video models) is local; for the others the strategies differ: `attend`. */
#ifndef STRATEGIES_SEQUENCE_H
#define STRATEGIES_SEQUENCE_H

#include "strategies/forward.h"

/* forward.dit.attended [own rows, D] = the attention of the own queries over the keys of all ranks, from
 * forward.dit.qkv [own rows, 3D]. */
typedef enum status sequence_attend(struct rank *, int block);

/* The first member of the strategy's state. */
struct sequence {
    struct forward forward;
    sequence_attend *attend;
};

/* Makes a state of `bytes` bytes. */
enum status sequence_open(struct rank *, size_t bytes, sequence_attend *attend, void **state) WARN_UNUSED;
/* Hooks of struct strategy. */
enum status sequence_sample(struct rank *) WARN_UNUSED;
void sequence_teardown(struct rank *);
/* Attentions of a run that see the whole sequence. */
uint64_t sequence_attentions(const struct problem *);
/* The claim beside those attentions: the final gather, the exchange with the twin. */
void sequence_cost(const struct problem *, const struct layout *, int rank, const struct strategy *,
                   struct cost *);

#endif

/* Synchronous reductions that send only codes of what changed (tp-stale, mode coded).
 *
 * Rank r keeps a base B_r near its own partial sum, the owner of a chunk of rows keeps the sum of
 * everybody's bases there, T = sum_r B_r, and all keep Z, the sum that all know. Of a new partial
 * sum P_r each rank sends every owner the codes of P_r - B_r (all-to-all); bases and T take what
 * the codes say, so T is again the sum of bases; the owner sends everybody the codes of T - Z
 * (all-gather), and Z takes those. What rounding to a code left out stays in the difference and is
 * sent next time. */
#ifndef STRATEGIES_STALE_CODED_H
#define STRATEGIES_STALE_CODED_H

#include "strategies/strategy.h"

/* What a half of a block keeps: fp32 [rows, D], [own rows, D], [rows, D]. */
struct stale_coded_base {
    struct devmem own, parts, sum;
};

struct stale_coded {
    int bits;
    size_t rows, width, words;      /* words of one row's codes */
    struct span chunk;              /* rows that this rank owns */
    size_t *counts, *offsets;       /* words of every rank's chunk in `codes` */
    size_t *in_counts, *in_offsets; /* words of the own chunk from every rank in `received` */
    struct devmem codes, received;  /* words [rows, words], [ranks, own rows, words] */
    struct devmem reduced;          /* T [rows, D] */
};

enum status stale_coded_open(struct rank *, size_t rows, int bits,
                             struct stale_coded *out) WARN_UNUSED;
/* Accepts one that was never opened. */
void stale_coded_close(struct stale_coded *);
enum status stale_coded_alloc(struct rank *, const struct stale_coded *,
                              struct stale_coded_base *out) WARN_UNUSED;
/* The whole sum, sent whole, in coded->reduced; the base starts anew from it. */
enum status stale_coded_start(struct rank *, const struct stale_coded *, struct devmem partial,
                              struct stale_coded_base *) WARN_UNUSED;
/* partial becomes the sum that all know. */
enum status stale_coded_reduce(struct rank *, const struct stale_coded *, struct devmem partial,
                               struct stale_coded_base *) WARN_UNUSED;
/* What one stale_coded_reduce sends, and what one base holds. */
void stale_coded_cost(const struct problem *, int bits, int group_rank, int group_ranks,
                      struct cost *);
uint64_t stale_coded_base_bytes(const struct problem *, int group_rank, int group_ranks);

#endif

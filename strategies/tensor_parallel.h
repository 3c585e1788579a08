/* What the strategies that split heads over ranks have in common. */
#ifndef STRATEGIES_TENSOR_PARALLEL_H
#define STRATEGIES_TENSOR_PARALLEL_H

#include "strategies/strategy.h"

/* All ranks of a cfg group on the tp axis. */
void tensor_parallel_layout(const struct problem *, int group_ranks, struct layout *);
/* Refuses more ranks than heads or MLP channels; heads and channels may split unevenly. */
enum status tensor_parallel_check(const struct problem *, const struct layout *, struct reason *)
    WARN_UNUSED;

#endif

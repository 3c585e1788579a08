/* Splitting heads and MLP channels over the ranks of a group. */
#include "strategies/tensor_parallel.h"

void tensor_parallel_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_TP] = group_ranks;
}

enum status tensor_parallel_check(const struct problem *problem, const struct layout *layout,
                                  struct reason *reason)
{
    int ranks = layout->degree[AXIS_TP];
    if (ranks > problem->shape->heads)
        return strategy_refuse(reason, "%d ranks cannot share %d attention heads: use at most %d",
                               ranks, problem->shape->heads, problem->shape->heads);
    if (ranks > problem->shape->mlp_hidden)
        return strategy_refuse(reason, "%d ranks cannot share %d MLP channels", ranks,
                               problem->shape->mlp_hidden);
    return OK;
}

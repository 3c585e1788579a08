/* The time that communication takes on a platform: NCCL's public model for collectives, ports and messages
 * for all-to-all and point to point. Pure functions; sources and constants in docs/simulator.md. */
#ifndef COMMON_COMM_COST_H
#define COMMON_COMM_COST_H

#include "common/comm.h"
#include "common/platform.h"

/* Where the ranks of a group are, and how many groups like it share their links. All groups that one split
 * made are taken to communicate at once. */
struct comm_place {
    int ranks, nodes;
    int most_in_node;   /* ranks of the group in one node */
    int port_sharers;   /* groups that cross the busiest port of a node, this one too */
    int nic_sharers;    /* groups that leave the busiest node, this one too */
};

/* team_ranks: of the group's members. group_of[team rank]: which of the split's groups each of the
 * team's nranks ranks is in, -1: none. */
struct comm_place comm_place_find(const struct platform *, const int *team_ranks, int ranks,
                                  const int *group_of, int nranks);

/* All-reduce, all-gather, reduce-scatter, broadcast of `bytes`: the whole array. */
int64_t comm_cost_collective(const struct platform *, const struct comm_place *, enum comm_op,
                             uint64_t bytes);
/* near: the most bytes that a rank sends or receives; far: the most that leave or enter a node. */
int64_t comm_cost_all_to_all(const struct platform *, const struct comm_place *, uint64_t near,
                             uint64_t far);
/* One message between two team ranks; flows: messages that share its port or NIC. */
int64_t comm_cost_message(const struct platform *, int from, int to, int flows, uint64_t bytes);

#endif

/* NCCL's tuning model (its constants are public in src/graph/tuning.cc of version 2.2x), as figures. */
#include "common/comm_cost.h"

enum { PROTO_LL, PROTO_LL128, PROTO_SIMPLE, PROTOS };
enum { HOP_NVLINK, HOP_PCIE, HOP_NETWORK, HOPS };

/* Microseconds: LL, LL128, Simple. */
static const double tree_base[PROTOS] = {6.8, 14, 8.4}, ring_base[PROTOS] = {6.6, 14, 8.4};
static const double tree_hop[HOPS][PROTOS] = {{.6, 1.25, 4}, {1, 1.9, 4}, {5, 8.5, 14}};
static const double ring_hop[HOPS][PROTOS] = {{.6, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 14}};
static const double ll128_share = .92, us = 1e-6;

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* ---- where a group is ---- */

/* Whether the group has ranks on more than one port of a node, or in more than one node. */
struct reach {
    bool ports, nodes;
};

static struct reach reach_of(const struct platform *p, const int *team_ranks, int ranks)
{
    struct reach reach = {false, false};
    for (int i = 1; i < ranks; i++) {
        reach.ports |= platform_port_of(p, team_ranks[i]) != platform_port_of(p, team_ranks[0]);
        reach.nodes |= platform_node_of(p, team_ranks[i]) != platform_node_of(p, team_ranks[0]);
    }
    return reach;
}

/* Groups with ranks in the run of team ranks that starts at `first`; groups of one stay at home. */
static int groups_in(const int *group_of, int nranks, int first, int length)
{
    int groups = 0;
    for (int r = first; r < first + length && r < nranks; r++) {
        bool is_new = group_of[r] >= 0;
        for (int q = first; q < r && is_new; q++)
            is_new = group_of[q] != group_of[r];
        groups += is_new;
    }
    return groups > 0 ? groups : 1;
}

struct comm_place comm_place_find(const struct platform *p, const int *team_ranks, int ranks,
                                  const int *group_of, int nranks)
{
    struct comm_place place = {.ranks = ranks, .nodes = 1, .port_sharers = 1, .nic_sharers = 1};
    struct reach reach = reach_of(p, team_ranks, ranks);
    int in_node = 0;
    for (int i = 0; i < ranks; i++) {
        int rank = team_ranks[i];
        bool is_next = i > 0 && platform_node_of(p, rank) != platform_node_of(p, team_ranks[i - 1]);
        place.nodes += is_next;
        in_node = is_next ? 1 : in_node + 1;
        place.most_in_node = in_node > place.most_in_node ? in_node : place.most_in_node;
        if (reach.ports && p->port_ranks > 1) {
            int port = platform_port_of(p, rank) * p->port_ranks;
            int sharers = groups_in(group_of, nranks, port, p->port_ranks);
            place.port_sharers = sharers > place.port_sharers ? sharers : place.port_sharers;
        }
        if (reach.nodes) {
            int node = platform_node_of(p, rank) * p->node_ranks;
            int sharers = groups_in(group_of, nranks, node, p->node_ranks);
            place.nic_sharers = sharers > place.nic_sharers ? sharers : place.nic_sharers;
        }
    }
    return place;
}

/* ---- what a level of links gives the group ---- */

/* NICs that one of the group's ranks may use, each with its own when there are enough. */
static double network_share(const struct platform *p, const struct comm_place *g)
{
    double nics = (double)p->nics / g->nic_sharers;
    return p->network.bus * least(nics, g->most_in_node);
}

static double group_bus(const struct platform *p, const struct comm_place *g)
{
    double bus = p->node.bus / g->port_sharers;
    return g->nodes > 1 ? least(bus, network_share(p, g)) : bus;
}

static double protocol_bus(const struct platform *p, const struct comm_place *g, int proto)
{
    double bus = group_bus(p, g), cap = g->nodes > 1 ? p->network.ll_cap : p->node.ll_cap;
    if (proto == PROTO_LL)
        return least(cap, bus / 2);
    return proto == PROTO_LL128 ? bus * ll128_share : bus;
}

static int node_hop(const struct platform *p)
{
    return p->link == LINK_NVLINK ? HOP_NVLINK : HOP_PCIE;
}

static int log2_up(int n)
{
    int levels = 0;
    while (1 << levels < n)
        levels++;
    return levels;
}

/* ---- collectives ---- */

/* Transfers along the ring, each of 1/n of the array; a broadcast's n parts follow each other. */
static int ring_steps(enum comm_op op, int n)
{
    return op == COMM_ALL_REDUCE ? 2 * (n - 1) : n - 1;
}

static double ring_bytes(enum comm_op op, int n, double bytes)
{
    return op == COMM_BROADCAST ? bytes : bytes * ring_steps(op, n) / n;
}

static double ring_seconds(const struct platform *p, const struct comm_place *g, enum comm_op op,
                           double bytes, int proto)
{
    int hops = ring_steps(op, g->ranks);
    int far = (g->nodes - 1) * (op == COMM_ALL_REDUCE ? 2 : 1);
    double latency = ring_base[proto] + (hops - far) * ring_hop[node_hop(p)][proto] +
                     far * ring_hop[HOP_NETWORK][proto];
    return latency * us + ring_bytes(op, g->ranks, bytes) / protocol_bus(p, g, proto);
}

static double tree_seconds(const struct platform *p, const struct comm_place *g, double bytes, int proto)
{
    double near = (double)g->ranks / g->nodes - 1, far = log2_up(g->nodes);
    double latency = tree_base[proto] + 2 * (near * tree_hop[node_hop(p)][proto] +
                                             far * tree_hop[HOP_NETWORK][proto]);
    double bus = least(protocol_bus(p, g, proto), protocol_bus(p, g, PROTO_LL128)) / 2;
    return latency * us + bytes / bus;
}

static double nccl_seconds(const struct platform *p, const struct comm_place *g, enum comm_op op,
                           double bytes)
{
    double best = ring_seconds(p, g, op, bytes, PROTO_LL);
    for (int proto = 0; proto < PROTOS; proto++) {
        best = least(best, ring_seconds(p, g, op, bytes, proto));
        if (op == COMM_ALL_REDUCE)
            best = least(best, tree_seconds(p, g, bytes, proto));
    }
    return best;
}

static double alpha_beta_seconds(const struct platform *p, const struct comm_place *g, enum comm_op op,
                                 double bytes)
{
    const struct platform_level *level = g->nodes > 1 ? &p->network : &p->node;
    return ring_steps(op, g->ranks) * level->latency_s +
           ring_bytes(op, g->ranks, bytes) / group_bus(p, g);
}

int64_t comm_cost_collective(const struct platform *p, const struct comm_place *g, enum comm_op op,
                             uint64_t bytes)
{
    if (g->ranks == 1)
        return 0;
    return platform_ps(p->protocol == PROTOCOL_NCCL ? nccl_seconds(p, g, op, (double)bytes)
                                                    : alpha_beta_seconds(p, g, op, (double)bytes));
}

/* ---- ports and messages ---- */

/* Starting any number of messages that travel together, and the first one's way. */
static double message_base(const struct platform *p, bool is_far)
{
    if (p->protocol == PROTOCOL_ALPHA_BETA)
        return 0;
    return (ring_base[PROTO_SIMPLE] + ring_hop[is_far ? HOP_NETWORK : node_hop(p)][PROTO_SIMPLE]) * us;
}

static double message_each(const struct platform *p, bool is_far)
{
    if (p->protocol == PROTOCOL_NCCL)
        return p->message_s;
    return is_far ? p->network.latency_s : p->node.latency_s;
}

int64_t comm_cost_all_to_all(const struct platform *p, const struct comm_place *g, uint64_t near,
                             uint64_t far)
{
    if (g->ranks == 1)
        return 0;
    double seconds = (double)near * g->port_sharers / p->node.all_to_all;
    if (g->nodes > 1) {
        double through_nics = (double)far / network_share(p, g);
        seconds = seconds > through_nics ? seconds : through_nics;
    }
    bool is_far = g->nodes > 1;
    return platform_ps(seconds + message_base(p, is_far) + (g->ranks - 1) * message_each(p, is_far));
}

int64_t comm_cost_message(const struct platform *p, int from, int to, int flows, uint64_t bytes)
{
    bool is_far = platform_node_of(p, from) != platform_node_of(p, to);
    double bus = is_far ? least(p->node.bus, p->network.bus) : p->node.bus;
    return platform_ps(message_base(p, is_far) + message_each(p, is_far) + (double)bytes * flows / bus);
}

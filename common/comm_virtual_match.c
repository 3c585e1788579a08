/* Who meets in an operation: whether their calls fit together, and when it begins and ends. */
#include "common/comm_virtual.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void mismatched(struct virtual_operation *op, const char *format, ...) PRINTF_LIKE(2, 3);
static void mismatched(struct virtual_operation *op, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(op->each.mismatch, sizeof op->each.mismatch, format, args);
    va_end(args);
    op->each.state = VIRTUAL_MISMATCHED;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- comparing ---- */

static bool same_parts(const size_t *a, const size_t *b, int n, bool are_even)
{
    return a == b || memcmp(a, b, (are_even ? 1 : (size_t)n) * sizeof *a) == 0;
}

static void compare_parts(struct virtual_group *g, struct virtual_operation *op, int rank,
                          const size_t *mine, const size_t *first, bool are_even)
{
    if (same_parts(mine, first, g->nranks, are_even))
        return;
    int r = 0;
    while (mine[r] == first[r])
        r++;
    mismatched(op, "%s: part %d has %zu elements on rank %d and %zu on rank %d",
               comm_op_name(op->each.call.op), r, first[r], g->team_ranks[op->each.first_poster],
               mine[r], g->team_ranks[rank]);
}

static void compare(struct virtual_group *g, struct virtual_operation *op, int rank,
                    const struct comm_call *call)
{
    const struct comm_call *first = &op->each.call;
    int there = g->team_ranks[op->each.first_poster], here = g->team_ranks[rank];
    bool are_even = call->is_even && first->is_even;
    if (call->op != first->op || call->dtype != first->dtype || call->root != first->root)
        mismatched(op, "rank %d started %s of %s with root %d, rank %d %s of %s with root %d", there,
                   comm_op_name(first->op), dtype_name(first->dtype), first->root, here,
                   comm_op_name(call->op), dtype_name(call->dtype), call->root);
    else if (call->count != first->count)
        mismatched(op, "%s: %zu elements on rank %d, %zu on rank %d", comm_op_name(call->op),
                   first->count, there, call->count, here);
    else if (call->op == COMM_ALL_GATHER)
        compare_parts(g, op, rank, call->recv_counts, first->recv_counts, are_even);
    else if (call->op == COMM_REDUCE_SCATTER)
        compare_parts(g, op, rank, call->send_counts, first->send_counts, are_even);
}

/* ---- all-to-all ---- */

/* Bytes that a rank sends (or receives), and how many of them cross nodes; its own part stays. */
struct port {
    uint64_t near, far;
    bool is_even; /* every part is as large as `even` */
};

static struct port add_parts(const struct virtual_group *g, int rank, const size_t *counts, bool is_even,
                             size_t even)
{
    int n = g->nranks;
    size_t near = 0, far = 0;
    if (is_even && counts[0] == even)
        return (struct port){.near = even * (size_t)(n - 1),
                             .far = even * (size_t)(n - g->node_members[rank]), .is_even = true};
    for (int q = 0; q < n; q++) {
        near += q != rank ? counts[q] : 0;
        far += g->nodes[q] != g->nodes[rank] ? counts[q] : 0;
    }
    return (struct port){.near = near, .far = far};
}

static bool note_parts(struct virtual_group *g, struct virtual_operation *op, int rank,
                       const struct comm_call *call)
{
    size_t n = (size_t)g->nranks, even = op->each.call.send_counts[0], e = dtype_bytes(call->dtype);
    if (op->parts == NULL)
        op->parts = calloc(2 * n, sizeof *op->parts);
    if (op->parts == NULL)
        return false;
    op->parts[rank] = call->send_counts;
    op->parts[n + (size_t)rank] = call->recv_counts;
    struct port out = add_parts(g, rank, call->send_counts, call->is_even, even);
    struct port in = add_parts(g, rank, call->recv_counts, call->is_even, even);
    g->moved[rank] += out.near * e;
    op->each.bytes = most(op->each.bytes, most(out.near, in.near) * e);
    op->each.far_bytes = most(op->each.far_bytes, most(out.far, in.far) * e);
    op->each.is_uneven |= !out.is_even || !in.is_even;
    return true;
}

static void compare_pairs(struct virtual_group *g, struct virtual_operation *op)
{
    int n = g->nranks;
    for (int r = 0; r < n; r++)
        for (int q = 0; q < n; q++)
            if (op->parts[r][q] != op->parts[n + q][r]) {
                mismatched(op, "all_to_all: rank %d sends %zu elements to rank %d, which expects %zu",
                           g->team_ranks[r], op->parts[r][q], g->team_ranks[q], op->parts[n + q][r]);
                return;
            }
}

/* ---- collectives ---- */

static int64_t duration(const struct virtual_group *g, const struct virtual_operation *op)
{
    const struct platform *p = g->platform;
    if (op->each.call.op == COMM_ALL_TO_ALL)
        return comm_cost_all_to_all(p, &g->place, op->each.bytes,
                                    op->each.far_bytes * (uint64_t)g->place.most_in_node);
    int64_t copies = 0;
    if (op->each.call.op == COMM_ALL_GATHER && op->each.call.traffic == TRAFFIC_KV)
        copies = platform_ps((double)op->each.bytes * p->emulation.gathered_lane /
                             (p->gpu.memory_bandwidth * p->gpu.memory_ceiling));
    return comm_cost_collective(p, &g->place, op->each.call.op, op->each.bytes) + copies;
}

static void match(struct virtual_group *g, struct virtual_operation *op)
{
    if (op->each.is_uneven)
        compare_pairs(g, op);
    if (op->each.state == VIRTUAL_MISMATCHED)
        return;
    int64_t free_ps = g->end_ps + op->each.slowed_ps;
    int64_t begin = op->each.ready_ps > free_ps ? op->each.ready_ps : free_ps;
    op->each.begin_ps = begin;
    op->each.end_ps = begin + duration(g, op);
    ASSERT_CMP(op->each.end_ps, >=, g->end_ps);
    g->end_ps = op->each.end_ps;
    op->each.state = VIRTUAL_MATCHED;
}

bool virtual_match_collective(struct virtual_group *g, struct virtual_operation *op, int rank,
                              const struct comm_call *call, int64_t ready_ps, int64_t slowed_ps)
{
    if (op->each.posted == 0) {
        op->each.call = *call;
        op->each.first_poster = rank;
        op->each.bytes = call->op == COMM_ALL_TO_ALL ? 0 : comm_payload_bytes(call, g->nranks);
    } else {
        compare(g, op, rank, call);
    }
    if (op->each.state == VIRTUAL_MISMATCHED)
        return true;
    if (call->op == COMM_ALL_TO_ALL && !note_parts(g, op, rank, call))
        return false;
    op->each.ready_ps = ready_ps > op->each.ready_ps ? ready_ps : op->each.ready_ps;
    op->each.slowed_ps = slowed_ps > op->each.slowed_ps ? slowed_ps : op->each.slowed_ps;
    if (++op->each.posted == op->needed)
        match(g, op);
    return true;
}

/* ---- messages ---- */

static void compare_message(struct virtual_group *g, struct virtual_operation *op, int from, int to,
                            uint64_t bytes, bool is_sender)
{
    if (bytes != op->each.bytes)
        mismatched(op, "rank %d sends %llu bytes to rank %d, which expects %llu", g->team_ranks[from],
                   (unsigned long long)(is_sender ? bytes : op->each.bytes), g->team_ranks[to],
                   (unsigned long long)(is_sender ? op->each.bytes : bytes));
}

void virtual_match_message(struct virtual_group *g, struct virtual_link *link, int from,
                           struct virtual_operation *op, const struct comm_call *call, bool is_sender,
                           int64_t ready_ps)
{
    uint64_t bytes = (is_sender ? call->count : call->recv_count) * dtype_bytes(call->dtype);
    if (op->each.posted++ == 0) {
        op->each.bytes = bytes;
        op->each.ready_ps = ready_ps;
        return;
    }
    compare_message(g, op, from, link->to, bytes, is_sender);
    if (op->each.state == VIRTUAL_MISMATCHED)
        return;
    int64_t begin = ready_ps > op->each.ready_ps ? ready_ps : op->each.ready_ps;
    begin = begin > link->end_ps ? begin : link->end_ps;
    op->each.begin_ps = begin;
    op->each.end_ps = begin;
    if (from != link->to)
        op->each.end_ps += comm_cost_message(g->platform, g->team_ranks[from], g->team_ranks[link->to],
                                             link->flows, bytes);
    link->end_ps = op->each.end_ps;
    op->each.state = VIRTUAL_MATCHED;
}

/* What operations are called and what they count: the accounting rule (docs/measuring.md). */
#include "common/comm.h"

static const char *const op_names[COMM_OPS] = {
    [COMM_ALL_REDUCE] = "all_reduce",
    [COMM_ALL_GATHER] = "all_gather",
    [COMM_REDUCE_SCATTER] = "reduce_scatter",
    [COMM_ALL_TO_ALL] = "all_to_all",
    [COMM_BROADCAST] = "broadcast",
    [COMM_SEND] = "send",
    [COMM_RECV] = "recv",
    [COMM_SENDRECV] = "sendrecv",
};
static const char *const traffic_names[TRAFFIC_KINDS] = {
    [TRAFFIC_HIDDEN] = "hidden",   [TRAFFIC_KV] = "kv",       [TRAFFIC_HEADS] = "heads",
    [TRAFFIC_WEIGHTS] = "weights", [TRAFFIC_NOISE] = "noise", [TRAFFIC_LATENT] = "latent",
    [TRAFFIC_CFG] = "cfg",
};

const char *comm_op_name(enum comm_op op)
{
    return op_names[op];
}

const char *traffic_name(enum traffic t)
{
    return traffic_names[t];
}

size_t comm_chunk(size_t count, int rank, int nranks, size_t *offset)
{
    size_t r = (size_t)rank, n = (size_t)nranks;
    size_t longer = count % n;
    *offset = count / n * r + (r < longer ? r : longer);
    return count / n + (r < longer);
}

static size_t sum(const size_t *counts, int n, bool is_even)
{
    size_t total = 0;
    if (is_even)
        return counts[0] * (size_t)n;
    for (int r = 0; r < n; r++)
        total += counts[r];
    return total;
}

static size_t sent_elements(const struct comm_call *call, int rank, int nranks)
{
    size_t others = (size_t)nranks - 1, offset, chunk;
    switch (call->op) {
    case COMM_ALL_REDUCE: /* the others' chunks of its partial sum, then its own chunk to the others
                           */
        chunk = comm_chunk(call->count, rank, nranks, &offset);
        return call->count - chunk + chunk * others;
    case COMM_ALL_GATHER:
        return call->recv_counts[rank] * others;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_TO_ALL:
        return sum(call->send_counts, nranks, call->is_even) - call->send_counts[rank];
    case COMM_BROADCAST:
        return rank == call->root ? call->count * others : 0;
    case COMM_SEND:
    case COMM_SENDRECV:
        return call->to == rank ? 0 : call->count;
    default:
        return 0;
    }
}

uint64_t comm_sent_bytes(const struct comm_call *call, int rank, int nranks)
{
    return sent_elements(call, rank, nranks) * dtype_bytes(call->dtype);
}

uint64_t comm_payload_bytes(const struct comm_call *call, int nranks)
{
    size_t elements = call->count;
    if (call->op == COMM_ALL_GATHER)
        elements = sum(call->recv_counts, nranks, call->is_even);
    if (call->op == COMM_REDUCE_SCATTER || call->op == COMM_ALL_TO_ALL)
        elements = sum(call->send_counts, nranks, call->is_even);
    return elements * dtype_bytes(call->dtype);
}

/* Collectives of transport `nccl`: NCCL's own for even parts, else groups of calls. */
#include "kernels/cuda/comm_nccl.h"

/* Whether parts are of one size: then NCCL's own collective does it. Every rank must choose alike, so what
 * only this rank knows, where its parts stand, has no say. */
static bool is_even(const struct nccl_work *w, const size_t *counts)
{
    for (int r = 0; r < w->c->nranks; r++)
        if (counts[r] != counts[0])
            return false;
    return true;
}

static bool is_contiguous(const struct nccl_work *w, const size_t *offsets, size_t count)
{
    for (int r = 0; r < w->c->nranks; r++)
        if (offsets[r] != (size_t)r * count)
            return false;
    return true;
}

static enum status own_copy(const struct nccl_work *w, char *dst, const char *src, size_t elements)
{
    if (elements > 0 && dst != src)
        CUDA_TRY(cudaMemcpyAsync(dst, src, elements * w->element, cudaMemcpyDeviceToDevice, w->stream));
    return OK;
}

static enum status all_reduce(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    size_t offset, own = comm_chunk(call->count, w->c->rank, w->c->nranks, &offset);
    w->c->moved += (call->count - own + own * (size_t)(w->c->nranks - 1)) * w->element;
    NCCL_TRY(ncclAllReduce(w->send, w->recv, call->count, w->type, ncclSum, w->c->comm, w->stream));
    return OK;
}

/* Pairwise messages: all-to-all, as NCCL's own kernels do it, and all-gather of uneven parts, where
 * everybody gets the whole send buffer. A rank's part for itself is a copy. */
static enum status exchange(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    int me = w->c->rank;
    bool gathers = call->op == COMM_ALL_GATHER;
    size_t own_at = gathers ? 0 : call->send_offsets[me] * w->element;
    TRY(own_copy(w, w->recv + call->recv_offsets[me] * w->element, w->send + own_at,
                 call->recv_counts[me]));
    NCCL_TRY(ncclGroupStart());
    for (int peer = 0; peer < w->c->nranks; peer++) {
        size_t sent = gathers ? call->recv_counts[me] : call->send_counts[peer];
        size_t at = gathers ? 0 : call->send_offsets[peer] * w->element;
        if (peer == me)
            continue;
        nccl_count_sent(w, peer, sent);
        if (sent > 0)
            NCCL_TRY(ncclSend(w->send + at, sent, w->type, peer, w->c->comm, w->stream));
        if (call->recv_counts[peer] > 0)
            NCCL_TRY(ncclRecv(w->recv + call->recv_offsets[peer] * w->element, call->recv_counts[peer],
                              w->type, peer, w->c->comm, w->stream));
    }
    NCCL_TRY(ncclGroupEnd());
    return OK;
}

static enum status all_gather(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    size_t part = call->recv_counts[0], bytes = part * w->element;
    char *recv = w->recv;
    if (!is_even(w, call->recv_counts))
        return exchange(w);
    bool has_gaps = !is_contiguous(w, call->recv_offsets, part);
    if (has_gaps && bytes > 0)
        TRY(local_room(w->c->self, bytes * (size_t)w->c->nranks, &recv));
    w->c->moved += bytes * (size_t)(w->c->nranks - 1);
    NCCL_TRY(ncclAllGather(w->send, recv, part, w->type, w->c->comm, w->stream));
    for (int r = 0; has_gaps && r < w->c->nranks; r++)
        TRY(own_copy(w, w->recv + call->recv_offsets[r] * w->element, recv + (size_t)r * bytes, part));
    return OK;
}

static enum status reduce_even(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    size_t part = call->send_counts[0], bytes = part * w->element;
    char *send = w->send;
    bool has_gaps = !is_contiguous(w, call->send_offsets, part);
    if (has_gaps && bytes > 0)
        TRY(local_room(w->c->self, bytes * (size_t)w->c->nranks, &send));
    for (int r = 0; has_gaps && r < w->c->nranks; r++)
        TRY(own_copy(w, send + (size_t)r * bytes, w->send + call->send_offsets[r] * w->element, part));
    NCCL_TRY(ncclReduceScatter(send, w->recv, part, w->type, ncclSum, w->c->comm, w->stream));
    return OK;
}

/* Uneven parts: one reduction to each rank. */
static enum status reduce_scatter(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    for (int r = 0; r < w->c->nranks; r++)
        nccl_count_sent(w, r, call->send_counts[r]);
    if (is_even(w, call->send_counts))
        return reduce_even(w);
    NCCL_TRY(ncclGroupStart());
    for (int r = 0; r < w->c->nranks; r++)
        if (call->send_counts[r] > 0)
            NCCL_TRY(ncclReduce(w->send + call->send_offsets[r] * w->element, w->recv,
                                call->send_counts[r], w->type, ncclSum, r, w->c->comm, w->stream));
    NCCL_TRY(ncclGroupEnd());
    return OK;
}

static enum status broadcast(const struct nccl_work *w)
{
    const struct comm_call *call = w->call;
    if (w->c->rank == call->root)
        w->c->moved += call->count * (size_t)(w->c->nranks - 1) * w->element;
    NCCL_TRY(ncclBroadcast(w->send, w->recv, call->count, w->type, call->root, w->c->comm, w->stream));
    return OK;
}

enum status nccl_collective(const struct nccl_work *w)
{
    switch (w->call->op) {
    case COMM_ALL_REDUCE:
        return all_reduce(w);
    case COMM_ALL_GATHER:
        return all_gather(w);
    case COMM_REDUCE_SCATTER:
        return reduce_scatter(w);
    case COMM_ALL_TO_ALL:
        return exchange(w);
    default:
        return broadcast(w);
    }
}

/* Transport `nccl`: one GPU a rank, ranks as threads of a process or as processes. A communicator for a
 * group's collectives; and one of two ranks with few thread blocks for every link (peer, direction),
 * because operations of one NCCL communicator run in order.
 *
 * Every communicator is non-blocking: what NCCL has not finished is polled with the team's deadline, so
 * a peer that fails or stays away ends every wait, and the communicators are aborted. */
#include "kernels/cuda/comm_nccl.h"
#include "kernels/cuda/range.h"

#include <stdlib.h>

/* ---- NCCL's results ---- */

enum status nccl_failed(ncclResult_t result, const char *call, const char *file, int line)
{
    return status_fail(ERR_DEVICE, file, line, "%.120s: %s", call, ncclGetErrorString(result));
}

enum status nccl_settle(struct nccl_comm *c, ncclComm_t comm, const char *what)
{
    struct lane_waiting waiting = {0};
    for (;;) {
        ncclResult_t state = ncclSuccess;
        NCCL_TRY(ncclCommGetAsyncError(comm, &state));
        if (state == ncclSuccess)
            return OK;
        if (state != ncclInProgress)
            NCCL_TRY(state);
        TRY(cuda_lanes_look(c->lanes, &waiting, what));
    }
}

/* ---- starting and waiting ---- */

static ncclDataType_t type_of(enum dtype t)
{
    static const ncclDataType_t types[DTYPE_COUNT] = {
        [DTYPE_FP32] = ncclFloat32, [DTYPE_BF16] = ncclBfloat16, [DTYPE_FP16] = ncclFloat16};
    return types[t];
}

/* A host that ran ahead without bound would in the end be stuck inside a launch, where no failure of a
 * peer reaches it. Collectives only: receives may be posted early in any number. */
static enum status keep_in_reach(struct nccl_comm *c)
{
    cudaEvent_t *oldest = &c->under_way[c->started++ % NCCL_MOST_UNDER_WAY];
    struct lane_waiting waiting = {0};
    if (!*oldest)
        CUDA_TRY(cudaEventCreateWithFlags(oldest, cudaEventDisableTiming));
    while (cudaEventQuery(*oldest) == cudaErrorNotReady)
        TRY(cuda_lanes_look(c->lanes, &waiting, "collectives are under way"));
    CUDA_TRY(cudaEventRecord(*oldest, c->lane->stream));
    return OK;
}

static enum status record_end(struct nccl_comm *c, const struct lane *lane, struct event **out)
{
    TRY(cuda_lanes_event(c->lanes, out));
    CUDA_TRY(cudaEventRecord((*out)->cuda, lane->stream));
    return OK;
}

static enum status start_collective(struct nccl_work *w, const struct mark *posted, struct nccl_handle *h)
{
    w->stream = w->c->lane->stream;
    CUDA_TRY(cudaStreamWaitEvent(w->stream, posted->event->cuda, 0));
    TRY(nccl_collective(w));
    TRY(nccl_settle(w->c, w->c->comm, "NCCL has not started a collective"));
    TRY(record_end(w->c, w->c->lane, &h->ended[0]));
    return keep_in_reach(w->c);
}

static enum status start_self(struct nccl_comm *c, const struct comm_request *r, enum comm_op op,
                              struct comm_request *self)
{
    *self = (struct comm_request){.comm = r->comm, .call = r->call, .step = r->step, .layer = r->layer,
                                  .patch = r->patch};
    self->call.op = op;
    self->call.to = self->call.from = 0;
    return local_start(c->self, self);
}

static enum status start_receive(struct nccl_work *w, const struct comm_request *r, struct nccl_handle *h)
{
    const struct nccl_link *link = &w->c->from[w->call->from];
    if (w->call->from == w->c->rank)
        return start_self(w->c, r, COMM_RECV, &h->self[0]);
    CUDA_TRY(cudaStreamWaitEvent(link->lane->stream, r->posted.event->cuda, 0));
    if (w->call->recv_count > 0)
        NCCL_TRY(ncclRecv(w->recv, w->call->recv_count, w->type, link->peer, link->comm,
                          link->lane->stream));
    TRY(nccl_settle(w->c, link->comm, "NCCL has not started a receive"));
    return record_end(w->c, link->lane, &h->ended[0]);
}

static enum status start_send(struct nccl_work *w, const struct comm_request *r, struct nccl_handle *h)
{
    const struct nccl_link *link = &w->c->to[w->call->to];
    if (w->call->to == w->c->rank)
        return start_self(w->c, r, COMM_SEND, &h->self[1]);
    nccl_count_sent(w, w->call->to, w->call->count);
    CUDA_TRY(cudaStreamWaitEvent(link->lane->stream, r->posted.event->cuda, 0));
    if (w->call->count > 0)
        NCCL_TRY(ncclSend(w->send, w->call->count, w->type, link->peer, link->comm, link->lane->stream));
    TRY(nccl_settle(w->c, link->comm, "NCCL has not started a send"));
    return record_end(w->c, link->lane, &h->ended[1]);
}

static enum status start_on_lanes(struct nccl_comm *c, struct comm_request *r, struct nccl_handle *h)
{
    const struct comm_call *call = &r->call;
    struct nccl_work w = {.c = c, .call = call, .element = dtype_bytes(call->dtype),
                     .type = type_of(call->dtype), .send = (char *)call->send.addr,
                     .recv = (char *)call->recv.addr};
    TRY(lane_mark(&c->lanes->base, NULL, &r->posted));
    r->matched = r->posted; /* when the peers came is not to be seen */
    if (call->op == COMM_RECV || call->op == COMM_SENDRECV)
        TRY(start_receive(&w, r, h));
    if (call->op == COMM_SEND || call->op == COMM_SENDRECV)
        return start_send(&w, r, h);
    return call->op == COMM_RECV ? OK : start_collective(&w, &r->posted, h);
}

static struct nccl_handle *take_handle(struct nccl_comm *c)
{
    struct nccl_handle *h = c->unused;
    if (!h)
        return calloc(1, sizeof *h);
    c->unused = h->next;
    *h = (struct nccl_handle){0};
    return h;
}

static void give_handle(struct nccl_comm *c, struct nccl_handle *h)
{
    h->next = c->unused;
    c->unused = h;
}

static enum status nccl_start(void *comm, struct comm_request *r)
{
    struct nccl_comm *c = comm;
    struct nccl_handle *h = take_handle(c);
    if (!h)
        return FAIL(ERR_MEMORY, "nccl: no memory for an operation");
    range_push(comm_op_name(r->call.op), r->step, r->layer, r->patch);
    enum status status = start_on_lanes(c, r, h);
    range_pop();
    if (status != OK) {
        give_handle(c, h);
        return status;
    }
    r->transport = h;
    return OK;
}

static enum status wait_on_lane(struct nccl_comm *c, struct comm_request *r, struct nccl_handle *h)
{
    TRY(cuda_lanes_enter(c->lanes));
    for (int i = 0; i < 2; i++) {
        if (h->self[i].comm)
            TRY(local_wait(c->self, &h->self[i]));
        if (h->ended[i])
            CUDA_TRY(cudaStreamWaitEvent(c->lanes->compute.stream, h->ended[i]->cuda, 0));
    }
    for (int i = 1; i >= 0; i--) {
        if (h->self[i].comm)
            r->ended = h->self[i].ended;
        if (h->ended[i])
            r->ended = (struct mark){.event = h->ended[i]};
    }
    return OK;
}

static enum status nccl_wait(void *comm, struct comm_request *r)
{
    struct nccl_comm *c = comm;
    struct nccl_handle *h = r->transport;
    enum status status = wait_on_lane(c, r, h);
    give_handle(c, h);
    return status;
}

static uint64_t nccl_moved_bytes(void *comm)
{
    struct nccl_comm *c = comm;
    return c->moved;
}

extern const struct comm_ops comm_nccl;
const struct comm_ops comm_nccl = {
    .name = "nccl",
    .summary = "one GPU a rank: threads of one process, or processes under mpirun",
    .memory = MEMORY_CUDA,
    .open = nccl_open,
    .split = nccl_split,
    .close = nccl_close,
    .start = nccl_start,
    .wait = nccl_wait,
    .moved_bytes = nccl_moved_bytes,
};

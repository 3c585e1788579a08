/* Transport `nccl`: one GPU a rank, ranks as threads of a process or as processes. A communicator for a
 * group's collectives; and one of two ranks with few thread blocks for every link (peer, direction),
 * because operations of one NCCL communicator run in order.
 *
 * Every communicator is non-blocking: what NCCL has not finished is polled with the team's deadline, so
 * a peer that fails or stays away ends every wait, and the communicators are aborted. */
#include "kernels/cuda/comm_local.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/range.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINK_CTAS = 2, MOST_UNDER_WAY = 32 };

struct nccl_link {
    ncclComm_t comm;
    struct lane *lane;
    int peer; /* its rank in the link's communicator */
};

/* What comm_wait needs of one operation. */
struct nccl_handle {
    struct nccl_handle *next;
    struct event *ended[2];      /* of the receive or the collective; of the send */
    struct comm_request self[2]; /* the same, of messages to itself */
};

struct nccl_comm {
    struct cuda_lanes *lanes;
    struct team *team;
    ncclComm_t comm;
    struct lane *lane;
    int rank, nranks;
    struct nccl_link *to, *from; /* nranks each; the own entry is unused */
    struct local_comm *self;
    struct nccl_handle *unused;
    cudaEvent_t under_way[MOST_UNDER_WAY]; /* ends of the last collectives */
    unsigned started;                      /* collectives */
    struct lane_watch watch;
    uint64_t moved;
    bool is_aborted;
};

/* ---- NCCL's results ---- */

static enum status nccl_failed(ncclResult_t result, const char *call, const char *file, int line)
{
    return status_fail(ERR_DEVICE, file, line, "%.120s: %s", call, ncclGetErrorString(result));
}
#define NCCL_TRY(call)                                                                             \
    do {                                                                                           \
        ncclResult_t nccl_try_ = (call);                                                           \
        if (nccl_try_ != ncclSuccess && nccl_try_ != ncclInProgress)                               \
            return nccl_failed(nccl_try_, #call, __FILE__, __LINE__);                              \
    } while (0)

/* Returns when NCCL has taken in what it was told of this communicator. */
static enum status settle(struct nccl_comm *c, ncclComm_t comm, const char *what)
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

static enum status check(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;
    if (!comm)
        return OK;
    NCCL_TRY(ncclCommGetAsyncError(comm, &state));
    NCCL_TRY(state);
    return OK;
}

static enum status watch_check(void *context)
{
    struct nccl_comm *c = context;
    if (c->is_aborted)
        return OK;
    TRY(check(c->comm));
    for (int peer = 0; peer < c->nranks; peer++) {
        TRY(check(c->to[peer].comm));
        TRY(check(c->from[peer].comm));
    }
    return OK;
}

static void watch_abort(void *context)
{
    struct nccl_comm *c = context;
    if (c->is_aborted)
        return;
    c->is_aborted = true;
    if (c->comm)
        (void)ncclCommAbort(c->comm);
    for (int peer = 0; peer < c->nranks; peer++) {
        if (c->to[peer].comm)
            (void)ncclCommAbort(c->to[peer].comm);
        if (c->from[peer].comm)
            (void)ncclCommAbort(c->from[peer].comm);
    }
}

/* ---- operations ---- */

static ncclDataType_t type_of(enum dtype t)
{
    static const ncclDataType_t types[DTYPE_COUNT] = {
        [DTYPE_FP32] = ncclFloat32, [DTYPE_BF16] = ncclBfloat16, [DTYPE_FP16] = ncclFloat16};
    return types[t];
}

/* One call being started: its buffers as NCCL takes them. */
struct work {
    struct nccl_comm *c;
    const struct comm_call *call;
    size_t element;
    ncclDataType_t type;
    char *send, *recv;
    cudaStream_t stream;
};

static void count_sent(const struct work *w, int to, size_t elements)
{
    if (to != w->c->rank)
        w->c->moved += elements * w->element;
}

/* Whether parts are of one size: then NCCL's own collective does it. Every rank must choose alike, so what
 * only this rank knows, where its parts stand, has no say. */
static bool is_even(const struct work *w, const size_t *counts)
{
    for (int r = 0; r < w->c->nranks; r++)
        if (counts[r] != counts[0])
            return false;
    return true;
}

static bool is_contiguous(const struct work *w, const size_t *offsets, size_t count)
{
    for (int r = 0; r < w->c->nranks; r++)
        if (offsets[r] != (size_t)r * count)
            return false;
    return true;
}

static enum status own_copy(const struct work *w, char *dst, const char *src, size_t elements)
{
    if (elements > 0 && dst != src)
        CUDA_TRY(cudaMemcpyAsync(dst, src, elements * w->element, cudaMemcpyDeviceToDevice, w->stream));
    return OK;
}

static enum status all_reduce(const struct work *w)
{
    const struct comm_call *call = w->call;
    size_t offset, own = comm_chunk(call->count, w->c->rank, w->c->nranks, &offset);
    w->c->moved += (call->count - own + own * (size_t)(w->c->nranks - 1)) * w->element;
    NCCL_TRY(ncclAllReduce(w->send, w->recv, call->count, w->type, ncclSum, w->c->comm, w->stream));
    return OK;
}

/* Pairwise messages: all-to-all, as NCCL's own kernels do it, and all-gather of uneven parts, where
 * everybody gets the whole send buffer. A rank's part for itself is a copy. */
static enum status exchange(const struct work *w)
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
        count_sent(w, peer, sent);
        if (sent > 0)
            NCCL_TRY(ncclSend(w->send + at, sent, w->type, peer, w->c->comm, w->stream));
        if (call->recv_counts[peer] > 0)
            NCCL_TRY(ncclRecv(w->recv + call->recv_offsets[peer] * w->element, call->recv_counts[peer],
                              w->type, peer, w->c->comm, w->stream));
    }
    NCCL_TRY(ncclGroupEnd());
    return OK;
}

static enum status all_gather(const struct work *w)
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

static enum status reduce_even(const struct work *w)
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
static enum status reduce_scatter(const struct work *w)
{
    const struct comm_call *call = w->call;
    for (int r = 0; r < w->c->nranks; r++)
        count_sent(w, r, call->send_counts[r]);
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

static enum status broadcast(const struct work *w)
{
    const struct comm_call *call = w->call;
    if (w->c->rank == call->root)
        w->c->moved += call->count * (size_t)(w->c->nranks - 1) * w->element;
    NCCL_TRY(ncclBroadcast(w->send, w->recv, call->count, w->type, call->root, w->c->comm, w->stream));
    return OK;
}

static enum status collective(const struct work *w)
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

/* ---- starting and waiting ---- */

/* A host that ran ahead without bound would in the end be stuck inside a launch, where no failure of a
 * peer reaches it. Collectives only: receives may be posted early in any number. */
static enum status keep_in_reach(struct nccl_comm *c)
{
    cudaEvent_t *oldest = &c->under_way[c->started++ % MOST_UNDER_WAY];
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

static enum status start_collective(struct work *w, const struct mark *posted, struct nccl_handle *h)
{
    w->stream = w->c->lane->stream;
    CUDA_TRY(cudaStreamWaitEvent(w->stream, posted->event->cuda, 0));
    TRY(collective(w));
    TRY(settle(w->c, w->c->comm, "NCCL has not started a collective"));
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

static enum status start_receive(struct work *w, const struct comm_request *r, struct nccl_handle *h)
{
    const struct nccl_link *link = &w->c->from[w->call->from];
    if (w->call->from == w->c->rank)
        return start_self(w->c, r, COMM_RECV, &h->self[0]);
    CUDA_TRY(cudaStreamWaitEvent(link->lane->stream, r->posted.event->cuda, 0));
    if (w->call->recv_count > 0)
        NCCL_TRY(ncclRecv(w->recv, w->call->recv_count, w->type, link->peer, link->comm,
                          link->lane->stream));
    TRY(settle(w->c, link->comm, "NCCL has not started a receive"));
    return record_end(w->c, link->lane, &h->ended[0]);
}

static enum status start_send(struct work *w, const struct comm_request *r, struct nccl_handle *h)
{
    const struct nccl_link *link = &w->c->to[w->call->to];
    if (w->call->to == w->c->rank)
        return start_self(w->c, r, COMM_SEND, &h->self[1]);
    count_sent(w, w->call->to, w->call->count);
    CUDA_TRY(cudaStreamWaitEvent(link->lane->stream, r->posted.event->cuda, 0));
    if (w->call->count > 0)
        NCCL_TRY(ncclSend(w->send, w->call->count, w->type, link->peer, link->comm, link->lane->stream));
    TRY(settle(w->c, link->comm, "NCCL has not started a send"));
    return record_end(w->c, link->lane, &h->ended[1]);
}

static enum status start_on_lanes(struct nccl_comm *c, struct comm_request *r, struct nccl_handle *h)
{
    const struct comm_call *call = &r->call;
    struct work w = {.c = c, .call = call, .element = dtype_bytes(call->dtype),
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

/* ---- opening ---- */

static void nccl_close(void *comm);

static ncclConfig_t config_of(int most_ctas)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (most_ctas > 0)
        config.maxCTAs = most_ctas;
    return config;
}

/* A communicator takes its first connection to a peer when a message goes through it, and the host waits
 * for that. Starting must not wait for a peer, so a byte goes through every link now. */
static enum status connect_link(struct nccl_comm *c, struct nccl_link *link, bool sends)
{
    struct devmem byte;
    TRY(lane_alloc(&c->lanes->base, 1, &byte));
    cudaStream_t stream = link->lane->stream;
    ncclResult_t result = sends ? ncclSend((void *)byte.addr, 1, ncclInt8, link->peer, link->comm, stream)
                                : ncclRecv((void *)byte.addr, 1, ncclInt8, link->peer, link->comm, stream);
    enum status status = result == ncclSuccess || result == ncclInProgress
                             ? settle(c, link->comm, "NCCL does not connect a link")
                             : nccl_failed(result, "connecting a link", __FILE__, __LINE__);
    if (status == OK)
        status = lane_sync(&c->lanes->base);
    lane_free(&c->lanes->base, byte, 1);
    return status;
}

/* The link between this rank and `peer` in one direction; peer < 0: only takes part in the splitting. */
static enum status open_link(struct nccl_comm *c, int peer, bool sends)
{
    struct nccl_link unused = {0}, *link = &unused;
    ncclConfig_t config = config_of(LINK_CTAS);
    int color = NCCL_SPLIT_NOCOLOR;
    if (peer >= 0) {
        link = sends ? &c->to[peer] : &c->from[peer];
        color = peer < c->rank ? peer : c->rank;
        link->peer = peer > c->rank;
    }
    NCCL_TRY(ncclCommSplit(c->comm, color, c->rank, &link->comm, &config));
    TRY(settle(c, c->comm, "NCCL does not split for a link"));
    if (peer < 0)
        return OK;
    TRY(settle(c, link->comm, "NCCL does not open a link"));
    TRY(c->lanes->base.ops->open_lane(&c->lanes->base, "link", &link->lane));
    return connect_link(c, link, sends);
}

/* A tournament: in each round every rank has at most one partner. First the lower rank sends, then the
 * higher. */
static enum status open_links(struct nccl_comm *c)
{
    int players = c->nranks + c->nranks % 2, last = players - 1;
    for (int round = 0; round < last && c->nranks > 1; round++) {
        int partner = c->rank == last ? -1 : (round - c->rank + last) % last;
        if (c->rank == last || partner == c->rank) { /* the last one meets who would meet itself */
            partner = last;
            for (int r = 0; c->rank == last && r < last; r++)
                if ((2 * r) % last == round)
                    partner = r;
        }
        if (partner >= c->nranks)
            partner = -1;
        for (int direction = 0; direction < 2; direction++)
            TRY(open_link(c, partner, (c->rank < partner) == (direction == 0)));
    }
    return OK;
}

/* Takes over the rank's NCCL communicator in every case. */
static enum status nccl_comm_new(ncclComm_t comm, int rank, int nranks, struct team *team,
                                 struct cuda_lanes *lanes, struct nccl_comm **out)
{
    struct nccl_comm *c = calloc(1, sizeof *c);
    struct nccl_link *links = calloc(2 * (size_t)nranks, sizeof *links);
    if (!c || !links) {
        (void)ncclCommAbort(comm);
        free(c);
        free(links);
        return FAIL(ERR_MEMORY, "nccl: no memory for a communicator");
    }
    *c = (struct nccl_comm){.lanes = lanes, .team = team, .comm = comm, .rank = rank, .nranks = nranks,
                            .to = links, .from = links + nranks};
    c->watch = (struct lane_watch){.context = c, .check = watch_check, .abort = watch_abort};
    cuda_lanes_watch(lanes, &c->watch);
    enum status status = settle(c, comm, "NCCL does not start");
    if (status == OK)
        status = lanes->base.ops->open_lane(&lanes->base, "comm", &c->lane);
    if (status == OK)
        status = local_open_alone(team, lanes, &c->self);
    if (status == OK)
        status = open_links(c);
    if (status != OK) {
        watch_abort(c);
        nccl_close(c);
        return status;
    }
    *out = c;
    return OK;
}

/* NCCL refuses two ranks on a GPU with a message that helps nobody. */
static enum status check_gpus(struct team *team, const struct cuda_lanes *lanes)
{
    struct place {
        char host[64], bus[32];
    } mine = {{0}, {0}}, *all = NULL;
    int same[2] = {-1, -1};
    (void)gethostname(mine.host, sizeof mine.host - 1);
    CUDA_TRY(cudaDeviceGetPCIBusId(mine.bus, sizeof mine.bus, lanes->gpu));
    if (team->rank == 0)
        all = calloc((size_t)team->nranks, sizeof *all);
    if (team->rank == 0 && !all)
        return FAIL(ERR_MEMORY, "nccl: no memory for the places of %d ranks", team->nranks);
    enum status status = team_gather(team, 0, &mine, sizeof mine, all);
    for (int a = 0; status == OK && team->rank == 0 && a < team->nranks; a++)
        for (int b = 0; b < a; b++)
            if (memcmp(&all[a], &all[b], sizeof *all) == 0) {
                same[0] = b;
                same[1] = a;
            }
    free(all);
    TRY(status);
    TRY(team_broadcast(team, 0, same, sizeof same));
    if (same[0] >= 0)
        return FAIL(ERR_UNSUPPORTED,
                    "transport nccl needs a GPU for each rank: ranks %d and %d share one; use fewer "
                    "--gpus, or --transport local",
                    same[0], same[1]);
    return OK;
}

/* Rank 0's process stays the meeting point. */
static enum status share_id(struct team *team, ncclUniqueId *id)
{
    ncclResult_t result = ncclSuccess;
    struct {
        ncclUniqueId id;
        int result;
    } message = {.result = 0};
    if (team->rank == 0)
        result = ncclGetUniqueId(&message.id);
    message.result = (int)result;
    TRY(team_broadcast(team, 0, &message, sizeof message));
    NCCL_TRY((ncclResult_t)message.result);
    *id = message.id;
    return OK;
}

static enum status nccl_open(struct team *team, struct lane_system *system, void **backend)
{
    struct cuda_lanes *lanes = cuda_lanes(system);
    struct nccl_comm *c = NULL;
    ncclConfig_t config = config_of(0);
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    TRY(cuda_lanes_enter(lanes));
    lanes->team = team;
    TRY(check_gpus(team, lanes));
    TRY(share_id(team, &id));
    NCCL_TRY(ncclCommInitRankConfig(&comm, team->nranks, id, team->rank, &config));
    TRY(nccl_comm_new(comm, team->rank, team->nranks, team, lanes, &c));
    *backend = c;
    return OK;
}

static enum status nccl_split(void *parent, int color, int key, void **backend, int *rank, int *nranks)
{
    struct nccl_comm *p = parent, *c = NULL;
    ncclConfig_t config = config_of(0);
    ncclComm_t comm = NULL;
    TRY(cuda_lanes_enter(p->lanes));
    NCCL_TRY(ncclCommSplit(p->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &comm, &config));
    TRY(settle(p, p->comm, "NCCL does not split"));
    *backend = NULL;
    if (color < 0)
        return OK;
    TRY(settle(p, comm, "NCCL does not open a group"));
    NCCL_TRY(ncclCommUserRank(comm, rank));
    NCCL_TRY(ncclCommCount(comm, nranks));
    TRY(nccl_comm_new(comm, *rank, *nranks, p->team, p->lanes, &c));
    *backend = c;
    return OK;
}

static void close_link(struct nccl_comm *c, struct nccl_link *link)
{
    if (link->comm && !c->is_aborted)
        (void)ncclCommDestroy(link->comm);
    if (link->lane)
        c->lanes->base.ops->close_lane(&c->lanes->base, link->lane);
}

/* After a failure the lanes were drained, which aborted: destroying would wait for peers. The team may be
 * gone. */
static void nccl_close(void *comm)
{
    struct nccl_comm *c = comm;
    if (!c)
        return;
    (void)cudaSetDevice(c->lanes->gpu);
    cuda_lanes_unwatch(c->lanes, &c->watch);
    for (int peer = 0; peer < c->nranks; peer++) {
        close_link(c, &c->to[peer]);
        close_link(c, &c->from[peer]);
    }
    if (!c->is_aborted)
        (void)ncclCommDestroy(c->comm);
    if (c->lane)
        c->lanes->base.ops->close_lane(&c->lanes->base, c->lane);
    local_close(c->self);
    for (int i = 0; i < MOST_UNDER_WAY; i++)
        if (c->under_way[i])
            (void)cudaEventDestroy(c->under_way[i]);
    for (struct nccl_handle *h = c->unused, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(c->to);
    free(c);
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

/* Opening and closing the communicators of transport `nccl`: the id that travels, groups, a link for every
 * peer and direction, and what is watched while the host waits. */
#include "kernels/cuda/comm_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINK_CTAS = 2 };

/* ---- watching ---- */

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

/* ---- opening ---- */

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
                             ? nccl_settle(c, link->comm, "NCCL does not connect a link")
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
    TRY(nccl_settle(c, c->comm, "NCCL does not split for a link"));
    if (peer < 0)
        return OK;
    TRY(nccl_settle(c, link->comm, "NCCL does not open a link"));
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
    enum status status = nccl_settle(c, comm, "NCCL does not start");
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

enum status nccl_open(struct team *team, struct lane_system *system, void **backend)
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

enum status nccl_split(void *parent, int color, int key, void **backend, int *rank, int *nranks)
{
    struct nccl_comm *p = parent, *c = NULL;
    ncclConfig_t config = config_of(0);
    ncclComm_t comm = NULL;
    TRY(cuda_lanes_enter(p->lanes));
    NCCL_TRY(ncclCommSplit(p->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &comm, &config));
    TRY(nccl_settle(p, p->comm, "NCCL does not split"));
    *backend = NULL;
    if (color < 0)
        return OK;
    TRY(nccl_settle(p, comm, "NCCL does not open a group"));
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
void nccl_close(void *comm)
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
    for (int i = 0; i < NCCL_MOST_UNDER_WAY; i++)
        if (c->under_way[i])
            (void)cudaEventDestroy(c->under_way[i]);
    for (struct nccl_handle *h = c->unused, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(c->to);
    free(c);
}

/* Transport `local`: starting, waiting, opening; see comm_local.h. */
#include "kernels/cuda/comm_local.h"
#include "kernels/cuda/range.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* Room for parts that are being added. Outgrown blocks live on: lanes may still use them. */
struct scratch {
    struct scratch *next;
    struct devmem memory;
    size_t bytes;
};

struct local_comm {
    struct local_group *group;
    struct cuda_lanes *lanes;
    struct team *team;
    int rank;
    uint64_t *numbers; /* of the next start on each channel, sends and receives apart */
    struct scratch *scratch;
};

/* ---- starting ---- */

enum status local_room(struct local_comm *c, size_t bytes, char **out)
{
    if (!c->scratch || c->scratch->bytes < bytes) {
        struct scratch *block = calloc(1, sizeof *block);
        if (!block)
            return FAIL(ERR_MEMORY, "local: no memory");
        enum status status = lane_alloc(&c->lanes->base, bytes, &block->memory);
        if (status != OK) {
            free(block);
            return status;
        }
        block->bytes = bytes;
        block->next = c->scratch;
        c->scratch = block;
    }
    *out = (char *)c->scratch->memory.addr;
    return OK;
}

static void copy_counts(size_t *to, const size_t *from, int n)
{
    if (from)
        memcpy(to, from, (size_t)n * sizeof *to);
}

static size_t parts_bytes(const struct local_comm *c, const struct comm_call *call)
{
    size_t offset, n = (size_t)c->group->nranks, e = dtype_bytes(call->dtype);
    if (call->op == COMM_ALL_REDUCE)
        return n * comm_chunk(call->count, c->rank, c->group->nranks, &offset) * e;
    return call->op == COMM_REDUCE_SCATTER ? n * call->send_counts[c->rank] * e : 0;
}

static enum status take_events(struct local_comm *c, struct local_post *post)
{
    struct event **const events[] = {&post->ready, &post->matched, &post->summed, &post->done,
                                     &post->ended};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        TRY(cuda_lanes_event(c->lanes, events[i]));
    CUDA_TRY(cudaEventRecord(post->ready->cuda, c->lanes->compute.stream));
    return OK;
}

/* All that can fail is done before others can see the post. */
static enum status make_post(struct local_comm *c, const struct comm_call *call, bool receives,
                             struct local_post *post)
{
    *post = (struct local_post){.op = call->op, .dtype = call->dtype, .root = call->root,
                                .send = (char *)call->send.addr, .recv = (char *)call->recv.addr,
                                .count = receives ? call->recv_count : call->count};
    size_t bytes = parts_bytes(c, call);
    if (bytes > 0)
        TRY(local_room(c, bytes, &post->parts));
    return take_events(c, post);
}

static enum status publish(struct local_comm *c, struct local_operation *op, int index,
                           const struct comm_call *call, const struct local_post *made)
{
    struct local_group *g = c->group;
    struct local_post *post = &op->posts[index], arrays = *post;
    *post = *made;
    post->send_counts = arrays.send_counts;
    post->send_offsets = arrays.send_offsets;
    post->recv_counts = arrays.recv_counts;
    post->recv_offsets = arrays.recv_offsets;
    copy_counts(post->send_counts, call->send_counts, g->nranks);
    copy_counts(post->send_offsets, call->send_offsets, g->nranks);
    copy_counts(post->recv_counts, call->recv_counts, g->nranks);
    copy_counts(post->recv_offsets, call->recv_offsets, g->nranks);
    post->is_posted = true;
    if (++op->posted < op->needed)
        return OK;
    op->status = local_queue(g, op);
    op->is_queued = true;
    pthread_cond_broadcast(&g->changed);
    if (op->status == ERR_MISMATCH)
        return OK; /* everybody learns it from waiting */
    return op->status;
}

static enum status post(struct local_comm *c, size_t channel, size_t numbered, int index,
                        const struct comm_call *call, const struct local_post *made,
                        struct local_operation **out)
{
    struct local_group *g = c->group;
    pthread_mutex_lock(&g->mutex);
    *out = local_group_operation(g, channel, c->numbers[numbered]++);
    enum status status = *out ? publish(c, *out, index, call, made)
                              : FAIL(ERR_MEMORY, "local: no memory for an operation");
    pthread_mutex_unlock(&g->mutex);
    return status;
}

static enum status link_lane(struct local_comm *c, struct lane **lane)
{
    return *lane ? OK : c->lanes->base.ops->open_lane(&c->lanes->base, "link", lane);
}

static enum status start_message(struct local_comm *c, const struct comm_call *call, bool receives,
                                 struct local_operation **out)
{
    struct local_member *me = &c->group->members[c->rank];
    size_t n = (size_t)c->group->nranks, from = (size_t)(receives ? call->from : c->rank);
    size_t to = (size_t)(receives ? c->rank : call->to), channel = 1 + from * n + to;
    struct local_post made;
    TRY(link_lane(c, receives ? &me->from[from] : &me->to[to]));
    TRY(make_post(c, call, receives, &made));
    return post(c, channel, channel + (receives ? n * n : 0), receives, call, &made, out);
}

enum status local_start(void *comm, struct comm_request *r)
{
    struct local_comm *c = comm;
    const struct comm_call *call = &r->call;
    struct local_operation *op = NULL, *received = NULL;
    struct local_post made;
    TRY(cuda_lanes_enter(c->lanes));
    range_push(comm_op_name(call->op), r->step, r->layer, r->patch);
    enum status status = OK;
    if (call->op == COMM_SENDRECV || call->op == COMM_RECV)
        status = start_message(c, call, true, &received);
    if (status == OK && (call->op == COMM_SENDRECV || call->op == COMM_SEND))
        status = start_message(c, call, false, &op);
    if (status == OK && !op && !received) {
        status = make_post(c, call, false, &made);
        if (status == OK)
            status = post(c, 0, 0, c->rank, call, &made, &op);
    }
    range_pop();
    TRY(status);
    TRY(cuda_lanes_enter(c->lanes));
    if (call->op == COMM_SENDRECV) {
        pthread_mutex_lock(&c->group->mutex);
        op->posts[0].pair = received;
        pthread_mutex_unlock(&c->group->mutex);
    }
    r->transport = op ? op : received;
    return lane_mark(&c->lanes->base, NULL, &r->posted);
}

/* ---- waiting ---- */

/* Returns with the operation on all lanes. With the mutex held. */
static enum status wait_until_queued(struct local_comm *c, struct local_operation *op,
                                     enum comm_op name)
{
    struct team_deadline deadline = team_deadline_start(c->team);
    while (!op->is_queued) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        if (team_deadline_passed(c->team, &deadline)) {
            int missing = 0;
            while (op->posts[missing].is_posted)
                missing++;
            if (op->channel > 0) /* of a message: its sender or its receiver */
                missing = missing == 0 ? (int)(op->channel - 1) / c->group->nranks
                                       : (int)(op->channel - 1) % c->group->nranks;
            return FAIL(ERR_TIMEOUT, "local: %s: rank %d did not come within %g s", comm_op_name(name),
                        missing, c->team->timeout_s);
        }
        local_group_wait(c->group);
    }
    return op->status == OK ? OK : FAIL(op->status, "%s", op->why[0] ? op->why : "local: a rank failed");
}

/* The compute lane waits for the rank's part. */
static enum status end_post(struct local_comm *c, struct local_operation *op, int index,
                            struct comm_request *r)
{
    const struct local_post *post = &op->posts[index];
    CUDA_TRY(cudaStreamWaitEvent(c->lanes->compute.stream, post->ended->cuda, 0));
    r->matched = (struct mark){.event = post->matched};
    r->ended = (struct mark){.event = post->ended};
    return OK;
}

static enum status wait_locked(struct local_comm *c, struct local_operation *op, int index,
                               struct comm_request *r)
{
    TRY(wait_until_queued(c, op, r->call.op));
    struct local_operation *pair = op->posts[index].pair;
    if (index == 0 && pair)
        TRY(wait_until_queued(c, pair, r->call.op));
    TRY(end_post(c, op, index, r));
    if (index == 0 && pair) {
        TRY(end_post(c, pair, 1, r));
        local_group_awaited(c->group, pair);
    }
    local_group_awaited(c->group, op);
    return OK;
}

enum status local_wait(void *comm, struct comm_request *r)
{
    struct local_comm *c = comm;
    bool is_message = r->call.op == COMM_SEND || r->call.op == COMM_SENDRECV;
    int index = r->call.op == COMM_RECV ? 1 : is_message ? 0 : c->rank;
    TRY(cuda_lanes_enter(c->lanes));
    pthread_mutex_lock(&c->group->mutex);
    enum status status = wait_locked(c, r->transport, index, r);
    pthread_mutex_unlock(&c->group->mutex);
    return status;
}

/* ---- opening ---- */

static enum status local_comm_new(struct local_group *g, int rank, struct team *team,
                                  struct cuda_lanes *lanes, struct local_comm **out)
{
    struct local_comm *c = calloc(1, sizeof *c);
    size_t n = (size_t)g->nranks;
    if (c)
        c->numbers = calloc(1 + 2 * n * n, sizeof *c->numbers);
    if (!c || !c->numbers) {
        free(c);
        local_group_release(g);
        return FAIL(ERR_MEMORY, "local: no memory for a communicator");
    }
    c->group = g;
    c->rank = rank;
    c->team = team;
    c->lanes = lanes;
    struct lane *collective = NULL;
    enum status status = lanes->base.ops->open_lane(&lanes->base, "comm", &collective);
    if (status != OK) {
        local_close(c);
        return status;
    }
    pthread_mutex_lock(&g->mutex);
    g->members[rank].lanes = lanes;
    g->members[rank].collective = collective;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
    *out = c;
    return OK;
}

enum status local_open_alone(struct team *team, struct cuda_lanes *lanes, struct local_comm **out)
{
    struct local_group *g = local_group_new(1);
    if (!g)
        return FAIL(ERR_MEMORY, "local: no memory for a communicator");
    return local_comm_new(g, 0, team, lanes, out);
}

/* Copies between GPUs go directly where the machine can, else through the host. */
static void reach_peers(const struct cuda_lanes *lanes)
{
    int gpus = 0, can = 0;
    (void)cudaGetDeviceCount(&gpus);
    for (int peer = 0; peer < gpus; peer++)
        if (peer != lanes->gpu && cudaDeviceCanAccessPeer(&can, lanes->gpu, peer) == cudaSuccess && can)
            (void)cudaDeviceEnablePeerAccess(peer, 0);
    (void)cudaGetLastError(); /* already enabled is fine */
}

/* What rank 0 tells the others. Only threads of its process find their own `here` in it. */
struct invitation {
    struct local_group *group;
    int64_t process;
};
static _Atomic int64_t here;

static enum status invite(struct team *team, struct invitation *out)
{
    int64_t unknown = 0;
    atomic_compare_exchange_strong(&here, &unknown, (clock_ps() << 16) | (int64_t)(uint16_t)random());
    *out = (struct invitation){.process = atomic_load(&here)};
    if (team->rank == 0)
        out->group = local_group_new(team->nranks);
    TRY(team_broadcast(team, 0, out, sizeof *out));
    if (out->process != atomic_load(&here))
        return FAIL(ERR_UNSUPPORTED, "transport local works among threads of one process; use nccl");
    return out->group ? OK : FAIL(ERR_MEMORY, "local: no memory for %d ranks", team->nranks);
}

static enum status local_open(struct team *team, struct lane_system *lanes, void **backend)
{
    struct invitation invitation;
    struct local_comm *c = NULL;
    TRY(invite(team, &invitation));
    cuda_lanes(lanes)->team = team;
    reach_peers(cuda_lanes(lanes));
    TRY(local_comm_new(invitation.group, team->rank, team, cuda_lanes(lanes), &c));
    enum status status = team_barrier(team); /* everybody's lanes are known */
    if (status != OK) {
        local_close(c);
        return status;
    }
    *backend = c;
    return OK;
}

/* With the mutex held. The last to come divides; nobody leaves before that. */
static enum status meet_to_split(struct local_comm *c)
{
    struct local_group *g = c->group;
    uint64_t mine = g->splits;
    enum status status = OK;
    if (++g->splitting == g->nranks) {
        g->splitting = 0;
        status = local_group_divide(g);
        g->splits++;
        pthread_cond_broadcast(&g->changed);
    }
    struct team_deadline deadline = team_deadline_start(c->team);
    while (g->splits == mine && status == OK) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        if (team_deadline_passed(c->team, &deadline))
            return FAIL(ERR_TIMEOUT, "local: a rank did not come to split within %g s",
                        c->team->timeout_s);
        local_group_wait(g);
    }
    return status;
}

/* Members are known to all once everybody has made its lanes. With the mutex of the new group held. */
static enum status meet_in_group(struct local_comm *c)
{
    struct local_group *g = c->group;
    struct team_deadline deadline = team_deadline_start(c->team);
    for (int r = 0; r < g->nranks; r++)
        while (!g->members[r].collective) {
            if (team_status(c->team) != OK)
                return team_peer_failed(c->team);
            if (team_deadline_passed(c->team, &deadline))
                return FAIL(ERR_TIMEOUT, "local: rank %d of a group did not come within %g s", r,
                            c->team->timeout_s);
            local_group_wait(g);
        }
    return OK;
}

static enum status join_group(struct local_comm *parent, struct local_group *group, int rank,
                              struct local_comm **out)
{
    struct local_comm *c;
    TRY(local_comm_new(group, rank, parent->team, parent->lanes, &c));
    pthread_mutex_lock(&group->mutex);
    enum status status = meet_in_group(c);
    pthread_mutex_unlock(&group->mutex);
    if (status != OK) {
        local_close(c);
        return status;
    }
    *out = c;
    return OK;
}

static enum status local_split(void *parent, int color, int key, void **backend, int *rank, int *nranks)
{
    struct local_comm *c = parent, *group = NULL;
    struct local_member *me = &c->group->members[c->rank];
    pthread_mutex_lock(&c->group->mutex);
    me->color = color;
    me->key = key;
    enum status status = meet_to_split(c);
    struct local_group *mine = me->split_group;
    *rank = me->split_rank;
    pthread_mutex_unlock(&c->group->mutex);
    TRY(status);
    *backend = NULL;
    if (!mine)
        return OK;
    *nranks = mine->nranks;
    TRY(join_group(c, mine, *rank, &group));
    *backend = group;
    return OK;
}

void local_close(void *comm)
{
    struct local_comm *c = comm;
    if (!c)
        return;
    struct lane_system *lanes = &c->lanes->base;
    struct local_member *me = &c->group->members[c->rank];
    lanes->ops->close_lane(lanes, me->collective);
    for (int peer = 0; peer < c->group->nranks; peer++) {
        lanes->ops->close_lane(lanes, me->to[peer]);
        lanes->ops->close_lane(lanes, me->from[peer]);
    }
    for (struct scratch *block = c->scratch, *next; block; block = next) {
        next = block->next;
        lane_free(lanes, block->memory, block->bytes);
        free(block);
    }
    local_group_release(c->group);
    free(c->numbers);
    free(c);
}

static uint64_t local_moved_bytes(void *comm)
{
    struct local_comm *c = comm;
    return atomic_load_explicit(&c->group->members[c->rank].moved, memory_order_relaxed);
}

extern const struct comm_ops comm_local;
const struct comm_ops comm_local = {
    .name = "local",
    .summary = "threads of one process, on one GPU or several, by copies and events",
    .memory = MEMORY_CUDA,
    .open = local_open,
    .split = local_split,
    .close = local_close,
    .start = local_start,
    .wait = local_wait,
    .moved_bytes = local_moved_bytes,
};

/* Transport `threads`: starting, waiting, splitting; see comm_threads.h. */
#include "common/comm_threads.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/fault.h"

/* How long a wait spins before it blocks: about what blocking and waking cost. */
enum { SPIN_NS = 50 * 1000 };

/* One rank's view of a group. */
struct thread_comm {
    struct threads_group *group;
    struct team *team;
    struct lane_system *lanes;
    int rank;
    uint64_t collectives;    /* started */
    uint64_t *sends, *recvs; /* started, to and from each rank */
};

/* ---- waiting ---- */

static void wait_slice(pthread_cond_t *changed, pthread_mutex_t *mutex)
{
    int64_t until = clock_ns() + TEAM_SLICE_NS;
    struct timespec at = {until / 1000000000, until % 1000000000};
    pthread_cond_timedwait(changed, mutex, &at);
}

static bool has_state(const struct threads_operation *op, enum threads_state state)
{
    int now = atomic_load_explicit(&op->state, memory_order_acquire);
    return now == OPERATION_MISMATCHED || now >= (int)state;
}

static void spin(const struct thread_comm *c, const struct threads_operation *op,
                 enum threads_state state)
{
    if (c->team->is_oversubscribed)
        return;
    int64_t end = clock_ns() + SPIN_NS;
    while (!has_state(op, state) && clock_ns() < end)
        ;
}

/* The group rank whose post p is. */
static int poster(const struct threads_group *group, const struct threads_operation *op, int p)
{
    size_t link = op->channel - 1, n = (size_t)group->nranks;
    if (op->channel == 0)
        return p;
    return (int)(p == 0 ? link / n : link % n);
}

static enum status operation_timed_out(const struct thread_comm *c,
                                       const struct threads_operation *op, enum comm_op name)
{
    for (int p = 0; p < op->needed; p++)
        if (!op->posts[p].is_posted)
            return FAIL(ERR_TIMEOUT, "%s: rank %d did not come within %g s", comm_op_name(name),
                        c->group->team_ranks[poster(c->group, op, p)], c->team->timeout_s);
    return FAIL(ERR_TIMEOUT, "%s: all ranks came but it did not end within %g s",
                comm_op_name(name), c->team->timeout_s);
}

/* Blocks until the operation has come to `state` or was found mismatched. */
static enum status await_state(struct thread_comm *c, struct threads_operation *op,
                               enum threads_state state, enum comm_op name)
{
    spin(c, op, state);
    if (has_state(op, state))
        return OK;
    enum status s = OK;
    struct team_deadline deadline = team_deadline_start(c->team);
    pthread_mutex_lock(&c->group->mutex);
    while (s == OK && !has_state(op, state)) {
        if (team_status(c->team) != OK)
            s = team_peer_failed(c->team);
        else if (team_deadline_passed(c->team, &deadline))
            s = operation_timed_out(c, op, name);
        else
            wait_slice(&op->changed, &c->group->mutex);
    }
    pthread_mutex_unlock(&c->group->mutex);
    return s;
}

/* While the message is on its way (DITTO_TEST_DELAY_MS). */
static enum status await_arrival(struct thread_comm *c, const struct threads_operation *op)
{
    while (team_status(c->team) == OK) {
        int64_t left_ns = (op->ready_ps - clock_ps() + 999) / 1000;
        if (left_ns <= 0)
            return OK;
        clock_sleep_ns(left_ns < TEAM_SLICE_NS ? left_ns : TEAM_SLICE_NS);
    }
    return team_peer_failed(c->team);
}

static void set_state(struct threads_operation *op, enum threads_state state)
{
    atomic_store_explicit(&op->state, state, memory_order_release);
    pthread_cond_broadcast(&op->changed);
}

static void run_tasks(struct thread_comm *c, struct threads_operation *op)
{
    size_t task;
    while ((task = atomic_fetch_add(&op->next_task, 1)) < op->tasks) {
        threads_task_run(c->group, op, task);
        team_heartbeat(c->team);
        if (atomic_fetch_add(&op->tasks_done, 1) + 1 < op->tasks)
            continue;
        pthread_mutex_lock(&c->group->mutex);
        op->ended_ps = clock_ps();
        set_state(op, OPERATION_DONE);
        pthread_mutex_unlock(&c->group->mutex);
    }
}

static enum status end_operation(struct thread_comm *c, struct threads_operation *op,
                                 struct comm_request *r)
{
    TRY(await_state(c, op, OPERATION_MATCHED, r->call.op));
    if (atomic_load(&op->state) == OPERATION_MISMATCHED)
        return FAIL(ERR_MISMATCH, "%s", op->mismatch);
    TRY(await_arrival(c, op));
    run_tasks(c, op);
    TRY(await_state(c, op, OPERATION_DONE, r->call.op));
    if (op->matched_ps > r->matched.ps)
        r->matched.ps = op->matched_ps;
    if (op->ended_ps > r->ended.ps)
        r->ended.ps = op->ended_ps;
    threads_group_awaited(c->group, op);
    return OK;
}

/* The operations of a request, found by its kind: one, or a sendrecv's two. */
static enum status threads_wait(void *backend, struct comm_request *r)
{
    struct thread_comm *c = backend;
    struct threads_operation *op = r->transport;
    struct threads_operation *pair = r->call.op == COMM_SENDRECV ? op->posts[0].pair : NULL;
    r->matched = r->ended = r->posted;
    TRY(end_operation(c, op, r));
    return pair == NULL ? OK : end_operation(c, pair, r);
}

/* ---- starting ---- */

static void take_array(size_t *to, const size_t *from, int n)
{
    if (from != NULL)
        memcpy(to, from, (size_t)n * sizeof *to);
}

static void fill_post(const struct threads_group *group, struct threads_post *post,
                      const struct comm_call *call)
{
    post->says.op = call->op;
    post->says.dtype = call->dtype;
    post->says.root = call->root;
    post->says.count = call->count;
    post->send = lane_host_pointer(call->send);
    post->recv = lane_host_pointer(call->recv);
    take_array(post->says.send_counts, call->send_counts, group->nranks);
    take_array(post->send_offsets, call->send_offsets, group->nranks);
    take_array(post->says.recv_counts, call->recv_counts, group->nranks);
    take_array(post->recv_offsets, call->recv_offsets, group->nranks);
    post->is_posted = true;
}

/* The last rank has come. */
static void match(struct threads_group *group, struct threads_operation *op)
{
    if (!threads_posts_match(group, op)) {
        set_state(op, OPERATION_MISMATCHED);
        return;
    }
    op->ready_ps = op->matched_ps + (group->nranks > 1 ? fault_delay_ns() * 1000 : 0);
    op->tasks = threads_task_count(group, op);
    set_state(op, OPERATION_MATCHED);
}

static enum status post(struct thread_comm *c, size_t channel, uint64_t number, int index,
                        const struct comm_call *call, int64_t now_ps,
                        struct threads_operation **out)
{
    struct threads_group *group = c->group;
    pthread_mutex_lock(&group->mutex);
    struct threads_operation *op = threads_group_operation(group, channel, number);
    if (op != NULL) {
        fill_post(group, &op->posts[index], call);
        if (now_ps > op->matched_ps)
            op->matched_ps = now_ps;
        if (++op->posted == op->needed)
            match(group, op);
    }
    pthread_mutex_unlock(&group->mutex);
    if (op == NULL)
        return FAIL(ERR_MEMORY, "threads: no memory for one more operation under way");
    *out = op;
    return OK;
}

static size_t link_channel(const struct thread_comm *c, int from, int to)
{
    return 1 + (size_t)from * (size_t)c->group->nranks + (size_t)to;
}

static enum status post_send(struct thread_comm *c, const struct comm_call *call, int64_t now_ps,
                             struct threads_operation **out)
{
    size_t channel = link_channel(c, c->rank, call->to);
    return post(c, channel, c->sends[call->to]++, 0, call, now_ps, out);
}

static enum status post_recv(struct thread_comm *c, const struct comm_call *call, int64_t now_ps,
                             struct threads_operation **out)
{
    struct comm_call receive = *call;
    receive.count = call->recv_count;
    size_t channel = link_channel(c, call->from, c->rank);
    return post(c, channel, c->recvs[call->from]++, 1, &receive, now_ps, out);
}

static enum status post_sendrecv(struct thread_comm *c, const struct comm_call *call,
                                 int64_t now_ps, struct threads_operation **out)
{
    struct threads_operation *send, *recv;
    TRY(post_send(c, call, now_ps, &send));
    TRY(post_recv(c, call, now_ps, &recv));
    send->posts[0].pair = recv; /* read by this rank only */
    *out = send;
    return OK;
}

static enum status threads_start(void *backend, struct comm_request *r)
{
    struct thread_comm *c = backend;
    const struct comm_call *call = &r->call;
    struct threads_operation *op = NULL;
    TRY(lane_mark(c->lanes, NULL, &r->posted));
    int64_t now_ps = r->posted.ps;
    if (call->op == COMM_SEND)
        TRY(post_send(c, call, now_ps, &op));
    else if (call->op == COMM_RECV)
        TRY(post_recv(c, call, now_ps, &op));
    else if (call->op == COMM_SENDRECV)
        TRY(post_sendrecv(c, call, now_ps, &op));
    else
        TRY(post(c, 0, c->collectives++, c->rank, call, now_ps, &op));
    r->transport = op;
    return OK;
}

/* ---- communicators ---- */

static void threads_close(void *backend)
{
    struct thread_comm *c = backend;
    if (c == NULL)
        return;
    threads_group_release(c->group);
    free(c->sends);
    free(c->recvs);
    free(c);
}

/* Takes over one use of the group, also when it fails. */
static enum status join_group(struct threads_group *group, struct team *team,
                              struct lane_system *lanes, int rank, void **backend)
{
    struct thread_comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        threads_group_release(group);
        return FAIL(ERR_MEMORY, "threads: no memory for a communicator");
    }
    *c = (struct thread_comm){.group = group, .team = team, .lanes = lanes, .rank = rank};
    c->sends = calloc((size_t)group->nranks, sizeof *c->sends);
    c->recvs = calloc((size_t)group->nranks, sizeof *c->recvs);
    if (c->sends == NULL || c->recvs == NULL) {
        threads_close(c);
        return FAIL(ERR_MEMORY, "threads: no memory for a communicator");
    }
    *backend = c;
    return OK;
}

static enum status threads_open(struct team *team, struct lane_system *lanes, void **backend)
{
    struct threads_group *group = team->rank == 0 ? threads_group_new(team->nranks) : NULL;
    for (int r = 0; group != NULL && r < team->nranks; r++)
        group->team_ranks[r] = r;
    /* A team of threads broadcasts to all or to none. */
    enum status s = team_broadcast(team, 0, &group, sizeof group);
    if (s != OK && team->rank == 0 && group != NULL)
        for (int r = 0; r < team->nranks; r++)
            threads_group_release(group);
    TRY(s);
    if (group == NULL)
        return FAIL(ERR_MEMORY, "threads: no memory for a communicator of %d ranks", team->nranks);
    return join_group(group, team, lanes, team->rank, backend);
}

static enum status split_timed_out(const struct thread_comm *c)
{
    return FAIL(ERR_TIMEOUT, "split: only %d of %d ranks came within %g s", c->group->splitting,
                c->group->nranks, c->team->timeout_s);
}

/* Returns when all ranks of the parent have come. A finished split is everybody's, even if the team
 * was aborted since. With the mutex held. */
static enum status meet_for_split(struct thread_comm *c)
{
    struct threads_group *parent = c->group;
    uint64_t mine = parent->splits;
    if (++parent->splitting == parent->nranks) {
        threads_group_divide(parent);
        parent->splitting = 0;
        parent->splits++;
        pthread_cond_broadcast(&parent->has_split);
    }
    struct team_deadline deadline = team_deadline_start(c->team);
    while (parent->splits == mine) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        if (team_deadline_passed(c->team, &deadline))
            return split_timed_out(c);
        wait_slice(&parent->has_split, &parent->mutex);
    }
    return OK;
}

static enum status threads_split(void *backend, int color, int key, void **child, int *rank,
                                 int *nranks)
{
    struct thread_comm *c = backend;
    struct threads_group *parent = c->group;
    struct threads_part *part = &parent->parts[c->rank];
    pthread_mutex_lock(&parent->mutex);
    *part = (struct threads_part){.color = color, .key = key};
    enum status s = meet_for_split(c);
    struct threads_part got = *part;
    bool failed = parent->split_failed;
    pthread_mutex_unlock(&parent->mutex);
    TRY(s);
    *child = NULL;
    if (failed && got.group != NULL)
        threads_group_release(got.group);
    if (failed)
        return FAIL(ERR_MEMORY, "threads: no memory for the groups of a split");
    if (got.group == NULL)
        return OK;
    *rank = got.rank;
    *nranks = got.group->nranks;
    return join_group(got.group, c->team, c->lanes, got.rank, child);
}

static uint64_t threads_moved_bytes(void *backend)
{
    const struct thread_comm *c = backend;
    return atomic_load_explicit(&c->group->moved[c->rank], memory_order_relaxed);
}

const struct comm_ops comm_threads = {
    .name = "threads",
    .summary = "ranks are threads of one process; whoever waits copies and sums",
    .memory = MEMORY_HOST,
    .open = threads_open,
    .split = threads_split,
    .close = threads_close,
    .start = threads_start,
    .wait = threads_wait,
    .moved_bytes = threads_moved_bytes,
};

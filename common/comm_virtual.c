/* Transport `virtual`: starting, waiting, splitting; see comm_virtual.h. */
#include "common/comm_virtual.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/fiber.h"
#include "common/lane_virtual.h"

/* One rank's view of a group. */
struct virtual_comm {
    struct virtual_group *group;
    struct team *team;
    struct lane_system *lanes;
    const struct platform *platform;
    int rank;
    uint64_t collectives; /* started */
    int64_t slowed_ps;    /* what overlap has cost since the last of them was started */
};

/* ---- waiting ---- */

static void wake_waiters(struct virtual_group *g, struct virtual_operation *op)
{
    for (int r = op->first_waiter; r >= 0; r = g->next_waiter[r])
        fiber_wake(g->team_ranks[r]);
    op->first_waiter = -1;
}

static void describe_collective(const struct virtual_operation *op, const struct virtual_group *g,
                                char *out, size_t size)
{
    snprintf(out, size, "%s of %s number %llu of a group of %d, %d came",
             comm_op_name(op->each.call.op), traffic_name(op->each.call.traffic),
             (unsigned long long)op->number, g->nranks, op->each.posted);
}

/* What a blocked rank waits for. */
struct wanted {
    const struct virtual_comm *comm;
    const struct virtual_operation *op;
    const struct comm_call *call;
    bool is_out;
};

static void describe(const void *what, char *out, size_t size)
{
    const struct wanted *wanted = what;
    const struct virtual_group *g = wanted->comm->group;
    if (!wanted->op->is_message)
        describe_collective(wanted->op, g, out, size);
    else
        snprintf(out, size, "its %s number %llu of %s %s rank %d", wanted->is_out ? "send" : "receive",
                 (unsigned long long)wanted->op->number, traffic_name(wanted->call->traffic),
                 wanted->is_out ? "to" : "from",
                 g->team_ranks[wanted->is_out ? wanted->call->to : wanted->call->from]);
}

static enum status await_match(struct virtual_comm *c, struct virtual_operation *op,
                               const struct comm_call *call, bool is_out)
{
    struct virtual_group *g = c->group;
    const struct wanted wanted = {.comm = c, .op = op, .call = call, .is_out = is_out};
    while (op->each.state == VIRTUAL_OPEN) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        g->next_waiter[c->rank] = op->first_waiter;
        op->first_waiter = c->rank;
        fiber_block(describe, &wanted);
    }
    if (op->each.state == VIRTUAL_MISMATCHED)
        return FAIL(ERR_MISMATCH, "%s", op->each.mismatch);
    return OK;
}

/* Bytes that emulated code copies on the compute lane once the operation has ended. */
static double copied_bytes(const struct virtual_comm *c, const struct comm_call *call)
{
    const struct platform_emulation *e = &c->platform->emulation;
    double share = 0;
    if (call->op == COMM_ALL_REDUCE)
        share = e->reduced;
    else if (call->op == COMM_ALL_TO_ALL)
        share = e->switched;
    else if (call->op == COMM_ALL_GATHER && call->traffic == TRAFFIC_KV)
        share = e->gathered;
    if (share == 0 || c->group->nranks == 1)
        return 0;
    return share * (double)comm_payload_bytes(call, c->group->nranks);
}

static void end_copies(struct virtual_comm *c, const struct comm_call *call)
{
    const struct platform_gpu *gpu = &c->platform->gpu;
    double bytes = copied_bytes(c, call);
    if (bytes > 0)
        lane_virtual_compute(c->lanes,
                             platform_ps(bytes / (gpu->memory_bandwidth * gpu->memory_ceiling)), 0);
}

static enum status virtual_wait(void *backend, struct comm_request *r)
{
    struct virtual_comm *c = backend;
    struct virtual_operation *op = r->transport, *reply = op->each.reply;
    bool is_out = r->call.op == COMM_SEND || r->call.op == COMM_SENDRECV;
    if (r->call.op != COMM_SENDRECV)
        reply = NULL;
    TRY(await_match(c, op, &r->call, is_out));
    if (reply != NULL)
        TRY(await_match(c, reply, &r->call, false));
    int64_t begin = op->each.begin_ps, end = op->each.end_ps;
    if (reply != NULL && reply->each.begin_ps < begin)
        begin = reply->each.begin_ps;
    if (reply != NULL && reply->each.end_ps > end)
        end = reply->each.end_ps;
    r->matched.ps = op->each.begin_ps;
    if (reply != NULL && reply->each.begin_ps > r->matched.ps)
        r->matched.ps = reply->each.begin_ps;
    r->ended.ps = end;
    c->slowed_ps += lane_virtual_await(c->lanes, begin, end);
    end_copies(c, &r->call);
    virtual_group_awaited(c->group, op);
    if (reply != NULL)
        virtual_group_awaited(c->group, reply);
    return OK;
}

/* ---- starting ---- */

static double host_ops(const struct virtual_comm *c, const struct comm_call *call)
{
    const struct platform_emulation *e = &c->platform->emulation;
    if (call->op == COMM_SEND || call->op == COMM_RECV || call->op == COMM_SENDRECV)
        return e->host_message > 0 ? e->host_message : 1;
    double each = call->op == COMM_ALL_GATHER ? e->host_gather_each * c->group->nranks : 0;
    return e->host_collective > 0 ? e->host_collective + each : 1;
}

static enum status start_collective(struct virtual_comm *c, struct comm_request *r, int64_t ready_ps)
{
    struct virtual_group *g = c->group;
    struct virtual_operation *op = virtual_group_collective(g, c->collectives);
    if (op == NULL || !virtual_match_collective(g, op, c->rank, &r->call, ready_ps, c->slowed_ps))
        return FAIL(ERR_MEMORY, "virtual: no memory for one more operation under way");
    c->collectives++;
    c->slowed_ps = 0;
    r->transport = op;
    if (op->each.state != VIRTUAL_OPEN)
        wake_waiters(g, op);
    return OK;
}

static enum status start_message(struct virtual_comm *c, const struct comm_call *call, bool is_sender,
                                 int64_t ready_ps, struct virtual_operation **out)
{
    struct virtual_group *g = c->group;
    int from = is_sender ? c->rank : call->from, to = is_sender ? call->to : c->rank;
    struct virtual_link *link = virtual_group_link(g, from, to);
    struct virtual_operation *op = link != NULL ? virtual_link_next(g, link, is_sender) : NULL;
    if (op == NULL)
        return FAIL(ERR_MEMORY, "virtual: no memory for one more message under way");
    virtual_match_message(g, link, from, op, call, is_sender, ready_ps);
    if (op->each.state != VIRTUAL_OPEN)
        wake_waiters(g, op);
    *out = op;
    return OK;
}

static enum status start_both(struct virtual_comm *c, struct comm_request *r, int64_t ready_ps)
{
    struct virtual_operation *out, *in;
    TRY(start_message(c, &r->call, true, ready_ps, &out));
    TRY(start_message(c, &r->call, false, ready_ps, &in));
    out->each.reply = in;
    r->transport = out;
    return OK;
}

static enum status virtual_start(void *backend, struct comm_request *r)
{
    struct virtual_comm *c = backend;
    struct virtual_operation *op;
    if (team_status(c->team) != OK)
        return team_peer_failed(c->team);
    int64_t ready_ps = lane_virtual_post(c->lanes, host_ops(c, &r->call));
    r->posted = (struct mark){.ps = ready_ps};
    if (r->call.op != COMM_ALL_TO_ALL)
        c->group->moved[c->rank] += comm_sent_bytes(&r->call, c->rank, c->group->nranks);
    switch (r->call.op) {
    case COMM_SEND:
    case COMM_RECV:
        TRY(start_message(c, &r->call, r->call.op == COMM_SEND, ready_ps, &op));
        r->transport = op;
        return OK;
    case COMM_SENDRECV:
        return start_both(c, r, ready_ps);
    default:
        return start_collective(c, r, ready_ps);
    }
}

/* ---- communicators ---- */

static void virtual_close(void *backend)
{
    struct virtual_comm *c = backend;
    if (c == NULL)
        return;
    virtual_group_release(c->group);
    free(c);
}

static enum status join_group(struct virtual_group *group, struct team *team, struct lane_system *lanes,
                              int rank, void **backend)
{
    struct virtual_comm *c = malloc(sizeof *c);
    if (c == NULL) {
        virtual_group_release(group);
        return FAIL(ERR_MEMORY, "virtual: no memory for a communicator");
    }
    *c = (struct virtual_comm){.group = group, .team = team, .lanes = lanes,
                               .platform = group->platform, .rank = rank};
    *backend = c;
    return OK;
}

static struct virtual_group *world_group(const struct platform *platform, int nranks)
{
    size_t n = (size_t)nranks;
    int *team_ranks = calloc(2 * n, sizeof *team_ranks), *group_of = team_ranks + n; /* all in 0 */
    if (team_ranks == NULL)
        return NULL;
    for (int r = 0; r < nranks; r++)
        team_ranks[r] = r;
    struct virtual_group *group = virtual_group_new(platform, team_ranks, nranks, group_of, nranks);
    free(team_ranks);
    return group;
}

static enum status virtual_open(struct team *team, struct lane_system *lanes, void **backend)
{
    struct virtual_group *group = NULL;
    if (team->rank == 0)
        group = world_group(lane_virtual_platform(lanes), team->nranks);
    enum status s = team_broadcast(team, 0, &group, sizeof group);
    if (s != OK && team->rank == 0 && group != NULL)
        for (int r = 0; r < team->nranks; r++)
            virtual_group_release(group);
    TRY(s);
    if (group == NULL)
        return FAIL(ERR_MEMORY, "virtual: no memory for a communicator of %d ranks", team->nranks);
    return join_group(group, team, lanes, team->rank, backend);
}

static void describe_split(const void *what, char *out, size_t size)
{
    const struct virtual_group *parent = what;
    snprintf(out, size, "a split of %d ranks, %d came", parent->nranks, parent->splitting);
}

static enum status meet_for_split(struct virtual_comm *c)
{
    struct virtual_group *parent = c->group;
    uint64_t mine = parent->splits;
    if (++parent->splitting == parent->nranks) {
        virtual_group_divide(parent, c->team->nranks);
        parent->splitting = 0;
        parent->splits++;
        for (int r = 0; r < parent->nranks; r++)
            fiber_wake(parent->team_ranks[r]);
    }
    while (parent->splits == mine) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        fiber_block(describe_split, parent);
    }
    return OK;
}

static enum status virtual_split(void *backend, int color, int key, void **child, int *rank, int *nranks)
{
    struct virtual_comm *c = backend;
    struct virtual_part *part = &c->group->parts[c->rank];
    *part = (struct virtual_part){.color = color, .key = key};
    TRY(meet_for_split(c));
    struct virtual_part got = *part;
    *child = NULL;
    if (c->group->split_failed && got.group != NULL)
        virtual_group_release(got.group);
    if (c->group->split_failed)
        return FAIL(ERR_MEMORY, "virtual: no memory for the groups of a split");
    if (got.group == NULL)
        return OK;
    *rank = got.rank;
    *nranks = got.group->nranks;
    return join_group(got.group, c->team, c->lanes, got.rank, child);
}

static uint64_t virtual_moved_bytes(void *backend)
{
    const struct virtual_comm *c = backend;
    return c->group->moved[c->rank];
}

const struct comm_ops comm_virtual = {
    .name = "virtual",
    .summary = "ranks are fibers in one thread; what travels is virtual time",
    .memory = MEMORY_VIRTUAL,
    .open = virtual_open,
    .split = virtual_split,
    .close = virtual_close,
    .start = virtual_start,
    .wait = virtual_wait,
    .moved_bytes = virtual_moved_bytes,
};

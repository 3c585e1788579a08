/* Transport `mpi`: communicators, starting and waiting; see comm_mpi.h. */
#include "common/comm_mpi.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/comm_mpi_steps.h"
#include "common/team_mpi.h"

/* ---- operations ---- */

static enum status take_operation(struct mpi_comm *c, struct mpi_operation **out)
{
    struct mpi_operation *op = c->unused;
    if (op != NULL) {
        c->unused = op->next_unused;
        *out = op;
        return OK;
    }
    op = calloc(1, sizeof *op);
    if (op == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for one more operation under way");
    op->comm = c;
    op->next_made = c->made;
    c->made = op;
    *out = op;
    return mpi_operation_reserve(op);
}

static void return_operation(struct mpi_comm *c, struct mpi_operation *op)
{
    op->next_unused = c->unused;
    c->unused = op;
}

static void number(struct mpi_comm *c, struct mpi_operation *op)
{
    const struct comm_call *call = &op->call;
    if (call->op == COMM_SEND || call->op == COMM_SENDRECV)
        op->to_number = c->sends[call->to]++;
    if (call->op == COMM_RECV || call->op == COMM_SENDRECV)
        op->from_number = c->recvs[call->from]++;
    if (call->op != COMM_SEND && call->op != COMM_RECV && call->op != COMM_SENDRECV)
        op->number = c->collectives++;
}

static enum status mpi_start(void *backend, struct comm_request *r)
{
    struct mpi_comm *c = backend;
    struct mpi_operation *op = NULL;
    TRY(lane_mark(c->lanes, NULL, &r->posted));
    TRY(take_operation(c, &op));
    op->call = r->call;
    number(c, op);
    mpi_engine_lock();
    enum status s = mpi_operation_post(op);
    mpi_engine_unlock();
    r->transport = op;
    return s;
}

static enum status operation_timed_out(struct mpi_comm *c, struct mpi_operation *op)
{
    mpi_engine_lock();
    int missing = mpi_operation_missing(op);
    mpi_engine_unlock();
    return FAIL(ERR_TIMEOUT, "%s: rank %d did not come within %g s", comm_op_name(op->call.op),
                team_mpi_missing(c->team, missing), c->team->timeout_s);
}

static bool has_ended(const struct mpi_operation *op)
{
    return atomic_load_explicit(&op->has_ended, memory_order_acquire);
}

static enum status await_end(struct mpi_comm *c, struct mpi_operation *op)
{
    int64_t start = clock_ns();
    struct team_deadline deadline = team_deadline_start(c->team);
    mpi_engine_poll();
    while (!has_ended(op)) {
        if (team_status(c->team) != OK)
            return team_peer_failed(c->team);
        if (team_deadline_passed(c->team, &deadline))
            return operation_timed_out(c, op);
        mpi_engine_pause(start, c->team->is_oversubscribed);
        mpi_engine_poll();
    }
    return OK;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static enum status mpi_wait(void *backend, struct comm_request *r)
{
    struct mpi_comm *c = backend;
    struct mpi_operation *op = r->transport;
    if (!has_ended(op)) {
        team_mpi_waits(c->team, true);
        enum status s = await_end(c, op);
        team_mpi_waits(c->team, false);
        TRY(s);
    }
    if (op->status == ERR_PEER)
        return team_peer_failed(c->team);
    if (op->status != OK)
        return FAIL(op->status, "%s", op->why);
    r->matched = r->ended = r->posted;
    r->matched.ps = later(op->matched_ps, r->posted.ps);
    r->ended.ps = later(op->ended_ps, r->posted.ps);
    return_operation(c, op);
    return OK;
}

/* ---- communicators ---- */

static void free_operations(struct mpi_comm *c)
{
    while (c->made != NULL) {
        struct mpi_operation *op = c->made;
        c->made = op->next_made;
        mpi_engine_lock();
        mpi_operation_abandon(op); /* nothing, unless the team was aborted */
        mpi_engine_unlock();
        mpi_exchange_free(&op->posts);
        mpi_exchange_free(&op->data);
        free(op->words);
        free(op->staging);
        free(op);
    }
}

static void mpi_close(void *backend)
{
    struct mpi_comm *c = backend;
    if (c == NULL)
        return;
    free_operations(c);
    if (c->context == 0)
        free(c->next_context);
    free(c->team_ranks);
    free(c->sends);
    free(c->recvs);
    free(c);
}

static struct mpi_comm *new_comm(struct team *team, struct lane_system *lanes, int nranks)
{
    struct mpi_comm *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    *c = (struct mpi_comm){.team = team, .lanes = lanes, .nranks = nranks, .context = -1};
    c->team_ranks = calloc((size_t)nranks, sizeof *c->team_ranks);
    c->sends = calloc((size_t)nranks, sizeof *c->sends);
    c->recvs = calloc((size_t)nranks, sizeof *c->recvs);
    if (c->team_ranks != NULL && c->sends != NULL && c->recvs != NULL)
        return c;
    mpi_close(c);
    return NULL;
}

static enum status mpi_open(struct team *team, struct lane_system *lanes, void **backend)
{
    if (!team_is_mpi(team))
        return FAIL(ERR_UNSUPPORTED, "transport mpi needs ranks that are MPI processes");
    struct mpi_comm *c = new_comm(team, lanes, team->nranks);
    int *next_context = calloc(1, sizeof *next_context);
    if (c == NULL || next_context == NULL) {
        free(next_context);
        mpi_close(c);
        return FAIL(ERR_MEMORY, "mpi: no memory for a communicator");
    }
    *next_context = 1;
    c->context = 0;
    c->next_context = next_context;
    c->rank = team->rank;
    for (int r = 0; r < team->nranks; r++)
        c->team_ranks[r] = r;
    *backend = c;
    return OK;
}

/* What a rank says in a split. */
struct wish {
    int color, key, next_context, padding;
};

static enum status exchange_wishes(struct mpi_comm *c, struct wish *wishes)
{
    struct mpi_exchange x = {0};
    int tag = mpi_engine_tag(team_mpi_generation(c->team), c->context, MPI_PHASE_POST,
                             c->collectives++);
    enum status s = OK;
    mpi_engine_lock();
    for (int r = 0; r < c->nranks && s == OK; r++)
        if (r != c->rank)
            s = mpi_exchange_recv(&x, &wishes[r], sizeof *wishes, c->team_ranks[r], tag);
    for (int r = 0; r < c->nranks && s == OK; r++)
        if (r != c->rank)
            s = mpi_exchange_send(&x, &wishes[c->rank], sizeof *wishes, c->team_ranks[r], tag);
    mpi_engine_unlock();
    if (s == OK)
        s = team_mpi_await(c->team, &x, "split");
    mpi_exchange_free(&x);
    return s;
}

/* The place of parent rank r among those of its color. */
static int place(const struct wish *wishes, int nranks, int r)
{
    int before = 0;
    for (int q = 0; q < nranks; q++)
        before += wishes[q].color == wishes[r].color &&
                  (wishes[q].key < wishes[r].key || (wishes[q].key == wishes[r].key && q < r));
    return before;
}

static enum status make_group(struct mpi_comm *parent, const struct wish *wishes, int context,
                              struct mpi_comm **out)
{
    int color = wishes[parent->rank].color, members = 0;
    for (int r = 0; r < parent->nranks; r++)
        members += wishes[r].color == color;
    struct mpi_comm *c = new_comm(parent->team, parent->lanes, members);
    if (c == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for a group of %d ranks", members);
    c->context = context;
    c->next_context = parent->next_context;
    c->rank = place(wishes, parent->nranks, parent->rank);
    for (int r = 0; r < parent->nranks; r++)
        if (wishes[r].color == color)
            c->team_ranks[place(wishes, parent->nranks, r)] = parent->team_ranks[r];
    *out = c;
    return OK;
}

/* All groups of a split get one context, which no communicator of any of their ranks has. */
static enum status divide(struct mpi_comm *c, const struct wish *wishes, struct mpi_comm **out)
{
    int context = 0;
    for (int r = 0; r < c->nranks; r++)
        context = wishes[r].next_context > context ? wishes[r].next_context : context;
    if (context >= MPI_MAX_CONTEXTS)
        return FAIL(ERR_UNSUPPORTED, "mpi: more than %d splits", MPI_MAX_CONTEXTS - 1);
    *c->next_context = context + 1;
    *out = NULL;
    return wishes[c->rank].color < 0 ? OK : make_group(c, wishes, context, out);
}

static enum status mpi_split(void *backend, int color, int key, void **child, int *rank, int *nranks)
{
    struct mpi_comm *c = backend, *group = NULL;
    struct wish *wishes = calloc((size_t)c->nranks, sizeof *wishes);
    if (wishes == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for a split of %d ranks", c->nranks);
    wishes[c->rank] = (struct wish){color, key, *c->next_context, 0};
    enum status s = exchange_wishes(c, wishes);
    if (s == OK)
        s = divide(c, wishes, &group);
    free(wishes);
    TRY(s);
    *child = group;
    if (group == NULL)
        return OK;
    *rank = group->rank;
    *nranks = group->nranks;
    return OK;
}

static uint64_t mpi_moved_bytes(void *backend)
{
    struct mpi_comm *c = backend;
    return atomic_load_explicit(&c->moved, memory_order_relaxed);
}

const struct comm_ops comm_mpi = {
    .name = "mpi",
    .summary = "ranks are processes, on one machine or several; started by mpirun",
    .memory = MEMORY_HOST,
    .open = mpi_open,
    .split = mpi_split,
    .close = mpi_close,
    .start = mpi_start,
    .wait = mpi_wait,
    .moved_bytes = mpi_moved_bytes,
};

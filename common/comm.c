/* The checked and counted wrappers, and the list of transports. */
#include "common/comm.h"

#include <stdlib.h>
#include <string.h>

#include "common/comm_mpi.h"
#include "common/comm_threads.h"
#include "common/comm_virtual.h"
#include "common/fault.h"
#include "common/meter.h"
#include "config.h"

/* Counts and offsets of an even form. Operations under way point to it, and a run has few distinct
 * counts, so tables live as long as the communicator. */
struct even_table {
    struct even_table *next;
    size_t count;
    size_t *offsets;
    size_t counts[]; /* nranks counts, then nranks offsets */
};

struct comm {
    const struct comm_ops *ops;
    void *backend;
    struct team *team;
    struct lane_system *lanes;
    struct meter *meter;
    struct comm *root; /* over the whole team; itself when this is it */
    struct even_table *tables;
    uint64_t starts; /* of the root: calls started on it and its groups, for fault_at_call */
    uint64_t sequence;
    int rank, nranks;
};

enum { TRANSPORTS_MAX = 8 };

static const struct comm_ops *transports[TRANSPORTS_MAX + 1] = {
    &comm_threads,
#if HAVE_MPI
    &comm_mpi,
#endif
    &comm_virtual,
};

const struct comm_ops *const *comm_transports(void)
{
    return transports;
}

enum status comm_register(const struct comm_ops *ops)
{
    for (int i = 0; i < TRANSPORTS_MAX; i++)
        if (transports[i] == NULL) {
            transports[i] = ops;
            return OK;
        }
    return FAIL(ERR_INTERNAL, "comm: no room for transport %s", ops->name);
}

const struct comm_ops *comm_find(const char *name)
{
    for (const struct comm_ops *const *t = comm_transports(); *t != NULL; t++)
        if (strcmp((*t)->name, name) == 0)
            return *t;
    return NULL;
}

/* ---- communicators ---- */

static struct comm *new_comm(const struct comm_ops *ops, struct team *team,
                             struct lane_system *lanes, struct meter *meter)
{
    struct comm *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->ops = ops;
    c->team = team;
    c->lanes = lanes;
    c->meter = meter;
    c->root = c;
    return c;
}

enum status comm_open(const struct comm_ops *ops, struct team *team, struct lane_system *lanes,
                      struct meter *meter, struct comm **out)
{
    if (ops->memory != lanes->ops->memory)
        return FAIL(ERR_UNSUPPORTED, "transport %s cannot move memory of %s", ops->name,
                    lanes->ops->name);
    if (team->nranks > COMM_MAX_RANKS)
        return FAIL(ERR_UNSUPPORTED, "%d ranks: at most %d", team->nranks, COMM_MAX_RANKS);
    struct comm *c = new_comm(ops, team, lanes, meter);
    if (c == NULL)
        return FAIL(ERR_MEMORY, "comm: no memory for a communicator");
    c->rank = team->rank;
    c->nranks = team->nranks;
    enum status s = ops->open(team, lanes, &c->backend);
    if (s != OK) {
        free(c);
        return s;
    }
    *out = c;
    return OK;
}

enum status comm_split(struct comm *parent, int color, int key, struct comm **out)
{
    struct comm *c = new_comm(parent->ops, parent->team, parent->lanes, parent->meter);
    if (c == NULL)
        return FAIL(ERR_MEMORY, "comm: no memory for a group");
    c->root = parent->root;
    team_heartbeat(parent->team);
    enum status s =
        parent->ops->split(parent->backend, color, key, &c->backend, &c->rank, &c->nranks);
    if (s != OK)
        team_abort(parent->team, s);
    if (s != OK || c->backend == NULL) {
        free(c);
        c = NULL;
    }
    TRY(s);
    *out = c;
    return OK;
}

void comm_close(struct comm *c)
{
    if (c == NULL)
        return;
    c->ops->close(c->backend);
    while (c->tables != NULL) {
        struct even_table *next = c->tables->next;
        free(c->tables);
        c->tables = next;
    }
    free(c);
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_nranks(const struct comm *c)
{
    return c->nranks;
}

uint64_t comm_moved_bytes(const struct comm *c)
{
    return c->ops->moved_bytes(c->backend);
}

/* ---- start and wait ---- */

static bool is_skipped(const struct comm *c)
{
    return c->meter != NULL && c->meter->mode == RUN_COMPUTE;
}

static enum status begin(struct comm *c, struct comm_request *r)
{
    team_heartbeat(c->team);
    TRY(fault_at_call(c->team->rank, c->root->starts++));
    if (c->meter != NULL)
        meter_count(c->meter, r->call.op, r->call.traffic, comm_payload_bytes(&r->call, c->nranks),
                    comm_sent_bytes(&r->call, c->rank, c->nranks));
    return c->ops->start(c->backend, r);
}

static bool is_even(const size_t *counts, int n)
{
    return counts == NULL || memcmp(counts, counts + 1, (size_t)(n - 1) * sizeof *counts) == 0;
}

static enum status start(struct comm *c, const struct comm_call *call, struct comm_request *request)
{
    if (is_skipped(c))
        return OK;
    struct comm_request both = {0};
    struct comm_request *r = request != NULL ? request : &both;
    ASSERT(!comm_is_pending(r));
    *r = (struct comm_request){.comm = c, .call = *call, .layer = -1, .patch = -1, .step = -1};
    r->sequence = c->sequence++;
    if (!call->is_even) /* an even form knows; a thousand parts are slow to look at */
        r->call.is_even = is_even(call->send_counts, c->nranks) && is_even(call->recv_counts, c->nranks);
    if (c->meter != NULL) {
        r->layer = c->meter->layer;
        r->patch = c->meter->patch;
        r->step = c->meter->step;
    }
    enum status s = begin(c, r);
    if (s != OK) {
        r->comm = NULL;
        team_abort(c->team, s);
        return s;
    }
    return request != NULL ? OK : comm_wait(r);
}

static enum status timed_wait(struct comm *c, struct comm_request *r)
{
    if (c->meter == NULL)
        return c->ops->wait(c->backend, r);
    struct mark begun;
    TRY(meter_wait_begin(c->meter, &begun));
    TRY(c->ops->wait(c->backend, r));
    return meter_wait_end(c->meter, &begun, r);
}

enum status comm_wait(struct comm_request *r)
{
    struct comm *c = r->comm;
    if (c == NULL)
        return OK;
    team_heartbeat(c->team);
    enum status s = timed_wait(c, r);
    r->comm = NULL;
    if (s != OK)
        team_abort(c->team, s);
    return s;
}

/* ---- operations ---- */

static void check_rank(const struct comm *c, int rank)
{
    ASSERT_CMP(rank, >=, 0);
    ASSERT_CMP(rank, <, c->nranks);
}

enum status comm_all_reduce(struct comm *c, enum traffic traffic, enum dtype dtype,
                            struct devmem send, struct devmem recv, size_t count,
                            struct comm_request *request)
{
    struct comm_call call = {
        .op = COMM_ALL_REDUCE,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .recv = recv,
        .count = count,
    };
    return start(c, &call, request);
}

enum status comm_all_gatherv(struct comm *c, enum traffic traffic, enum dtype dtype,
                             struct devmem send, struct devmem recv, const size_t *counts,
                             const size_t *offsets, struct comm_request *request)
{
    struct comm_call call = {
        .op = COMM_ALL_GATHER,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .recv = recv,
        .recv_counts = counts,
        .recv_offsets = offsets,
    };
    return start(c, &call, request);
}

enum status comm_reduce_scatterv(struct comm *c, enum traffic traffic, enum dtype dtype,
                                 struct devmem send, struct devmem recv, const size_t *counts,
                                 const size_t *offsets, struct comm_request *request)
{
    struct comm_call call = {
        .op = COMM_REDUCE_SCATTER,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .recv = recv,
        .send_counts = counts,
        .send_offsets = offsets,
    };
    return start(c, &call, request);
}

enum status comm_all_to_allv(struct comm *c, enum traffic traffic, enum dtype dtype,
                             struct devmem send, const size_t *send_counts,
                             const size_t *send_offsets, struct devmem recv,
                             const size_t *recv_counts, const size_t *recv_offsets,
                             struct comm_request *request)
{
    struct comm_call call = {
        .op = COMM_ALL_TO_ALL,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .send_counts = send_counts,
        .send_offsets = send_offsets,
        .recv = recv,
        .recv_counts = recv_counts,
        .recv_offsets = recv_offsets,
    };
    return start(c, &call, request);
}

enum status comm_broadcast(struct comm *c, enum traffic traffic, enum dtype dtype,
                           struct devmem buffer, size_t count, int root,
                           struct comm_request *request)
{
    check_rank(c, root);
    struct comm_call call = {
        .op = COMM_BROADCAST,
        .traffic = traffic,
        .dtype = dtype,
        .send = buffer,
        .recv = buffer,
        .count = count,
        .root = root,
    };
    return start(c, &call, request);
}

enum status comm_send(struct comm *c, enum traffic traffic, enum dtype dtype, struct devmem send,
                      size_t count, int to, struct comm_request *request)
{
    check_rank(c, to);
    struct comm_call call = {
        .op = COMM_SEND,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .count = count,
        .to = to,
    };
    return start(c, &call, request);
}

enum status comm_recv(struct comm *c, enum traffic traffic, enum dtype dtype, struct devmem recv,
                      size_t count, int from, struct comm_request *request)
{
    check_rank(c, from);
    struct comm_call call = {
        .op = COMM_RECV,
        .traffic = traffic,
        .dtype = dtype,
        .recv = recv,
        .recv_count = count,
        .from = from,
    };
    return start(c, &call, request);
}

enum status comm_sendrecv(struct comm *c, enum traffic traffic, enum dtype dtype,
                          struct devmem send, size_t send_count, int to, struct devmem recv,
                          size_t recv_count, int from, struct comm_request *request)
{
    check_rank(c, to);
    check_rank(c, from);
    struct comm_call call = {
        .op = COMM_SENDRECV,
        .traffic = traffic,
        .dtype = dtype,
        .send = send,
        .count = send_count,
        .to = to,
        .recv = recv,
        .recv_count = recv_count,
        .from = from,
    };
    return start(c, &call, request);
}

static enum status even_table(struct comm *c, size_t count, const struct even_table **out)
{
    for (*out = c->tables; *out != NULL; *out = (*out)->next)
        if ((*out)->count == count)
            return OK;
    size_t n = (size_t)c->nranks;
    struct even_table *table = malloc(sizeof *table + 2 * n * sizeof table->counts[0]);
    if (table == NULL)
        return FAIL(ERR_MEMORY, "comm: no memory for the parts of %zu ranks", n);
    table->count = count;
    table->offsets = table->counts + n;
    for (size_t r = 0; r < n; r++) {
        table->counts[r] = count;
        table->offsets[r] = r * count;
    }
    table->next = c->tables;
    c->tables = table;
    *out = table;
    return OK;
}

enum status comm_all_gather(struct comm *c, enum traffic traffic, enum dtype dtype,
                            struct devmem send, struct devmem recv, size_t count,
                            struct comm_request *request)
{
    const struct even_table *even;
    TRY(even_table(c, count, &even));
    struct comm_call call = {.op = COMM_ALL_GATHER, .traffic = traffic, .dtype = dtype, .send = send,
                             .recv = recv, .is_even = true, .recv_counts = even->counts,
                             .recv_offsets = even->offsets};
    return start(c, &call, request);
}

enum status comm_reduce_scatter(struct comm *c, enum traffic traffic, enum dtype dtype,
                                struct devmem send, struct devmem recv, size_t count,
                                struct comm_request *request)
{
    const struct even_table *even;
    TRY(even_table(c, count, &even));
    struct comm_call call = {.op = COMM_REDUCE_SCATTER, .traffic = traffic, .dtype = dtype, .send = send,
                             .recv = recv, .is_even = true, .send_counts = even->counts,
                             .send_offsets = even->offsets};
    return start(c, &call, request);
}

enum status comm_all_to_all(struct comm *c, enum traffic traffic, enum dtype dtype,
                            struct devmem send, struct devmem recv, size_t count,
                            struct comm_request *request)
{
    const struct even_table *even;
    TRY(even_table(c, count, &even));
    struct comm_call call = {.op = COMM_ALL_TO_ALL, .traffic = traffic, .dtype = dtype, .send = send,
                             .recv = recv, .is_even = true, .send_counts = even->counts,
                             .send_offsets = even->offsets, .recv_counts = even->counts,
                             .recv_offsets = even->offsets};
    return start(c, &call, request);
}

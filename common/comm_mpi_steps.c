/* Posting and advancing operations of transport `mpi`. */
#include "common/comm_mpi_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/reduce.h"
#include "common/team_mpi.h"

/* Elements summed in one turn: the lock is not held for long. */
enum { SUM_SLICE = 1 << 17 };

/* ---- posts on their way ---- */

/* A post as words: op, dtype, root, count, send_counts[nranks], recv_counts[nranks]; a message's has only
 * the first four. */
enum { WORD_OP, WORD_DTYPE, WORD_ROOT, WORD_COUNT, WORDS };
enum { LINK_ROWS = 4 }; /* own and peer's, of a send and of a receive */

static size_t row_words(const struct mpi_comm *c)
{
    return WORDS + 2 * (size_t)c->nranks;
}

/* Row r is what group rank r brings. */
static size_t *row(const struct mpi_operation *op, int r)
{
    return op->words + (size_t)r * row_words(op->comm);
}

static struct comm_post post_of(size_t *words, int nranks)
{
    return (struct comm_post){
        .op = (enum comm_op)words[WORD_OP],
        .dtype = (enum dtype)words[WORD_DTYPE],
        .root = (int)words[WORD_ROOT],
        .count = words[WORD_COUNT],
        .send_counts = words + WORDS,
        .recv_counts = words + WORDS + nranks,
    };
}

static void put_words(size_t *words, const struct comm_call *call, size_t count)
{
    words[WORD_OP] = (size_t)call->op;
    words[WORD_DTYPE] = (size_t)call->dtype;
    words[WORD_ROOT] = (size_t)call->root;
    words[WORD_COUNT] = count;
}

static void put_counts(size_t *to, const size_t *from, int n)
{
    for (int r = 0; r < n; r++)
        to[r] = from != NULL ? from[r] : 0;
}

enum status mpi_operation_reserve(struct mpi_operation *op)
{
    size_t rows = (size_t)op->comm->nranks > LINK_ROWS ? (size_t)op->comm->nranks : LINK_ROWS;
    op->words = calloc(rows * row_words(op->comm), sizeof *op->words);
    return op->words != NULL ? OK : FAIL(ERR_MEMORY, "mpi: no memory for one more operation under way");
}

/* ---- posting ---- */

static int tag(const struct mpi_operation *op, enum mpi_phase phase, uint64_t number)
{
    return mpi_engine_tag(team_mpi_generation(op->comm->team), op->comm->context, phase, number);
}

static bool is_link(const struct mpi_operation *op)
{
    return op->call.op == COMM_SEND || op->call.op == COMM_RECV || op->call.op == COMM_SENDRECV;
}

/* Data for group rank `to`; moved unless it stays. */
static enum status send_data(struct mpi_operation *op, const char *data, size_t bytes, int to, int with)
{
    struct mpi_comm *c = op->comm;
    TRY(mpi_exchange_send(&op->data, data, bytes, c->team_ranks[to], with));
    if (to != c->rank)
        atomic_fetch_add_explicit(&c->moved, bytes, memory_order_relaxed);
    return OK;
}

static enum status recv_data(struct mpi_operation *op, char *data, size_t bytes, int from, int with)
{
    return mpi_exchange_recv(&op->data, data, bytes, op->comm->team_ranks[from], with);
}

static void copy(char *to, const char *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

/* The part of `send` that is for rank r, in bytes: offset and size. */
static size_t send_part(const struct mpi_operation *op, int r, size_t *offset)
{
    const struct comm_call *call = &op->call;
    size_t e = dtype_bytes(call->dtype), count;
    if (call->op == COMM_ALL_REDUCE) {
        count = comm_chunk(call->count, r, op->comm->nranks, offset);
    } else if (call->op == COMM_ALL_GATHER) {
        count = call->recv_counts[op->comm->rank];
        *offset = 0;
    } else {
        count = call->send_counts[r];
        *offset = call->send_offsets[r];
    }
    *offset *= e;
    return count * e;
}

static size_t own_sum_bytes(const struct mpi_operation *op)
{
    size_t offset;
    return send_part(op, op->comm->rank, &offset);
}

static bool is_reduction(const struct mpi_operation *op)
{
    return op->call.op == COMM_ALL_REDUCE || op->call.op == COMM_REDUCE_SCATTER;
}

/* Where the part from rank r arrives. */
static char *arrival(const struct mpi_operation *op, int r, size_t *bytes)
{
    const struct comm_call *call = &op->call;
    size_t e = dtype_bytes(call->dtype);
    if (is_reduction(op)) {
        *bytes = own_sum_bytes(op);
        return op->staging + (size_t)r * *bytes;
    }
    *bytes = call->recv_counts[r] * e;
    return (char *)lane_host_pointer(call->recv) + call->recv_offsets[r] * e;
}

static enum status reserve_staging(struct mpi_operation *op)
{
    size_t bytes = own_sum_bytes(op) * (size_t)op->comm->nranks;
    if (!is_reduction(op) || bytes <= op->staging_bytes)
        return OK;
    free(op->staging);
    op->staging = malloc(bytes);
    op->staging_bytes = op->staging != NULL ? bytes : 0;
    return op->staging != NULL ? OK : FAIL(ERR_MEMORY, "mpi: no memory for %zu bytes to add", bytes);
}

/* Everybody's part for everybody: all but broadcast. Receives first, so that data finds its place. */
static enum status post_parts(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    const char *send = lane_host_pointer(op->call.send);
    int with = tag(op, MPI_PHASE_PARTS, op->number);
    size_t offset, bytes;
    TRY(reserve_staging(op));
    for (int r = 0; r < c->nranks; r++) {
        char *to = arrival(op, r, &bytes);
        if (r != c->rank)
            TRY(recv_data(op, to, bytes, r, with));
        else if (!is_reduction(op))
            copy(to, send + (send_part(op, r, &offset), offset), bytes);
    }
    for (int i = 1; i < c->nranks; i++) {
        int r = (c->rank + i) % c->nranks; /* not everybody to the same rank at once */
        bytes = send_part(op, r, &offset);
        TRY(send_data(op, send + offset, bytes, r, with));
    }
    return OK;
}

static enum status post_array(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    size_t bytes = op->call.count * dtype_bytes(op->call.dtype);
    int with = tag(op, MPI_PHASE_PARTS, op->number);
    if (c->rank != op->call.root)
        return recv_data(op, lane_host_pointer(op->call.recv), bytes, op->call.root, with);
    for (int i = 1; i < c->nranks; i++)
        TRY(send_data(op, lane_host_pointer(op->call.send), bytes, (c->rank + i) % c->nranks, with));
    return OK;
}

static enum status post_collective(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    size_t *own = row(op, c->rank), bytes = row_words(c) * sizeof *own;
    int with = tag(op, MPI_PHASE_POST, op->number);
    put_words(own, &op->call, op->call.count);
    put_counts(own + WORDS, op->call.send_counts, c->nranks);
    put_counts(own + WORDS + c->nranks, op->call.recv_counts, c->nranks);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            TRY(mpi_exchange_recv(&op->posts, row(op, r), bytes, c->team_ranks[r], with));
    for (int i = 1; i < c->nranks; i++)
        TRY(mpi_exchange_send(&op->posts, own, bytes, c->team_ranks[(c->rank + i) % c->nranks], with));
    return op->call.op == COMM_BROADCAST ? post_array(op) : post_parts(op);
}

/* Rows of a message: 0 its send, 1 what the receiver answers; 2 its receive, 3 what the sender says. */
static enum status post_send(struct mpi_operation *op)
{
    const size_t bytes = WORDS * sizeof *op->words;
    const int to = op->comm->team_ranks[op->call.to];
    put_words(row(op, 0), &op->call, op->call.count);
    TRY(mpi_exchange_recv(&op->posts, row(op, 1), bytes, to, tag(op, MPI_PHASE_LINK_READY, op->to_number)));
    TRY(mpi_exchange_send(&op->posts, row(op, 0), bytes, to, tag(op, MPI_PHASE_LINK_POST, op->to_number)));
    return send_data(op, lane_host_pointer(op->call.send), op->call.count * dtype_bytes(op->call.dtype),
                     op->call.to, tag(op, MPI_PHASE_LINK_DATA, op->to_number));
}

static enum status post_recv(struct mpi_operation *op)
{
    const size_t bytes = WORDS * sizeof *op->words;
    const int from = op->comm->team_ranks[op->call.from];
    put_words(row(op, 2), &op->call, op->call.recv_count);
    TRY(recv_data(op, lane_host_pointer(op->call.recv),
                  op->call.recv_count * dtype_bytes(op->call.dtype), op->call.from,
                  tag(op, MPI_PHASE_LINK_DATA, op->from_number)));
    TRY(mpi_exchange_recv(&op->posts, row(op, 3), bytes, from,
                          tag(op, MPI_PHASE_LINK_POST, op->from_number)));
    return mpi_exchange_send(&op->posts, row(op, 2), bytes, from,
                             tag(op, MPI_PHASE_LINK_READY, op->from_number));
}

static enum status post_all(struct mpi_operation *op)
{
    if (!is_link(op))
        return post_collective(op);
    if (op->call.op != COMM_SEND)
        TRY(post_recv(op));
    return op->call.op != COMM_RECV ? post_send(op) : OK;
}

/* ---- advancing ---- */

static bool posts_match(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    struct comm_post posts[COMM_MAX_RANKS];
    const struct comm_post *list[COMM_MAX_RANKS];
    for (int r = 0; r < c->nranks; r++) {
        posts[r] = post_of(row(op, r), c->nranks);
        list[r] = &posts[r];
    }
    return comm_match_collective(list, c->nranks, c->team_ranks, op->why, sizeof op->why);
}

static bool messages_match(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    const int own = c->team_ranks[c->rank];
    struct comm_post sent = post_of(row(op, 0), 0), ready = post_of(row(op, 1), 0);
    struct comm_post expected = post_of(row(op, 2), 0), comes = post_of(row(op, 3), 0);
    if (op->call.op != COMM_RECV && !comm_match_message(&sent, &ready, own, c->team_ranks[op->call.to],
                                                        op->why, sizeof op->why))
        return false;
    return op->call.op == COMM_SEND || comm_match_message(&comes, &expected, c->team_ranks[op->call.from],
                                                          own, op->why, sizeof op->why);
}

static void finish(struct mpi_operation *op, enum status status)
{
    op->status = status;
    op->step = STEP_ENDED;
    op->ended_ps = clock_ps();
}

/* Whether the exchange has ended well. */
static bool has_come(struct mpi_operation *op, struct mpi_exchange *x)
{
    bool ended = false;
    enum status s = mpi_exchange_test(x, &ended, op->why);
    if (s != OK)
        finish(op, s);
    return ended && s == OK;
}

static char *sum_target(const struct mpi_operation *op)
{
    char *recv = lane_host_pointer(op->call.recv);
    size_t offset;
    if (op->call.op == COMM_REDUCE_SCATTER)
        return recv;
    send_part(op, op->comm->rank, &offset);
    return recv + offset;
}

/* Adds some more; true: all is added. */
static bool add_some(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    const char *from[COMM_MAX_RANKS], *send = lane_host_pointer(op->call.send);
    size_t e = dtype_bytes(op->call.dtype), offset, bytes = send_part(op, c->rank, &offset);
    size_t begin = op->summed * e, n = bytes / e - op->summed;
    n = n < SUM_SLICE ? n : SUM_SLICE;
    for (int r = 0; r < c->nranks; r++)
        from[r] = (r == c->rank ? send + offset : op->staging + (size_t)r * bytes) + begin;
    char *to = sum_target(op) + begin;
    if (n > 0)
        reduce_arrays(op->call.dtype, from, c->nranks, &to, 1, n);
    op->summed += n;
    return op->summed == bytes / e;
}

/* The own sums to everybody, everybody's into their places. All parts have left: in place is fine. */
static enum status post_result(struct mpi_operation *op)
{
    const struct mpi_comm *c = op->comm;
    char *recv = lane_host_pointer(op->call.recv);
    int with = tag(op, MPI_PHASE_RESULT, op->number);
    size_t offset, bytes;
    for (int r = 0; r < c->nranks; r++) {
        bytes = send_part(op, r, &offset);
        if (r != c->rank)
            TRY(recv_data(op, recv + offset, bytes, r, with));
    }
    bytes = send_part(op, c->rank, &offset);
    for (int i = 1; i < c->nranks; i++)
        TRY(send_data(op, recv + offset, bytes, (c->rank + i) % c->nranks, with));
    return OK;
}

/* FAIL would record on whatever thread polls. */
static void post_result_quietly(struct mpi_operation *op)
{
    struct failure failure = {.rank = -1}, *former = status_bind(&failure);
    enum status s = post_result(op);
    status_bind(former);
    op->step = STEP_RESULT;
    if (s == OK)
        return;
    snprintf(op->why, sizeof op->why, "%.255s", failure.text);
    finish(op, s);
}

static void take_step(struct mpi_operation *op)
{
    switch (op->step) {
    case STEP_POSTS:
        if (!has_come(op, &op->posts))
            return;
        op->matched_ps = clock_ps();
        op->step = STEP_DATA;
        if (!(is_link(op) ? messages_match(op) : posts_match(op)))
            finish(op, ERR_MISMATCH);
        return;
    case STEP_DATA:
        if (!has_come(op, &op->data))
            return;
        op->step = STEP_SUM;
        if (!is_reduction(op))
            finish(op, OK);
        return;
    case STEP_SUM:
        if (!add_some(op))
            return;
        if (op->call.op == COMM_ALL_REDUCE)
            post_result_quietly(op);
        else
            finish(op, OK);
        return;
    case STEP_RESULT:
        if (has_come(op, &op->data))
            finish(op, OK);
        return;
    case STEP_ENDED:
        return;
    }
}

void mpi_operation_abandon(struct mpi_operation *op)
{
    mpi_exchange_abandon(&op->posts);
    mpi_exchange_abandon(&op->data);
    mpi_engine_remove(&op->work);
}

/* A team that was aborted frees buffers once all have settled: operations let go of them first. */
static enum mpi_progress advance(struct mpi_work *work)
{
    struct mpi_operation *op = (struct mpi_operation *)work; /* its first member */
    enum mpi_step before, at_first = op->step;
    size_t summed = op->summed;
    if (team_status(op->comm->team) != OK) {
        snprintf(op->why, sizeof op->why, "given up");
        finish(op, ERR_PEER);
    }
    do {
        before = op->step;
        take_step(op);
    } while (op->step != before && op->step != STEP_ENDED);
    if (op->step != STEP_ENDED)
        return op->step != at_first || op->summed != summed ? MPI_WORK_MOVED : MPI_WORK_IDLE;
    if (op->status != OK)
        mpi_operation_abandon(op);
    else
        mpi_engine_remove(&op->work);
    team_heartbeat(op->comm->team);
    atomic_store_explicit(&op->has_ended, true, memory_order_release);
    return MPI_WORK_ENDED;
}

enum status mpi_operation_post(struct mpi_operation *op)
{
    op->work = (struct mpi_work){.advance = advance};
    op->step = STEP_POSTS;
    op->summed = 0;
    op->status = OK;
    atomic_store_explicit(&op->has_ended, false, memory_order_relaxed);
    enum status s = post_all(op);
    if (s == OK)
        mpi_engine_add(&op->work);
    else
        mpi_operation_abandon(op);
    return s;
}

int mpi_operation_missing(const struct mpi_operation *op)
{
    int missing = mpi_exchange_missing(&op->posts);
    return missing >= 0 ? missing : mpi_exchange_missing(&op->data);
}

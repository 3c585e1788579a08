/* What operations of transport `threads` consist of: whether posts match, sums, copies. */
#include "common/comm_threads.h"

#include "common/reduce.h"

#include <string.h>

/* ---- matching ---- */

bool threads_posts_match(const struct threads_group *group, struct threads_operation *op)
{
    const struct comm_post *posts[COMM_MAX_RANKS];
    size_t link = op->channel - 1, n = (size_t)group->nranks;
    if (op->channel != 0)
        return comm_match_message(&op->posts[0].says, &op->posts[1].says, group->team_ranks[link / n],
                                  group->team_ranks[link % n], op->mismatch, sizeof op->mismatch);
    for (int r = 0; r < group->nranks; r++)
        posts[r] = &op->posts[r].says;
    return comm_match_collective(posts, group->nranks, group->team_ranks, op->mismatch,
                                 sizeof op->mismatch);
}

/* ---- sums ---- */

static void add_moved(struct threads_group *group, int rank, size_t bytes)
{
    atomic_fetch_add_explicit(&group->moved[rank], bytes, memory_order_relaxed);
}

/* The others' parts travel to the rank that sums them. */
static void move_to_sum(struct threads_group *group, int owner, size_t bytes)
{
    for (int q = 0; q < group->nranks; q++)
        if (q != owner)
            add_moved(group, q, bytes);
}

/* Chunk `owner` of everybody's send is read by this task alone and written by this task alone. */
static void reduce_chunk(struct threads_group *group, const struct threads_operation *op, int owner)
{
    const char *from[COMM_MAX_RANKS];
    char *to[COMM_MAX_RANKS];
    enum dtype dtype = op->posts[0].says.dtype;
    size_t offset, count = comm_chunk(op->posts[0].says.count, owner, group->nranks, &offset);
    size_t e = dtype_bytes(dtype);
    for (int r = 0; r < group->nranks; r++) {
        from[r] = op->posts[r].send + offset * e;
        to[r] = op->posts[r].recv + offset * e;
    }
    reduce_arrays(dtype, from, group->nranks, to, group->nranks, count);
    move_to_sum(group, owner, count * e);
    add_moved(group, owner, count * e * ((size_t)group->nranks - 1));
}

static void reduce_part(struct threads_group *group, const struct threads_operation *op, int owner)
{
    const char *from[COMM_MAX_RANKS];
    enum dtype dtype = op->posts[0].says.dtype;
    size_t e = dtype_bytes(dtype), count = op->posts[0].says.send_counts[owner];
    for (int r = 0; r < group->nranks; r++)
        from[r] = op->posts[r].send + op->posts[r].send_offsets[owner] * e;
    reduce_arrays(dtype, from, group->nranks, &op->posts[owner].recv, 1, count);
    move_to_sum(group, owner, count * e);
}

/* ---- copies ---- */

static void copy(struct threads_group *group, int source, int target, const char *from, char *to,
                 size_t bytes)
{
    if (bytes > 0 && from != to)
        memcpy(to, from, bytes);
    if (source != target)
        add_moved(group, source, bytes);
}

static void copy_part(struct threads_group *group, const struct threads_operation *op, int source,
                      int target)
{
    const struct threads_post *s = &op->posts[source], *t = &op->posts[target];
    size_t e = dtype_bytes(s->says.dtype);
    size_t offset = s->says.op == COMM_ALL_TO_ALL ? s->send_offsets[target] : 0;
    copy(group, source, target, s->send + offset * e, t->recv + t->recv_offsets[source] * e,
         t->says.recv_counts[source] * e);
}

static void copy_message(struct threads_group *group, const struct threads_operation *op)
{
    const struct threads_post *send = &op->posts[0];
    size_t link = op->channel - 1, n = (size_t)group->nranks;
    copy(group, (int)(link / n), (int)(link % n), send->send, op->posts[1].recv,
         send->says.count * dtype_bytes(send->says.dtype));
}

static void copy_array(struct threads_group *group, const struct threads_operation *op, int target)
{
    const struct threads_post *root = &op->posts[op->posts[0].says.root];
    copy(group, root->says.root, target, root->send, op->posts[target].recv,
         root->says.count * dtype_bytes(root->says.dtype));
}

size_t threads_task_count(const struct threads_group *group, const struct threads_operation *op)
{
    size_t n = (size_t)group->nranks;
    enum comm_op kind = op->posts[0].says.op;
    if (op->channel != 0)
        return 1;
    return kind == COMM_ALL_GATHER || kind == COMM_ALL_TO_ALL ? n * n : n;
}

void threads_task_run(struct threads_group *group, const struct threads_operation *op, size_t task)
{
    int n = group->nranks, rank = (int)task;
    if (op->channel != 0)
        copy_message(group, op);
    else if (op->posts[0].says.op == COMM_ALL_REDUCE)
        reduce_chunk(group, op, rank);
    else if (op->posts[0].says.op == COMM_REDUCE_SCATTER)
        reduce_part(group, op, rank);
    else if (op->posts[0].says.op == COMM_BROADCAST)
        copy_array(group, op, rank);
    else
        copy_part(group, op, rank / n, rank % n);
}

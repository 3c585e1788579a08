/* What operations of transport `threads` consist of: whether posts match, sums, copies. */
#include "common/comm_threads.h"

#include <stdio.h>
#include <string.h>

/* Elements summed at a time: the fp32 sums of a block stay in the first-level cache. */
enum { BLOCK = 1024 };

/* ---- matching ---- */

static bool disagree(const struct threads_group *group, struct threads_operation *op, int a, int b,
                     const char *what, size_t of_a, size_t of_b)
{
    snprintf(op->mismatch, sizeof op->mismatch, "%s: %s is %zu on rank %d and %zu on rank %d",
             comm_op_name(op->posts[a].op), what, of_a, group->team_ranks[a], of_b,
             group->team_ranks[b]);
    return false;
}

static bool messages_match(const struct threads_group *group, struct threads_operation *op)
{
    const struct threads_post *send = &op->posts[0], *recv = &op->posts[1];
    size_t link = op->channel - 1, n = (size_t)group->nranks;
    int from = group->team_ranks[link / n], to = group->team_ranks[link % n];
    if (send->dtype != recv->dtype)
        snprintf(op->mismatch, sizeof op->mismatch, "message: rank %d sends %s, rank %d expects %s",
                 from, dtype_name(send->dtype), to, dtype_name(recv->dtype));
    else if (send->count != recv->count)
        snprintf(op->mismatch, sizeof op->mismatch,
                 "message: rank %d sends %zu elements, rank %d expects %zu", from, send->count, to,
                 recv->count);
    return send->dtype == recv->dtype && send->count == recv->count;
}

static bool all_to_all_matches(const struct threads_group *group, struct threads_operation *op)
{
    for (int s = 0; s < group->nranks; s++)
        for (int r = 0; r < group->nranks; r++) {
            size_t sent = op->posts[s].send_counts[r], expected = op->posts[r].recv_counts[s];
            if (sent != expected)
                return disagree(group, op, s, r, "the part from the one to the other", sent,
                                expected);
        }
    return true;
}

/* Counts of the parts, where all ranks give all of them. */
static const size_t *part_counts(const struct threads_post *post)
{
    return post->op == COMM_ALL_GATHER       ? post->recv_counts
           : post->op == COMM_REDUCE_SCATTER ? post->send_counts
                                             : NULL;
}

static bool matches_first(const struct threads_group *group, struct threads_operation *op, int r)
{
    const struct threads_post *a = &op->posts[0], *b = &op->posts[r];
    if (a->op != b->op || a->dtype != b->dtype) {
        snprintf(op->mismatch, sizeof op->mismatch, "rank %d calls %s of %s, rank %d %s of %s",
                 group->team_ranks[0], comm_op_name(a->op), dtype_name(a->dtype),
                 group->team_ranks[r], comm_op_name(b->op), dtype_name(b->dtype));
        return false;
    }
    if (a->root != b->root)
        return disagree(group, op, 0, r, "the root", (size_t)a->root, (size_t)b->root);
    if (a->count != b->count)
        return disagree(group, op, 0, r, "the count", a->count, b->count);
    const size_t *of_a = part_counts(a), *of_b = part_counts(b);
    for (int q = 0; of_a != NULL && q < group->nranks; q++)
        if (of_a[q] != of_b[q])
            return disagree(group, op, 0, r, "the size of a part", of_a[q], of_b[q]);
    return true;
}

bool threads_posts_match(const struct threads_group *group, struct threads_operation *op)
{
    if (op->channel != 0)
        return messages_match(group, op);
    for (int r = 1; r < group->nranks; r++)
        if (!matches_first(group, op, r))
            return false;
    return op->posts[0].op != COMM_ALL_TO_ALL || all_to_all_matches(group, op);
}

/* ---- sums ---- */

static void add_block(enum dtype dtype, float *restrict sums, const char *from, size_t n)
{
    float converted[BLOCK];
    const float *values = (const float *)(const void *)from;
    if (dtype != DTYPE_FP32) {
        dtype_convert(DTYPE_FP32, converted, dtype, from, n);
        values = converted;
    }
    for (size_t i = 0; i < n; i++)
        sums[i] += values[i];
}

/* Sums of `sources` arrays in their order, rounded once, stored `targets` times. A block is read
 * everywhere before it is written anywhere, so a target may be a source. */
static void sum_arrays(enum dtype dtype, const char *const *from, int sources, char *const *to,
                       int targets, size_t count)
{
    float sums[BLOCK];
    size_t e = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        dtype_convert(DTYPE_FP32, sums, dtype, from[0] + i * e, n);
        for (int s = 1; s < sources; s++)
            add_block(dtype, sums, from[s] + i * e, n);
        for (int t = 0; t < targets; t++)
            dtype_convert(dtype, to[t] + i * e, DTYPE_FP32, sums, n);
    }
}

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
    enum dtype dtype = op->posts[0].dtype;
    size_t offset, count = comm_chunk(op->posts[0].count, owner, group->nranks, &offset);
    size_t e = dtype_bytes(dtype);
    for (int r = 0; r < group->nranks; r++) {
        from[r] = op->posts[r].send + offset * e;
        to[r] = op->posts[r].recv + offset * e;
    }
    sum_arrays(dtype, from, group->nranks, to, group->nranks, count);
    move_to_sum(group, owner, count * e);
    add_moved(group, owner, count * e * ((size_t)group->nranks - 1));
}

static void reduce_part(struct threads_group *group, const struct threads_operation *op, int owner)
{
    const char *from[COMM_MAX_RANKS];
    enum dtype dtype = op->posts[0].dtype;
    size_t e = dtype_bytes(dtype), count = op->posts[0].send_counts[owner];
    for (int r = 0; r < group->nranks; r++)
        from[r] = op->posts[r].send + op->posts[r].send_offsets[owner] * e;
    sum_arrays(dtype, from, group->nranks, &op->posts[owner].recv, 1, count);
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
    size_t e = dtype_bytes(s->dtype);
    size_t offset = s->op == COMM_ALL_TO_ALL ? s->send_offsets[target] : 0;
    copy(group, source, target, s->send + offset * e, t->recv + t->recv_offsets[source] * e,
         t->recv_counts[source] * e);
}

static void copy_message(struct threads_group *group, const struct threads_operation *op)
{
    const struct threads_post *send = &op->posts[0];
    size_t link = op->channel - 1, n = (size_t)group->nranks;
    copy(group, (int)(link / n), (int)(link % n), send->send, op->posts[1].recv,
         send->count * dtype_bytes(send->dtype));
}

static void copy_array(struct threads_group *group, const struct threads_operation *op, int target)
{
    const struct threads_post *root = &op->posts[op->posts[0].root];
    copy(group, root->root, target, root->send, op->posts[target].recv,
         root->count * dtype_bytes(root->dtype));
}

size_t threads_task_count(const struct threads_group *group, const struct threads_operation *op)
{
    size_t n = (size_t)group->nranks;
    if (op->channel != 0)
        return 1;
    return op->posts[0].op == COMM_ALL_GATHER || op->posts[0].op == COMM_ALL_TO_ALL ? n * n : n;
}

void threads_task_run(struct threads_group *group, const struct threads_operation *op, size_t task)
{
    int n = group->nranks, rank = (int)task;
    if (op->channel != 0)
        copy_message(group, op);
    else if (op->posts[0].op == COMM_ALL_REDUCE)
        reduce_chunk(group, op, rank);
    else if (op->posts[0].op == COMM_REDUCE_SCATTER)
        reduce_part(group, op, rank);
    else if (op->posts[0].op == COMM_BROADCAST)
        copy_array(group, op, rank);
    else
        copy_part(group, op, rank / n, rank % n);
}

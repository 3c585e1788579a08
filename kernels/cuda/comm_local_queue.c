/* What an operation of transport `local` puts on the ranks' lanes. Ranks read from others and write only
 * their own memory. Reductions add in rank order in fp32: every rank gets the same bits. */
#include "kernels/cuda/comm_local.h"
#include "kernels/cuda/kernels.h"

#include <stdio.h>

/* An operation being put on the lanes. */
struct queue {
    struct local_group *group;
    struct local_operation *op;
    size_t element; /* bytes */
};

/* ---- do the posts fit? ---- */

/* One value on rank a of the communicator, another on rank b. */
static enum status mismatch(struct local_operation *op, const char *what, int a, size_t on_a, int b,
                            size_t on_b)
{
    if (on_a == on_b)
        return OK;
    snprintf(op->why, sizeof op->why, "local: %s: %s is %zu on rank %d, %zu on rank %d",
             comm_op_name(op->posts[0].op), what, on_a, a, on_b, b);
    return ERR_MISMATCH;
}

static enum status check_message(struct local_operation *op, int from, int to)
{
    const struct local_post *sent = &op->posts[0], *received = &op->posts[1];
    TRY(mismatch(op, "the dtype", from, sent->dtype, to, received->dtype));
    return mismatch(op, "the count", from, sent->count, to, received->count);
}

/* Rank r against rank 0, and what r receives from each rank against what that one sends. */
static enum status check_rank(const struct local_group *g, struct local_operation *op, int r)
{
    const struct local_post *first = &op->posts[0], *mine = &op->posts[r];
    TRY(mismatch(op, "the operation", 0, first->op, r, mine->op));
    TRY(mismatch(op, "the dtype", 0, first->dtype, r, mine->dtype));
    TRY(mismatch(op, "the count", 0, first->count, r, mine->count));
    TRY(mismatch(op, "the root", 0, (size_t)first->root, r, (size_t)mine->root));
    for (int q = 0; q < g->nranks; q++) {
        const struct local_post *other = &op->posts[q];
        if (mine->op == COMM_ALL_TO_ALL)
            TRY(mismatch(op, "a part", q, other->send_counts[r], r, mine->recv_counts[q]));
        if (mine->op == COMM_ALL_GATHER)
            TRY(mismatch(op, "a part", 0, first->recv_counts[q], r, mine->recv_counts[q]));
        if (mine->op == COMM_REDUCE_SCATTER)
            TRY(mismatch(op, "a part", 0, first->send_counts[q], r, mine->send_counts[q]));
    }
    return OK;
}

/* ---- pieces ---- */

static enum status enter(const struct queue *q, int rank)
{
    return cuda_lanes_enter(q->group->members[rank].lanes);
}

static cudaStream_t stream_of(const struct queue *q, int rank)
{
    return q->group->members[rank].collective->stream;
}

/* The rank's lane goes on when `event` of every rank has passed. */
static enum status wait_for_all(const struct queue *q, int rank, size_t event)
{
    for (int other = 0; other < q->group->nranks; other++) {
        const char *post = (const char *)&q->op->posts[other];
        struct event *passed = *(struct event *const *)(const void *)(post + event);
        CUDA_TRY(cudaStreamWaitEvent(stream_of(q, rank), passed->cuda, 0));
    }
    return OK;
}

static enum status record(cudaStream_t stream, struct event *event)
{
    CUDA_TRY(cudaEventRecord(event->cuda, stream));
    return OK;
}

/* `count` elements of `owner`'s memory to `rank`'s. In place: nothing to do. */
static enum status pull(const struct queue *q, cudaStream_t stream, int rank, void *dst, int owner,
                        const void *src, size_t count)
{
    size_t bytes = count * q->element;
    if (owner != rank)
        atomic_fetch_add_explicit(&q->group->members[owner].moved, bytes, memory_order_relaxed);
    if (bytes > 0 && dst != src)
        CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    return OK;
}

/* ---- what a rank does of each operation, once everybody is ready ---- */

/* Everybody's elements first .. first+count-1 of the send buffers, added, to dst. */
static enum status reduce(const struct queue *q, int rank, const size_t *firsts, size_t count, char *dst)
{
    const struct local_post *mine = &q->op->posts[rank];
    for (int other = 0; other < q->group->nranks; other++)
        TRY(pull(q, stream_of(q, rank), rank, mine->parts + (size_t)other * count * q->element, other,
                 q->op->posts[other].send + firsts[other] * q->element, count));
    if (count > 0)
        CUDA_TRY(kernel_add_parts(mine->dtype, dst, mine->parts, count, q->group->nranks, count,
                                  stream_of(q, rank)));
    return OK;
}

static enum status reduce_own_chunk(const struct queue *q, int rank)
{
    const struct local_post *mine = &q->op->posts[rank];
    size_t firsts[COMM_MAX_RANKS], offset;
    size_t count = comm_chunk(mine->count, rank, q->group->nranks, &offset);
    for (int other = 0; other < q->group->nranks; other++)
        firsts[other] = offset;
    return reduce(q, rank, firsts, count, mine->recv + offset * q->element);
}

static enum status reduce_own_part(const struct queue *q, int rank)
{
    const struct local_post *mine = &q->op->posts[rank];
    size_t firsts[COMM_MAX_RANKS];
    for (int other = 0; other < q->group->nranks; other++)
        firsts[other] = q->op->posts[other].send_offsets[rank];
    return reduce(q, rank, firsts, mine->send_counts[rank], mine->recv);
}

static enum status gather_chunks(const struct queue *q, int rank)
{
    const struct local_post *mine = &q->op->posts[rank];
    for (int other = 0; other < q->group->nranks; other++) {
        size_t offset, count = comm_chunk(mine->count, other, q->group->nranks, &offset);
        size_t at = offset * q->element;
        TRY(pull(q, stream_of(q, rank), rank, mine->recv + at, other, q->op->posts[other].recv + at,
                 other == rank ? 0 : count));
    }
    return OK;
}

static enum status gather_parts(const struct queue *q, int rank)
{
    const struct local_post *mine = &q->op->posts[rank];
    for (int other = 0; other < q->group->nranks; other++) {
        const struct local_post *from = &q->op->posts[other];
        size_t skipped = mine->op == COMM_ALL_TO_ALL ? from->send_offsets[rank] : 0;
        TRY(pull(q, stream_of(q, rank), rank, mine->recv + mine->recv_offsets[other] * q->element, other,
                 from->send + skipped * q->element, mine->recv_counts[other]));
    }
    return OK;
}

static enum status take_from_root(const struct queue *q, int rank)
{
    const struct local_post *mine = &q->op->posts[rank], *root = &q->op->posts[mine->root];
    return pull(q, stream_of(q, rank), rank, mine->recv, mine->root, root->send, mine->count);
}

static enum status first_half(const struct queue *q, int rank)
{
    switch (q->op->posts[rank].op) {
    case COMM_ALL_REDUCE:
        return reduce_own_chunk(q, rank);
    case COMM_REDUCE_SCATTER:
        return reduce_own_part(q, rank);
    case COMM_BROADCAST:
        return take_from_root(q, rank);
    default:
        return gather_parts(q, rank);
    }
}

/* ---- all ranks together ---- */

static enum status queue_collective(const struct queue *q)
{
    int n = q->group->nranks;
    struct local_post *posts = q->op->posts;
    for (int r = 0; r < n; r++) {
        TRY(enter(q, r));
        TRY(wait_for_all(q, r, offsetof(struct local_post, ready)));
        TRY(record(stream_of(q, r), posts[r].matched));
        TRY(first_half(q, r));
        TRY(record(stream_of(q, r), posts[r].op == COMM_ALL_REDUCE ? posts[r].summed : posts[r].done));
    }
    for (int r = 0; r < n && posts[0].op == COMM_ALL_REDUCE; r++) {
        TRY(enter(q, r));
        TRY(wait_for_all(q, r, offsetof(struct local_post, summed)));
        TRY(gather_chunks(q, r));
        TRY(record(stream_of(q, r), posts[r].done));
    }
    for (int r = 0; r < n; r++) {
        TRY(enter(q, r));
        TRY(wait_for_all(q, r, offsetof(struct local_post, done)));
        TRY(record(stream_of(q, r), posts[r].ended));
    }
    return OK;
}

/* The receiver copies; the sender's lane of the link waits for it. */
static enum status queue_message(const struct queue *q, int from, int to)
{
    struct local_post *sent = &q->op->posts[0], *received = &q->op->posts[1];
    cudaStream_t receiver = q->group->members[to].from[from]->stream;
    cudaStream_t sender = q->group->members[from].to[to]->stream;
    TRY(enter(q, to));
    CUDA_TRY(cudaStreamWaitEvent(receiver, sent->ready->cuda, 0));
    CUDA_TRY(cudaStreamWaitEvent(receiver, received->ready->cuda, 0));
    TRY(record(receiver, received->matched));
    TRY(pull(q, receiver, to, received->recv, from, sent->send, sent->count));
    TRY(record(receiver, received->ended));
    TRY(enter(q, from));
    CUDA_TRY(cudaStreamWaitEvent(sender, sent->ready->cuda, 0));
    CUDA_TRY(cudaStreamWaitEvent(sender, received->ready->cuda, 0));
    TRY(record(sender, sent->matched));
    CUDA_TRY(cudaStreamWaitEvent(sender, received->ended->cuda, 0));
    return record(sender, sent->ended);
}

enum status local_queue(struct local_group *g, struct local_operation *op)
{
    struct queue q = {.group = g, .op = op, .element = dtype_bytes(op->posts[0].dtype)};
    if (op->channel > 0) {
        int from = (int)(op->channel - 1) / g->nranks, to = (int)(op->channel - 1) % g->nranks;
        TRY(check_message(op, from, to));
        return queue_message(&q, from, to);
    }
    for (int r = 0; r < g->nranks; r++)
        TRY(check_rank(g, op, r));
    return queue_collective(&q);
}

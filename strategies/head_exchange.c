/* The exchange of chunks for heads is a switch of the sharded dimension of [things, rows, heads, head_dim];
 * a thing is what the sequence is split by: a token, or a frame. */
#include "strategies/head_exchange.h"

enum { THINGS, ROWS, HEADS, DIMENSIONS };

/* Of `parts` tensors beside each other in a row: 3 for q, k, v. */
static struct sharded_shape shape_of(const struct problem *p, struct region chunks, size_t parts)
{
    size_t rows_each;
    problem_chunk_things(p, &rows_each);
    size_t things = region_tokens(chunks) * (size_t)p->batch / rows_each;
    return (struct sharded_shape){.dims = DIMENSIONS,
                                  .size = {things, rows_each * parts, (size_t)p->shape->heads},
                                  .width = (size_t)p->shape->head_dim};
}

enum status head_exchange_open(struct rank *rank, struct comm *comm, struct region chunks,
                               struct head_exchange *x)
{
    const struct problem *p = rank->problem;
    struct sharded_shape qkv = shape_of(p, chunks, 3), attended = shape_of(p, chunks, 1);
    size_t rows = region_tokens(chunks) * (size_t)p->batch;
    x->extent = region_extent(chunks);
    x->heads = (size_t)(p->shape->heads / comm_nranks(comm));
    size_t width = x->heads * (size_t)p->shape->head_dim;
    TRY(sharded_open(rank, comm, TRAFFIC_HEADS, &qkv, THINGS, HEADS, &x->to_heads));
    TRY(sharded_open(rank, comm, TRAFFIC_HEADS, &attended, HEADS, THINGS, &x->to_chunks));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, 3 * width, &x->qkv));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, rows, width, &x->attended);
}

enum status head_exchange_to_heads(struct head_exchange *x, struct devmem qkv)
{
    return sharded_run(&x->to_heads, qkv, x->qkv);
}

enum status head_exchange_to_chunks(struct head_exchange *x, struct devmem attended)
{
    return sharded_run(&x->to_chunks, x->attended, attended);
}

void head_exchange_cost(const struct problem *problem, struct region chunks, int ranks, int rank,
                        uint64_t times, struct cost *out)
{
    struct sharded_shape qkv = shape_of(problem, chunks, 3), attended = shape_of(problem, chunks, 1);
    sharded_cost(&qkv, ranks, rank, THINGS, HEADS, TRAFFIC_HEADS, problem->dtype, times, out);
    sharded_cost(&attended, ranks, rank, HEADS, THINGS, TRAFFIC_HEADS, problem->dtype, times, out);
}

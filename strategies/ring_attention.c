/* The ring's hops, and the merging of what they give. */
#include "strategies/ring_attention.h"

static size_t chunk_rows(const struct problem *p, int ranks, int chunks_each, int index)
{
    struct region chunk = region_chunks(p, ranks * chunks_each, index * chunks_each, chunks_each);
    return region_tokens(chunk) * (size_t)p->batch;
}

static struct dit_extent chunk_extent(const struct ring_attention *r, int index)
{
    int parts = comm_nranks(r->comm) * r->chunks_each;
    return region_extent(region_chunks(r->problem, parts, index * r->chunks_each, r->chunks_each));
}

/* ---- arithmetic ---- */

static enum status pack_own(struct ring_attention *r, struct devmem qkv)
{
    struct copy_call copy = {.n0 = 1, .n1 = 1, .n2 = dit_rows(r->dit, &r->own), .width = 2 * r->width,
                             .src = dit_element(r->dit, qkv, r->width), .src2 = 3 * r->width,
                             .dst = r->kv[0], .dst2 = 2 * r->width};
    return device_copy(r->dit->device, &copy);
}

/* The attention of the own queries to some keys, rows of K|V, into r->partial. */
static struct attention_call partial_call(const struct ring_attention *r, int block, struct devmem qkv,
                                          const struct dit_extent *keys, struct devmem kv)
{
    const struct dit *dit = r->dit;
    struct attention_call call = dit_attention_call(dit, block, r->heads, &r->own, keys);
    call.q = dit_view(dit, block, &r->own, qkv, 3 * r->width);
    call.k = dit_view(dit, block, keys, kv, 2 * r->width);
    call.v = dit_view(dit, block, keys, dit_element(dit, kv, r->width), 2 * r->width);
    call.o = dit_view(dit, block, &r->own, r->partial, r->width);
    call.lse = r->partial_lse;
    return call;
}

/* Before the first chunk: attention to nothing has the log-sum-exp that says "empty". */
static enum status empty_sum(struct ring_attention *r, int block, struct devmem qkv)
{
    struct attention_call call = partial_call(r, block, qkv, &r->own, r->kv[0]);
    call.nk = 0;
    call.lse = r->lse;
    return device_attention(r->dit->device, &call);
}

static enum status add_chunk(struct ring_attention *r, int block, struct devmem qkv,
                             const struct dit_extent *keys, struct devmem kv)
{
    struct attention_call call = partial_call(r, block, qkv, keys, kv);
    TRY(device_attention(r->dit->device, &call));
    struct merge_call merge = {.n0 = call.n0, .n1 = call.n1, .heads = call.heads, .nq = call.nq,
                               .head_dim = call.head_dim, .o_acc = r->sum, .lse_acc = r->lse,
                               .lse_new = r->partial_lse, .o_new = call.o};
    return device_merge(r->dit->device, &merge);
}

/* From [groups, heads, queries, head_dim] to the rows of `attended`. The groups are equally far apart:
 * there is one frame, or they are the places of temporal attention. */
static enum status store_sum(struct ring_attention *r, int block, struct devmem attended)
{
    struct dit *dit = r->dit;
    struct attention_call call = dit_attention_call(dit, block, r->heads, &r->own, &r->own);
    struct attention_view to = dit_view(dit, block, &r->own, attended, r->width);
    size_t head = call.nq * call.head_dim, groups = call.n0 * call.n1;
    ASSERT(call.n0 <= 1 || to.group0 == call.n1 * to.group1);
    if (r->problem->dtype != DTYPE_FP32)
        TRY(device_convert(dit->device, r->problem->dtype, r->rounded, DTYPE_FP32, r->sum,
                           groups * r->heads * head));
    struct copy_call copy = {.n0 = groups, .n1 = r->heads, .n2 = call.nq, .width = call.head_dim,
                             .src = r->problem->dtype == DTYPE_FP32 ? r->sum : r->rounded,
                             .src0 = r->heads * head, .src1 = head, .src2 = call.head_dim,
                             .dst = attended, .dst0 = to.group1, .dst1 = to.head, .dst2 = to.row};
    return device_copy(dit->device, &copy);
}

/* ---- hops ---- */

/* Sends the chunk of rank `owner` on, and receives the one before it. */
static enum status start_hop(struct ring_attention *r, int owner, struct devmem send, struct devmem recv)
{
    int ranks = comm_nranks(r->comm), me = comm_rank(r->comm);
    int before = (owner + ranks - 1) % ranks;
    size_t width = 2 * r->width;
    return comm_sendrecv(r->comm, TRAFFIC_KV, r->problem->dtype, send,
                         chunk_rows(r->problem, ranks, r->chunks_each, owner) * width,
                         (me + 1) % ranks, recv,
                         chunk_rows(r->problem, ranks, r->chunks_each, before) * width,
                         (me + ranks - 1) % ranks, &r->hop);
}

enum status ring_attention_run(struct ring_attention *r, int block, struct devmem qkv,
                               struct devmem attended)
{
    int ranks = comm_nranks(r->comm), me = comm_rank(r->comm);
    if (ranks == 1)
        return dit_attend_heads(r->dit, block, r->heads, &r->own, qkv, attended);
    TRY(pack_own(r, qkv));
    TRY(empty_sum(r, block, qkv));
    for (int hop = 0; hop < ranks; hop++) {
        int owner = (me + ranks - hop) % ranks;
        struct dit_extent keys = chunk_extent(r, owner);
        struct devmem here = r->kv[hop % 2], next = r->kv[(hop + 1) % 2];
        if (hop + 1 < ranks)
            TRY(start_hop(r, owner, here, next));
        TRY(add_chunk(r, block, qkv, &keys, here));
        TRY(comm_wait(&r->hop));
    }
    return store_sum(r, block, attended);
}

/* ---- setup and claim ---- */

static enum status alloc_floats(struct rank *rank, size_t n, struct devmem *out)
{
    return arena_alloc(rank->scratch, MEMORY_ACTIVATIONS, n * sizeof(float), out);
}

enum status ring_attention_open(struct rank *rank, struct dit *dit, struct comm *comm, size_t heads,
                                int chunks_each, struct ring_attention *r)
{
    const struct problem *p = rank->problem;
    r->dit = dit;
    r->comm = comm;
    r->problem = p;
    r->chunks_each = chunks_each;
    r->heads = heads;
    r->width = heads * (size_t)p->shape->head_dim;
    r->own = chunk_extent(r, comm_rank(comm));
    if (comm_nranks(comm) == 1)
        return OK;
    size_t rows = dit_rows(dit, &r->own);
    size_t most = chunk_rows(p, comm_nranks(comm), chunks_each, 0); /* the first ones are the largest */
    for (int i = 0; i < 2; i++)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, most, 2 * r->width, &r->kv[i]));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, r->width, &r->partial));
    if (p->dtype != DTYPE_FP32)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, r->width, &r->rounded));
    TRY(alloc_floats(rank, rows * heads, &r->partial_lse));
    TRY(alloc_floats(rank, rows * heads, &r->lse));
    return alloc_floats(rank, rows * r->width, &r->sum);
}

void ring_attention_cost(const struct problem *problem, size_t heads, int chunks_each, int ranks, int rank,
                         uint64_t times, struct cost *out)
{
    size_t width = 2 * heads * (size_t)problem->shape->head_dim;
    for (int hop = 0; hop + 1 < ranks; hop++) {
        int owner = (rank + ranks - hop) % ranks;
        struct comm_call call = {.op = COMM_SENDRECV, .traffic = TRAFFIC_KV, .dtype = problem->dtype,
                                 .count = chunk_rows(problem, ranks, chunks_each, owner) * width,
                                 .to = (rank + 1) % ranks};
        cost_add(out, PHASE_SYNC, &call, rank, ranks, times);
    }
}

/* tsp: tensor and sequence parallelism folded on one axis (arXiv:2604.26294). A rank holds 1/N of the
 * blocks' matrices and S/N tokens; weights come to the tokens, and no partial sum is ever reduced.
 *
 * Attention: for each owner of a group of heads in turn, its shard is broadcast, every rank computes the
 * group's q, k, v of its own tokens, K,V of the group are all-gathered, and the group's contribution is
 * accumulated. The next owner's broadcast runs meanwhile. MLP: shards travel a ring of N-1 hops, each under
 * the arithmetic with the shard before it. A shard is two matrices, two messages.
 *
 * Sent per block and rank, F = 4D: 12D^2 e (N-1)/N of weights, whatever S is, and 2A(N-1)/N of K,V. Biases
 * and adaLN (6D^2 of a block's 18D^2) are replicated. */
#include "strategies/forward.h"

#include "strategies/tensor_parallel.h"

#include <stdio.h>
#include <stdlib.h>

/* Wqkv [3 width, D] and Wo [D, width] of some heads, or fc1 [width, D] and fc2 [D, width]. */
struct shard {
    struct dit_matrix in, out;
};

struct block_weights {
    struct shard own[DIT_HALVES];
    struct devmem *qkv_bias; /* of every owner's heads */
    struct devmem fc1_bias;  /* [F] */
};

struct tsp {
    struct forward forward;
    struct dit_extent whole;
    struct block_weights *blocks;
    struct devmem *biases;            /* blocks x ranks: what qkv_bias points into */
    struct devmem slot[2];            /* shards of others */
    struct comm_request pending[2][2]; /* of each slot, of both matrices */
    struct devmem kv;                 /* T [all tokens, batch, 2 * width]: one group's K|V */
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS]; /* of the gather of K,V */
};

/* ---- shards ---- */

/* Channels of an owner's shard: those of its heads, or of the MLP. */
static struct span shard_span(const struct problem *p, int ranks, enum dit_half half, int owner)
{
    size_t unit = half == DIT_ATTN ? (size_t)p->shape->head_dim : 1;
    size_t things = (size_t)(half == DIT_ATTN ? p->shape->heads : p->shape->mlp_hidden);
    struct span span = partition_span(things, ranks, owner);
    return (struct span){span.first * unit, span.count * unit};
}

/* Rows of the first matrix per channel. */
static size_t rows_each(enum dit_half half)
{
    return half == DIT_ATTN ? 3 : 1;
}

static size_t shard_elements(const struct problem *p, int ranks, enum dit_half half, int owner)
{
    return (rows_each(half) + 1) * shard_span(p, ranks, half, owner).count * (size_t)p->shape->hidden;
}

/* Where an owner's shard is: in the weights when it is this rank's own, else in the slot. */
static struct shard shard_at(const struct rank *rank, int block, enum dit_half half, int owner, int slot)
{
    const struct tsp *s = rank->state;
    const struct problem *p = rank->problem;
    if (owner == comm_rank(rank->group))
        return s->blocks[block].own[half];
    size_t width = shard_span(p, comm_nranks(rank->group), half, owner).count;
    size_t hidden = (size_t)p->shape->hidden, rows = rows_each(half) * width;
    struct devmem second = dit_element(&s->forward.dit, s->slot[slot], rows * hidden);
    return (struct shard){.in = {.weight = s->slot[slot], .out = rows, .in = hidden},
                          .out = {.weight = second, .out = hidden, .in = width}};
}

static enum status wait_slot(struct tsp *s, int slot)
{
    TRY(comm_wait(&s->pending[slot][0]));
    return comm_wait(&s->pending[slot][1]);
}

static size_t elements(const struct dit_matrix *matrix)
{
    return matrix->out * matrix->in;
}

/* ---- attention ---- */

static enum status start_broadcast(struct rank *rank, int block, int owner)
{
    struct tsp *s = rank->state;
    struct shard shard = shard_at(rank, block, DIT_ATTN, owner, owner % 2);
    struct comm_request *pending = s->pending[owner % 2];
    enum dtype dtype = rank->problem->dtype;
    TRY(comm_broadcast(rank->group, TRAFFIC_WEIGHTS, dtype, shard.in.weight, elements(&shard.in), owner,
                       &pending[0]));
    return comm_broadcast(rank->group, TRAFFIC_WEIGHTS, dtype, shard.out.weight, elements(&shard.out),
                          owner, &pending[1]);
}

/* K|V of the group's heads, `width` channels, in dit->qkv, reach all ranks. */
static enum status gather_kv(struct rank *rank, size_t width)
{
    struct tsp *s = rank->state;
    const struct problem *p = rank->problem;
    const struct dit *dit = &s->forward.dit;
    partition_table(p->tokens, comm_nranks(rank->group), (size_t)p->batch * 2 * width, s->counts,
                    s->offsets);
    struct devmem mine = dit_element(dit, s->kv, s->offsets[comm_rank(rank->group)]);
    struct copy_call copy = {.n0 = 1, .n1 = 1, .n2 = s->forward.rows, .width = 2 * width,
                             .src = dit_element(dit, dit->qkv, width), .src2 = 3 * width,
                             .dst = mine, .dst2 = 2 * width};
    TRY(device_copy(rank->device, &copy));
    return comm_all_gatherv(rank->group, TRAFFIC_KV, p->dtype, mine, s->kv, s->counts, s->offsets, NULL);
}

static enum status attend(struct rank *rank, int block, size_t width)
{
    struct tsp *s = rank->state;
    struct dit *dit = &s->forward.dit;
    const struct dit_extent *own = &s->forward.extent;
    size_t heads = width / (size_t)rank->problem->shape->head_dim;
    struct attention_call call = dit_attention_call(dit, block, heads, own, &s->whole);
    call.q = dit_view(dit, block, own, dit->qkv, 3 * width);
    call.k = dit_view(dit, block, &s->whole, s->kv, 2 * width);
    call.v = dit_view(dit, block, &s->whole, dit_element(dit, s->kv, width), 2 * width);
    call.o = dit_view(dit, block, own, dit->attended, width);
    return device_attention(rank->device, &call);
}

/* One owner's heads: partial (+)= attention of its group, projected. */
static enum status add_heads(struct rank *rank, int block, int owner)
{
    struct tsp *s = rank->state;
    struct forward *f = &s->forward;
    struct shard shard = shard_at(rank, block, DIT_ATTN, owner, owner % 2);
    struct linear_call qkv = dit_linear_call(&shard.in, f->rows, f->dit.modulated, f->dit.qkv);
    struct linear_call project = dit_linear_call(&shard.out, f->rows, f->dit.attended, f->partial);
    qkv.bias = s->blocks[block].qkv_bias[owner];
    project.accumulate = owner > 0;
    TRY(device_linear(rank->device, &qkv));
    TRY(gather_kv(rank, shard.out.in));
    TRY(attend(rank, block, shard.out.in));
    return device_linear(rank->device, &project);
}

static enum status run_attention(struct rank *rank, int block)
{
    int ranks = comm_nranks(rank->group);
    TRY(start_broadcast(rank, block, 0));
    for (int owner = 0; owner < ranks; owner++) {
        if (owner + 1 < ranks)
            TRY(start_broadcast(rank, block, owner + 1));
        TRY(wait_slot(rank->state, owner % 2));
        TRY(add_heads(rank, block, owner));
    }
    return OK;
}

/* ---- MLP ---- */

/* Sends one of the two matrices on and receives its predecessor's. */
static enum status pass_on(struct rank *rank, const struct dit_matrix *send,
                           const struct dit_matrix *recv, struct comm_request *request)
{
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    return comm_sendrecv(rank->group, TRAFFIC_WEIGHTS, rank->problem->dtype, send->weight,
                         elements(send), (me + 1) % ranks, recv->weight, elements(recv),
                         (me + ranks - 1) % ranks, request);
}

/* One owner's channels: partial (+)= fc2(gelu(fc1(modulated))) of them. */
static enum status add_channels(struct rank *rank, int block, int owner, const struct shard *shard,
                                bool accumulates)
{
    struct tsp *s = rank->state;
    struct forward *f = &s->forward;
    struct span span = shard_span(rank->problem, comm_nranks(rank->group), DIT_MLP, owner);
    struct linear_call fc1 = dit_linear_call(&shard->in, f->rows, f->dit.modulated, f->dit.mid);
    struct linear_call fc2 = dit_linear_call(&shard->out, f->rows, f->dit.mid, f->partial);
    fc1.bias = dit_element(&f->dit, s->blocks[block].fc1_bias, span.first);
    fc1.activation = ACTIVATION_GELU;
    fc2.accumulate = accumulates;
    TRY(device_linear(rank->device, &fc1));
    return device_linear(rank->device, &fc2);
}

static enum status run_mlp(struct rank *rank, int block)
{
    struct tsp *s = rank->state;
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    for (int hop = 0; hop < ranks; hop++) {
        int owner = (me + ranks - hop) % ranks, before = (owner + ranks - 1) % ranks;
        int slot = (hop + 1) % 2;
        struct shard here = shard_at(rank, block, DIT_MLP, owner, hop % 2);
        struct shard next = shard_at(rank, block, DIT_MLP, before, slot);
        if (hop + 1 < ranks) {
            TRY(pass_on(rank, &here.in, &next.in, &s->pending[slot][0]));
            TRY(pass_on(rank, &here.out, &next.out, &s->pending[slot][1]));
        }
        TRY(add_channels(rank, block, owner, &here, hop > 0));
        TRY(wait_slot(s, slot));
    }
    return OK;
}

static enum status run_half(struct rank *rank, int block, enum dit_half half)
{
    struct tsp *s = rank->state;
    struct forward *f = &s->forward;
    TRY(dit_modulate(&f->dit, block, half, f->rows, f->hidden, f->dit.modulated));
    return half == DIT_ATTN ? run_attention(rank, block) : run_mlp(rank, block);
}

/* ---- setup ---- */

static enum status load(struct rank *rank, int block, const char *name,
                        const struct weights_piece *pieces, int count, struct span cols,
                        struct devmem *out)
{
    char tensor[96];
    snprintf(tensor, sizeof tensor, "blocks.%d.%s", block, name);
    return weights_load(rank->device, rank->persistent, rank->problem->model, tensor, pieces, count,
                        cols.first, cols.count, out);
}

static enum status load_shards(struct rank *rank, int block, struct block_weights *out)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    size_t hidden = (size_t)p->shape->hidden;
    struct span heads = shard_span(p, ranks, DIT_ATTN, me), mlp = shard_span(p, ranks, DIT_MLP, me);
    const struct span all = {0, hidden};
    const struct weights_piece rows = {0, hidden}, channels = {mlp.first, mlp.count};
    const struct weights_piece qkv[] = {{heads.first, heads.count},
                                        {hidden + heads.first, heads.count},
                                        {2 * hidden + heads.first, heads.count}};
    struct shard *attn = &out->own[DIT_ATTN], *fc = &out->own[DIT_MLP];
    *attn = (struct shard){.in = {.out = 3 * heads.count, .in = hidden},
                           .out = {.out = hidden, .in = heads.count}};
    *fc = (struct shard){.in = {.out = mlp.count, .in = hidden}, .out = {.out = hidden, .in = mlp.count}};
    TRY(load(rank, block, "attn.qkv.weight", qkv, 3, all, &attn->in.weight));
    TRY(load(rank, block, "attn.proj.weight", &rows, 1, heads, &attn->out.weight));
    TRY(load(rank, block, "mlp.fc1.weight", &channels, 1, all, &fc->in.weight));
    return load(rank, block, "mlp.fc2.weight", &rows, 1, mlp, &fc->out.weight);
}

/* The biases that go with the shards of all owners. */
static enum status load_biases(struct rank *rank, int block, struct block_weights *out)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group);
    size_t hidden = (size_t)p->shape->hidden;
    const struct span vector = {0, 1};
    const struct weights_piece channels = {0, (size_t)p->shape->mlp_hidden};
    for (int owner = 0; owner < ranks; owner++) {
        struct span heads = shard_span(p, ranks, DIT_ATTN, owner);
        const struct weights_piece qkv[] = {{heads.first, heads.count},
                                            {hidden + heads.first, heads.count},
                                            {2 * hidden + heads.first, heads.count}};
        TRY(load(rank, block, "attn.qkv.bias", qkv, 3, vector, &out->qkv_bias[owner]));
    }
    return load(rank, block, "mlp.fc1.bias", &channels, 1, vector, &out->fc1_bias);
}

static enum status load_weights(struct rank *rank, struct tsp *s)
{
    size_t blocks = (size_t)rank->problem->shape->blocks, ranks = (size_t)comm_nranks(rank->group);
    s->blocks = calloc(blocks, sizeof *s->blocks);
    s->biases = calloc(blocks * ranks, sizeof *s->biases);
    if (!s->blocks || !s->biases)
        return FAIL(ERR_MEMORY, "no memory for the shards of %zu blocks", blocks);
    for (size_t block = 0; block < blocks; block++) {
        s->blocks[block].qkv_bias = s->biases + block * ranks;
        TRY(load_shards(rank, (int)block, &s->blocks[block]));
        TRY(load_biases(rank, (int)block, &s->blocks[block]));
    }
    return OK;
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group);
    struct dit_part part = problem_tp_part(p, ranks, 0); /* the first shards are the largest */
    size_t attn = shard_elements(p, ranks, DIT_ATTN, 0), mlp = shard_elements(p, ranks, DIT_MLP, 0);
    void *state;
    TRY(rank_state(rank, sizeof(struct tsp), &state));
    struct tsp *s = state;
    part.streams = true;
    s->whole = region_extent(region_whole(p));
    s->forward.half = run_half;
    TRY(forward_open_tile(rank, TILING_TOKENS, &part, 0, &s->forward));
    TRY(load_weights(rank, s));
    for (int i = 0; i < 2; i++)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, 1, attn > mlp ? attn : mlp, &s->slot[i]));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, p->tokens * (size_t)p->batch,
                      2 * s->forward.dit.heads_width, &s->kv);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct tsp *s = rank->state;
    *noise = s->forward.noise;
    return forward_predict(rank, &s->forward, step, NULL);
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

static void teardown(struct rank *rank)
{
    struct tsp *s = rank->state;
    free(s->blocks);
    free(s->biases);
    forward_close(&s->forward);
}

/* ---- the claim ---- */

static void cost_weights(const struct problem *p, int ranks, int me, uint64_t times, struct cost *out)
{
    for (int owner = 0; owner < ranks; owner++) {
        struct comm_call broadcast = {.op = COMM_BROADCAST, .traffic = TRAFFIC_WEIGHTS,
                                      .dtype = p->dtype, .root = owner,
                                      .count = shard_elements(p, ranks, DIT_ATTN, owner)};
        struct comm_call hop = {.op = COMM_SENDRECV, .traffic = TRAFFIC_WEIGHTS, .dtype = p->dtype,
                                .to = (me + 1) % ranks,
                                .count = shard_elements(p, ranks, DIT_MLP, owner)};
        cost_add(out, PHASE_SYNC, &broadcast, me, ranks, times);
        if (owner != hop.to) /* every shard but the successor's own passes through */
            cost_add(out, PHASE_SYNC, &hop, me, ranks, times);
    }
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS];
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    uint64_t times = (uint64_t)problem->steps * (uint64_t)problem->shape->blocks;
    partition_table(problem->tokens, ranks, (size_t)problem->batch * 2 * (size_t)problem->shape->hidden,
                    counts, offsets);
    struct comm_call gather = {.op = COMM_ALL_GATHER, .traffic = TRAFFIC_KV, .dtype = problem->dtype,
                               .recv_counts = counts, .recv_offsets = offsets};
    cost_weights(problem, ranks, me, times, out);
    cost_add(out, PHASE_SYNC, &gather, me, ranks, times);
    cost_add_gather(problem, layout, rank, out);
    cost_add_twin(problem, &strategy_tsp, region_tokens(region_chunk(problem, ranks, me)), out);
}

const struct strategy strategy_tsp = {
    .name = "tsp",
    .summary = "tensor and sequence parallel on one axis: weights travel to the tokens",
    .paper = "arXiv:2604.26294",
    .freshness = FRESH,
    .runs_image = true,
    .shape_layout = tensor_parallel_layout,
    .check = tensor_parallel_check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

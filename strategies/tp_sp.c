/* tp-sp: tensor parallelism with sequence-sharded activations between the halves (arXiv:2205.05198,
 * section 4.2.2). A rank keeps its chunk of tokens (of frames in video models); each half gathers the
 * modulated input and reduce-scatters the partial sums. Sent per block and rank: 4A(N-1)/N, as tp. */
#include "strategies/strategy.h"

#include "strategies/tensor_parallel.h"

struct tp_sp {
    struct dit dit;
    struct dit_extent whole, own;
    size_t own_rows;
    struct devmem hidden;           /* T [own rows, D] */
    struct devmem gathered, partial; /* T [all rows, D] */
    struct devmem noise;            /* T [own tokens, token_values] */
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS]; /* elements of every rank's chunk */
};

/* Elements of every rank's chunk of a hidden state. */
static void chunk_table(const struct problem *p, int ranks, size_t *counts, size_t *offsets)
{
    size_t rows_each, things = problem_chunk_things(p, &rows_each);
    partition_table(things, ranks, rows_each * (size_t)p->shape->hidden, counts, offsets);
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    struct dit_part part = problem_tp_part(p, ranks, me);
    struct region own = region_chunk(p, ranks, me);
    size_t hidden = (size_t)p->shape->hidden, batch = (size_t)p->batch;
    size_t rows = region_tokens(region_whole(p)) * batch;
    void *state;
    TRY(rank_state(rank, sizeof(struct tp_sp), &state));
    struct tp_sp *s = state;
    s->whole = region_extent(region_whole(p));
    s->own = region_extent(own);
    s->own_rows = region_tokens(own) * batch;
    chunk_table(p, ranks, s->counts, s->offsets);
    TRY(rank_tile_latent(rank, problem_tiling(p)));
    TRY(rank_open_dit(rank, &part, rows, 0, &s->dit));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, s->own_rows, hidden, &s->hidden));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, hidden, &s->gathered));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, hidden, &s->partial));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, region_tokens(own), p->token_values, &s->noise);
}

static enum status run_half(struct rank *rank, struct tp_sp *s, int block, enum dit_half half)
{
    enum dtype dtype = rank->problem->dtype;
    size_t at = s->offsets[comm_rank(rank->group)] * dtype_bytes(dtype);
    struct devmem mine = devmem_at(s->gathered, at), sum = devmem_at(s->partial, at);
    TRY(dit_modulate(&s->dit, block, half, s->own_rows, s->hidden, mine));
    TRY(comm_all_gatherv(rank->group, TRAFFIC_HIDDEN, dtype, mine, s->gathered, s->counts, s->offsets,
                         NULL));
    TRY(dit_partial_modulated(&s->dit, block, half, &s->whole, s->gathered, s->partial));
    TRY(comm_reduce_scatterv(rank->group, TRAFFIC_HIDDEN, dtype, s->partial, sum, s->counts,
                             s->offsets, NULL));
    return dit_residual(&s->dit, block, half, s->own_rows, sum, s->hidden);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct tp_sp *s = rank->state;
    TRY(dit_condition(&s->dit, step));
    TRY(dit_embed(&s->dit, &s->own, rank->latent, s->hidden));
    for (int block = 0; block < s->dit.part.blocks; block++) {
        meter_at(rank->meter, block, -1);
        TRY(dit_enter_block(&s->dit, block, &s->own, s->hidden));
        TRY(run_half(rank, s, block, DIT_ATTN));
        TRY(run_half(rank, s, block, DIT_MLP));
    }
    meter_at(rank->meter, -1, -1);
    TRY(dit_finish(&s->dit, s->own_rows, s->hidden));
    *noise = s->noise;
    return sample_noise(rank, region_tokens(rank->own), s->dit.network, s->noise);
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

static void teardown(struct rank *rank)
{
    struct tp_sp *s = rank->state;
    dit_close(&s->dit);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS];
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    uint64_t halves = (uint64_t)problem->steps * (uint64_t)problem->shape->blocks * DIT_HALVES;
    chunk_table(problem, ranks, counts, offsets);
    struct comm_call gather = {.op = COMM_ALL_GATHER, .traffic = TRAFFIC_HIDDEN,
                               .dtype = problem->dtype, .recv_counts = counts, .recv_offsets = offsets};
    struct comm_call scatter = {.op = COMM_REDUCE_SCATTER, .traffic = TRAFFIC_HIDDEN,
                                .dtype = problem->dtype, .send_counts = counts,
                                .send_offsets = offsets};
    cost_add(out, PHASE_SYNC, &gather, me, ranks, halves);
    cost_add(out, PHASE_SYNC, &scatter, me, ranks, halves);
    cost_add_gather(problem, layout, rank, out);
    cost_add_twin(problem, &strategy_tp_sp, region_tokens(region_chunk(problem, ranks, me)), out);
}

const struct strategy strategy_tp_sp = {
    .name = "tp-sp",
    .summary = "tensor parallel, all-gather and reduce-scatter, tokens sharded between",
    .paper = "arXiv:2205.05198",
    .freshness = FRESH,
    .runs_image = true,
    .runs_video = true,
    .shape_layout = tensor_parallel_layout,
    .check = tensor_parallel_check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

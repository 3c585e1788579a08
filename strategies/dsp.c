/* dsp: dynamic sequence parallelism of the video model (arXiv:2403.10266). Every rank holds all weights
 * and the columns [T, S/N, D] of the hidden state. Temporal blocks are local. Around a spatial attention
 * one tensor goes each way: the modulated input is switched to whole frames, [T/N, S, D], where q, k and v
 * are computed, and the attention's output is switched back before the projection. Sent per rank and pair
 * of a spatial and a temporal block: 2(A/N)(N-1)/N, of the padded A where N does not divide T or S. */
#include "strategies/forward.h"

#include "strategies/sharded.h"

enum { FRAMES, PLACES, DIMENSIONS };

struct dsp {
    struct forward forward;
    struct dit_extent frames; /* what the rank has of a spatial attention */
    struct sharded_route to_frames, to_places;
    struct devmem input;    /* T [rows of its frames, D] */
    struct devmem returned;        /* T [own rows, D] */
};

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_TP] = group_ranks;
}

static struct sharded_shape shape_of(const struct problem *p)
{
    return (struct sharded_shape){.dims = DIMENSIONS, .size = {(size_t)p->frames, p->tokens},
                                  .width = (size_t)p->batch * (size_t)p->shape->hidden,
                                  .is_padded = true};
}

static enum status spatial_attention(struct dsp *s, int block)
{
    struct dit *dit = &s->forward.dit;
    size_t own_rows = s->forward.rows, rows = dit_rows(dit, &s->frames);
    TRY(dit_modulate(dit, block, DIT_ATTN, own_rows, s->forward.hidden, dit->modulated));
    TRY(sharded_run(&s->to_frames, dit->modulated, s->input));
    TRY(dit_qkv(dit, block, rows, s->input, dit->qkv));
    TRY(dit_attend(dit, block, &s->frames, dit->qkv, dit->attended));
    TRY(sharded_run(&s->to_places, dit->attended, s->returned));
    return dit_project(dit, block, own_rows, s->returned, s->forward.partial);
}

static enum status run_half(struct rank *rank, int block, enum dit_half half)
{
    struct dsp *s = rank->state;
    struct forward *f = &s->forward;
    if (half == DIT_ATTN && !dit_block_is_temporal(&f->dit, block))
        return spatial_attention(s, block);
    return dit_partial(&f->dit, block, half, &f->extent, f->hidden, f->partial);
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    struct dit_part part = problem_whole_part(p);
    struct region frames = region_tile(p, TILING_FRAMES, ranks, me);
    struct sharded_shape shape = shape_of(p);
    size_t rows = region_tokens(frames) * (size_t)p->batch, hidden = (size_t)p->shape->hidden;
    void *state;
    TRY(rank_state(rank, sizeof(struct dsp), &state));
    struct dsp *s = state;
    s->frames = region_extent(frames);
    s->forward.half = run_half;
    TRY(forward_open_tile(rank, TILING_TOKENS, &part, rows, &s->forward));
    TRY(sharded_open(rank, rank->group, TRAFFIC_HEADS, &shape, PLACES, FRAMES, &s->to_frames));
    TRY(sharded_open(rank, rank->group, TRAFFIC_HEADS, &shape, FRAMES, PLACES, &s->to_places));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, hidden, &s->input));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, s->forward.rows, hidden, &s->returned);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct dsp *s = rank->state;
    *noise = s->forward.noise;
    return forward_predict(rank, &s->forward, step, NULL);
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

static void teardown(struct rank *rank)
{
    struct dsp *s = rank->state;
    forward_close(&s->forward);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    uint64_t spatial = (uint64_t)(problem->shape->blocks + 1) / 2;
    uint64_t times = (uint64_t)problem->steps * spatial;
    struct sharded_shape shape = shape_of(problem);
    struct region own = region_tile(problem, TILING_TOKENS, ranks, me);
    sharded_cost(&shape, ranks, me, PLACES, FRAMES, TRAFFIC_HEADS, problem->dtype, times, out);
    sharded_cost(&shape, ranks, me, FRAMES, PLACES, TRAFFIC_HEADS, problem->dtype, times, out);
    cost_add_tile_gather(problem, layout, rank, TILING_TOKENS, out);
    cost_add_twin(problem, &strategy_dsp, region_tokens(own), out);
}

const struct strategy strategy_dsp = {
    .name = "dsp",
    .summary = "dynamic sequence parallel: the sharded dimension switches around spatial attention",
    .paper = "arXiv:2403.10266",
    .freshness = FRESH,
    .runs_video = true,
    .shape_layout = shape_layout,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

/* The blocks of a rank that holds a chunk of the sequence. */
#include "strategies/sequence.h"

static enum status run_half(struct rank *rank, int block, enum dit_half half)
{
    struct sequence *s = rank->state;
    struct forward *f = &s->forward;
    struct dit *dit = &f->dit;
    bool is_local = problem_tiling(rank->problem) == TILING_FRAMES && !dit_block_is_temporal(dit, block);
    if (half == DIT_MLP || is_local)
        return dit_partial(dit, block, half, &f->extent, f->hidden, f->partial);
    TRY(dit_modulate(dit, block, half, f->rows, f->hidden, dit->modulated));
    TRY(dit_qkv(dit, block, f->rows, dit->modulated, dit->qkv));
    TRY(s->attend(rank, block));
    return dit_project(dit, block, f->rows, dit->attended, f->partial);
}

enum status sequence_open(struct rank *rank, size_t bytes, sequence_attend *attend, void **state)
{
    struct dit_part part = problem_whole_part(rank->problem);
    TRY(rank_state(rank, bytes, state));
    struct sequence *s = *state;
    s->attend = attend;
    s->forward.half = run_half;
    return forward_open_tile(rank, problem_tiling(rank->problem), &part, 0, &s->forward);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct sequence *s = rank->state;
    *noise = s->forward.noise;
    return forward_predict(rank, &s->forward, step, NULL);
}

enum status sequence_sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

void sequence_teardown(struct rank *rank)
{
    struct sequence *s = rank->state;
    forward_close(&s->forward);
}

uint64_t sequence_attentions(const struct problem *problem)
{
    bool is_video = problem_tiling(problem) == TILING_FRAMES;
    uint64_t blocks = (uint64_t)problem->shape->blocks;
    return (uint64_t)problem->steps * (is_video ? blocks / 2 : blocks);
}

void sequence_cost(const struct problem *problem, const struct layout *layout, int rank,
                   const struct strategy *strategy, struct cost *out)
{
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    cost_add_gather(problem, layout, rank, out);
    cost_add_twin(problem, strategy, region_tokens(region_chunk(problem, ranks, me)), out);
}

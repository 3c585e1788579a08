/* tp: tensor parallelism, column then row split (arXiv:1909.08053, section 3). Every rank holds H/N heads
 * and F/N MLP channels of each block, and the whole hidden state; an all-reduce of one hidden state
 * ends each half. Sent per block and rank: 4A(N-1)/N. */
#include "strategies/forward.h"

#include "strategies/tensor_parallel.h"

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(rank_state(rank, sizeof(struct forward), &state));
    return forward_open(rank, comm_nranks(rank->group), comm_rank(rank->group), state);
}

static enum status reduce(struct rank *rank, int step, int block, enum dit_half half,
                          struct devmem partial, struct devmem *sum)
{
    (void)step;
    (void)block;
    (void)half;
    *sum = partial;
    return comm_all_reduce(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, partial, partial,
                           problem_hidden_elements(rank->problem), NULL);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct forward *forward = rank->state;
    *noise = forward->noise;
    return forward_predict(rank, forward, step, reduce);
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

static void teardown(struct rank *rank)
{
    forward_close(rank->state);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    struct comm_call call = {.op = COMM_ALL_REDUCE, .traffic = TRAFFIC_HIDDEN, .dtype = problem->dtype,
                             .count = problem_hidden_elements(problem)};
    uint64_t halves = (uint64_t)problem->steps * (uint64_t)problem->shape->blocks * DIT_HALVES;
    cost_add(out, PHASE_SYNC, &call, layout_group_rank(layout, rank), layout_group_size(layout), halves);
    cost_add_twin(problem, &strategy_tp, region_tokens(region_whole(problem)), out);
}

const struct strategy strategy_tp = {
    .name = "tp",
    .summary = "tensor parallel, two all-reduces a block",
    .paper = "arXiv:1909.08053",
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

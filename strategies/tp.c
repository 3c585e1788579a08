/* tp: tensor parallelism, column then row split (arXiv:1909.08053, section 3). Every rank holds H/N heads
 * and F/N MLP channels of each block, and the whole hidden state; an all-reduce of one hidden state
 * ends each half. Sent per block and rank: 4A(N-1)/N. Cross-attention of models with text is whole on every
 * rank, or sharded by heads, which takes a third all-reduce: 6A(N-1)/N. */
#include "strategies/forward.h"

#include "strategies/tensor_parallel.h"

static const char *const cross_attentions[] = {"replicated", "sharded", NULL};
static const struct option opt_cross_attention = {
    .name = "cross-attention", .type = OPTION_CHOICE, .fallback = "replicated",
    .choices = cross_attentions,
    .help = "of models with text: whole on every rank, or split by heads with a third all-reduce",
    .is_identity = true};

static bool shards_cross(const struct problem *problem)
{
    return problem->shape->text_tokens > 0 && option_choice(problem->options, &opt_cross_attention) == 1;
}

static enum status setup(struct rank *rank)
{
    void *state;
    struct dit_part part =
        problem_tp_part(rank->problem, comm_nranks(rank->group), comm_rank(rank->group));
    part.shards_cross = shards_cross(rank->problem);
    TRY(rank_state(rank, sizeof(struct forward), &state));
    return forward_open_tile(rank, TILING_NONE, &part, 0, state);
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
    uint64_t per_block = DIT_HALVES + shards_cross(problem);
    uint64_t halves = (uint64_t)problem->steps * (uint64_t)problem->shape->blocks * per_block;
    cost_add(out, PHASE_SYNC, &call, layout_group_rank(layout, rank), layout_group_size(layout), halves);
    cost_add_twin(problem, &strategy_tp, region_tokens(region_whole(problem)), out);
}

static const struct option *const options[] = {&opt_cross_attention, NULL};

const struct strategy strategy_tp = {
    .name = "tp",
    .summary = "tensor parallel, two all-reduces a block",
    .paper = "arXiv:1909.08053",
    .freshness = FRESH,
    .runs_image = true,
    .runs_video = true,
    .options = options,
    .shape_layout = tensor_parallel_layout,
    .check = tensor_parallel_check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

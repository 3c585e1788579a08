/* serial: one rank holds everything and sends nothing: the reference that errors are measured against.
 * Under --cfg-degree 2 its two ranks hold one half of guidance each. */
#include "strategies/forward.h"

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_TP] = group_ranks;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    (void)problem;
    if (layout_group_size(layout) != 1)
        return strategy_refuse(reason, "serial runs on one rank (two with --cfg-degree 2), not on %d",
                               layout->nranks);
    return OK;
}

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(rank_state(rank, sizeof(struct forward), &state));
    return forward_open(rank, 1, 0, state);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct forward *forward = rank->state;
    *noise = forward->noise;
    return forward_predict(rank, forward, step, NULL);
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
    (void)layout;
    (void)rank;
    cost_add_twin(problem, &strategy_serial, region_tokens(region_whole(problem)), out);
}

const struct strategy strategy_serial = {
    .name = "serial",
    .summary = "one rank, the reference",
    .paper = "arXiv:2212.09748",
    .freshness = FRESH,
    .runs_image = true,
    .runs_video = true,
    .shape_layout = shape_layout,
    .check = check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

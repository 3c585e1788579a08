/* usp: unified sequence parallelism (arXiv:2405.07719). N = U * R ranks, each with all weights and S/N
 * tokens. Groups of U consecutive ranks exchange tokens for heads, as ulysses does; across the R groups
 * the keys and values of these heads travel a ring. Sent per block and rank:
 * [4(U-1)/(U^2 R) + 2(R-1)/(U R)]A. */
#include "strategies/head_exchange.h"
#include "strategies/ring_attention.h"
#include "strategies/sequence.h"

struct usp {
    struct sequence sequence;
    struct head_exchange exchange;
    struct ring_attention attention;
};

static int greatest_common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    int given = (int)option_int(problem->options, &strategy_opt_ulysses_degree);
    int degree = given ? given : greatest_common_divisor(group_ranks, problem->shape->heads);
    layout->degree[AXIS_ULYSSES] = degree;
    layout->degree[AXIS_RING] = group_ranks / degree;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    int degree = layout->degree[AXIS_ULYSSES], ranks = layout_group_size(layout);
    if (degree * layout->degree[AXIS_RING] != ranks)
        return strategy_refuse(reason, "--ulysses-degree %d does not divide %d ranks", degree, ranks);
    if (problem->shape->heads % degree)
        return strategy_refuse(reason, "--ulysses-degree %d does not divide the %d heads", degree,
                               problem->shape->heads);
    return OK;
}

static enum status attend(struct rank *rank, int block)
{
    struct usp *s = rank->state;
    struct head_exchange *x = &s->exchange;
    TRY(head_exchange_to_heads(x, s->sequence.forward.dit.qkv));
    TRY(ring_attention_run(&s->attention, block, x->qkv, x->attended));
    return head_exchange_to_chunks(x, s->sequence.forward.dit.attended);
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    int degree = rank->layout->degree[AXIS_ULYSSES], ranks = comm_nranks(rank->group);
    int ulysses = layout_coordinate(rank->layout, rank->index, AXIS_ULYSSES);
    int ring = layout_coordinate(rank->layout, rank->index, AXIS_RING);
    struct comm *exchange_comm, *ring_comm;
    void *state;
    TRY(sequence_open(rank, sizeof(struct usp), attend, &state));
    struct usp *s = state;
    TRY(rank_split(rank, ring, ulysses, &exchange_comm));
    TRY(rank_split(rank, ulysses, ring, &ring_comm));
    TRY(head_exchange_open(rank, exchange_comm, region_chunks(p, ranks, ring * degree, degree),
                           &s->exchange));
    return ring_attention_open(rank, &s->sequence.forward.dit, ring_comm, s->exchange.heads, degree,
                               &s->attention);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    int degree = layout->degree[AXIS_ULYSSES], ranks = layout_group_size(layout);
    int ulysses = layout_coordinate(layout, rank, AXIS_ULYSSES);
    int ring = layout_coordinate(layout, rank, AXIS_RING);
    uint64_t times = sequence_attentions(problem);
    head_exchange_cost(problem, region_chunks(problem, ranks, ring * degree, degree), degree, ulysses,
                       times, out);
    ring_attention_cost(problem, (size_t)(problem->shape->heads / degree), degree, ranks / degree, ring,
                        times, out);
    sequence_cost(problem, layout, rank, &strategy_usp, out);
}

static const struct option *const options[] = {&strategy_opt_ulysses_degree, NULL};

const struct strategy strategy_usp = {
    .name = "usp",
    .summary = "sequence parallel: ulysses in groups, a ring across them",
    .paper = "arXiv:2405.07719",
    .freshness = FRESH,
    .runs_image = true,
    .options = options,
    .shape_layout = shape_layout,
    .check = check,
    .setup = setup,
    .sample = sequence_sample,
    .teardown = sequence_teardown,
    .cost = cost,
};

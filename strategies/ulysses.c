/* ulysses: sequence parallelism by exchanging tokens for heads (arXiv:2309.14509). Every rank holds all
 * weights and S/N tokens (T/N frames of a video); an attention over the sequence is done on all tokens by
 * the rank that has the head. Sent per attention and rank: 4(A/N)(N-1)/N. */
#include "strategies/head_exchange.h"
#include "strategies/sequence.h"

struct ulysses {
    struct sequence sequence;
    struct head_exchange exchange;
};

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_ULYSSES] = group_ranks;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    int ranks = layout->degree[AXIS_ULYSSES], heads = problem->shape->heads;
    if (heads % ranks)
        return strategy_refuse(reason, "ulysses gives every rank equally many of the %d heads: %d ranks "
                                       "do not divide them",
                               heads, ranks);
    return OK;
}

static enum status attend(struct rank *rank, int block)
{
    struct ulysses *s = rank->state;
    struct head_exchange *x = &s->exchange;
    struct dit *dit = &s->sequence.forward.dit;
    TRY(head_exchange_to_heads(x, dit->qkv));
    TRY(dit_attend_heads(dit, block, x->heads, &x->extent, x->qkv, x->attended));
    return head_exchange_to_chunks(x, dit->attended);
}

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(sequence_open(rank, sizeof(struct ulysses), attend, &state));
    struct ulysses *s = state;
    return head_exchange_open(rank, rank->group, region_whole(rank->problem), &s->exchange);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    head_exchange_cost(problem, region_whole(problem), layout_group_size(layout),
                       layout_group_rank(layout, rank), sequence_attentions(problem), out);
    sequence_cost(problem, layout, rank, &strategy_ulysses, out);
}

const struct strategy strategy_ulysses = {
    .name = "ulysses",
    .summary = "sequence parallel: tokens are exchanged for heads around attention",
    .paper = "arXiv:2309.14509",
    .freshness = FRESH,
    .runs_image = true,
    .runs_video = true,
    .shape_layout = shape_layout,
    .check = check,
    .setup = setup,
    .sample = sequence_sample,
    .teardown = sequence_teardown,
    .cost = cost,
};

/* ring: ring attention (arXiv:2310.01889). Every rank holds all weights and S/N tokens (T/N frames of a
 * video); keys and values travel around the ring, each hop under the attention to the chunk before it. Sent
 * per attention and rank: 2A(N-1)/N, in N-1 hops. */
#include "strategies/ring_attention.h"
#include "strategies/sequence.h"

struct ring {
    struct sequence sequence;
    struct ring_attention attention;
};

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_RING] = group_ranks;
}

static enum status attend(struct rank *rank, int block)
{
    struct ring *s = rank->state;
    struct dit *dit = &s->sequence.forward.dit;
    return ring_attention_run(&s->attention, block, dit->qkv, dit->attended);
}

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(sequence_open(rank, sizeof(struct ring), attend, &state));
    struct ring *s = state;
    return ring_attention_open(rank, &s->sequence.forward.dit, rank->group,
                               (size_t)rank->problem->shape->heads, 1, &s->attention);
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    ring_attention_cost(problem, (size_t)problem->shape->heads, 1, layout_group_size(layout),
                        layout_group_rank(layout, rank), sequence_attentions(problem), out);
    sequence_cost(problem, layout, rank, &strategy_ring, out);
}

const struct strategy strategy_ring = {
    .name = "ring",
    .summary = "sequence parallel: keys and values travel a ring under the attention",
    .paper = "arXiv:2310.01889",
    .freshness = FRESH,
    .runs_image = true,
    .runs_video = true,
    .shape_layout = shape_layout,
    .setup = setup,
    .sample = sequence_sample,
    .teardown = sequence_teardown,
    .cost = cost,
};

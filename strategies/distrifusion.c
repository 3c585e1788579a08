/* distrifusion: displaced patch parallelism (arXiv:2402.19481). Every rank holds all weights and
 * steps its own chunk of tokens. On synchronous steps the keys and values of all tokens are fresh;
 * on stale steps only the own chunk's are, every other chunk's are those of step i-s, s the
 * staleness, from an all-gather started at step i-s and awaited now. Sent per block and rank:
 * 2A(N-1)/N.
 *
 * A block keeps s buffers of all tokens' K|V, and step i uses the one that it left at step i-s:
 *   wait for the gather of i-s, put the own fresh chunk in its place, attend, start the gather of
 * i. The own chunk is what the gather sends, and it comes after the attention on the compute lane,
 * so one buffer serves as what is read, what is sent and what is received: 2ALs, and nothing more
 * in flight. */
#include "strategies/strategy.h"

#include "strategies/tensor_parallel.h"
#include "strategies/token_attention.h"

#include <stdlib.h>

/* All tokens' keys and values of one block, of one step. */
struct slot {
    struct devmem kv; /* T [tokens, batch, 2D] */
    struct comm_request gather;
};

struct distrifusion {
    struct dit dit;
    struct dit_extent whole, own;
    int slots;            /* per block: the staleness; 0: one for all blocks, no step is stale */
    struct slot *slot;    /* [blocks, slots], or one */
    struct devmem hidden; /* T [own rows, D] */
    struct devmem noise;  /* T [own tokens, token_values] */
    size_t counts[COMM_MAX_RANKS],
        offsets[COMM_MAX_RANKS]; /* elements of every rank's chunk of K|V */
};

static int staleness_of(const struct problem *p)
{
    return (int)option_int(p->options, &strategy_opt_staleness);
}

static size_t kv_width(const struct problem *p)
{
    return (size_t)p->batch * 2 * (size_t)p->shape->hidden;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    int ranks = layout_group_size(layout);
    if ((size_t)ranks > problem->tokens)
        return strategy_refuse(reason,
                               "%d ranks cannot share %zu tokens: use a larger --resolution "
                               "or fewer --gpus",
                               ranks, problem->tokens);
    return strategy_check_staleness(problem, reason);
}

/* ---- memory ---- */

static struct slot *slot_at(const struct distrifusion *s, int block, int step)
{
    return s->slots ? &s->slot[block * s->slots + step % s->slots] : s->slot;
}

static enum status alloc_slots(struct rank *rank, struct distrifusion *s)
{
    const struct problem *p = rank->problem;
    int count = s->slots ? p->shape->blocks * s->slots : 1;
    enum memory_purpose purpose = s->slots ? MEMORY_STALE : MEMORY_ACTIVATIONS;
    s->slot = calloc((size_t)count, sizeof *s->slot);
    if (!s->slot)
        return FAIL(ERR_MEMORY, "no memory for %d exchanges", count);
    for (int i = 0; i < count; i++)
        TRY(rank_alloc(rank, purpose, p->tokens, kv_width(p), &s->slot[i].kv));
    return OK;
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    int ranks = comm_nranks(rank->group);
    struct dit_part part = problem_whole_part(p);
    void *state;
    TRY(rank_state(rank, sizeof(struct distrifusion), &state));
    struct distrifusion *s = state;
    s->whole = region_extent(region_whole(p));
    s->slots = staleness_of(p);
    partition_table(p->tokens, ranks, kv_width(p), s->counts, s->offsets);
    TRY(rank_tile_latent(rank, TILING_TOKENS));
    size_t rows = region_tokens(rank->own) * (size_t)p->batch;
    s->own = region_extent(rank->own);
    TRY(rank_open_dit(rank, &part, rows, 0, &s->dit));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, s->dit.hidden, &s->hidden));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, s->own.tokens, p->token_values, &s->noise));
    return alloc_slots(rank, s);
}

static void teardown(struct rank *rank)
{
    struct distrifusion *s = rank->state;
    free(s->slot);
    dit_close(&s->dit);
}

/* ---- a step ---- */

static bool step_is_stale(const struct problem *p, int64_t step)
{
    return strategy_step_is_stale(&strategy_distrifusion, p, step);
}

/* Will a later step read what step i leaves? */
static bool is_read_later(const struct problem *p, int step)
{
    return step_is_stale(p, (int64_t)step + staleness_of(p));
}

static enum status gather(struct rank *rank, struct distrifusion *s, struct devmem own,
                          struct slot *slot, struct comm_request *request)
{
    return comm_all_gatherv(rank->group, TRAFFIC_KV, rank->problem->dtype, own, slot->kv, s->counts,
                            s->offsets, request);
}

static enum status run_attention(struct rank *rank, struct distrifusion *s, int step, int block)
{
    const struct problem *p = rank->problem;
    struct slot *slot = slot_at(s, block, step);
    size_t at = s->offsets[comm_rank(rank->group)] * dtype_bytes(p->dtype);
    struct devmem own = devmem_at(slot->kv, at);
    bool is_stale = step_is_stale(p, step);
    TRY(token_attention_qkv(&s->dit, block, &s->own, s->hidden));
    TRY(comm_wait(&slot->gather));
    TRY(token_attention_store(&s->dit, &s->own, own));
    if (!is_stale)
        TRY(gather(rank, s, own, slot, NULL));
    TRY(token_attention_add(&s->dit, block, &s->own, &s->whole, slot->kv, s->hidden));
    return is_stale && is_read_later(p, step) ? gather(rank, s, own, slot, &slot->gather) : OK;
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct distrifusion *s = rank->state;
    TRY(dit_condition(&s->dit, step));
    TRY(dit_embed(&s->dit, &s->own, rank->latent, s->hidden));
    for (int block = 0; block < s->dit.part.blocks; block++) {
        meter_at(rank->meter, block, -1);
        TRY(run_attention(rank, s, step, block));
        TRY(token_attention_mlp(&s->dit, block, &s->own, s->hidden));
    }
    meter_at(rank->meter, -1, -1);
    TRY(dit_finish(&s->dit, dit_rows(&s->dit, &s->own), s->hidden));
    *noise = s->noise;
    return sample_noise(rank, s->own.tokens, s->dit.network, s->noise);
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

/* ---- the claim ---- */

static void cost(const struct problem *problem, const struct layout *layout, int rank,
                 struct cost *out)
{
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS];
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    uint64_t blocks = (uint64_t)problem->shape->blocks;
    partition_table(problem->tokens, ranks, kv_width(problem), counts, offsets);
    struct comm_call call = {.op = COMM_ALL_GATHER,
                             .traffic = TRAFFIC_KV,
                             .dtype = problem->dtype,
                             .recv_counts = counts,
                             .recv_offsets = offsets};
    for (int step = 0; step < problem->steps; step++) {
        if (!step_is_stale(problem, step))
            cost_add(out, PHASE_SYNC, &call, me, ranks, blocks);
        else if (is_read_later(problem, step))
            cost_add(out, PHASE_STALE, &call, me, ranks, blocks);
    }
    out->stale_bytes = (uint64_t)staleness_of(problem) * blocks * 2 *
                       problem_hidden_elements(problem) * dtype_bytes(problem->dtype);
    cost_add_tile_gather(problem, layout, rank, TILING_TOKENS, out);
    cost_add_twin(problem, &strategy_distrifusion, counts[me] / kv_width(problem), out);
}

static const struct option *const options[] = {
    &strategy_opt_warmup_steps,
    &strategy_opt_staleness,
    &strategy_opt_refresh,
    NULL,
};

const struct strategy strategy_distrifusion = {
    .name = "distrifusion",
    .summary = "displaced patch parallel: token chunks, keys and values of earlier steps",
    .paper = "arXiv:2402.19481",
    .freshness = STALE,
    .runs_image = true,
    .options = options,
    .shape_layout = tensor_parallel_layout,
    .check = check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

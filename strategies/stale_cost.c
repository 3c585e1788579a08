/* The claim of tp-stale: what each step sends and what is kept between steps. */
#include "strategies/stale_cost.h"

#include "strategies/stale_coded.h"

/* The exchange of one half that may be stale (`may`) or never is. */
static void cost_half(const struct stale_rules *rules, int step, bool may, int me, int ranks,
                      struct cost *out)
{
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS];
    const struct problem *p = rules->problem;
    size_t n = problem_hidden_elements(p);
    bool is_stale = stale_rules_step_is_stale(rules, step);
    struct comm_call call = {
        .op = COMM_ALL_REDUCE, .traffic = TRAFFIC_HIDDEN, .dtype = p->dtype, .count = n};
    if (may && is_stale && rules->mode == STALE_CODED) {
        stale_coded_cost(p, rules->code_bits, me, ranks, out);
        return;
    }
    if (may && is_stale && !stale_rules_is_read(rules, step))
        return;
    if (may && rules->gathers) {
        for (int r = 0; r < ranks; r++)
            counts[r] = n, offsets[r] = (size_t)r * n;
        call.op = COMM_ALL_GATHER, call.recv_counts = counts, call.recv_offsets = offsets;
    }
    cost_add(out, is_stale ? PHASE_STALE : PHASE_SYNC, &call, me, ranks, 1);
}

static void cost_step(const struct stale_rules *rules, int step, int me, int ranks,
                      struct cost *out)
{
    for (int block = 0; block < rules->problem->shape->blocks; block++)
        for (int half = 0; half < DIT_HALVES; half++)
            cost_half(rules, step, stale_rules_may(rules, block, (enum dit_half)half), me, ranks,
                      out);
}

/* What one half keeps. */
static uint64_t kept_bytes(const struct stale_rules *rules, int me, int ranks)
{
    const struct problem *p = rules->problem;
    uint64_t tensor = problem_hidden_elements(p) * dtype_bytes(p->dtype);
    if (rules->mode == STALE_CODED)
        return stale_coded_base_bytes(p, me, ranks);
    uint64_t tensors = rules->gathers ? (uint64_t)ranks : rules->mode == STALE_PEERS ? 2 : 1;
    return (uint64_t)rules->slots * tensors * tensor;
}

void stale_cost(const struct problem *problem, const struct layout *layout, int rank,
                struct cost *out)
{
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    size_t latent = region_tokens(region_whole(problem));
    struct stale_rules rules = stale_rules_of(problem);
    struct comm_call average = {.op = COMM_ALL_REDUCE,
                                .traffic = TRAFFIC_NOISE,
                                .dtype = problem->dtype,
                                .count = latent * problem->token_values};
    for (int step = 0; step < problem->steps; step++) {
        cost_step(&rules, step, me, ranks, out);
        if (rules.mode == STALE_PEERS && stale_rules_step_is_stale(&rules, step))
            cost_add(out, PHASE_STALE, &average, me, ranks, 1);
    }
    out->stale_bytes = 0;
    for (int block = 0; block < problem->shape->blocks; block++)
        for (int half = 0; half < DIT_HALVES; half++)
            if (stale_rules_may(&rules, block, (enum dit_half)half))
                out->stale_bytes += kept_bytes(&rules, me, ranks);
    cost_add_twin(problem, &strategy_tp_stale, latent, out);
}

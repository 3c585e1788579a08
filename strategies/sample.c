/* The loop over denoising steps that every strategy but the pipeline shares. */
#include "strategies/strategy.h"

#include "strategies/trajectory.h"

static enum status exchange_with_twin(struct rank *rank, size_t n, struct devmem noise)
{
    const struct problem *p = rank->problem;
    int me = comm_rank(rank->twin), other = 1 - me;
    TRY(comm_sendrecv(rank->twin, TRAFFIC_CFG, p->dtype, noise, n, other, rank->twin_noise, n, other,
                      NULL));
    struct guide_call guide = {.n = n, .cfg_scale = p->cfg_scale, .noise = noise,
                               .cond = me == 0 ? noise : rank->twin_noise,
                               .uncond = me == 0 ? rank->twin_noise : noise};
    return device_guide(rank->device, &guide);
}

enum status sample_noise(struct rank *rank, size_t rows, struct devmem out, struct devmem noise)
{
    const struct problem *p = rank->problem;
    struct noise_call call = {.rows = rows, .batch = (size_t)p->batch, .patch = (size_t)p->shape->patch,
                              .channels = (size_t)p->shape->channels,
                              .out_channels = (size_t)p->shape->out_channels,
                              .cfg_scale = p->cfg_scale, .out = out, .noise = noise};
    TRY(device_noise(rank->device, &call));
    return rank->twin ? exchange_with_twin(rank, rows * p->token_values, noise) : OK;
}

enum status sample_update(struct rank *rank, int step, size_t values, struct devmem latent,
                          struct devmem noise)
{
    const struct problem *p = rank->problem;
    int next = step + 1 < p->steps ? model_timestep(step + 1, p->steps) : -1;
    struct ddim_call call = {.n = values, .alpha = model_alpha(model_timestep(step, p->steps)),
                             .alpha_next = model_alpha(next), .latent = latent, .noise = noise};
    return device_ddim(rank->device, &call);
}

enum step_phase sample_phase(const struct rank *rank, int step)
{
    return strategy_step_is_sync(rank->strategy, rank->problem, step) ? PHASE_SYNC : PHASE_STALE;
}

static enum status gather_latent(struct rank *rank)
{
    const struct problem *p = rank->problem;
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS];
    if (devmem_is_none(rank->gathered))
        return OK;
    bool is_by_tokens = rank->tiling == TILING_TOKENS;
    size_t things = is_by_tokens ? p->tokens : (size_t)p->frames;
    size_t per_thing = (is_by_tokens ? (size_t)p->frames : p->tokens) * p->token_values;
    partition_table(things, comm_nranks(rank->group), per_thing, counts, offsets);
    meter_step(rank->meter, -1, PHASE_SYNC);
    return comm_all_gatherv(rank->group, TRAFFIC_LATENT, DTYPE_FP32, rank_own_latent(rank),
                            rank->gathered, counts, offsets, NULL);
}

enum status sample_stepwise(struct rank *rank,
                            enum status (*predict)(struct rank *, int step, struct devmem *noise))
{
    size_t values = region_tokens(rank->own) * rank->problem->token_values;
    for (int step = 0; step < rank->problem->steps; step++) {
        struct devmem noise = DEVMEM_NONE;
        meter_step(rank->meter, step, sample_phase(rank, step));
        TRY(predict(rank, step, &noise));
        meter_at(rank->meter, -1, -1);
        TRY(sample_update(rank, step, values, rank_own_latent(rank), noise));
        TRY(trajectory_keep(rank, step, rank->own, rank_own_latent(rank)));
        TRY(meter_step_end(rank->meter));
    }
    return gather_latent(rank);
}

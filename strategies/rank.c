/* A rank's own bits: regions of the latent, its part of the model, its memory, and the arithmetic of
 * claims. */
#include "strategies/strategy.h"

#include <stdlib.h>

/* ---- regions ---- */

struct region region_whole(const struct problem *problem)
{
    return (struct region){{0, (size_t)problem->frames}, {0, problem->tokens}};
}

size_t region_tokens(struct region region)
{
    return region.frames.count * region.tokens.count;
}

struct region region_tile(const struct problem *problem, enum tiling tiling, int parts, int index)
{
    struct region region = region_whole(problem);
    if (tiling == TILING_FRAMES)
        region.frames = partition_span((size_t)problem->frames, parts, index);
    if (tiling == TILING_TOKENS)
        region.tokens = partition_span(problem->tokens, parts, index);
    return region;
}

enum tiling problem_tiling(const struct problem *problem)
{
    return problem->shape->kind == MODEL_VIDEO ? TILING_FRAMES : TILING_TOKENS;
}

struct region region_chunk(const struct problem *problem, int parts, int index)
{
    return region_tile(problem, problem_tiling(problem), parts, index);
}

struct region region_chunks(const struct problem *problem, int parts, int first, int count)
{
    struct region region = region_chunk(problem, parts, first);
    struct region last = region_chunk(problem, parts, first + count - 1);
    region.frames.count = last.frames.first + last.frames.count - region.frames.first;
    region.tokens.count = last.tokens.first + last.tokens.count - region.tokens.first;
    return region;
}

size_t problem_chunk_things(const struct problem *problem, size_t *rows_each)
{
    bool is_by_frames = problem_tiling(problem) == TILING_FRAMES;
    *rows_each = (is_by_frames ? problem->tokens : 1) * (size_t)problem->batch;
    return is_by_frames ? (size_t)problem->frames : problem->tokens;
}

struct dit_extent region_extent(struct region region)
{
    return (struct dit_extent){.first_frame = region.frames.first, .frames = region.frames.count,
                               .first_token = region.tokens.first, .tokens = region.tokens.count};
}

size_t problem_hidden_elements(const struct problem *problem)
{
    return (size_t)problem->frames * problem->tokens * (size_t)problem->batch *
           (size_t)problem->shape->hidden;
}

/* ---- memory ---- */

enum status rank_state(struct rank *rank, size_t bytes, void **out)
{
    rank->state = calloc(1, bytes);
    if (!rank->state)
        return FAIL(ERR_MEMORY, "no memory for %zu bytes of strategy state", bytes);
    *out = rank->state;
    return OK;
}

enum status rank_alloc(struct rank *rank, enum memory_purpose purpose, size_t rows, size_t width,
                       struct devmem *out)
{
    return arena_alloc(rank->scratch, purpose, rows * width * dtype_bytes(rank->problem->dtype), out);
}

enum status rank_set_latent(struct rank *rank, struct region own, struct region resident)
{
    const struct problem *p = rank->problem;
    size_t value = sizeof(float) * p->token_values;
    rank->own = own;
    rank->resident = resident;
    TRY(arena_alloc(rank->scratch, MEMORY_ACTIVATIONS, region_tokens(resident) * value, &rank->latent));
    return rank->twin ? rank_alloc(rank, MEMORY_ACTIVATIONS, region_tokens(own), p->token_values,
                                   &rank->twin_noise)
                      : OK;
}

enum status rank_tile_latent(struct rank *rank, enum tiling tiling)
{
    const struct problem *p = rank->problem;
    size_t all = region_tokens(region_whole(p)) * p->token_values;
    int ranks = comm_nranks(rank->group);
    struct region own = region_tile(p, tiling, ranks, comm_rank(rank->group));
    rank->tiling = tiling;
    TRY(rank_set_latent(rank, own, own));
    if (tiling == TILING_NONE || ranks == 1)
        return OK;
    return arena_alloc(rank->scratch, MEMORY_ACTIVATIONS, all * sizeof(float), &rank->gathered);
}

enum status rank_split(struct rank *rank, int color, int key, struct comm **out)
{
    ASSERT_CMP(rank->subgroups, <, RANK_MAX_SUBGROUPS);
    TRY(comm_split(rank->group, color, key, out));
    rank->subgroup[rank->subgroups++] = *out;
    return OK;
}

enum status rank_load_noise(struct rank *rank)
{
    const struct problem *p = rank->problem;
    if (!p->noise)
        return OK;
    size_t row = rank->resident.tokens.count * p->token_values;
    for (size_t f = 0; f < rank->resident.frames.count; f++) {
        size_t token = (rank->resident.frames.first + f) * p->tokens + rank->resident.tokens.first;
        TRY(lane_upload(rank->lanes, devmem_at(rank->latent, f * row * sizeof(float)),
                        p->noise + token * p->token_values, row * sizeof(float)));
    }
    return OK;
}

struct devmem rank_own_latent(const struct rank *rank)
{
    size_t frame = rank->own.frames.first - rank->resident.frames.first;
    size_t token = rank->own.tokens.first - rank->resident.tokens.first;
    size_t index = frame * rank->resident.tokens.count + token;
    return devmem_at(rank->latent, index * rank->problem->token_values * sizeof(float));
}

/* ---- the model ---- */

struct dit_part problem_tp_part(const struct problem *problem, int parts, int index)
{
    const struct model_shape *shape = problem->shape;
    struct span heads = partition_span((size_t)shape->heads, parts, index);
    struct span mlp = partition_span((size_t)shape->mlp_hidden, parts, index);
    return (struct dit_part){.blocks = shape->blocks,
                             .first_head = (int)heads.first, .heads = (int)heads.count,
                             .first_mlp = (int)mlp.first, .mlp = (int)mlp.count,
                             .embeds = true, .finishes = true};
}

struct dit_part problem_whole_part(const struct problem *problem)
{
    return problem_tp_part(problem, 1, 0);
}

enum status rank_open_dit(struct rank *rank, const struct dit_part *part, size_t max_rows,
                          size_t max_keys, struct dit *out)
{
    const struct problem *p = rank->problem;
    int null_class = p->shape->classes; /* the table's last row */
    bool is_null_half = layout_coordinate(rank->layout, rank->index, AXIS_CFG) == 1;
    struct dit_problem problem = {.model = p->model, .shape = p->shape, .dtype = p->dtype,
                                  .frames = p->frames, .grid_height = p->grid_height,
                                  .grid_width = p->grid_width, .tokens = p->tokens,
                                  .batch = p->batch, .steps = p->steps,
                                  .classes = {is_null_half ? null_class : p->class_id, null_class}};
    return dit_open(out, &problem, part, rank->device, rank->persistent, rank->scratch, max_rows,
                    max_keys);
}

/* ---- claims ---- */

void cost_add(struct cost *cost, enum step_phase phase, const struct comm_call *call, int group_rank,
              int group_ranks, uint64_t times)
{
    cost->sent_bytes[phase][call->op][call->traffic] +=
        times * comm_sent_bytes(call, group_rank, group_ranks);
}

void cost_add_gather(const struct problem *problem, const struct layout *layout, int rank,
                     struct cost *cost)
{
    cost_add_tile_gather(problem, layout, rank, problem_tiling(problem), cost);
}

void cost_add_tile_gather(const struct problem *problem, const struct layout *layout, int rank,
                          enum tiling tiling, struct cost *cost)
{
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    size_t values = region_tokens(region_tile(problem, tiling, ranks, me)) * problem->token_values;
    cost->sent_bytes[PHASE_SYNC][COMM_ALL_GATHER][TRAFFIC_LATENT] +=
        (uint64_t)values * sizeof(float) * (uint64_t)(ranks - 1);
}

void cost_add_twin(const struct problem *problem, const struct strategy *strategy, size_t tokens,
                   struct cost *cost)
{
    if (problem->cfg_degree == 1)
        return;
    uint64_t bytes = (uint64_t)tokens * problem->token_values * dtype_bytes(problem->dtype);
    for (int step = 0; step < problem->steps; step++) {
        bool is_sync = strategy_step_is_sync(strategy, problem, step);
        cost->sent_bytes[is_sync ? PHASE_SYNC : PHASE_STALE][COMM_SENDRECV][TRAFFIC_CFG] += bytes;
    }
}

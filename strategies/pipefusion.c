/* pipefusion: patch pipeline (arXiv:2405.14430). Stage n holds consecutive blocks; M patches (token
 * chunks) flow through the stages. In each block a patch first writes its own keys and values into
 * the stage's buffer of all tokens, then attends over the buffer, so that patches 0..m are from
 * step i and patches m+1.. from step i-1. Steps i < W run the whole sequence as one patch. The last
 * stage steps the latent, patch by patch, and sends it to the first, which may start step i+1 while
 * later patches of step i are in the pipe: after the warm-up the pipe never drains.
 *
 * What is computed does not depend on the number of stages: each patch meets the same operations,
 * in the same shapes and the same order. Sent per step: A by every stage but the last, the latent
 * by the last. */
#include "strategies/strategy.h"

#include "strategies/token_attention.h"
#include "strategies/trajectory.h"

#include <stdlib.h>

/* A patch of a step; they pass a stage in this order. */
struct place {
    int step, patch;
    uint64_t number; /* of patches before it, in all steps */
};

/* A hidden state under way: received into, worked on in place, sent from. */
struct buffer {
    struct devmem hidden; /* T [rows of the largest patch, D] */
    struct comm_request recv, send;
};

struct pipefusion {
    struct dit dit;
    struct dit_extent whole;
    int stage, stages;
    struct devmem *kv; /* per block of the stage: T [tokens, batch, 2D] */
    int buffers;       /* two for each link of the stage; patch number k uses k % buffers */
    struct buffer buffer[4];
    struct comm_request *latents; /* per patch; first stage: receives, last: sends */
    struct devmem noise;          /* last stage: T [tokens of the largest patch, token_values] */
};

static bool is_first(const struct pipefusion *s)
{
    return s->stage == 0;
}

static bool is_last(const struct pipefusion *s)
{
    return s->stage == s->stages - 1;
}

/* ---- patches and stages ---- */

static int pieces_of(const struct problem *p, int step)
{
    bool is_whole = strategy_step_is_sync(&strategy_pipefusion, p, step);
    return is_whole ? 1 : (int)option_int(p->options, &strategy_opt_patches);
}

static struct span patch_of(const struct problem *p, int step, int patch)
{
    return partition_span(p->tokens, pieces_of(p, step), patch);
}

/* Patches are never larger than the first of the first step, or of one after the warm-up. */
static size_t most_tokens(const struct problem *p)
{
    return patch_of(p, 0, 0).count;
}

static struct place after(const struct problem *p, struct place at)
{
    bool ends_step = at.patch + 1 == pieces_of(p, at.step);
    return (struct place){.step = at.step + ends_step,
                          .patch = ends_step ? 0 : at.patch + 1,
                          .number = at.number + 1};
}

static struct span blocks_of(const struct problem *p, int stages, int stage)
{
    return partition_span((size_t)p->shape->blocks, stages, stage);
}

static void shape_layout(const struct problem *problem, int group_ranks, struct layout *layout)
{
    (void)problem;
    layout->degree[AXIS_PP] = group_ranks;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    int stages = layout->degree[AXIS_PP];
    long long patches = option_int(problem->options, &strategy_opt_patches);
    if (stages > problem->shape->blocks)
        return strategy_refuse(reason, "%d stages cannot share %d blocks: use at most %d", stages,
                               problem->shape->blocks, problem->shape->blocks);
    if ((size_t)patches > problem->tokens)
        return strategy_refuse(reason, "--patches %lld, but the image has %zu tokens", patches,
                               problem->tokens);
    return OK;
}

/* ---- memory ---- */

/* Only the first stage and the last have a use for the latent; the last steps it. */
static enum status alloc_latent(struct rank *rank, struct pipefusion *s)
{
    const struct problem *p = rank->problem;
    struct region none = {0}, whole = region_whole(p);
    TRY(rank_set_latent(rank, is_last(s) ? whole : none, is_first(s) || is_last(s) ? whole : none));
    return is_last(s)
               ? rank_alloc(rank, MEMORY_ACTIVATIONS, most_tokens(p), p->token_values, &s->noise)
               : OK;
}

static enum status alloc_host(struct pipefusion *s, const struct problem *p)
{
    size_t patches = (size_t)option_int(p->options, &strategy_opt_patches);
    s->kv = calloc((size_t)s->dit.part.blocks, sizeof *s->kv);
    s->latents = calloc(patches, sizeof *s->latents);
    if (!s->kv || !s->latents)
        return FAIL(ERR_MEMORY, "no memory for %zu patches", patches);
    return OK;
}

static enum status alloc_buffers(struct rank *rank, struct pipefusion *s)
{
    const struct problem *p = rank->problem;
    size_t hidden = (size_t)p->shape->hidden, batch = (size_t)p->batch;
    s->buffers = s->stages == 1 ? 1 : 2 * (!is_first(s) + !is_last(s));
    for (int i = 0; i < s->buffers; i++)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, most_tokens(p) * batch, hidden,
                       &s->buffer[i].hidden));
    for (int i = 0; i < s->dit.part.blocks; i++)
        TRY(rank_alloc(rank, MEMORY_STALE, p->tokens, batch * 2 * hidden, &s->kv[i]));
    return OK;
}

static enum status setup(struct rank *rank)
{
    const struct problem *p = rank->problem;
    struct dit_part part = problem_whole_part(p);
    void *state;
    TRY(rank_state(rank, sizeof(struct pipefusion), &state));
    struct pipefusion *s = state;
    s->whole = region_extent(region_whole(p));
    s->stage = comm_rank(rank->group);
    s->stages = comm_nranks(rank->group);
    struct span blocks = blocks_of(p, s->stages, s->stage);
    part.first_block = (int)blocks.first;
    part.blocks = (int)blocks.count;
    part.embeds = is_first(s);
    part.finishes = is_last(s);
    TRY(alloc_latent(rank, s));
    TRY(rank_open_dit(rank, &part, most_tokens(p) * (size_t)p->batch, 0, &s->dit));
    TRY(alloc_host(s, p));
    return alloc_buffers(rank, s);
}

static void teardown(struct rank *rank)
{
    struct pipefusion *s = rank->state;
    free(s->kv);
    free(s->latents);
    dit_close(&s->dit);
}

/* ---- links ---- */

static struct buffer *buffer_at(struct pipefusion *s, struct place at)
{
    return &s->buffer[at.number % (uint64_t)s->buffers];
}

static size_t hidden_elements(const struct problem *p, struct place at)
{
    return patch_of(p, at.step, at.patch).count * (size_t)p->batch * (size_t)p->shape->hidden;
}

static struct devmem latent_at(const struct rank *rank, struct span tokens)
{
    return devmem_at(rank->latent, tokens.first * rank->problem->token_values * sizeof(float));
}

static void enter(struct rank *rank, struct place at)
{
    meter_step(rank->meter, at.step, sample_phase(rank, at.step));
    meter_at(rank->meter, -1, at.patch);
}

/* Posts the receive of a patch's hidden state, as early as its buffer is free. */
static enum status post_hidden(struct rank *rank, struct pipefusion *s, struct place at)
{
    struct buffer *buffer = buffer_at(s, at);
    if (is_first(s) || at.step == rank->problem->steps)
        return OK;
    enter(rank, at);
    TRY(comm_wait(&buffer->send));
    return comm_recv(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, buffer->hidden,
                     hidden_elements(rank->problem, at), s->stage - 1, &buffer->recv);
}

/* The first stage has embedded all of this step's latent: the next step's may come in its place. */
static enum status post_latents(struct rank *rank, struct pipefusion *s, int step)
{
    const struct problem *p = rank->problem;
    if (s->stages == 1 || step + 1 == p->steps)
        return OK;
    for (int patch = 0; patch < pieces_of(p, step); patch++) {
        struct span tokens = patch_of(p, step, patch);
        meter_at(rank->meter, -1, patch);
        TRY(comm_recv(rank->group, TRAFFIC_LATENT, DTYPE_FP32, latent_at(rank, tokens),
                      tokens.count * p->token_values, s->stages - 1, &s->latents[patch]));
    }
    return OK;
}

/* ---- one patch in one stage ---- */

/* The latent is awaited in the pieces in which the step before sent it: at the end of the warm-up
 * the first patch's wait is for all. */
static enum status embed(struct rank *rank, struct pipefusion *s, struct place at,
                         const struct dit_extent *e)
{
    struct span tokens = {e->first_token, e->tokens};
    struct buffer *buffer = buffer_at(s, at);
    if (s->stages > 1) {
        TRY(comm_wait(&s->latents[at.patch]));
        TRY(comm_wait(&buffer->send));
    }
    TRY(dit_embed(&s->dit, e, latent_at(rank, tokens), buffer->hidden));
    if (at.patch + 1 < pieces_of(rank->problem, at.step))
        return OK;
    TRY(post_latents(rank, s, at.step));
    meter_at(rank->meter, -1, at.patch);
    return OK;
}

static enum status run_blocks(struct rank *rank, struct pipefusion *s, struct place at,
                              const struct dit_extent *e, struct devmem hidden)
{
    size_t width = token_attention_kv_width(&s->dit) * dtype_bytes(rank->problem->dtype);
    for (int i = 0; i < s->dit.part.blocks; i++) {
        int block = s->dit.part.first_block + i;
        meter_at(rank->meter, block, at.patch);
        TRY(token_attention_qkv(&s->dit, block, e, hidden));
        TRY(token_attention_store(&s->dit, e, devmem_at(s->kv[i], e->first_token * width)));
        TRY(token_attention_add(&s->dit, block, e, &s->whole, s->kv[i], hidden));
        TRY(token_attention_mlp(&s->dit, block, e, hidden));
    }
    meter_at(rank->meter, -1, at.patch);
    return OK;
}

/* The last stage: noise, guidance, one step of the patch, and back to the first stage. */
static enum status finish(struct rank *rank, struct pipefusion *s, struct place at,
                          const struct dit_extent *e, struct devmem hidden)
{
    const struct problem *p = rank->problem;
    struct span tokens = {e->first_token, e->tokens};
    struct devmem latent = latent_at(rank, tokens);
    size_t values = tokens.count * p->token_values;
    TRY(dit_finish(&s->dit, dit_rows(&s->dit, e), hidden));
    TRY(sample_noise(rank, tokens.count, s->dit.network, s->noise));
    if (s->stages > 1)
        TRY(comm_wait(&s->latents[at.patch]));
    TRY(sample_update(rank, at.step, values, latent, s->noise));
    TRY(trajectory_keep(rank, at.step, (struct region){rank->own.frames, tokens}, latent));
    if (s->stages == 1 || at.step + 1 == p->steps)
        return OK;
    return comm_send(rank->group, TRAFFIC_LATENT, DTYPE_FP32, latent, values, 0,
                     &s->latents[at.patch]);
}

static enum status run_patch(struct rank *rank, struct pipefusion *s, struct place at)
{
    const struct problem *p = rank->problem;
    struct buffer *buffer = buffer_at(s, at);
    struct dit_extent e = s->whole;
    struct span tokens = patch_of(p, at.step, at.patch);
    e.first_token = tokens.first;
    e.tokens = tokens.count;
    TRY(post_hidden(rank, s, after(p, at)));
    enter(rank, at);
    TRY(dit_condition(&s->dit, at.step));
    TRY(is_first(s) ? embed(rank, s, at, &e) : comm_wait(&buffer->recv));
    TRY(run_blocks(rank, s, at, &e, buffer->hidden));
    if (is_last(s))
        return finish(rank, s, at, &e, buffer->hidden);
    return comm_send(rank->group, TRAFFIC_HIDDEN, p->dtype, buffer->hidden, hidden_elements(p, at),
                     s->stage + 1, &buffer->send);
}

/* ---- an image ---- */

/* Without a warm-up the first patch attends over keys and values that no patch has written yet. */
static enum status clear_kv(struct rank *rank, struct pipefusion *s)
{
    size_t bytes = rank->problem->tokens * token_attention_kv_width(&s->dit) *
                   dtype_bytes(rank->problem->dtype);
    if (pieces_of(rank->problem, 0) == 1)
        return OK;
    for (int i = 0; i < s->dit.part.blocks; i++)
        TRY(device_zero(rank->device, s->kv[i], bytes));
    return OK;
}

static enum status sample(struct rank *rank)
{
    struct pipefusion *s = rank->state;
    const struct problem *p = rank->problem;
    TRY(clear_kv(rank, s));
    TRY(post_hidden(rank, s, (struct place){0}));
    for (struct place at = {0}; at.step < p->steps; at = after(p, at)) {
        TRY(run_patch(rank, s, at));
        if (at.patch + 1 == pieces_of(p, at.step))
            TRY(meter_step_end(rank->meter));
    }
    for (int i = 0; i < s->buffers; i++)
        TRY(comm_wait(&s->buffer[i].send));
    return OK;
}

/* ---- the claim ---- */

static void cost(const struct problem *problem, const struct layout *layout, int rank,
                 struct cost *out)
{
    int stages = layout_group_size(layout), stage = layout_group_rank(layout, rank);
    bool sends_latent = stages > 1 && stage == stages - 1;
    size_t tensor = problem_hidden_elements(problem) * dtype_bytes(problem->dtype);
    struct comm_call hidden = {.op = COMM_SEND,
                               .traffic = TRAFFIC_HIDDEN,
                               .dtype = problem->dtype,
                               .count = problem_hidden_elements(problem),
                               .to = stage + 1};
    struct comm_call latent = {.op = COMM_SEND,
                               .traffic = TRAFFIC_LATENT,
                               .dtype = DTYPE_FP32,
                               .count = problem->tokens * problem->token_values};
    for (int step = 0; step < problem->steps; step++) {
        bool is_sync = strategy_step_is_sync(&strategy_pipefusion, problem, step);
        enum step_phase phase = is_sync ? PHASE_SYNC : PHASE_STALE;
        if (stage < stages - 1)
            cost_add(out, phase, &hidden, stage, stages, 1);
        if (sends_latent && step + 1 < problem->steps)
            cost_add(out, phase, &latent, stage, stages, 1);
    }
    out->stale_bytes = 2 * tensor * blocks_of(problem, stages, stage).count;
    if (stage == stages - 1)
        cost_add_twin(problem, &strategy_pipefusion, problem->tokens, out);
}

static const struct option *const options[] = {
    &strategy_opt_warmup_steps,
    &strategy_opt_patches,
    NULL,
};

const struct strategy strategy_pipefusion = {
    .name = "pipefusion",
    .summary =
        "patch pipeline: stages of blocks, patches of tokens, keys and values of the step before",
    .paper = "arXiv:2405.14430",
    .freshness = STALE,
    .runs_image = true,
    .options = options,
    .shape_layout = shape_layout,
    .check = check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};

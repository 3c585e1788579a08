/* Keeping and gathering latents; tokens to images and back. */
#include "strategies/trajectory.h"

#include <stdlib.h>
#include <string.h>

enum status trajectory_open(const struct problem *problem, struct trajectory **out)
{
    struct trajectory *t = calloc(1, sizeof *t);
    if (!t)
        return FAIL(ERR_MEMORY, "no memory for the trajectory");
    t->steps = problem->steps;
    t->tokens = (size_t)problem->frames * problem->tokens;
    t->token_values = problem->token_values;
    size_t bytes = (size_t)t->steps * t->tokens * t->token_values * sizeof(float);
    t->values = malloc(bytes);
    t->is_kept = calloc(t->tokens, 1);
    if (!t->values || !t->is_kept) {
        trajectory_close(t);
        return FAIL(ERR_MEMORY, "no memory for a trajectory of %zu bytes", bytes);
    }
    *out = t;
    return OK;
}

void trajectory_close(struct trajectory *t)
{
    if (!t)
        return;
    free(t->values);
    free(t->is_kept);
    free(t);
}

enum status trajectory_keep(struct rank *rank, int step, struct region region, struct devmem latent)
{
    struct trajectory *t = rank->trajectory;
    if (!t)
        return OK;
    size_t row = region.tokens.count * t->token_values;
    for (size_t f = 0; f < region.frames.count; f++) {
        size_t token = (region.frames.first + f) * rank->problem->tokens + region.tokens.first;
        float *to = t->values + ((size_t)step * t->tokens + token) * t->token_values;
        TRY(lane_download(rank->lanes, to, devmem_at(latent, f * row * sizeof(float)),
                          row * sizeof(float)));
        memset(t->is_kept + token, 1, region.tokens.count);
    }
    return OK;
}

/* Takes from `parts` (one array of all tokens a rank) what the first owner of each token kept. */
static void merge_step(const struct trajectory *t, int nranks, const unsigned char *kept,
                       const float *parts, float *out)
{
    size_t step_values = t->tokens * t->token_values, bytes = t->token_values * sizeof(float);
    for (size_t token = 0; token < t->tokens; token++) {
        int owner = 0;
        while (owner < nranks && !kept[(size_t)owner * t->tokens + token])
            owner++;
        if (owner < nranks)
            memcpy(out + token * t->token_values,
                   parts + (size_t)owner * step_values + token * t->token_values, bytes);
    }
}

static enum status gather_steps(struct trajectory *t, struct team *team, unsigned char *kept,
                                float *parts)
{
    size_t step_values = t->tokens * t->token_values;
    TRY(team_gather(team, 0, t->is_kept, t->tokens, kept));
    for (int step = 0; step < t->steps; step++) {
        float *mine = t->values + (size_t)step * step_values;
        TRY(team_gather(team, 0, mine, step_values * sizeof(float), parts));
        if (team->rank == 0)
            merge_step(t, team->nranks, kept, parts, mine);
    }
    for (size_t token = 0; team->rank == 0 && token < t->tokens; token++) {
        for (int r = 0; r < team->nranks; r++)
            t->is_kept[token] |= kept[(size_t)r * t->tokens + token];
        if (!t->is_kept[token])
            return FAIL(ERR_INTERNAL, "no rank kept token %zu of the latent", token);
    }
    return OK;
}

enum status trajectory_gather(struct trajectory *t, struct team *team)
{
    size_t ranks = team->rank == 0 ? (size_t)team->nranks : 0;
    unsigned char *kept = malloc(ranks * t->tokens + 1);
    float *parts = malloc((ranks * t->tokens * t->token_values + 1) * sizeof *parts);
    enum status status = kept && parts ? gather_steps(t, team, kept, parts)
                                       : FAIL(ERR_MEMORY, "no memory to gather the trajectory");
    free(kept);
    free(parts);
    return status;
}

/* Visits every value of a latent: index in tokens ([frame, token, channel, row, column]) and in images
 * ([frame, channel, y, x]). */
static void reorder(const struct problem *p, const float *from, float *to, bool to_image)
{
    size_t patch = (size_t)p->shape->patch, channels = (size_t)p->shape->channels;
    size_t height = (size_t)p->latent_height, width = (size_t)p->latent_width, token_index = 0;
    for (size_t f = 0; f < (size_t)p->frames; f++)
        for (size_t t = 0; t < p->tokens; t++)
            for (size_t c = 0; c < channels; c++)
                for (size_t i = 0; i < patch * patch; i++, token_index++) {
                    size_t y = t / (size_t)p->grid_width * patch + i / patch;
                    size_t x = t % (size_t)p->grid_width * patch + i % patch;
                    size_t image_index = ((f * channels + c) * height + y) * width + x;
                    to[to_image ? image_index : token_index] =
                        from[to_image ? token_index : image_index];
                }
}

void trajectory_unpatchify(const struct problem *problem, const float *tokens, float *out)
{
    reorder(problem, tokens, out, true);
}

void trajectory_patchify(const struct problem *problem, const float *image, float *tokens)
{
    reorder(problem, image, tokens, false);
}

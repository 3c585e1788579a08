/* What a rank holds of the model: weights of its part, tables that depend on the problem, buffers. */
#include "kernels/dit.h"
#include "kernels/dit_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIME_WAVES = 256, NAME_BYTES = 96 };

struct loader {
    struct dit *dit;
    struct arena *weights, *buffers;
};

double dit_attention_scale(const struct dit *dit)
{
    return 1.0 / sqrt(dit->problem.shape->head_dim);
}

/* ---- weights ---- */

static enum status load_bias(struct loader *l, const char *name, const struct weights_piece *pieces,
                             int count, struct dit_matrix *out)
{
    char tensor[NAME_BYTES + sizeof ".bias"];
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    return weights_load(l->dit->device, l->weights, l->dit->problem.model, tensor, pieces, count, 0, 1,
                        &out->bias);
}

/* A matrix whose rows are `pieces` of `name`.weight, with all of its bias or the same rows of it. */
static enum status load_matrix(struct loader *l, const char *name, const struct weights_piece *pieces,
                               int count, size_t col0, size_t cols, struct dit_matrix *out)
{
    char tensor[NAME_BYTES + sizeof ".weight"];
    out->in = cols;
    out->out = 0;
    for (int i = 0; i < count; i++)
        out->out += pieces[i].rows;
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    TRY(weights_load(l->dit->device, l->weights, l->dit->problem.model, tensor, pieces, count, col0,
                     cols, &out->weight));
    return load_bias(l, name, pieces, count, out);
}

static enum status load_whole(struct loader *l, const char *name, size_t rows, size_t cols,
                              struct dit_matrix *out)
{
    return load_matrix(l, name, &(struct weights_piece){0, rows}, 1, 0, cols, out);
}

static enum status load_halves(struct loader *l, int block, struct dit_block *out)
{
    const struct dit_part *part = &l->dit->part;
    size_t hidden = l->dit->hidden, head_dim = (size_t)l->dit->problem.shape->head_dim;
    size_t head0 = (size_t)part->first_head * head_dim, width = l->dit->heads_width;
    size_t mlp0 = (size_t)part->first_mlp, mlp = l->dit->mlp;
    const struct weights_piece heads[] = {
        {head0, width}, {hidden + head0, width}, {2 * hidden + head0, width}};
    const struct weights_piece all = {0, hidden}, channels = {mlp0, mlp};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blocks.%d.attn.qkv", block);
    TRY(load_matrix(l, name, heads, 3, 0, hidden, &out->qkv));
    snprintf(name, sizeof name, "blocks.%d.attn.proj", block);
    TRY(load_matrix(l, name, &all, 1, head0, width, &out->proj));
    snprintf(name, sizeof name, "blocks.%d.mlp.fc1", block);
    TRY(load_matrix(l, name, &channels, 1, 0, hidden, &out->fc1));
    snprintf(name, sizeof name, "blocks.%d.mlp.fc2", block);
    return load_matrix(l, name, &all, 1, mlp0, mlp, &out->fc2);
}

/* Of a streamed block: what dit_residual adds. */
static enum status load_residual_biases(struct loader *l, int block, struct dit_block *out)
{
    const struct weights_piece all = {0, l->dit->hidden};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blocks.%d.attn.proj", block);
    TRY(load_bias(l, name, &all, 1, &out->proj));
    snprintf(name, sizeof name, "blocks.%d.mlp.fc2", block);
    return load_bias(l, name, &all, 1, &out->fc2);
}

/* `rows` rows of a table without a bias. */
static enum status load_rows(struct loader *l, const char *tensor, const struct weights_piece *pieces,
                             int count, struct devmem *out)
{
    return weights_load(l->dit->device, l->weights, l->dit->problem.model, tensor, pieces, count, 0,
                        l->dit->hidden, out);
}

/* Cross-attention, whole or the part's heads, and what the block adds to the one modulation. */
static enum status load_text_block(struct loader *l, int block, struct dit_block *out)
{
    const struct dit_part *part = &l->dit->part;
    size_t hidden = l->dit->hidden, width = l->dit->cross_width;
    size_t head_dim = (size_t)l->dit->problem.shape->head_dim;
    size_t head0 = part->shards_cross ? (size_t)part->first_head * head_dim : 0;
    const struct weights_piece all = {0, hidden}, table = {0, 6};
    const struct weights_piece heads[] = {{head0, width}, {hidden + head0, width}};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blocks.%d.cross_attn.q_linear", block);
    TRY(load_matrix(l, name, heads, 1, 0, hidden, &out->cross_q));
    snprintf(name, sizeof name, "blocks.%d.cross_attn.kv_linear", block);
    TRY(load_matrix(l, name, heads, 2, 0, hidden, &out->cross_kv));
    snprintf(name, sizeof name, "blocks.%d.cross_attn.proj", block);
    TRY(load_matrix(l, name, &all, 1, head0, width, &out->cross_proj));
    snprintf(name, sizeof name, "blocks.%d.scale_shift_table.weight", block);
    return load_rows(l, name, &table, 1, &out->modulation_table);
}

static enum status load_block(struct loader *l, int block, struct dit_block *out)
{
    size_t hidden = l->dit->hidden;
    char name[NAME_BYTES];
    TRY(l->dit->part.streams ? load_residual_biases(l, block, out) : load_halves(l, block, out));
    if (dit_has_text(l->dit))
        return load_text_block(l, block, out);
    snprintf(name, sizeof name, "blocks.%d.adaLN_modulation.1", block);
    return load_whole(l, name, 6 * hidden, hidden, &out->ada);
}

static enum status load_ends(struct loader *l)
{
    struct dit *dit = l->dit;
    const struct model_shape *shape = dit->problem.shape;
    size_t hidden = dit->hidden, pixels = (size_t)(shape->patch * shape->patch);
    if (dit->part.embeds)
        TRY(load_whole(l, "x_embedder.proj", hidden, (size_t)shape->channels * pixels, &dit->x_embed));
    if (!dit->part.finishes)
        return OK;
    if (dit_has_text(dit))
        TRY(load_rows(l, "final_layer.scale_shift_table.weight", &(struct weights_piece){0, 2}, 1,
                      &dit->final_table));
    else
        TRY(load_whole(l, "final_layer.adaLN_modulation.1", 2 * hidden, hidden, &dit->final_ada));
    return load_whole(l, "final_layer.linear", pixels * (size_t)shape->out_channels, hidden,
                      &dit->final_linear);
}

static enum status load_conditioning(struct loader *l)
{
    struct dit *dit = l->dit;
    struct weights_piece rows[2];
    size_t each = dit_has_text(dit) ? (size_t)dit->problem.shape->text_tokens : 1;
    for (int half = 0; half < dit->problem.batch; half++)
        rows[half] = (struct weights_piece){(size_t)dit->problem.classes[half] * each, each};
    TRY(load_whole(l, "t_embedder.mlp.0", dit->hidden, TIME_WAVES, &dit->t_embed0));
    TRY(load_whole(l, "t_embedder.mlp.2", dit->hidden, dit->hidden, &dit->t_embed2));
    if (dit_has_text(dit))
        TRY(load_whole(l, "t_block.1", 6 * dit->hidden, dit->hidden, &dit->single));
    const char *table = dit_has_text(dit) ? "y_embedder.y_embedding.weight"
                                          : "y_embedder.embedding_table.weight";
    return load_rows(l, table, rows, dit->problem.batch, &dit->class_rows);
}

/* ---- tables ---- */

/* Half waves of one kind, then the other: out[j] = first(pos * base^-(j/count)), j < count. */
static void waves(double position, size_t count, double exponent_divisor, double (*first)(double),
                  double (*second)(double), float *out)
{
    for (size_t j = 0; j < count; j++) {
        double angle = position * exp(-log(10000.0) * (double)j / exponent_divisor);
        out[j] = (float)first(angle);
        out[count + j] = (float)second(angle);
    }
}

/* The first half of the channels encodes the column, the second the row. */
static void fill_space(const struct dit *dit, float *out)
{
    size_t quarter = dit->hidden / 4, columns = (size_t)dit->problem.grid_width;
    for (size_t token = 0; token < dit->problem.tokens; token++, out += dit->hidden) {
        waves((double)(token % columns), quarter, (double)quarter, sin, cos, out);
        waves((double)(token / columns), quarter, (double)quarter, sin, cos, out + 2 * quarter);
    }
}

static void fill_time(const struct dit *dit, float *out)
{
    size_t half = dit->hidden / 2;
    for (int frame = 0; frame < dit->problem.frames; frame++, out += dit->hidden)
        waves(frame, half, (double)half, sin, cos, out);
}

static void fill_waves(const struct dit *dit, float *out)
{
    for (int step = 0; step < dit->problem.steps; step++, out += TIME_WAVES)
        waves(model_timestep(step, dit->problem.steps), TIME_WAVES / 2,
              dit->problem.shape->time_divisor, cos, sin, out);
}

static enum status load_table(struct loader *l, size_t rows, size_t width,
                              void (*fill)(const struct dit *, float *), struct devmem *out)
{
    struct dit *dit = l->dit;
    size_t n = rows * width, bytes = n * dtype_bytes(dit->problem.dtype);
    TRY(arena_alloc(l->buffers, MEMORY_WORKSPACE, bytes, out));
    if (model_shapes_only(dit->problem.model))
        return OK;
    float *values = malloc(n * sizeof *values + bytes);
    if (!values)
        return FAIL(ERR_MEMORY, "no memory for a table of %zu bytes", n * sizeof *values + bytes);
    void *converted = values + n;
    fill(dit, values);
    dtype_convert(dit->problem.dtype, converted, DTYPE_FP32, values, n);
    enum status status = lane_upload(dit->device->lanes, *out, converted, bytes);
    free(values);
    return status;
}

static enum status load_tables(struct loader *l)
{
    struct dit *dit = l->dit;
    if (dit->part.embeds)
        TRY(load_table(l, dit->problem.tokens, dit->hidden, fill_space, &dit->space_table));
    if (dit->problem.shape->kind == MODEL_VIDEO)
        TRY(load_table(l, (size_t)dit->problem.frames, dit->hidden, fill_time, &dit->time_table));
    return load_table(l, (size_t)dit->problem.steps, TIME_WAVES, fill_waves, &dit->time_waves);
}

/* ---- buffers ---- */

static enum status buffer(struct loader *l, enum memory_purpose purpose, size_t elements,
                          struct devmem *out)
{
    return arena_alloc(l->buffers, purpose, elements * dtype_bytes(l->dit->problem.dtype), out);
}

static enum status make_vectors(struct loader *l)
{
    struct dit *dit = l->dit;
    size_t vectors = (size_t)dit->problem.batch * dit->hidden;
    for (int i = 0; i < 3; i++)
        TRY(buffer(l, MEMORY_WORKSPACE, vectors, &dit->condition[i]));
    TRY(buffer(l, MEMORY_WORKSPACE, (size_t)dit->part.blocks * 6 * vectors, &dit->modulation));
    if (dit_has_text(dit)) {
        size_t text = (size_t)dit->problem.shape->text_tokens * (size_t)dit->problem.batch;
        TRY(buffer(l, MEMORY_WORKSPACE, 6 * vectors, &dit->single_modulation));
        TRY(buffer(l, MEMORY_ACTIVATIONS, (size_t)dit->part.blocks * text * 2 * dit->cross_width,
                   &dit->text_kv));
    }
    return buffer(l, MEMORY_WORKSPACE, 2 * vectors, &dit->final_modulation);
}

static enum status make_rows(struct loader *l)
{
    struct dit *dit = l->dit;
    const struct model_shape *shape = dit->problem.shape;
    size_t rows = dit->max_rows, pixels = (size_t)(shape->patch * shape->patch);
    TRY(buffer(l, MEMORY_ACTIVATIONS, rows * dit->hidden, &dit->modulated));
    TRY(buffer(l, MEMORY_ACTIVATIONS, rows * 3 * dit->heads_width, &dit->qkv));
    TRY(buffer(l, MEMORY_ACTIVATIONS, rows * dit->heads_width, &dit->attended));
    TRY(buffer(l, MEMORY_ACTIVATIONS, rows * dit->mlp, &dit->mid));
    if (dit_has_text(dit)) {
        TRY(buffer(l, MEMORY_ACTIVATIONS, rows * dit->cross_width, &dit->cross_q));
        TRY(buffer(l, MEMORY_ACTIVATIONS, rows * dit->cross_width, &dit->cross_attended));
    }
    if (dit->part.embeds)
        TRY(buffer(l, MEMORY_ACTIVATIONS,
                   rows / (size_t)dit->problem.batch * (size_t)shape->channels * pixels,
                   &dit->token_cast));
    if (dit->part.finishes)
        TRY(buffer(l, MEMORY_ACTIVATIONS, rows * pixels * (size_t)shape->out_channels, &dit->network));
    return OK;
}

/* The device's own temporaries, for the largest calls to come. */
static enum status reserve(struct loader *l, size_t max_keys)
{
    struct dit *dit = l->dit;
    size_t frames = (size_t)dit->problem.frames, tokens = dit->problem.tokens;
    size_t keys = max_keys ? max_keys : (frames > tokens ? frames : tokens);
    size_t text = (size_t)dit->problem.shape->text_tokens, queries = keys;
    if (text > 0 && dit->max_rows / (size_t)dit->problem.batch > queries)
        queries = dit->max_rows / (size_t)dit->problem.batch;
    keys = text > keys ? text : keys;
    size_t widest = dit->mlp > 3 * dit->heads_width ? dit->mlp : 3 * dit->heads_width;
    size_t heads = (size_t)(text > 0 ? dit->problem.shape->heads : dit->part.heads);
    bool is_video = dit->problem.shape->kind == MODEL_VIDEO; /* temporal calls have a group a token */
    struct attention_call attention = {.n0 = is_video && tokens > frames ? tokens : frames,
                                       .n1 = (size_t)dit->problem.batch,
                                       .heads = heads, .nq = queries, .nk = keys,
                                       .head_dim = (size_t)dit->problem.shape->head_dim};
    struct linear_call linear = {.m = dit->max_rows,
                                 .n = widest > 6 * dit->hidden ? widest : 6 * dit->hidden,
                                 .k = dit->mlp > dit->hidden ? dit->mlp : dit->hidden};
    return device_reserve(dit->device, l->buffers, &attention, &linear);
}

static enum status open_parts(struct loader *l, size_t max_keys)
{
    struct dit *dit = l->dit;
    for (int i = 0; i < dit->part.blocks; i++)
        TRY(load_block(l, dit->part.first_block + i, &dit->block[i]));
    TRY(load_ends(l));
    TRY(load_conditioning(l));
    TRY(load_tables(l));
    TRY(make_vectors(l));
    TRY(make_rows(l));
    return reserve(l, max_keys);
}

enum status dit_open(struct dit *dit, const struct dit_problem *problem, const struct dit_part *part,
                     struct device *device, struct arena *persistent, struct arena *scratch,
                     size_t max_rows, size_t max_keys)
{
    *dit = (struct dit){.problem = *problem, .part = *part, .device = device, .max_rows = max_rows,
                        .hidden = (size_t)problem->shape->hidden,
                        .heads_width = (size_t)(part->heads * problem->shape->head_dim),
                        .mlp = (size_t)part->mlp, .condition_step = -1};
    dit->cross_width = part->shards_cross ? dit->heads_width : dit->hidden;
    dit->block = calloc((size_t)(part->blocks ? part->blocks : 1), sizeof *dit->block);
    if (!dit->block)
        return FAIL(ERR_MEMORY, "no memory for %d blocks", part->blocks);
    struct loader loader = {.dit = dit, .weights = persistent, .buffers = scratch};
    enum status status = open_parts(&loader, max_keys);
    if (status != OK)
        dit_close(dit);
    return status;
}

void dit_close(struct dit *dit)
{
    free(dit->block);
    dit->block = NULL;
}

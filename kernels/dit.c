/* The pieces of a DiT forward pass, each one or a few device calls. */
#include "kernels/dit.h"

#include "kernels/dit_text.h"

enum { SHIFT, SCALE, GATE, MODULATIONS_PER_HALF, MODULATIONS = 2 * MODULATIONS_PER_HALF };

static const struct dit_block *block_of(const struct dit *dit, int block)
{
    ASSERT_CMP(block, >=, dit->part.first_block);
    ASSERT_CMP(block, <, dit->part.first_block + dit->part.blocks);
    return &dit->block[block - dit->part.first_block];
}

/* Vector `which` of a half in the block's [batch, 6 * hidden] modulation. */
static struct devmem modulation_of(const struct dit *dit, int block, enum dit_half half, int which)
{
    size_t local = (size_t)(block - dit->part.first_block);
    size_t row = local * (size_t)dit->problem.batch * MODULATIONS;
    return dit_element(dit, dit->modulation,
                   (row + (size_t)(half * MODULATIONS_PER_HALF + which)) * dit->hidden);
}

struct linear_call dit_linear_call(const struct dit_matrix *matrix, size_t rows, struct devmem x,
                                   struct devmem y)
{
    return (struct linear_call){.m = rows, .n = matrix->out, .k = matrix->in,
                                .ldx = matrix->in, .ldw = matrix->in, .ldy = matrix->out,
                                .x = x, .w = matrix->weight, .y = y};
}

static enum status apply(const struct dit *dit, const struct dit_matrix *matrix, size_t rows,
                         struct devmem x, struct devmem bias, enum activation activation,
                         struct devmem y)
{
    struct linear_call call = dit_linear_call(matrix, rows, x, y);
    call.bias = bias;
    call.activation = activation;
    return device_linear(dit->device, &call);
}

bool dit_block_is_temporal(const struct dit *dit, int block)
{
    return dit->problem.shape->kind == MODEL_VIDEO && block % 2 == 1;
}

/* ---- conditioning ---- */

/* condition[1] = t_mlp(t). */
static enum status embed_time(struct dit *dit, int step)
{
    struct devmem waves = dit_element(dit, dit->time_waves, (size_t)step * dit->t_embed0.in);
    TRY(apply(dit, &dit->t_embed0, 1, waves, dit->t_embed0.bias, ACTIVATION_SILU, dit->condition[0]));
    return apply(dit, &dit->t_embed2, 1, dit->condition[0], dit->t_embed2.bias, ACTIVATION_NONE,
                 dit->condition[1]);
}

/* condition[2] = SiLU(condition[1] + y_embedding) for each half of the batch. */
static enum status condition_vector(struct dit *dit)
{
    size_t batch = (size_t)dit->problem.batch, hidden = dit->hidden;
    struct add_rows_call add = {.rows = batch, .width = hidden, .batch = batch, .inner = 1, .period = 1,
                                .src = dit->class_rows, .dst = dit->condition[2],
                                .table = dit->condition[1]};
    TRY(device_add_rows(dit->device, &add));
    return device_silu(dit->device, dit->condition[2], dit->condition[2], batch * hidden);
}

static enum status modulate_blocks(struct dit *dit)
{
    size_t batch = (size_t)dit->problem.batch;
    TRY(condition_vector(dit));
    for (int i = 0; i < dit->part.blocks; i++) {
        const struct dit_matrix *ada = &dit->block[i].ada;
        struct devmem out = dit_element(dit, dit->modulation, (size_t)i * batch * ada->out);
        TRY(apply(dit, ada, batch, dit->condition[2], ada->bias, ACTIVATION_NONE, out));
    }
    if (!dit->part.finishes)
        return OK;
    return apply(dit, &dit->final_ada, batch, dit->condition[2], dit->final_ada.bias, ACTIVATION_NONE,
                 dit->final_modulation);
}

enum status dit_condition(struct dit *dit, int step)
{
    if (dit->condition_step == step)
        return OK;
    TRY(embed_time(dit, step));
    TRY(dit_has_text(dit) ? dit_text_condition(dit) : modulate_blocks(dit));
    dit->condition_step = step;
    return OK;
}

/* ---- into the blocks ---- */

/* Rows of half 0 become rows of every other half. */
static enum status repeat_batch(struct dit *dit, size_t tokens, struct devmem hidden)
{
    size_t batch = (size_t)dit->problem.batch, stride = batch * dit->hidden;
    for (size_t half = 1; half < batch; half++) {
        struct copy_call copy = {.n0 = 1, .n1 = 1, .n2 = tokens, .width = dit->hidden, .src = hidden,
                                 .dst = dit_element(dit, hidden, half * dit->hidden),
                                 .src2 = stride, .dst2 = stride};
        TRY(device_copy(dit->device, &copy));
    }
    return OK;
}

enum status dit_embed(struct dit *dit, const struct dit_extent *e, struct devmem latent,
                      struct devmem hidden)
{
    size_t tokens = e->frames * e->tokens, batch = (size_t)dit->problem.batch;
    const struct dit_matrix *embed = &dit->x_embed;
    TRY(device_convert(dit->device, dit->problem.dtype, dit->token_cast, DTYPE_FP32, latent,
                       tokens * embed->in));
    struct linear_call call = {.m = tokens, .n = embed->out, .k = embed->in,
                               .ldx = embed->in, .ldw = embed->in, .ldy = batch * embed->out,
                               .x = dit->token_cast, .w = embed->weight, .bias = embed->bias,
                               .y = hidden};
    TRY(device_linear(dit->device, &call));
    TRY(repeat_batch(dit, tokens, hidden));
    struct add_rows_call place = {.rows = dit_rows(dit, e), .width = dit->hidden, .batch = batch,
                                  .inner = 1, .period = e->tokens, .first = e->first_token,
                                  .src = hidden, .dst = hidden, .table = dit->space_table};
    return device_add_rows(dit->device, &place);
}

enum status dit_enter_block(struct dit *dit, int block, const struct dit_extent *e,
                            struct devmem hidden)
{
    if (dit->problem.shape->kind != MODEL_VIDEO || block != 1)
        return OK;
    struct add_rows_call time = {.rows = dit_rows(dit, e), .width = dit->hidden,
                                 .batch = (size_t)dit->problem.batch, .inner = e->tokens,
                                 .period = e->frames, .first = e->first_frame,
                                 .src = hidden, .dst = hidden, .table = dit->time_table};
    return device_add_rows(dit->device, &time);
}

/* ---- the block ---- */

enum status dit_modulate(struct dit *dit, int block, enum dit_half half, size_t rows,
                         struct devmem hidden, struct devmem dst)
{
    const struct model_shape *shape = dit->problem.shape;
    struct modulate_call call = {.rows = rows, .width = dit->hidden,
                                 .batch = (size_t)dit->problem.batch,
                                 .mod_stride = MODULATIONS * dit->hidden,
                                 .eps = half == DIT_ATTN ? shape->attn_eps : shape->mlp_eps,
                                 .x = hidden, .y = dst,
                                 .shift = modulation_of(dit, block, half, SHIFT),
                                 .scale = modulation_of(dit, block, half, SCALE)};
    return device_modulate(dit->device, &call);
}

enum status dit_qkv(struct dit *dit, int block, size_t rows, struct devmem modulated, struct devmem qkv)
{
    const struct dit_matrix *matrix = &block_of(dit, block)->qkv;
    return apply(dit, matrix, rows, modulated, matrix->bias, ACTIVATION_NONE, qkv);
}

struct attention_view dit_view(const struct dit *dit, int block, const struct dit_extent *e,
                               struct devmem base, size_t width)
{
    size_t batch = (size_t)dit->problem.batch, token = batch * width, frame = e->tokens * token;
    bool is_temporal = dit_block_is_temporal(dit, block);
    return (struct attention_view){.base = base, .group0 = is_temporal ? token : frame, .group1 = width,
                                   .head = (size_t)dit->problem.shape->head_dim,
                                   .row = is_temporal ? frame : token};
}

struct attention_call dit_attention_call(const struct dit *dit, int block, size_t heads,
                                         const struct dit_extent *queries,
                                         const struct dit_extent *keys)
{
    bool is_temporal = dit_block_is_temporal(dit, block);
    return (struct attention_call){
        .n0 = is_temporal ? queries->tokens : queries->frames, .n1 = (size_t)dit->problem.batch,
        .heads = heads, .nq = is_temporal ? queries->frames : queries->tokens,
        .nk = is_temporal ? keys->frames : keys->tokens,
        .head_dim = (size_t)dit->problem.shape->head_dim, .scale = dit_attention_scale(dit)};
}

enum status dit_attend_heads(struct dit *dit, int block, size_t heads, const struct dit_extent *e,
                             struct devmem qkv, struct devmem attended)
{
    size_t width = heads * (size_t)dit->problem.shape->head_dim;
    struct attention_call call = dit_attention_call(dit, block, heads, e, e);
    call.q = dit_view(dit, block, e, qkv, 3 * width);
    call.k = dit_view(dit, block, e, dit_element(dit, qkv, width), 3 * width);
    call.v = dit_view(dit, block, e, dit_element(dit, qkv, 2 * width), 3 * width);
    call.o = dit_view(dit, block, e, attended, width);
    return device_attention(dit->device, &call);
}

enum status dit_attend(struct dit *dit, int block, const struct dit_extent *e, struct devmem qkv,
                       struct devmem attended)
{
    return dit_attend_heads(dit, block, (size_t)dit->part.heads, e, qkv, attended);
}

enum status dit_project(struct dit *dit, int block, size_t rows, struct devmem attended,
                        struct devmem partial)
{
    return apply(dit, &block_of(dit, block)->proj, rows, attended, DEVMEM_NONE, ACTIVATION_NONE,
                 partial);
}

enum status dit_mlp(struct dit *dit, int block, size_t rows, struct devmem modulated,
                    struct devmem partial)
{
    const struct dit_block *b = block_of(dit, block);
    TRY(apply(dit, &b->fc1, rows, modulated, b->fc1.bias, ACTIVATION_GELU, dit->mid));
    return apply(dit, &b->fc2, rows, dit->mid, DEVMEM_NONE, ACTIVATION_NONE, partial);
}

enum status dit_partial_modulated(struct dit *dit, int block, enum dit_half half,
                                  const struct dit_extent *e, struct devmem modulated,
                                  struct devmem partial)
{
    size_t rows = dit_rows(dit, e);
    if (half == DIT_MLP)
        return dit_mlp(dit, block, rows, modulated, partial);
    TRY(dit_qkv(dit, block, rows, modulated, dit->qkv));
    TRY(dit_attend(dit, block, e, dit->qkv, dit->attended));
    return dit_project(dit, block, rows, dit->attended, partial);
}

enum status dit_partial(struct dit *dit, int block, enum dit_half half, const struct dit_extent *e,
                        struct devmem hidden, struct devmem partial)
{
    if (half == DIT_CROSS)
        return dit_text_partial(dit, block, dit_rows(dit, e), hidden, partial);
    TRY(dit_modulate(dit, block, half, dit_rows(dit, e), hidden, dit->modulated));
    return dit_partial_modulated(dit, block, half, e, dit->modulated, partial);
}

static struct devmem bias_of(const struct dit_block *b, enum dit_half half)
{
    if (half == DIT_CROSS)
        return b->cross_proj.bias;
    return half == DIT_ATTN ? b->proj.bias : b->fc2.bias;
}

static enum status add_gated(struct dit *dit, int block, enum dit_half half, size_t rows,
                             struct devmem sum, struct devmem bias, struct devmem hidden)
{
    struct residual_call call = {.rows = rows, .width = dit->hidden,
                                 .batch = (size_t)dit->problem.batch,
                                 .mod_stride = MODULATIONS * dit->hidden, .x = hidden, .y = sum,
                                 .bias = bias};
    if (half != DIT_CROSS)
        call.gate = modulation_of(dit, block, half, GATE);
    return device_residual(dit->device, &call);
}

enum status dit_residual(struct dit *dit, int block, enum dit_half half, size_t rows,
                         struct devmem sum, struct devmem hidden)
{
    struct devmem bias = bias_of(block_of(dit, block), half);
    TRY(add_gated(dit, block, half, rows, sum, bias, hidden));
    return half == DIT_ATTN ? dit_text_attend(dit, block, rows, hidden) : OK;
}

enum status dit_correct(struct dit *dit, int block, enum dit_half half, size_t rows,
                        struct devmem change, struct devmem hidden)
{
    return add_gated(dit, block, half, rows, change, DEVMEM_NONE, hidden);
}

enum status dit_finish(struct dit *dit, size_t rows, struct devmem hidden)
{
    struct modulate_call call = {.rows = rows, .width = dit->hidden,
                                 .batch = (size_t)dit->problem.batch, .mod_stride = 2 * dit->hidden,
                                 .eps = dit->problem.shape->final_eps,
                                 .x = hidden, .y = dit->modulated, .shift = dit->final_modulation,
                                 .scale = dit_element(dit, dit->final_modulation, dit->hidden)};
    TRY(device_modulate(dit->device, &call));
    return apply(dit, &dit->final_linear, rows, dit->modulated, dit->final_linear.bias,
                 ACTIVATION_NONE, dit->network);
}

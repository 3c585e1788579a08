/* Cross-attention and adaLN-single in terms of device operations. */
#include "kernels/dit_text.h"

enum { MODULATIONS = 6, FINAL_MODULATIONS = 2 };

static size_t batch_of(const struct dit *dit)
{
    return (size_t)dit->problem.batch;
}

static enum status apply(struct dit *dit, const struct dit_matrix *matrix, size_t rows, struct devmem x,
                         struct devmem bias, struct devmem y)
{
    struct linear_call call = dit_linear_call(matrix, rows, x, y);
    call.bias = bias;
    return device_linear(dit->device, &call);
}

/* ---- conditioning ---- */

/* single = Linear(SiLU(t)) for every half of the batch, which all have the same. */
static enum status single_modulation(struct dit *dit)
{
    for (size_t half = 0; half < batch_of(dit); half++)
        TRY(device_silu(dit->device, dit_element(dit, dit->condition[2], half * dit->hidden),
                        dit->condition[1], dit->hidden));
    return apply(dit, &dit->single, batch_of(dit), dit->condition[2], dit->single.bias,
                 dit->single_modulation);
}

static enum status block_modulation(struct dit *dit, int local)
{
    size_t width = MODULATIONS * dit->hidden;
    struct add_rows_call add = {.rows = batch_of(dit), .width = width, .batch = batch_of(dit),
                                .inner = 1, .period = 1, .src = dit->single_modulation,
                                .dst = dit_element(dit, dit->modulation,
                                                   (size_t)local * batch_of(dit) * width),
                                .table = dit->block[local].modulation_table};
    return device_add_rows(dit->device, &add);
}

/* Both vectors are the timestep's embedding itself plus a row of the final table. */
static enum status final_modulation(struct dit *dit)
{
    for (size_t i = 0; i < batch_of(dit) * FINAL_MODULATIONS; i++) {
        struct add_rows_call add = {.rows = 1, .width = dit->hidden, .batch = 1, .inner = 1, .period = 1,
                                    .first = i % FINAL_MODULATIONS, .src = dit->condition[1],
                                    .dst = dit_element(dit, dit->final_modulation, i * dit->hidden),
                                    .table = dit->final_table};
        TRY(device_add_rows(dit->device, &add));
    }
    return OK;
}

static size_t text_rows(const struct dit *dit)
{
    return batch_of(dit) * (size_t)dit->problem.shape->text_tokens;
}

static struct devmem text_kv(const struct dit *dit, int local)
{
    return dit_element(dit, dit->text_kv, (size_t)local * text_rows(dit) * 2 * dit->cross_width);
}

enum status dit_text_condition(struct dit *dit)
{
    TRY(single_modulation(dit));
    for (int i = 0; i < dit->part.blocks; i++) {
        const struct dit_matrix *kv = &dit->block[i].cross_kv;
        TRY(block_modulation(dit, i));
        TRY(apply(dit, kv, text_rows(dit), dit->class_rows, kv->bias, text_kv(dit, i)));
    }
    return dit->part.finishes ? final_modulation(dit) : OK;
}

/* ---- cross-attention ---- */

/* A half of the batch attends to its own text, whose rows are [batch, text, 2 * cross_width]. */
static struct attention_call cross_call(const struct dit *dit, int local, size_t rows)
{
    size_t width = dit->cross_width, head_dim = (size_t)dit->problem.shape->head_dim;
    size_t text = (size_t)dit->problem.shape->text_tokens;
    struct attention_view own = {.base = dit->cross_q, .group1 = width, .head = head_dim,
                                 .row = batch_of(dit) * width};
    struct attention_view keys = {.base = text_kv(dit, local), .group1 = text * 2 * width,
                                  .head = head_dim, .row = 2 * width};
    struct attention_call call = {.n0 = 1, .n1 = batch_of(dit), .heads = width / head_dim,
                                  .nq = rows / batch_of(dit), .nk = text, .head_dim = head_dim,
                                  .scale = dit_attention_scale(dit), .q = own, .k = keys, .v = keys,
                                  .o = own};
    call.v.base = dit_element(dit, keys.base, width);
    call.o.base = dit->cross_attended;
    return call;
}

enum status dit_text_partial(struct dit *dit, int block, size_t rows, struct devmem hidden,
                             struct devmem partial)
{
    int local = block - dit->part.first_block;
    const struct dit_block *b = &dit->block[local];
    struct attention_call attention = cross_call(dit, local, rows);
    TRY(apply(dit, &b->cross_q, rows, hidden, b->cross_q.bias, dit->cross_q));
    TRY(device_attention(dit->device, &attention));
    return apply(dit, &b->cross_proj, rows, dit->cross_attended, DEVMEM_NONE, partial);
}

enum status dit_text_attend(struct dit *dit, int block, size_t rows, struct devmem hidden)
{
    if (!dit_has_text(dit) || dit->part.shards_cross)
        return OK;
    TRY(dit_text_partial(dit, block, rows, hidden, dit->cross_q));
    return dit_residual(dit, block, DIT_CROSS, rows, dit->cross_q, hidden);
}

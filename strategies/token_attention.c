/* Queries of some tokens against keys and values of others. */
#include "strategies/token_attention.h"

static struct devmem element(const struct dit *dit, struct devmem base, size_t i)
{
    return devmem_at(base, i * dtype_bytes(dit->problem.dtype));
}

enum status token_attention_qkv(struct dit *dit, int block, const struct dit_extent *e,
                                struct devmem hidden)
{
    size_t rows = dit_rows(dit, e);
    TRY(dit_modulate(dit, block, DIT_ATTN, rows, hidden, dit->modulated));
    return dit_qkv(dit, block, rows, dit->modulated, dit->qkv);
}

enum status token_attention_store(struct dit *dit, const struct dit_extent *e, struct devmem kv)
{
    size_t width = dit->heads_width;
    struct copy_call copy = {.n0 = 1,
                             .n1 = 1,
                             .n2 = dit_rows(dit, e),
                             .width = 2 * width,
                             .src = element(dit, dit->qkv, width),
                             .src2 = 3 * width,
                             .dst = kv,
                             .dst2 = 2 * width};
    return device_copy(dit->device, &copy);
}

static enum status attend(struct dit *dit, int block, const struct dit_extent *queries,
                          const struct dit_extent *keys, struct devmem kv)
{
    size_t width = dit->heads_width;
    struct attention_call call =
        dit_attention_call(dit, block, (size_t)dit->part.heads, queries, keys);
    call.q = dit_view(dit, block, queries, dit->qkv, 3 * width);
    call.k = dit_view(dit, block, keys, kv, 2 * width);
    call.v = dit_view(dit, block, keys, element(dit, kv, width), 2 * width);
    call.o = dit_view(dit, block, queries, dit->attended, width);
    return device_attention(dit->device, &call);
}

enum status token_attention_add(struct dit *dit, int block, const struct dit_extent *queries,
                                const struct dit_extent *keys, struct devmem kv,
                                struct devmem hidden)
{
    size_t rows = dit_rows(dit, queries);
    TRY(attend(dit, block, queries, keys, kv));
    TRY(dit_project(dit, block, rows, dit->attended, dit->modulated));
    return dit_residual(dit, block, DIT_ATTN, rows, dit->modulated, hidden);
}

enum status token_attention_mlp(struct dit *dit, int block, const struct dit_extent *e,
                                struct devmem hidden)
{
    TRY(dit_partial(dit, block, DIT_MLP, e, hidden, dit->modulated));
    return dit_residual(dit, block, DIT_MLP, dit_rows(dit, e), dit->modulated, hidden);
}

/* Embedding, blocks with a reduction after each half, final layer, noise. */
#include "strategies/forward.h"

enum status forward_open(struct rank *rank, int parts, int index, struct forward *f)
{
    struct dit_part part = problem_tp_part(rank->problem, parts, index);
    return forward_open_tile(rank, TILING_NONE, &part, 0, f);
}

enum status forward_open_tile(struct rank *rank, enum tiling tiling, const struct dit_part *part,
                              size_t max_rows, struct forward *f)
{
    const struct problem *p = rank->problem;
    TRY(rank_tile_latent(rank, tiling));
    size_t hidden = (size_t)p->shape->hidden, tokens = region_tokens(rank->own);
    f->extent = region_extent(rank->own);
    f->rows = tokens * (size_t)p->batch;
    TRY(rank_open_dit(rank, part, max_rows > f->rows ? max_rows : f->rows, 0, &f->dit));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, f->rows, hidden, &f->hidden));
    TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, f->rows, hidden, &f->partial));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, tokens, p->token_values, &f->noise);
}

void forward_close(struct forward *f)
{
    dit_close(&f->dit);
}

static enum status run_half(struct rank *rank, struct forward *f, int step, int block,
                            enum dit_half half, forward_reduce *reduce)
{
    struct devmem sum = f->partial;
    if (f->half)
        TRY(f->half(rank, block, half));
    else
        TRY(dit_partial(&f->dit, block, half, &f->extent, f->hidden, f->partial));
    if (reduce)
        TRY(reduce(rank, step, block, half, f->partial, &sum));
    return dit_residual(&f->dit, block, half, f->rows, sum, f->hidden);
}

enum status forward_predict(struct rank *rank, struct forward *f, int step, forward_reduce *reduce)
{
    TRY(dit_condition(&f->dit, step));
    TRY(dit_embed(&f->dit, &f->extent, rank->latent, f->hidden));
    for (int block = 0; block < f->dit.part.blocks; block++) {
        meter_at(rank->meter, block, -1);
        TRY(dit_enter_block(&f->dit, block, &f->extent, f->hidden));
        TRY(run_half(rank, f, step, block, DIT_ATTN, reduce));
        if (f->dit.part.shards_cross)
            TRY(run_half(rank, f, step, block, DIT_CROSS, reduce));
        TRY(run_half(rank, f, step, block, DIT_MLP, reduce));
    }
    meter_at(rank->meter, -1, -1);
    TRY(dit_finish(&f->dit, f->rows, f->hidden));
    return sample_noise(rank, region_tokens(rank->own), f->dit.network, f->noise);
}

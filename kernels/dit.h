/* The DiT block and the model in terms of device operations (arXiv:2212.09748; docs/model.md).
 *
 * A rank loads a part of the model (blocks, heads, MLP channels) and calls these pieces; strategies put
 * communication between them. Row order of every activation: [frames, tokens, batch, width], so any
 * range of tokens is contiguous and both halves of guidance travel together. With batch B the row of
 * (frame f, token s, half b) is (f * tokens + s) * B + b.
 *
 * Sharded along heads and MLP channels, `proj` and `fc2` give partial sums: their biases are added once,
 * after the reduction, by dit_residual. */
#ifndef KERNELS_DIT_H
#define KERNELS_DIT_H

#include "common/arena.h"
#include "kernels/device.h"
#include "kernels/model.h"
#include "kernels/weights.h"

/* Each block has two halves, each ending in a partial sum that is added to the hidden state. */
/* In models with text a third part stands between the two, cross-attention to the text: dit_residual of
 * the attention half goes on to it by itself, unless the part shards it. */
enum dit_half { DIT_ATTN, DIT_MLP, DIT_HALVES, DIT_CROSS = DIT_HALVES };

/* What of the model a rank holds. */
struct dit_part {
    int first_block, blocks;
    int first_head, heads;
    int first_mlp, mlp;
    bool embeds, finishes; /* holds x_embedder; holds the final layer */
    bool shards_cross; /* of cross-attention only the part's heads: dit_partial of DIT_CROSS, a reduction
                          and dit_residual are then the strategy's to call */
    bool streams; /* holds of its blocks only adaLN and the biases of proj and fc2: the strategy brings
                     the matrices and multiplies (tsp); heads and mlp say how wide buffers must be */
};

/* The problem as the model sees it. */
struct dit_problem {
    const struct model *model;
    const struct model_shape *shape;
    enum dtype dtype;
    int frames, grid_height, grid_width;
    size_t tokens;    /* per frame, whole grid */
    int batch, steps;
    int classes[2];   /* class index of each half of the batch */
};

struct dit_matrix {
    struct devmem weight, bias; /* [out, in], [out] */
    size_t out, in;
};

struct dit_block {
    struct dit_matrix qkv;  /* [3 * heads * head_dim, hidden]: q, then k, then v of the rank's heads */
    struct dit_matrix proj; /* [hidden, heads * head_dim], whole bias */
    struct dit_matrix fc1, fc2, ada;
    /* models with text; instead of ada a table that is added to the one modulation of all blocks */
    struct dit_matrix cross_q, cross_kv, cross_proj; /* cross_kv: k, then v of the rank's heads */
    struct devmem modulation_table;                  /* [6, hidden] */
};

struct dit {
    struct dit_problem problem;
    struct dit_part part;
    struct device *device;
    size_t max_rows;          /* rows of the buffers below */
    size_t hidden, heads_width, mlp; /* D, heads * head_dim, the rank's F */
    struct dit_matrix x_embed, t_embed0, t_embed2, final_ada, final_linear;
    struct dit_block *block;  /* part.blocks entries */
    struct devmem class_rows; /* [batch, hidden]; with text: the text, [batch, text tokens, hidden] */
    /* models with text */
    size_t cross_width;               /* all heads * head_dim, or those of a part that shards them */
    struct dit_matrix single;         /* [6 * hidden, hidden]: the modulation of all blocks */
    struct devmem single_modulation;  /* [batch, 6 * hidden] of the current step */
    struct devmem final_table;        /* [2, hidden] */
    struct devmem text_kv;            /* [blocks, batch, text tokens, 2 * cross_width] */
    struct devmem cross_q, cross_attended; /* [rows, cross_width] */
    struct devmem space_table, time_table; /* position embeddings [tokens, hidden], [frames, hidden] */
    struct devmem time_waves; /* [steps, 256] sinusoids */
    struct devmem modulation; /* [blocks, batch, 6 * hidden] of the current step */
    struct devmem final_modulation; /* [batch, 2 * hidden] */
    /* buffers of max_rows rows */
    struct devmem modulated; /* [rows, hidden] */
    struct devmem qkv;       /* [rows, 3 * heads_width] */
    struct devmem attended;  /* [rows, heads_width] */
    struct devmem mid;       /* [rows, mlp] */
    struct devmem network;   /* [rows, patch^2 * out_channels] */
    struct devmem condition[3]; /* conditioning temporaries [batch, hidden] */
    struct devmem token_cast; /* latent in T [rows / batch, token_values] */
    int condition_step;      /* the step whose modulation is held; -1: none */
};

/* A block as a range of rows: `frames` x `tokens` of each, from frame first_frame, token first_token. */
struct dit_extent {
    size_t first_frame, frames, first_token, tokens;
};
/* Element i of an array of T. */
static inline struct devmem dit_element(const struct dit *dit, struct devmem base, size_t i)
{
    return devmem_at(base, i * dtype_bytes(dit->problem.dtype));
}
static inline size_t dit_rows(const struct dit *dit, const struct dit_extent *e)
{
    return e->frames * e->tokens * (size_t)dit->problem.batch;
}

/* Weights go to `persistent`, buffers for max_rows rows to `scratch`. max_keys: the longest sequence of
 * keys an attention call will see (0: the largest of tokens and frames). */
enum status dit_open(struct dit *, const struct dit_problem *, const struct dit_part *, struct device *,
                     struct arena *persistent, struct arena *scratch, size_t max_rows, size_t max_keys)
    WARN_UNUSED;
void dit_close(struct dit *); /* host memory only; arenas own the rest */
/* All modulation vectors of the part for this step, from t and class. Does nothing when the step's are
 * held already. */
enum status dit_condition(struct dit *, int step) WARN_UNUSED;
/* hidden[rows] = patch embedding of the latent's tokens + position. latent: f [frames, tokens,
 * token_values] of the extent; both halves of the batch get the same rows. */
enum status dit_embed(struct dit *, const struct dit_extent *, struct devmem latent, struct devmem hidden)
    WARN_UNUSED;
/* Between block 0 and block 1 of the video model: adds the temporal embedding; else does nothing.
 * Call before every block. */
enum status dit_enter_block(struct dit *, int block, const struct dit_extent *, struct devmem hidden)
    WARN_UNUSED;
/* dst = LN(hidden) * (1 + scale) + shift of that half. */
enum status dit_modulate(struct dit *, int block, enum dit_half, size_t rows, struct devmem hidden,
                         struct devmem dst) WARN_UNUSED;
/* qkv = modulated Wqkv^T + b: [rows, 3 * heads_width], q then k then v. */
enum status dit_qkv(struct dit *, int block, size_t rows, struct devmem modulated, struct devmem qkv)
    WARN_UNUSED;
/* Where the heads of `base` (rows of `width` elements in the order of the extent) stand as the queries or
 * keys of that block: the groups are frames x batch, or places x batch in temporal blocks. */
struct attention_view dit_view(const struct dit *, int block, const struct dit_extent *,
                               struct devmem base, size_t width);
/* Sizes and scale of that block's attention of `queries` to `keys`, in `heads` heads; the caller adds the
 * views. The groups are the frames, or in temporal blocks the places, and equal in both extents. */
struct attention_call dit_attention_call(const struct dit *, int block, size_t heads,
                                         const struct dit_extent *queries,
                                         const struct dit_extent *keys);
/* y[rows, out] = x[rows, in] weight^T, contiguous; the caller adds bias, activation, accumulation. */
struct linear_call dit_linear_call(const struct dit_matrix *, size_t rows, struct devmem x,
                                   struct devmem y);
/* Attention of a whole extent with itself: within frames in image models and even blocks of video,
 * over frames in odd ones. qkv as above, attended [rows, heads_width]. */
enum status dit_attend(struct dit *, int block, const struct dit_extent *, struct devmem qkv,
                       struct devmem attended) WARN_UNUSED;
/* The same in `heads` heads, whatever the part has: qkv [rows, 3 * heads * head_dim]. */
enum status dit_attend_heads(struct dit *, int block, size_t heads, const struct dit_extent *,
                             struct devmem qkv, struct devmem attended) WARN_UNUSED;
bool dit_block_is_temporal(const struct dit *, int block);
double dit_attention_scale(const struct dit *); /* 1 / sqrt(head_dim) */
/* partial = attended Wproj^T, without bias. */
enum status dit_project(struct dit *, int block, size_t rows, struct devmem attended,
                        struct devmem partial) WARN_UNUSED;
/* partial = fc2(gelu(fc1(modulated))), without fc2's bias. */
enum status dit_mlp(struct dit *, int block, size_t rows, struct devmem modulated, struct devmem partial)
    WARN_UNUSED;
/* One half up to its partial sum, over a whole extent: modulate, then attention or MLP; DIT_CROSS, which
 * is not modulated, too. */
enum status dit_partial(struct dit *, int block, enum dit_half, const struct dit_extent *,
                        struct devmem hidden, struct devmem partial) WARN_UNUSED;
/* The same from an input that is modulated already (tp-sp gathers it). */
enum status dit_partial_modulated(struct dit *, int block, enum dit_half, const struct dit_extent *,
                                  struct devmem modulated, struct devmem partial) WARN_UNUSED;
/* hidden += gate * (sum + bias), bias of proj or fc2; no gate after DIT_CROSS. Ends a half: in a model with
 * text, the attention half's goes on to hidden += cross-attention of these rows to the text, whole, unless
 * part.shards_cross. */
enum status dit_residual(struct dit *, int block, enum dit_half, size_t rows, struct devmem sum,
                         struct devmem hidden) WARN_UNUSED;
/* hidden += gate * change: what a sum that was added already lacked. Not after DIT_CROSS. */
enum status dit_correct(struct dit *, int block, enum dit_half, size_t rows, struct devmem change,
                        struct devmem hidden) WARN_UNUSED;
/* network = the final layer: T [rows, patch^2 * out_channels], into dit->network. */
enum status dit_finish(struct dit *, size_t rows, struct devmem hidden) WARN_UNUSED;

#endif

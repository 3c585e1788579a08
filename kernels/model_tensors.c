/* The tensors of a DiT as a table, one row a linear layer. */
#include "kernels/model_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Width of the sinusoidal timestep embedding, the same in every DiT. */
enum { TIME_WIDTH = 256 };

/* Sizes, as docs/model.md calls them. */
enum extent { D, TWO, SIX, D2, D3, D6, F, TIME, CLASSES, TEXT, PATCH_IN, PATCH_OUT };

enum place {
    OUTSIDE, /* once */
    INSIDE,  /* in every block */
    COPIED,  /* once in the original layout; in diffusers an equal copy in every block */
};

/* A convolution has four dimensions, a table has no bias, modulation is drawn wider. */
enum role { LINEAR, MODULATION, CONVOLUTION, TABLE };

/* Which models have a layer. */
enum owner { ALL, CLASS, WITH_TEXT };

static const struct layer {
    enum owner owner;
    enum place place;
    enum role role;
    enum extent out, in;
    const char *original;                     /* without "blocks.i." */
    const char *diffusers[MODEL_MAX_SOURCES]; /* without "transformer_blocks.i." */
} layers[] = {
    {ALL, OUTSIDE, CONVOLUTION, D, PATCH_IN, "x_embedder.proj", {"pos_embed.proj"}},
    {CLASS, OUTSIDE, MODULATION, D2, D, "final_layer.adaLN_modulation.1", {"proj_out_1"}},
    {ALL, OUTSIDE, LINEAR, PATCH_OUT, D, "final_layer.linear", {"proj_out_2"}},
    {ALL, COPIED, LINEAR, D, TIME, "t_embedder.mlp.0", {"norm1.emb.timestep_embedder.linear_1"}},
    {ALL, COPIED, LINEAR, D, D, "t_embedder.mlp.2", {"norm1.emb.timestep_embedder.linear_2"}},
    {CLASS,
     COPIED,
     TABLE,
     CLASSES,
     D,
     "y_embedder.embedding_table",
     {"norm1.emb.class_embedder.embedding_table"}},
    {ALL, INSIDE, LINEAR, D3, D, "attn.qkv", {"attn1.to_q", "attn1.to_k", "attn1.to_v"}},
    {ALL, INSIDE, LINEAR, D, D, "attn.proj", {"attn1.to_out.0"}},
    {ALL, INSIDE, LINEAR, F, D, "mlp.fc1", {"ff.net.0.proj"}},
    {ALL, INSIDE, LINEAR, D, F, "mlp.fc2", {"ff.net.2"}},
    {CLASS, INSIDE, MODULATION, D6, D, "adaLN_modulation.1", {"norm1.linear"}},
    {WITH_TEXT, OUTSIDE, MODULATION, D6, D, "t_block.1", {NULL}},
    {WITH_TEXT, OUTSIDE, TABLE, TEXT, D, "y_embedder.y_embedding", {NULL}},
    {WITH_TEXT, OUTSIDE, TABLE, TWO, D, "final_layer.scale_shift_table", {NULL}},
    {WITH_TEXT, INSIDE, TABLE, SIX, D, "scale_shift_table", {NULL}},
    {WITH_TEXT, INSIDE, LINEAR, D, D, "cross_attn.q_linear", {NULL}},
    {WITH_TEXT, INSIDE, LINEAR, D2, D, "cross_attn.kv_linear", {NULL}},
    {WITH_TEXT, INSIDE, LINEAR, D, D, "cross_attn.proj", {NULL}},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static size_t extent_of(enum extent e, const struct model_shape *s)
{
    size_t patch_area = (size_t)s->patch * (size_t)s->patch;
    const size_t extents[] = {
        [D] = (size_t)s->hidden,
        [TWO] = 2,
        [SIX] = 6,
        [D2] = 2 * (size_t)s->hidden,
        [D3] = 3 * (size_t)s->hidden,
        [D6] = 6 * (size_t)s->hidden,
        [F] = (size_t)s->mlp_hidden,
        [TIME] = TIME_WIDTH,
        [CLASSES] = (size_t)s->classes + 1, /* and the null class */
        [TEXT] = ((size_t)s->classes + 1) * (size_t)s->text_tokens,
        [PATCH_IN] = (size_t)s->channels * patch_area,
        [PATCH_OUT] = (size_t)s->out_channels * patch_area,
    };
    return extents[e];
}

/* docs/model.md, "Initial noise and random weights". */
static double std_of(enum role role, size_t fan_in, bool bias)
{
    if (role == TABLE)
        return 0.15;
    if (bias)
        return role == MODULATION ? 0.15 : 0.05;
    return (role == MODULATION ? 1.5 : 1.0) / sqrt((double)fan_in);
}

static void set_name(char out[MODEL_NAME_BYTES], const char *prefix, int block, const char *layer,
                     bool bias)
{
    const char *end = bias ? "bias" : "weight";
    if (block < 0)
        snprintf(out, MODEL_NAME_BYTES, "%s.%s", layer, end);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s%d.%s.%s", prefix, block, layer, end);
}

static void set_sources(struct model_tensor *t, const struct layer *layer, enum model_layout layout,
                        int block, bool bias)
{
    t->sources = 1;
    if (layout == LAYOUT_ORIGINAL) {
        memcpy(t->source_name[0], t->name, sizeof t->name);
        return;
    }
    t->copied = layer->place == COPIED;
    while (t->sources < MODEL_MAX_SOURCES && layer->diffusers[t->sources])
        t->sources++;
    for (int i = 0; i < t->sources; i++)
        set_name(t->source_name[i], model_tensors_block_prefix(layout), t->copied ? 0 : block,
                 layer->diffusers[i], bias);
}

/* block: -1 outside the blocks. */
static void set_tensor(struct model_tensor *t, const struct layer *layer,
                       const struct model_shape *s, int block, bool bias)
{
    *t = (struct model_tensor){
        .rows = extent_of(layer->out, s),
        .cols = bias ? 1 : extent_of(layer->in, s),
        .std = std_of(layer->role, extent_of(layer->in, s), bias),
    };
    set_name(t->name, model_tensors_block_prefix(LAYOUT_ORIGINAL), block, layer->original, bias);
    set_sources(t, layer, s->layout, block, bias);
    t->dims = bias ? 1 : layer->role == CONVOLUTION ? 4 : 2;
    t->shape[0] = t->rows / (size_t)t->sources;
    t->shape[1] = t->dims == 4 ? (uint64_t)s->channels : t->cols;
    t->shape[2] = t->shape[3] = (uint64_t)s->patch;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct model_tensor *)a)->name, ((const struct model_tensor *)b)->name);
}

enum status model_tensors_list(const struct model_shape *s, struct model_tensors *out)
{
    size_t most = (size_t)LAYERS * 2 * (size_t)s->blocks;
    struct model_tensors all = {.list = malloc(most * sizeof *all.list)};
    if (!all.list)
        return FAIL(ERR_MEMORY, "no memory for the tensors of %d blocks", s->blocks);
    for (const struct layer *layer = layers; layer < layers + LAYERS; layer++) {
        bool inside = layer->place == INSIDE;
        if (layer->owner == (s->text_tokens > 0 ? CLASS : WITH_TEXT))
            continue;
        for (int block = inside ? 0 : -1; block < (inside ? s->blocks : 0); block++) {
            set_tensor(&all.list[all.count++], layer, s, block, false);
            if (layer->role != TABLE)
                set_tensor(&all.list[all.count++], layer, s, block, true);
        }
    }
    qsort(all.list, all.count, sizeof *all.list, compare_tensors);
    *out = all;
    return OK;
}

void model_tensors_free(struct model_tensors *all)
{
    free(all->list);
    *all = (struct model_tensors){0};
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct model_tensor *)tensor)->name);
}

struct model_tensor *model_tensors_find(const struct model_tensors *all, const char *name)
{
    return bsearch(name, all->list, all->count, sizeof *all->list, compare_name);
}

const char *model_tensors_block_prefix(enum model_layout layout)
{
    return layout == LAYOUT_ORIGINAL ? "blocks." : "transformer_blocks.";
}

/* A model's shape, from its tensors and from what is said about it. */
#include "kernels/model_shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/json_scan.h"
#include "kernels/model_tensors.h"

/* No size of a model comes near: products of a few sizes fit in 64 bits, six times one in an int.
 */
enum { MAX_EXTENT = 1 << 24, MAX_CONFIG_BYTES = 1 << 20 };

/* What weights do not say, or say again. */
enum fact_name { HEADS, PATCH, VAE_FACTOR, CLASSES, CHANNELS, BLOCKS, FACTS };
static const struct {
    const char *option, *config, *metadata; /* NULL: not said there */
} fact_names[FACTS] = {
    [HEADS] = {"--heads", "num_attention_heads", "heads"},
    [PATCH] = {"--patch", "patch_size", "patch"},
    [VAE_FACTOR] = {"--vae-factor", NULL, "vae_factor"},
    [CLASSES] = {"--classes", "num_embeds_ada_norm", "classes"},
    [CHANNELS] = {NULL, "in_channels", NULL},
    [BLOCKS] = {NULL, "num_layers", NULL},
};

struct fact {
    int value;                /* 0: nobody says it */
    const char *place, *name; /* where it is said, and as what */
    enum status blame;        /* if it turns out to be wrong */
};

static enum status read_config(const char *path, struct json_scan *s, struct fact facts[FACTS])
{
    struct json_list object;
    const char *key;
    bool more;
    TRY(json_enter(s, '{', &object));
    for (;;) {
        TRY(json_next(s, &object, &more));
        if (!more)
            return json_end(s);
        TRY(json_key(s, &key));
        int i = 0;
        while (i < FACTS && !(fact_names[i].config && strcmp(key, fact_names[i].config) == 0))
            i++;
        if (i == FACTS || json_peek(s) == 'n') { /* not for us, or null */
            TRY(json_skip(s));
            continue;
        }
        uint64_t value;
        char subject[64];
        snprintf(subject, sizeof subject, "%s: ", key);
        s->subject = subject;
        if (facts[i].value)
            return JSON_FAIL(s, "a duplicate key");
        TRY(json_unsigned(s, &value));
        s->subject = "";
        if (value < 1 || value > MAX_EXTENT)
            return FAIL(ERR_FORMAT, "%s: %s is %" PRIu64 ", not 1 .. %d", path, key, value,
                        MAX_EXTENT);
        facts[i] = (struct fact){(int)value, path, fact_names[i].config, ERR_FORMAT};
    }
}

/* Digits only: no sign, no space, no locale. */
static int parse_size(const char *text)
{
    int value = 0;
    for (; *text >= '0' && *text <= '9' && value <= MAX_EXTENT; text++)
        value = 10 * value + (*text - '0');
    return *text || value < 1 || value > MAX_EXTENT ? 0 : value;
}

static enum status read_metadata(const struct safetensors *file, struct fact facts[FACTS])
{
    char quoted[JSON_QUOTED];
    for (int i = 0; i < FACTS; i++) {
        const char *key = fact_names[i].metadata;
        const char *text = key ? safetensors_metadata(file, key) : NULL;
        if (!text || facts[i].value)
            continue;
        int value = parse_size(text);
        if (value == 0)
            return FAIL(ERR_FORMAT, "%s: metadata %s is %s, not a number of 1 .. %d",
                        safetensors_path(file), key, json_quote(quoted, text), MAX_EXTENT);
        facts[i] = (struct fact){value, safetensors_path(file), key, ERR_FORMAT};
    }
    return OK;
}

static enum status read_hints(const char *model, const struct model_hints *hints,
                              struct fact facts[FACTS])
{
    const int said[FACTS] = {[HEADS] = hints->heads,
                             [PATCH] = hints->patch,
                             [VAE_FACTOR] = hints->vae_factor,
                             [CLASSES] = hints->classes};
    for (int i = 0; i < FACTS; i++) {
        if (said[i] < 0 || said[i] > MAX_EXTENT)
            return FAIL(ERR_USAGE, "%s %d: not 1 .. %d", fact_names[i].option, said[i], MAX_EXTENT);
        if (said[i] > 0)
            facts[i] = (struct fact){said[i], model, fact_names[i].option, ERR_USAGE};
    }
    return OK;
}

static enum status read_facts(const struct safetensors *file, const char *config_path,
                              const struct model_hints *hints, struct fact facts[FACTS])
{
    struct fact configured[FACTS] = {0};
    TRY(read_hints(safetensors_path(file), hints, facts));
    if (config_path) {
        struct json_file config;
        TRY(json_file_read(config_path, MAX_CONFIG_BYTES, &config));
        enum status status = read_config(config_path, &config.scan, configured);
        json_file_free(&config);
        TRY(status);
    }
    for (int i = 0; i < FACTS; i++)
        if (!facts[i].value)
            facts[i] = configured[i];
    return read_metadata(file, facts);
}

static enum status read_kind(const char *place, const char *name, const char *text,
                             enum status blame, enum model_kind *out)
{
    char quoted[JSON_QUOTED];
    if (text && strcmp(text, "dit") != 0 && strcmp(text, "video") != 0)
        return FAIL(blame, "%s: %s is %s, not dit or video", place, name, json_quote(quoted, text));
    if (text)
        *out = strcmp(text, "video") == 0 ? MODEL_VIDEO : MODEL_DIT;
    return OK;
}

static enum status find_layout(const struct safetensors *file, enum model_layout *out)
{
    if (safetensors_find(file, "x_embedder.proj.weight"))
        *out = LAYOUT_ORIGINAL;
    else if (safetensors_find(file, "pos_embed.proj.weight"))
        *out = LAYOUT_DIFFUSERS;
    else
        return FAIL(ERR_FORMAT,
                    "%s: not a DiT: tensor \"x_embedder.proj.weight\" (original layout) or "
                    "\"pos_embed.proj.weight\" (diffusers) is missing",
                    safetensors_path(file));
    return OK;
}

/* The number in "blocks.12.attn...", or -1. */
static int block_of(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    int block = 0, digits = 0;
    if (strncmp(name, prefix, n) != 0)
        return -1;
    for (name += n; *name >= '0' && *name <= '9' && digits < 8; name++, digits++)
        block = 10 * block + (*name - '0');
    return digits == 0 || *name != '.' || (digits > 1 && name[-digits] == '0') ? -1 : block;
}

/* By the highest number, so that a block missing in between is noticed as missing tensors. */
static enum status count_blocks(const struct safetensors *file, enum model_layout layout, int *out)
{
    const char *prefix = model_tensors_block_prefix(layout);
    size_t count = safetensors_count(file);
    int blocks = 0;
    for (size_t i = 0; i < count; i++) {
        int block = block_of(safetensors_at(file, i)->name, prefix);
        blocks = block >= blocks ? block + 1 : blocks;
    }
    if (blocks == 0 || (size_t)blocks > count)
        return FAIL(ERR_FORMAT, "%s: tensors \"%s%d...\": missing", safetensors_path(file), prefix,
                    blocks == 0 ? 0 : blocks - 2);
    *out = blocks;
    return OK;
}

/* The tensor that tells a size; its other sizes are checked with all the others'. */
static enum status find_teller(const struct safetensors *file, const struct model_tensors *names,
                               const char *original, const struct safetensors_tensor **out)
{
    const struct model_tensor *t = model_tensors_find(names, original);
    const struct safetensors_tensor *found = safetensors_find(file, t->source_name[0]);
    if (!found)
        return FAIL(ERR_FORMAT, "%s: tensor \"%s\": missing", safetensors_path(file),
                    t->source_name[0]);
    if (found->dims != t->dims)
        return FAIL(ERR_FORMAT, "%s: tensor \"%s\": %d dimensions where %d are needed", found->file,
                    found->name, found->dims, t->dims);
    for (int i = 0; i < found->dims; i++)
        if (found->shape[i] < 1 || found->shape[i] > MAX_EXTENT)
            return FAIL(ERR_FORMAT, "%s: tensor \"%s\": size %" PRIu64 " is not 1 .. %d",
                        found->file, found->name, found->shape[i], MAX_EXTENT);
    *out = found;
    return OK;
}

static enum status read_sizes(const struct safetensors *file, const struct model_tensors *names,
                              struct model_shape *s)
{
    const struct safetensors_tensor *embed, *fc1, *classes, *final;
    TRY(find_teller(file, names, "x_embedder.proj.weight", &embed));
    TRY(find_teller(file, names, "blocks.0.mlp.fc1.weight", &fc1));
    TRY(find_teller(file, names, "y_embedder.embedding_table.weight", &classes));
    TRY(find_teller(file, names, "final_layer.linear.weight", &final));
    s->hidden = (int)embed->shape[0];
    s->channels = (int)embed->shape[1];
    s->patch = (int)embed->shape[2];
    s->mlp_hidden = (int)fc1->shape[0];
    s->classes = (int)classes->shape[0] - 1;
    if (embed->shape[2] != embed->shape[3])
        return FAIL(ERR_FORMAT,
                    "%s: tensor \"%s\": a patch of %" PRIu64 " x %" PRIu64 " is not square",
                    embed->file, embed->name, embed->shape[2], embed->shape[3]);
    if (s->classes < 1)
        return FAIL(ERR_FORMAT,
                    "%s: tensor \"%s\": one row, where the null class follows the others",
                    classes->file, classes->name);
    uint64_t values = (uint64_t)s->patch * (uint64_t)s->patch * (uint64_t)s->channels;
    if (final->shape[0] != values && final->shape[0] != 2 * values)
        return FAIL(ERR_FORMAT,
                    "%s: tensor \"%s\": %" PRIu64 " rows where %" PRIu64
                    " (patch * patch * channels) or twice that are needed",
                    final->file, final->name, final->shape[0], values);
    s->out_channels = final->shape[0] == values ? s->channels : 2 * s->channels;
    return OK;
}

/* What is said about a size that the tensors tell must agree with them. */
static enum status check_fact(const struct fact *f, int told, const char *what)
{
    if (f->value && f->value != told)
        return FAIL(f->blame, "%s: %s is %d, but the tensors have %d %s", f->place, f->name,
                    f->value, told, what);
    return OK;
}

static enum status finish(const char *model, const struct fact *heads, struct model_shape *s)
{
    if (s->hidden % 4 != 0)
        return FAIL(ERR_FORMAT, "%s: the hidden size %d is not a multiple of 4", model, s->hidden);
    if (s->hidden % heads->value != 0)
        return FAIL(heads->blame, "%s: %s is %d, which does not divide the hidden size %d",
                    heads->place, heads->name, heads->value, s->hidden);
    bool diffusers = s->layout == LAYOUT_DIFFUSERS;
    s->heads = heads->value;
    s->head_dim = s->hidden / s->heads;
    s->time_divisor = diffusers ? 127 : 128;
    s->attn_eps = s->final_eps = 1e-6;
    s->mlp_eps = diffusers ? 1e-5 : 1e-6;
    return OK;
}

enum status model_shape_read(const struct safetensors *file, const char *config_path,
                             const struct model_hints *hints, struct model_shape *out)
{
    struct fact facts[FACTS] = {0};
    struct model_shape s = {.kind = MODEL_DIT};
    struct model_tensors names;
    const char *path = safetensors_path(file);
    TRY(find_layout(file, &s.layout));
    TRY(read_facts(file, config_path, hints, facts));
    TRY(read_kind(path, "metadata kind", safetensors_metadata(file, "kind"), ERR_FORMAT, &s.kind));
    TRY(read_kind(path, "--kind", hints->kind, ERR_USAGE, &s.kind));
    TRY(count_blocks(file, s.layout, &s.blocks));
    TRY(model_tensors_list(&(struct model_shape){.layout = s.layout, .blocks = 1}, &names));
    enum status status = read_sizes(file, &names, &s);
    model_tensors_free(&names);
    TRY(status);
    TRY(check_fact(&facts[PATCH], s.patch, "pixels a patch side"));
    TRY(check_fact(&facts[CLASSES], s.classes, "classes and a null class"));
    TRY(check_fact(&facts[CHANNELS], s.channels, "channels"));
    TRY(check_fact(&facts[BLOCKS], s.blocks, "blocks"));
    s.vae_factor = facts[VAE_FACTOR].value ? facts[VAE_FACTOR].value : 1;
    if (!facts[HEADS].value)
        return FAIL(
            ERR_FORMAT,
            "%s: the number of attention heads is nowhere said (metadata heads, config.json "
            "num_attention_heads): give --heads",
            path);
    TRY(finish(path, &facts[HEADS], &s));
    *out = s;
    return OK;
}

enum status model_shape_preset(const char *name, const struct model_hints *hints,
                               struct model_shape *s)
{
    struct fact facts[FACTS] = {[HEADS] = {s->heads, name, "heads", ERR_INTERNAL},
                                [PATCH] = {.value = s->patch},
                                [VAE_FACTOR] = {.value = s->vae_factor},
                                [CLASSES] = {.value = s->classes}};
    TRY(read_hints(name, hints, facts));
    TRY(read_kind(name, "--kind", hints->kind, ERR_USAGE, &s->kind));
    s->patch = facts[PATCH].value;
    s->vae_factor = facts[VAE_FACTOR].value;
    s->classes = facts[CLASSES].value;
    return finish(name, &facts[HEADS], s);
}

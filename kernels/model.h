/* What a model is: shapes, numerics, and where its weights come from (a file of either layout, a
 * preset's generator, or shapes only for the simulator). No device memory here.
 *
 * DiT: arXiv:2212.09748; tensor names as in the original checkpoints. Definitions of every
 * operation are in docs/model.md. */
#ifndef KERNELS_MODEL_H
#define KERNELS_MODEL_H

#include "common/dtype.h"
#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_kind { MODEL_DIT, MODEL_VIDEO };
enum model_layout { LAYOUT_ORIGINAL, LAYOUT_DIFFUSERS }; /* decides the numerics below */

struct model_shape {
    enum model_kind kind;
    enum model_layout layout;
    int blocks, hidden, heads, head_dim, mlp_hidden;
    int channels, out_channels; /* out_channels = 2 * channels with a learned variance */
    int patch, classes, vae_factor;
    double time_divisor; /* exponent of the timestep embedding: 128, or 127 in diffusers */
    double attn_eps, mlp_eps, final_eps; /* LayerNorm eps before attention, MLP, final layer */
    int text_tokens; /* above 0: cross-attention to a text and adaLN-single (PixArt-alpha); its
                        "classes" are texts, drawn like class embeddings; presets only */
};

/* What the user says about a model beyond its file; 0 or NULL: not said. Wins over config.json,
 * which wins over the file's metadata. */
struct model_hints {
    int heads, patch, vae_factor, classes;
    const char *kind; /* "dit", "video" */
    const char *known_sha256; /* of a file that another process has hashed and checked for non-finite
                                 weights: this one reads only what it needs */
};

struct model;

/* `name`: a .safetensors file, a folder with config.json and diffusion_pytorch_model.safetensors,
 * or a preset. `seed` draws a preset's weights. shapes_only: no data is ever asked for (simulator).
 * Errors name the file, the tensor and the rule. Non-finite weights are counted and warned about.
 */
enum status model_open(const char *name, const struct model_hints *, uint64_t seed,
                       bool shapes_only, struct model **out) WARN_UNUSED;
void model_close(struct model *); /* accepts NULL */
const struct model_shape *model_shape(const struct model *);
const char *model_name(const struct model *); /* as given */
/* Hex SHA-256 of the weights file(s); of the preset's name and seed for a preset. Never NULL. */
const char *model_sha256(const struct model *);
bool model_is_preset(const struct model *);
/* Names of the presets, NULL-terminated. */
const char *const *model_presets(void);

/* Copies rows row0..row0+rows-1, columns col0..col0+cols-1 of the named tensor (original names; a
 * vector is one column wide... rows x 1; a convolution [D,C,p,p] is [D, C*p*p]) to out, in `dtype`,
 * contiguous. Thread-safe. Under shapes_only: ERR_INTERNAL. */
enum status model_read(const struct model *, const char *tensor, size_t row0, size_t rows,
                       size_t col0, size_t cols, enum dtype dtype, void *out) WARN_UNUSED;
bool model_has_tensor(const struct model *, const char *tensor);
bool model_shapes_only(const struct model *);

/* DDIM schedule: cumulative product of 1 - beta, beta = linspace(1e-4, 2e-2, 1000); index -1
 * gives 1. */
double model_alpha(int timestep);
/* t_i = (K-1-i) * floor(1000/K). */
int model_timestep(int step, int steps);

#endif

/* The table of presets: one line a model (docs/simulator.md, "Models as presets"). */
#include "kernels/model_presets.h"

#include <string.h>

/*    name, kind, blocks, hidden, heads, channels, out_channels, patch, vae_factor, classes,
 *    text_tokens */
#define PRESET_LIST(X)                                                                             \
    X("dit-s-2", MODEL_DIT, 12, 384, 6, 4, 8, 2, 8, 1000, 0)                                       \
    X("dit-b-2", MODEL_DIT, 12, 768, 12, 4, 8, 2, 8, 1000, 0)                                      \
    X("dit-l-2", MODEL_DIT, 24, 1024, 16, 4, 8, 2, 8, 1000, 0)                                     \
    X("dit-xl-2", MODEL_DIT, 28, 1152, 16, 4, 8, 2, 8, 1000, 0)                                    \
    X("bench-image", MODEL_DIT, 12, 128, 8, 4, 4, 2, 1, 10, 0)                                     \
    X("bench-video", MODEL_VIDEO, 12, 128, 8, 4, 4, 2, 1, 10, 0)                                   \
    X("sim-wide", MODEL_DIT, 28, 8192, 1024, 4, 8, 2, 8, 1000, 0)                                  \
    X("latte-xl", MODEL_VIDEO, 28, 1152, 16, 4, 8, 2, 8, 1000, 0)                                  \
    X("pixart-alpha", MODEL_DIT, 28, 1152, 16, 4, 8, 2, 8, 1, 120)                                 \
    X("bench-text", MODEL_DIT, 12, 128, 8, 4, 4, 2, 1, 10, 12)

#define PRESET_NAME(name, ...) name,
#define PRESET(...)            {__VA_ARGS__},
static const char *const names[] = {PRESET_LIST(PRESET_NAME) NULL};
static const struct preset {
    const char *name;
    enum model_kind kind;
    int blocks, hidden, heads, channels, out_channels, patch, vae_factor, classes, text_tokens;
} presets[] = {PRESET_LIST(PRESET)};
#undef PRESET
#undef PRESET_NAME
enum { PRESETS = sizeof presets / sizeof *presets };

const char *const *model_presets(void)
{
    return names;
}

bool model_presets_find(const char *name, struct model_shape *out)
{
    for (const struct preset *p = presets; p < presets + PRESETS; p++) {
        if (strcmp(p->name, name) != 0)
            continue;
        *out = (struct model_shape){
            .kind = p->kind,
            .layout = LAYOUT_ORIGINAL,
            .blocks = p->blocks,
            .hidden = p->hidden,
            .heads = p->heads,
            .mlp_hidden = 4 * p->hidden,
            .channels = p->channels,
            .out_channels = p->out_channels,
            .patch = p->patch,
            .classes = p->classes,
            .vae_factor = p->vae_factor,
            .text_tokens = p->text_tokens,
        };
        return true;
    }
    return false;
}

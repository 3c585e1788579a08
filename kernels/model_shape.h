/* A model's shape, from its tensors and from what is said about it: the options win over
 * config.json, which wins over the file's metadata. Private to model.c. */
#ifndef KERNELS_MODEL_SHAPE_H
#define KERNELS_MODEL_SHAPE_H

#include "common/safetensors.h"
#include "kernels/model.h"

/* config_path: NULL or a file that exists. Contradictions are ERR_USAGE where an option is to
 * blame, else ERR_FORMAT. */
enum status model_shape_read(const struct safetensors *, const char *config_path,
                             const struct model_hints *, struct model_shape *out) WARN_UNUSED;
/* Applies the options to a preset's shape and fills in what follows from it. */
enum status model_shape_preset(const char *name, const struct model_hints *,
                               struct model_shape *) WARN_UNUSED;

#endif

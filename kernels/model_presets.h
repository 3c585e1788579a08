/* Models by name, without a file: shapes of the literature, weights drawn at random. Private to
 * model.c. */
#ifndef KERNELS_MODEL_PRESETS_H
#define KERNELS_MODEL_PRESETS_H

#include "kernels/model.h"

/* False: no preset of this name. */
bool model_presets_find(const char *name, struct model_shape *out);

#endif

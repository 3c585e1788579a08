/* A rank's slice of a model's weights in device memory: from a file, a preset's generator, or as a size
 * only (simulator). */
#ifndef KERNELS_WEIGHTS_H
#define KERNELS_WEIGHTS_H

#include "common/arena.h"
#include "kernels/device.h"
#include "kernels/model.h"

/* Rows row0 .. row0+rows-1 of a tensor; several pieces are stacked in order (q, k, v of some heads). */
struct weights_piece {
    size_t row0, rows;
};
enum { WEIGHTS_MAX_PIECES = 3 };

/* out: T [sum of rows, cols], columns col0 .. col0+cols-1, owned by `arena`, counted as MEMORY_WEIGHTS.
 * On host devices equal slices of several ranks of a process are stored once and counted by each. */
enum status weights_load(struct device *, struct arena *, const struct model *, const char *tensor,
                         const struct weights_piece *pieces, int count, size_t col0, size_t cols,
                         struct devmem *out) WARN_UNUSED;

#endif

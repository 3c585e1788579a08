/* The tensors of a model: names in both layouts, shapes, and how a preset draws them
 * (docs/model.md). Private to model.c. */
#ifndef KERNELS_MODEL_TENSORS_H
#define KERNELS_MODEL_TENSORS_H

#include "common/safetensors.h"
#include "kernels/model.h"

enum { MODEL_NAME_BYTES = 96, MODEL_MAX_SOURCES = 3 };

/* A tensor under its original name, [rows, cols], and where the file has it. */
struct model_tensor {
    char name[MODEL_NAME_BYTES];
    size_t rows, cols;
    double std;  /* of a preset's weights */
    int sources; /* tensors of the file, stacked in rows: diffusers keeps q, k and v apart */
    char source_name[MODEL_MAX_SOURCES][MODEL_NAME_BYTES];
    int dims; /* of each source */
    uint64_t shape[4];
    bool copied; /* the file has an equal copy in every block; the source is block 0's */
    const struct safetensors_tensor *source[MODEL_MAX_SOURCES]; /* NULL in a preset */
};

struct model_tensors {
    struct model_tensor *list; /* sorted by name */
    size_t count;
};

/* Every tensor that a model of this shape needs. Owner: the caller (model_tensors_free). */
enum status model_tensors_list(const struct model_shape *, struct model_tensors *out) WARN_UNUSED;
void model_tensors_free(struct model_tensors *); /* accepts a zeroed struct */
/* NULL: no such tensor. */
struct model_tensor *model_tensors_find(const struct model_tensors *, const char *name);

/* What the names of a block's tensors begin with in the file, before the block's number. */
const char *model_tensors_block_prefix(enum model_layout);

/* Finds every source in the file and checks shape, dtype and the equality of copies; says in the
 * log how many tensors are left over. ERR_FORMAT with file, tensor and rule. */
enum status model_tensors_bind(struct model_tensors *, const struct model_shape *,
                               const struct safetensors *) WARN_UNUSED;
/* Warns about weights that are not finite. */
void model_tensors_warn_nonfinite(const struct model_tensors *, const struct safetensors *);

#endif

/* What the tests of models share: opening, reading and comparing, or failing the test. */
#ifndef TESTS_MODEL_RIG_H
#define TESTS_MODEL_RIG_H

#include "kernels/model.h"

/* Without hints. */
struct model *open_model(const char *name, uint64_t seed, bool shapes_only);
void read_f32(const struct model *m, const char *tensor, size_t row0, size_t rows, size_t col0,
              size_t cols, float *out);
void check_shape(const struct model_shape *s, const struct model_shape *e);

/* One change to the tensors of a shipped model. */
struct edit {
    const char *tensor;
    const char *name;  /* its new name; "": it is left out; NULL: unchanged */
    uint64_t shape[2]; /* its new leading dimensions; 0: unchanged */
    int dims;          /* 0: unchanged */
    float first;       /* its new first element; 0: unchanged */
};

/* Copies the model `from` with the edits to `to` in the scratch folder and returns its path. */
const char *copy_model(const char *from, const char *to, const struct edit *edits, int count,
                       const char *const *metadata);
/* model_open must fail so. */
void expect_no_model(const char *name, const struct model_hints *hints, enum status code,
                     const char *const *parts);

#endif

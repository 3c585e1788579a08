/* What the tests of models share. */
#include "model_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/safetensors.h"
#include "scratch.h"

struct model *open_model(const char *name, uint64_t seed, bool shapes_only)
{
    static const struct model_hints no_hints;
    struct model *m;
    if (model_open(name, &no_hints, seed, shapes_only, &m) != OK)
        fail_msg("%s", status_first()->text);
    return m;
}

void read_f32(const struct model *m, const char *tensor, size_t row0, size_t rows, size_t col0,
              size_t cols, float *out)
{
    if (model_read(m, tensor, row0, rows, col0, cols, DTYPE_FP32, out) != OK)
        fail_msg("%s", status_first()->text);
}

void check_shape(const struct model_shape *s, const struct model_shape *e)
{
    assert_int_equal(s->kind, e->kind);
    assert_int_equal(s->layout, e->layout);
    assert_int_equal(s->blocks, e->blocks);
    assert_int_equal(s->hidden, e->hidden);
    assert_int_equal(s->heads, e->heads);
    assert_int_equal(s->head_dim, e->head_dim);
    assert_int_equal(s->mlp_hidden, e->mlp_hidden);
    assert_int_equal(s->channels, e->channels);
    assert_int_equal(s->out_channels, e->out_channels);
    assert_int_equal(s->patch, e->patch);
    assert_int_equal(s->classes, e->classes);
    assert_int_equal(s->vae_factor, e->vae_factor);
    assert_true(s->time_divisor == e->time_divisor);
    assert_true(s->attn_eps == e->attn_eps && s->mlp_eps == e->mlp_eps);
    assert_true(s->final_eps == e->final_eps);
}

static void apply(const struct edit *edit, struct safetensors_output *t)
{
    if (edit->name)
        t->name = edit->name;
    for (int i = 0; i < 2; i++)
        t->shape[i] = edit->shape[i] ? edit->shape[i] : t->shape[i];
    t->dims = edit->dims ? edit->dims : t->dims;
    if (edit->first != 0)
        ((float *)(uintptr_t)t->data)[0] = edit->first;
}

/* New shapes may be larger: the copies of the data have room to spare. */
const char *copy_model(const char *from, const char *to, const struct edit *edits, int count,
                       const char *const *metadata)
{
    enum { MOST = 200, SPARE = 1 << 19 };
    struct safetensors *file;
    struct safetensors_output outputs[MOST] = {0};
    float *data[MOST];
    size_t n = 0, total;
    assert_int_equal(safetensors_open(source_path(from), &file), OK);
    total = safetensors_count(file);
    for (size_t i = 0; i < total; i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        data[i] = calloc(1, t->bytes + SPARE);
        assert_non_null(data[i]);
        memcpy(data[i], t->data, t->bytes);
        outputs[n] = (struct safetensors_output){.name = t->name, .dims = t->dims, .data = data[i]};
        memcpy(outputs[n].shape, t->shape, sizeof t->shape);
        for (int j = 0; j < count; j++)
            if (strcmp(edits[j].tensor, t->name) == 0)
                apply(&edits[j], &outputs[n]);
        n += *outputs[n].name != 0;
    }
    const char *path = scratch_path(to);
    assert_int_equal(safetensors_write(path, outputs, n, metadata), OK);
    for (size_t i = 0; i < total; i++)
        free(data[i]);
    safetensors_close(file);
    return path;
}

void expect_no_model(const char *name, const struct model_hints *hints, enum status code,
                     const char *const *parts)
{
    struct model *m = NULL;
    expect_failure(model_open(name, hints, 0, false, &m), code, parts);
    assert_null(m);
}

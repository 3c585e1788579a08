/* Models: the shipped files, and slices of tensors of files and presets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/safetensors.h"
#include "kernels/model.h"
#include "kernels/model_tensors.h"
#include "model_rig.h"
#include "scratch.h"

/* What the shipped files hold, written down by hand. */
static const struct expected {
    const char *name;
    struct model_shape shape;
} expected[] = {
    {"tests/models/tiny.safetensors",
     {MODEL_DIT, LAYOUT_ORIGINAL, 4, 64, 4, 16, 256, 2, 2, 2, 5, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
    {"tests/models/tiny-video.safetensors",
     {MODEL_VIDEO, LAYOUT_ORIGINAL, 4, 64, 4, 16, 256, 2, 2, 2, 5, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
    {"tests/models/tiny-sigma.safetensors",
     {MODEL_DIT, LAYOUT_ORIGINAL, 3, 32, 4, 8, 80, 3, 6, 2, 4, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
    {"tests/models/tiny-f16.safetensors",
     {MODEL_DIT, LAYOUT_ORIGINAL, 3, 32, 4, 8, 80, 3, 6, 2, 4, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
    {"tests/models/tiny-diffusers",
     {MODEL_DIT, LAYOUT_DIFFUSERS, 4, 64, 4, 16, 256, 2, 2, 2, 5, 1, 127, 1e-6, 1e-5, 1e-6, 0}},
    {"tests/models/dit-fashion.safetensors",
     {MODEL_DIT, LAYOUT_ORIGINAL, 12, 128, 8, 16, 512, 1, 1, 2, 10, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
};

static void test_shipped_file(void **state)
{
    const struct expected *e = *state;
    const char *name = source_path(e->name);
    struct model *m = open_model(name, 0, false);
    check_shape(model_shape(m), &e->shape);
    assert_string_equal(model_name(m), name);
    assert_false(model_is_preset(m));
    assert_false(model_shapes_only(m));
    assert_int_equal(strlen(model_sha256(m)), 64);
    if (e->shape.layout == LAYOUT_ORIGINAL) {
        char hex[65];
        assert_int_equal(safetensors_sha256(name, hex), OK);
        assert_string_equal(model_sha256(m), hex);
    }
    assert_true(model_has_tensor(m, "blocks.0.attn.qkv.bias"));
    assert_false(model_has_tensor(m, "blocks.99.attn.qkv.bias"));
    assert_false(model_has_tensor(m, "y_embedder.embedding_table.bias"));
    model_close(m);
}

/* Every tensor of an original file comes out as it stands there. */
static void test_original_values(void **state)
{
    (void)state;
    const char *name = source_path("tests/models/tiny.safetensors");
    struct model *m = open_model(name, 0, false);
    struct safetensors *file;
    assert_int_equal(safetensors_open(name, &file), OK);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        float *got = malloc(t->bytes);
        assert_non_null(got);
        size_t rows = t->shape[0];
        read_f32(m, t->name, 0, rows, 0, t->elements / rows, got);
        assert_memory_equal(got, t->data, t->bytes);
        free(got);
    }
    safetensors_close(file);
    model_close(m);
}

/* Which tensors of diffusers stand behind the original names. */
static void test_diffusers_values(void **state)
{
    (void)state;
    static const struct {
        const char *name, *sources[3];
    } pairs[] = {
        {"x_embedder.proj.weight", {"pos_embed.proj.weight"}},
        {"t_embedder.mlp.0.weight",
         {"transformer_blocks.0.norm1.emb.timestep_embedder.linear_1.weight"}},
        {"t_embedder.mlp.2.bias",
         {"transformer_blocks.0.norm1.emb.timestep_embedder.linear_2.bias"}},
        {"y_embedder.embedding_table.weight",
         {"transformer_blocks.0.norm1.emb.class_embedder.embedding_table.weight"}},
        {"blocks.3.attn.qkv.weight",
         {"transformer_blocks.3.attn1.to_q.weight", "transformer_blocks.3.attn1.to_k.weight",
          "transformer_blocks.3.attn1.to_v.weight"}},
        {"blocks.2.attn.qkv.bias",
         {"transformer_blocks.2.attn1.to_q.bias", "transformer_blocks.2.attn1.to_k.bias",
          "transformer_blocks.2.attn1.to_v.bias"}},
        {"blocks.1.attn.proj.weight", {"transformer_blocks.1.attn1.to_out.0.weight"}},
        {"blocks.1.mlp.fc1.weight", {"transformer_blocks.1.ff.net.0.proj.weight"}},
        {"blocks.1.mlp.fc2.weight", {"transformer_blocks.1.ff.net.2.weight"}},
        {"blocks.1.adaLN_modulation.1.weight", {"transformer_blocks.1.norm1.linear.weight"}},
        {"final_layer.adaLN_modulation.1.weight", {"proj_out_1.weight"}},
        {"final_layer.linear.bias", {"proj_out_2.bias"}},
    };
    struct model *m = open_model(source_path("tests/models/tiny-diffusers"), 0, false);
    struct safetensors *file;
    assert_int_equal(
        safetensors_open(
            source_path("tests/models/tiny-diffusers/diffusion_pytorch_model.safetensors"), &file),
        OK);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t row0 = 0;
        for (int j = 0; j < 3 && pairs[i].sources[j]; j++) {
            const struct safetensors_tensor *t = safetensors_find(file, pairs[i].sources[j]);
            float *got = malloc(t->bytes);
            assert_non_null(got);
            read_f32(m, pairs[i].name, row0, t->shape[0], 0, t->elements / t->shape[0], got);
            assert_memory_equal(got, t->data, t->bytes);
            free(got);
            row0 += t->shape[0];
        }
    }
    safetensors_close(file);
    model_close(m);
}

/* Any slice in any dtype is that part of the whole, rounded, and nothing around it is touched. */
static void check_slice(const struct model *m, const struct model_tensor *t, const float *whole,
                        enum dtype dtype, const size_t at[4])
{
    size_t size = dtype_bytes(dtype), n = at[1] * at[3];
    unsigned char *got = malloc((n + 2) * size), *wanted = malloc((n + 2) * size);
    assert_non_null(got);
    assert_non_null(wanted);
    memset(got, 0xA5, (n + 2) * size);
    memset(wanted, 0xA5, (n + 2) * size);
    for (size_t row = 0; row < at[1]; row++)
        dtype_convert(dtype, wanted + (1 + row * at[3]) * size, DTYPE_FP32,
                      whole + (at[0] + row) * t->cols + at[2], at[3]);
    assert_int_equal(model_read(m, t->name, at[0], at[1], at[2], at[3], dtype, got + size), OK);
    if (memcmp(got, wanted, (n + 2) * size) != 0)
        fail_msg("%s: rows %zu + %zu, columns %zu + %zu as %s", t->name, at[0], at[1], at[2], at[3],
                 dtype_name(dtype));
    free(got);
    free(wanted);
}

static void test_slices(void **state)
{
    enum { TRIES = 8 };
    const char *name = *state;
    struct model *m = open_model(strchr(name, '/') ? source_path(name) : name, 5, false);
    struct model_tensors all;
    uint32_t random = 1;
    assert_int_equal(model_tensors_list(model_shape(m), &all), OK);
    for (size_t i = 0; i < all.count; i++) {
        const struct model_tensor *t = &all.list[i];
        float *whole = malloc(t->rows * t->cols * sizeof *whole);
        assert_non_null(whole);
        read_f32(m, t->name, 0, t->rows, 0, t->cols, whole);
        for (int k = 0; k < TRIES; k++) {
            size_t at[4], size[2] = {t->rows, t->cols};
            for (int j = 0; j < 4; j++) {
                random = random * 1664525u + 1013904223u;
                at[j] = (random >> 8) % (j % 2 ? size[j / 2] - at[j - 1] + 1 : size[j / 2]);
            }
            if (k == 0) /* whole rows */
                at[2] = 0, at[3] = t->cols;
            check_slice(m, t, whole, (enum dtype)(k % DTYPE_COUNT), at);
        }
        free(whole);
    }
    model_tensors_free(&all);
    model_close(m);
}

static void test_slice_outside(void **state)
{
    (void)state;
    float out[4];
    struct model *m = open_model("bench-image", 0, false);
    static const size_t outside[][4] = {
        {384, 1, 0, 1}, {0, 385, 0, 1}, {0, 1, 128, 1}, {0, 1, 127, 2}, {SIZE_MAX, 2, 0, 1}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        expect_failure(model_read(m, "blocks.0.attn.qkv.weight", outside[i][0], outside[i][1],
                                  outside[i][2], outside[i][3], DTYPE_FP32, out),
                       ERR_INTERNAL, (const char *const[]){"blocks.0.attn.qkv.weight", NULL});
    expect_failure(model_read(m, "none", 0, 1, 0, 1, DTYPE_FP32, out), ERR_INTERNAL,
                   (const char *const[]){"none", NULL});
    model_close(m);
}

static void test_shapes_only(void **state)
{
    (void)state;
    float out;
    const char *const names[] = {"sim-wide", source_path("tests/models/tiny.safetensors")};
    for (int i = 0; i < 2; i++) {
        struct model *m = open_model(names[i], 0, true);
        assert_true(model_shapes_only(m));
        assert_true(model_has_tensor(m, "final_layer.linear.weight"));
        expect_failure(model_read(m, "final_layer.linear.weight", 0, 1, 0, 1, DTYPE_FP32, &out),
                       ERR_INTERNAL, (const char *const[]){"only shapes", NULL});
        model_close(m);
    }
}

int main(void)
{
    static const char *const sliced[] = {"tests/models/tiny-sigma.safetensors",
                                         "tests/models/tiny-f16.safetensors",
                                         "tests/models/tiny-diffusers", "bench-image"};
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(test_original_values),
        cmocka_unit_test(test_diffusers_values),
        cmocka_unit_test(test_slice_outside),
        cmocka_unit_test(test_shapes_only),
    };
    enum {
        FILES = sizeof expected / sizeof *expected,
        SLICED = sizeof sliced / sizeof *sliced,
        OTHERS = sizeof others / sizeof *others,
    };
    struct CMUnitTest tests[FILES + SLICED + OTHERS];
    size_t n = 0;
    for (size_t i = 0; i < FILES; i++)
        tests[n++] = (struct CMUnitTest){.name = expected[i].name,
                                         .test_func = test_shipped_file,
                                         .initial_state = (void *)&expected[i]};
    for (size_t i = 0; i < SLICED; i++)
        tests[n++] = (struct CMUnitTest){
            .name = sliced[i], .test_func = test_slices, .initial_state = (void *)sliced[i]};
    for (size_t i = 0; i < OTHERS; i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("model", tests, n, NULL, NULL);
}

/* Presets: shapes, known answers of their weights; the sampler's schedule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "common/rng.h"
#include "kernels/model_tensors.h"
#include "model_rig.h"
#include "scratch.h"

/* Sizes of the literature: with the position table that ditto computes instead of storing, DiT-S/2
 * and DiT-XL/2 have 32,963,360 and 675,129,632 parameters (arXiv:2212.09748 gives 33M and 675M). */
static void test_preset_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } sizes[] = {{"dit-s-2", 32963360 - 256 * 384}, {"dit-xl-2", 675129632 - 256 * 1152}};
    for (int i = 0; i < 2; i++) {
        struct model *m = open_model(sizes[i].name, 0, true);
        struct model_tensors all;
        uint64_t parameters = 0;
        assert_int_equal(model_tensors_list(model_shape(m), &all), OK);
        for (size_t j = 0; j < all.count; j++)
            parameters += all.list[j].rows * all.list[j].cols;
        assert_int_equal(parameters, sizes[i].parameters);
        model_tensors_free(&all);
        model_close(m);
    }
}

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct model_shape shape;
    } presets[] = {
        {"dit-s-2", {MODEL_DIT, 0, 12, 384, 6, 64, 1536, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"dit-b-2", {MODEL_DIT, 0, 12, 768, 12, 64, 3072, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"dit-l-2",
         {MODEL_DIT, 0, 24, 1024, 16, 64, 4096, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"dit-xl-2",
         {MODEL_DIT, 0, 28, 1152, 16, 72, 4608, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"bench-image", {MODEL_DIT, 0, 12, 128, 8, 16, 512, 4, 4, 2, 10, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"bench-video",
         {MODEL_VIDEO, 0, 12, 128, 8, 16, 512, 4, 4, 2, 10, 1, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"sim-wide",
         {MODEL_DIT, 0, 28, 8192, 1024, 8, 32768, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"latte-xl",
         {MODEL_VIDEO, 0, 28, 1152, 16, 72, 4608, 4, 8, 2, 1000, 8, 128, 1e-6, 1e-6, 1e-6, 0}},
        {"pixart-alpha",
         {MODEL_DIT, 0, 28, 1152, 16, 72, 4608, 4, 8, 2, 1, 8, 128, 1e-6, 1e-6, 1e-6, 120}},
        {"bench-text",
         {MODEL_DIT, 0, 12, 128, 8, 16, 512, 4, 4, 2, 10, 1, 128, 1e-6, 1e-6, 1e-6, 12}},
    };
    const char *const *names = model_presets();
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        assert_string_equal(names[i], presets[i].name);
        struct model *m = open_model(names[i], 0, false);
        assert_true(model_is_preset(m));
        check_shape(model_shape(m), &presets[i].shape);
        model_close(m);
    }
    assert_null(names[sizeof presets / sizeof *presets]);
}

/* golden/rng.json: standard normals of a weight; a preset multiplies them by 1/sqrt(fan in). */
static void test_preset_known_answers(void **state)
{
    (void)state;
    char text[1 << 14];
    FILE *file = fopen(source_path("tests/golden/rng.json"), "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cJSON *golden = cJSON_Parse(text);
    const cJSON *entry;
    int checked = 0;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItem(golden, "normals"))
    {
        const char *tensor = cJSON_GetObjectItem(entry, "tensor")->valuestring;
        if (strcmp(tensor, "x_T") == 0)
            continue;
        uint64_t seed = (uint64_t)cJSON_GetObjectItem(entry, "seed")->valuedouble;
        struct model *m = open_model("dit-s-2", seed, false);
        const cJSON *value;
        size_t i = (size_t)cJSON_GetObjectItem(entry, "first")->valuedouble;
        cJSON_ArrayForEach(value, cJSON_GetObjectItem(entry, "values"))
        {
            float got;
            read_f32(m, tensor, i / 384, 1, i % 384, 1, &got);
            assert_true(got == (float)(value->valuedouble / sqrt(384)));
            i++, checked++;
        }
        model_close(m);
    }
    cJSON_Delete(golden);
    assert_int_equal(checked, 4);
}

/* The spread of each kind of tensor, and that it is the generator's stream under the original name.
 */
static void test_preset_spreads(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        double spread;
    } spreads[] = {
        {"x_embedder.proj.weight", 0.25}, /* fan in 4 * 2 * 2 */
        {"x_embedder.proj.bias", 0.05},
        {"t_embedder.mlp.0.weight", 1.0 / 16},
        {"y_embedder.embedding_table.weight", 0.15},
        {"blocks.11.mlp.fc2.weight", 0.044194173824159216}, /* 1/sqrt(512) */
        {"blocks.11.mlp.fc2.bias", 0.05},
        {"blocks.3.adaLN_modulation.1.weight", 0.13258252147247765}, /* 1.5/sqrt(128) */
        {"blocks.3.adaLN_modulation.1.bias", 0.15},
        {"final_layer.adaLN_modulation.1.weight", 0.13258252147247765},
        {"final_layer.adaLN_modulation.1.bias", 0.15},
        {"final_layer.linear.weight", 0.08838834764831845}, /* 1/sqrt(128) */
    };
    struct model *m = open_model("bench-image", 3, false);
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        float got[4], normal[4];
        read_f32(m, spreads[i].tensor, 0, 4, 0, 1, got);
        rng_normals(3, spreads[i].tensor, 0, 1, normal);
        assert_true(fabs(got[0] - normal[0] * spreads[i].spread) <= 1e-7 * fabs(got[0]));
    }
    model_close(m);
}

/* A rank of a big model draws its slice alone: all of this tensor would be 1 GiB. */
static void test_preset_huge_slice(void **state)
{
    (void)state;
    float some[2], row[8];
    struct model *m = open_model("sim-wide", 1, false);
    read_f32(m, "blocks.27.mlp.fc1.weight", 32767, 1, 8184, 8, row);
    read_f32(m, "blocks.27.mlp.fc1.weight", 32766, 2, 8191, 1, some);
    assert_true(some[1] == row[7] && some[0] != some[1]);
    model_close(m);
}

static void test_preset_hash(void **state)
{
    (void)state;
    struct model *a = open_model("dit-s-2", 1, true), *b = open_model("dit-s-2", 1, false);
    struct model *c = open_model("dit-s-2", 2, true), *d = open_model("dit-b-2", 1, true);
    assert_string_equal(model_sha256(a), model_sha256(b));
    assert_string_not_equal(model_sha256(a), model_sha256(c));
    assert_string_not_equal(model_sha256(a), model_sha256(d));
    assert_int_equal(strlen(model_sha256(a)), 64);
    model_close(a);
    model_close(b);
    model_close(c);
    model_close(d);
}

/* From numpy: cumprod(1 - linspace(1e-4, 2e-2, 1000)). */
static void test_schedule(void **state)
{
    (void)state;
    assert_true(model_alpha(-1) == 1);
    assert_true(fabs(model_alpha(0) / 0.9999 - 1) < 1e-13);
    assert_true(fabs(model_alpha(500) / 0.07779665836502389 - 1) < 1e-12);
    assert_true(fabs(model_alpha(999) / 4.035829765375676e-05 - 1) < 1e-12);
    assert_int_equal(model_timestep(0, 20), 950);
    assert_int_equal(model_timestep(19, 20), 0);
    assert_int_equal(model_timestep(0, 7), 852);
    assert_int_equal(model_timestep(0, 1), 0);
    assert_int_equal(model_timestep(0, 1000), 999);
    assert_int_equal(model_timestep(0, 600), 599);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preset_sizes),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_preset_known_answers),
        cmocka_unit_test(test_preset_spreads),
        cmocka_unit_test(test_preset_huge_slice),
        cmocka_unit_test(test_preset_hash),
        cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests_name("model_presets", tests, NULL, NULL);
}

/* Model files that lack something or contradict themselves, and what is said about them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/safetensors.h"
#include "model_rig.h"
#include "scratch.h"

static const char original[] = "tests/models/tiny.safetensors";
static const char diffusers[] = "tests/models/tiny-diffusers/diffusion_pytorch_model.safetensors";
static const char *const tiny_metadata[] = {"heads", "4", "patch", "2", "classes", "5", NULL};

static const struct refusal {
    const char *name, *from;
    struct edit edit;
    const char *parts[3];
} refusals[] = {
    {"missing: qkv bias",
     original,
     {.tensor = "blocks.2.attn.qkv.bias", .name = ""},
     {"\"blocks.2.attn.qkv.bias\"", "missing"}},
    {"missing: patch embedding",
     original,
     {.tensor = "x_embedder.proj.weight", .name = ""},
     {"x_embedder.proj.weight", "pos_embed.proj.weight", "missing"}},
    {"missing: class table",
     original,
     {.tensor = "y_embedder.embedding_table.weight", .name = ""},
     {"\"y_embedder.embedding_table.weight\"", "missing"}},
    {"missing: a whole block before",
     original,
     {.tensor = "blocks.3.mlp.fc1.bias", .name = "blocks.7.mlp.fc1.bias"},
     {"\"blocks.", "missing"}},
    {"missing: most blocks before",
     original,
     {.tensor = "blocks.3.mlp.fc1.bias", .name = "blocks.9999999.mlp.fc1.bias"},
     {"blocks.", "missing"}},
    {"missing: diffusers' to_k",
     diffusers,
     {.tensor = "transformer_blocks.1.attn1.to_k.weight", .name = ""},
     {"\"transformer_blocks.1.attn1.to_k.weight\"", "missing"}},
    {"missing: a copy of the class table",
     diffusers,
     {.tensor = "transformer_blocks.3.norm1.emb.class_embedder.embedding_table.weight", .name = ""},
     {"\"transformer_blocks.3.norm1.emb.class_embedder.embedding_table.weight\"", "missing"}},
    {"copy differs: class table",
     diffusers,
     {.tensor = "transformer_blocks.2.norm1.emb.class_embedder.embedding_table.weight", .first = 9},
     {"\"transformer_blocks.2.norm1.emb.class_embedder.embedding_table.weight\"", "copy"}},
    {"copy differs: timestep embedding",
     diffusers,
     {.tensor = "transformer_blocks.1.norm1.emb.timestep_embedder.linear_2.bias", .first = 9},
     {"\"transformer_blocks.1.norm1.emb.timestep_embedder.linear_2.bias\"", "copy"}},
    {"shape: rows",
     original,
     {.tensor = "blocks.1.attn.qkv.weight", .shape = {191}},
     {"\"blocks.1.attn.qkv.weight\"", "[191,64]", "[192,64]"}},
    {"shape: columns",
     original,
     {.tensor = "blocks.1.mlp.fc2.weight", .shape = {64, 255}},
     {"\"blocks.1.mlp.fc2.weight\"", "[64,255]", "[64,256]"}},
    {"shape: dimensions",
     original,
     {.tensor = "final_layer.linear.bias", .shape = {8, 1}, .dims = 2},
     {"\"final_layer.linear.bias\"", "[8,1]", "[8]"}},
    {"shape: scalar",
     original,
     {.tensor = "blocks.0.mlp.fc1.weight", .dims = 1},
     {"\"blocks.0.mlp.fc1.weight\"", "1 dimensions", "2"}},
    {"shape: embedding is a matrix",
     original,
     {.tensor = "x_embedder.proj.weight", .dims = 2},
     {"\"x_embedder.proj.weight\"", "2 dimensions", "4"}},
    {"shape: outputs",
     original,
     {.tensor = "final_layer.linear.weight", .shape = {12}},
     {"\"final_layer.linear.weight\"", "12 rows", "8"}},
    {"shape: no class",
     original,
     {.tensor = "y_embedder.embedding_table.weight", .shape = {1}},
     {"\"y_embedder.embedding_table.weight\"", "null class"}},
    {"shape: diffusers' proj_out_1",
     diffusers,
     {.tensor = "proj_out_1.weight", .shape = {127}},
     {"\"proj_out_1.weight\"", "[127,64]", "[128,64]"}},
    {"shape: a copy",
     diffusers,
     {.tensor = "transformer_blocks.1.norm1.emb.timestep_embedder.linear_1.weight", .shape = {63}},
     {"transformer_blocks.1.norm1.emb.timestep_embedder.linear_1.weight", "[63,256]", "[64,256]"}},
    {"shape: other number of classes",
     original,
     {.tensor = "y_embedder.embedding_table.weight", .shape = {4}},
     {"classes is 5", "the tensors have 3"}},
};

static void test_refusal(void **state)
{
    const struct refusal *r = *state;
    const char *path = copy_model(r->from, "model.safetensors", &r->edit, 1, tiny_metadata);
    expect_no_model(path, &(struct model_hints){0}, ERR_FORMAT,
                    (const char *const[]){path, r->parts[0], r->parts[1], r->parts[2], NULL});
}

static void test_places(void **state)
{
    (void)state;
    static const struct model_hints none;
    assert_int_equal(scratch_mkdir("nothing"), 0);
    expect_no_model(scratch_path("nothing"), &none, ERR_IO,
                    (const char *const[]){"nothing", "diffusion_pytorch_model.safetensors",
                                          "index.json", NULL});
    expect_no_model("dit-xxl-2", &none, ERR_IO,
                    (const char *const[]){"dit-xxl-2", "preset", "dit-xl-2", "latte-xl", NULL});
    const char *pt = scratch_write("model.pt", "PK\3\4\0\0\10\10\0\0\0\0", 12);
    expect_no_model(pt, &none, ERR_FORMAT, (const char *const[]){pt, "torch.load", NULL});
}

/* A folder of the second layout, in two shards. */
static void test_sharded_folder(void **state)
{
    (void)state;
    enum { SHARDS = 2 };
    const char *folder = scratch_path("sharded");
    struct safetensors *file;
    struct safetensors_output outputs[SHARDS][200];
    size_t counts[SHARDS] = {0};
    char *index;
    size_t size;
    assert_int_equal(scratch_mkdir("sharded"), 0);
    assert_int_equal(safetensors_open(source_path(diffusers), &file), OK);
    FILE *json = open_memstream(&index, &size);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        struct safetensors_output *to = &outputs[i % SHARDS][counts[i % SHARDS]++];
        *to = (struct safetensors_output){.name = t->name, .dims = t->dims, .data = t->data};
        memcpy(to->shape, t->shape, sizeof t->shape);
        fprintf(json, "%s\"%s\":\"part-%zu.safetensors\"", i ? "," : "{\"weight_map\":{", t->name,
                i % SHARDS);
    }
    fputs("}}", json);
    fclose(json);
    assert_int_equal(
        safetensors_write(scratch_path("sharded/part-0.safetensors"), outputs[0], counts[0], NULL),
        OK);
    assert_int_equal(
        safetensors_write(scratch_path("sharded/part-1.safetensors"), outputs[1], counts[1], NULL),
        OK);
    scratch_write("sharded/diffusion_pytorch_model.safetensors.index.json", index, size);
    static const char config[] = "{\"num_attention_heads\": 4}";
    scratch_write("sharded/config.json", config, sizeof config - 1);
    free(index);
    safetensors_close(file);

    float whole[64], shard[64];
    struct model *m = open_model(folder, 0, false);
    struct model *one = open_model(source_path("tests/models/tiny-diffusers"), 0, false);
    check_shape(model_shape(m), model_shape(one));
    read_f32(m, "blocks.1.attn.qkv.weight", 130, 1, 0, 64, shard);
    read_f32(one, "blocks.1.attn.qkv.weight", 130, 1, 0, 64, whole);
    assert_memory_equal(shard, whole, sizeof whole);
    assert_string_not_equal(model_sha256(m), model_sha256(one));
    model_close(m);
    model_close(one);
}

/* A dtype that is not read is an error only where it is needed. */
static void test_needed_dtype(void **state)
{
    (void)state;
    const char *path = copy_model(original, "dtype.safetensors", NULL, 0, tiny_metadata);
    char bytes[1 << 14];
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    char *entry = memmem(bytes, n, "\"blocks.1.mlp.fc1.bias\"", 23);
    assert_non_null(entry);
    char *dtype = strstr(entry, "F32");
    assert_non_null(dtype);
    fseek(file, dtype - bytes, SEEK_SET);
    fputs("I32", file);
    fclose(file);
    expect_no_model(path, &(struct model_hints){0}, ERR_FORMAT,
                    (const char *const[]){path, "\"blocks.1.mlp.fc1.bias\"", "I32", NULL});
}

/* What opening the model says on stderr. */
static void capture_open(const char *path, char *text, size_t size)
{
    FILE *capture = tmpfile();
    assert_non_null(capture);
    int former = dup(STDERR_FILENO);
    struct model *m = NULL;
    dup2(fileno(capture), STDERR_FILENO);
    enum status status = model_open(path, &(struct model_hints){0}, 0, false, &m);
    dup2(former, STDERR_FILENO);
    close(former);
    model_close(m);
    rewind(capture);
    text[fread(text, 1, size - 1, capture)] = 0;
    fclose(capture);
    assert_int_equal(status, OK);
}

static void test_nonfinite(void **state)
{
    (void)state;
    char text[4096];
    const struct edit edits[] = {{.tensor = "blocks.1.mlp.fc1.bias", .first = NAN},
                                 {.tensor = "final_layer.linear.bias", .first = -INFINITY}};
    const char *path = copy_model(original, "nan.safetensors", edits, 2, tiny_metadata);
    capture_open(path, text, sizeof text);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, ": 2 weights are NaN or infinite"));
    assert_non_null(strstr(text, "\"blocks.1.mlp.fc1.bias\""));
    capture_open(source_path(original), text, sizeof text);
    assert_string_equal(text, "");
}

/* A stored pos_embed is ignored, as are the tensors of another layout. */
static void test_extra_tensors(void **state)
{
    (void)state;
    char text[4096];
    struct safetensors *file;
    struct safetensors_output outputs[200];
    size_t n = 0;
    static const float zeros[8];
    static const char *const extras[] = {
        "pos_embed", "blocks.09.mlp.fc1.bias", "blocks.x", "a", "b", "c"};
    const char *path = scratch_path("extra.safetensors");
    assert_int_equal(safetensors_open(source_path(original), &file), OK);
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        outputs[n++] =
            (struct safetensors_output){.name = extras[i], .dims = 1, .shape = {8}, .data = zeros};
    for (size_t i = 0; i < safetensors_count(file); i++, n++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        outputs[n] = (struct safetensors_output){.name = t->name, .dims = t->dims, .data = t->data};
        memcpy(outputs[n].shape, t->shape, sizeof t->shape);
    }
    assert_int_equal(safetensors_write(path, outputs, n, tiny_metadata), OK);
    safetensors_close(file);
    capture_open(path, text, sizeof text);
    assert_non_null(strstr(text, "6 tensors"));
    assert_non_null(
        strstr(text, "\"pos_embed\", \"blocks.09.mlp.fc1.bias\", \"blocks.x\", \"a\" ..."));
}

#define COUNT(array) (sizeof array / sizeof *array)

int main(void)
{
    static const struct CMUnitTest others[] = {

        cmocka_unit_test(test_places),        cmocka_unit_test(test_sharded_folder),
        cmocka_unit_test(test_needed_dtype),  cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_extra_tensors),
    };
    struct CMUnitTest tests[COUNT(refusals) + COUNT(others)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT(refusals); i++)
        tests[n++] = (struct CMUnitTest){.name = refusals[i].name,
                                         .test_func = test_refusal,
                                         .initial_state = (void *)&refusals[i]};
    for (size_t i = 0; i < COUNT(others); i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("model_files", tests, n, scratch_make, scratch_remove);
}

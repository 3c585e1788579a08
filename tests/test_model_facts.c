/* What is said about a model in its metadata, in config.json and as options, and which wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model_rig.h"
#include "scratch.h"

static const char original[] = "tests/models/tiny.safetensors";

/* Facts said in the file's metadata, in config.json and as options. */
static const struct saying {
    const char *name;
    const char *metadata[5];
    const char *config; /* NULL: no file */
    struct model_hints hints;
    int heads, vae_factor; /* expected; 0: a failure */
    enum status code;
    const char *parts[2];
} sayings[] = {
    {"facts: metadata", {"heads", "4", "vae_factor", "8"}, NULL, {0}, 4, 8, OK, {0}},
    {"facts: config wins over metadata",
     {"heads", "4"},
     "{\"num_attention_heads\": 8}",
     {0},
     8,
     1,
     OK,
     {0}},
    {"facts: options win over config",
     {"heads", "4"},
     "{\"num_attention_heads\": 8}",
     {.heads = 16, .vae_factor = 2},
     16,
     2,
     OK,
     {0}},
    {"facts: options alone", {NULL}, NULL, {.heads = 2}, 2, 1, OK, {0}},
    {"facts: config with everything",
     {NULL},
     "{\"num_attention_heads\": 2, \"patch_size\": 2, \"num_embeds_ada_norm\": 5, \"in_channels\": "
     "2,"
     " \"num_layers\": 4, \"out_channels\": null, \"norm_eps\": 1e-05, \"x\": [true, {\"y\": "
     "\"z\"}]}",
     {0},
     2,
     1,
     OK,
     {0}},
    {"facts: null is not said",
     {"heads", "4"},
     "{\"num_attention_heads\": null}",
     {0},
     4,
     1,
     OK,
     {0}},
    {"facts: a bad value that is overruled", {"heads", "many"}, NULL, {.heads = 2}, 2, 1, OK, {0}},
    {"facts: no heads", {"patch", "2"}, NULL, {0}, 0, 0, ERR_FORMAT, {"heads", "--heads"}},
    {"facts: heads in words",
     {"heads", "four"},
     NULL,
     {0},
     0,
     0,
     ERR_FORMAT,
     {"heads", "\"four\""}},
    {"facts: heads with a sign", {"heads", "+4"}, NULL, {0}, 0, 0, ERR_FORMAT, {"heads", "\"+4\""}},
    {"facts: no number", {"heads", ""}, NULL, {0}, 0, 0, ERR_FORMAT, {"heads", "\"\""}},
    {"facts: heads 0", {"heads", "0"}, NULL, {0}, 0, 0, ERR_FORMAT, {"heads", "\"0\""}},
    {"facts: heads huge",
     {"heads", "99999999999999999999"},
     NULL,
     {0},
     0,
     0,
     ERR_FORMAT,
     {"heads"}},
    {"facts: metadata heads do not divide",
     {"heads", "5"},
     NULL,
     {0},
     0,
     0,
     ERR_FORMAT,
     {"heads is 5", "64"}},
    {"facts: --heads does not divide",
     {"heads", "4"},
     NULL,
     {.heads = 7},
     0,
     0,
     ERR_USAGE,
     {"--heads is 7", "64"}},
    {"facts: --heads negative",
     {"heads", "4"},
     NULL,
     {.heads = -1},
     0,
     0,
     ERR_USAGE,
     {"--heads -1"}},
    {"facts: other patch",
     {"heads", "4"},
     NULL,
     {.patch = 4},
     0,
     0,
     ERR_USAGE,
     {"--patch is 4", "2"}},
    {"facts: other classes",
     {"heads", "4"},
     NULL,
     {.classes = 6},
     0,
     0,
     ERR_USAGE,
     {"--classes is 6", "5"}},
    {"facts: other channels",
     {"heads", "4"},
     "{\"in_channels\": 3}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"in_channels is 3", "2"}},
    {"facts: other blocks",
     {"heads", "4"},
     "{\"num_layers\": 5}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"num_layers is 5", "4 blocks"}},
    {"facts: --kind unknown",
     {"heads", "4"},
     NULL,
     {.kind = "audio"},
     0,
     0,
     ERR_USAGE,
     {"--kind", "\"audio\""}},
    {"facts: kind unknown",
     {"heads", "4", "kind", "audio"},
     NULL,
     {0},
     0,
     0,
     ERR_FORMAT,
     {"kind", "\"audio\""}},
    {"config: fraction",
     {NULL},
     "{\"num_attention_heads\": 8.5}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "num_attention_heads"}},
    {"config: string",
     {NULL},
     "{\"num_attention_heads\": \"8\"}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "num_attention_heads"}},
    {"config: zero",
     {NULL},
     "{\"num_attention_heads\": 0}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "num_attention_heads is 0"}},
    {"config: duplicate",
     {NULL},
     "{\"num_attention_heads\": 8, \"num_attention_heads\": 8}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "duplicate"}},
    {"config: trailing text",
     {NULL},
     "{\"num_attention_heads\": 8} 8",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "after its end"}},
    {"config: bad UTF-8",
     {NULL},
     "{\"num_attention_heads\": 8, \"x\": \"\xFF\"}",
     {0},
     0,
     0,
     ERR_FORMAT,
     {"config.json", "UTF-8"}},
    {"config: empty", {NULL}, "", {0}, 0, 0, ERR_FORMAT, {"config.json", "object"}},
};

static void test_saying(void **state)
{
    const struct saying *s = *state;
    const char *path = copy_model(original, "said.safetensors", NULL, 0, s->metadata);
    const char *config = scratch_path("config.json");
    struct model *m = NULL;
    unlink(config);
    if (s->config)
        scratch_write("config.json", s->config, strlen(s->config));
    enum status status = model_open(path, &s->hints, 0, false, &m);
    unlink(config);
    if (s->code != OK) {
        expect_failure(status, s->code, (const char *const[]){s->parts[0], s->parts[1], NULL});
        return;
    }
    if (status != OK)
        fail_msg("%s", status_first()->text);
    assert_int_equal(model_shape(m)->heads, s->heads);
    assert_int_equal(model_shape(m)->head_dim, 64 / s->heads);
    assert_int_equal(model_shape(m)->vae_factor, s->vae_factor);
    model_close(m);
}

static void test_kind(void **state)
{
    (void)state;
    static const struct model_hints video = {.kind = "video"}, dit = {.kind = "dit"};
    struct model *m;
    assert_int_equal(model_open(source_path(original), &video, 0, true, &m), OK);
    assert_int_equal(model_shape(m)->kind, MODEL_VIDEO);
    model_close(m);
    assert_int_equal(
        model_open(source_path("tests/models/tiny-video.safetensors"), &dit, 0, true, &m), OK);
    assert_int_equal(model_shape(m)->kind, MODEL_DIT);
    model_close(m);
}

static void test_preset_hints(void **state)
{
    (void)state;
    static const struct model_hints hints = {
        .heads = 4, .classes = 3, .vae_factor = 2, .patch = 4, .kind = "video"};
    static const struct model_shape shape = {MODEL_VIDEO, 0, 12, 128, 4,   32,   512,  4,
                                             4,           4, 3,  2,   128, 1e-6, 1e-6, 1e-6, 0};
    static const struct model_hints wrong = {.heads = 5};
    float row[64];
    struct model *m;
    assert_int_equal(model_open("bench-image", &hints, 0, false, &m), OK);
    check_shape(model_shape(m), &shape);
    read_f32(m, "x_embedder.proj.weight", 127, 1, 0, 64, row);
    model_close(m);
    expect_no_model("bench-image", &wrong, ERR_USAGE,
                    (const char *const[]){"--heads is 5", "128", NULL});
}

#define COUNT(array) (sizeof array / sizeof *array)

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(test_kind),
        cmocka_unit_test(test_preset_hints),
    };
    struct CMUnitTest tests[COUNT(sayings) + COUNT(others)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT(sayings); i++)
        tests[n++] = (struct CMUnitTest){.name = sayings[i].name,
                                         .test_func = test_saying,
                                         .initial_state = (void *)&sayings[i]};
    for (size_t i = 0; i < COUNT(others); i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("model_facts", tests, n, scratch_make, scratch_remove);
}

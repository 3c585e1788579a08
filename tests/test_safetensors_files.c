/* safetensors files: values, models in several files, hashes, writing. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/safetensors.h"
#include "scratch.h"

/* The data starts at an odd address: after an odd header. */
static void test_values(void **state)
{
    (void)state;
    static const char json[] = "{\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                               "\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[14,18]},"
                               "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[18,22]}}";
    static const unsigned char data[] = {0, 0, 0x80, 0x3F, 0,    0,    0x20, 0xC0, 0, 0x3C, 1,
                                         0, 0, 0xFC, 0x80, 0x3F, 0x49, 0x40, 1,    0, 0,    0};
    enum { LENGTH = sizeof json | 1 };
    unsigned char bytes[8 + LENGTH + sizeof data] = {LENGTH & 0xFF, LENGTH >> 8};
    memset(bytes + 8, ' ', LENGTH);
    memcpy(bytes + 8, json, sizeof json - 1);
    memcpy(bytes + 8 + LENGTH, data, sizeof data);
    struct safetensors *file;
    float out[3];
    assert_int_equal(safetensors_open(scratch_write("v.safetensors", bytes, sizeof bytes), &file),
                     OK);
    assert_int_equal(safetensors_read_floats(file, safetensors_find(file, "f"), 0, 2, out), OK);
    assert_true(out[0] == 1.0F && out[1] == -2.5F);
    assert_int_equal(safetensors_read_floats(file, safetensors_find(file, "f"), 1, 1, out), OK);
    assert_true(out[0] == -2.5F);
    assert_int_equal(safetensors_read_floats(file, safetensors_find(file, "h"), 0, 3, out), OK);
    assert_true(out[0] == 1.0F && out[1] == ldexpf(1, -24) && out[2] == -INFINITY);
    assert_int_equal(safetensors_read_floats(file, safetensors_find(file, "b"), 0, 2, out), OK);
    assert_true(out[0] == 1.0F && out[1] == 3.140625F);
    expect_failure(safetensors_read_floats(file, safetensors_find(file, "i"), 0, 1, out),
                   ERR_FORMAT, (const char *const[]){"\"i\"", "I32", NULL});
    safetensors_close(file);
}

static void test_places(void **state)
{
    (void)state;
    assert_int_equal(scratch_mkdir("folder"), 0);
    assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
    expect_refused(scratch_path("none"), ERR_IO,
                   (const char *const[]){"none", "No such file", NULL});
    expect_refused(scratch_path("folder"), ERR_IO,
                   (const char *const[]){"folder", "not a regular file", NULL});
    expect_refused(scratch_path("fifo"), ERR_IO,
                   (const char *const[]){"fifo", "not a regular file", NULL});
}

static void write_shards(void)
{
    scratch_safetensors("m-1.safetensors",
                        "{\"__metadata__\":{\"heads\":\"4\"},\"a\":" F32_ENTRY("[1]", "0", "4") "}",
                        4);
    scratch_safetensors(
        "m-2.safetensors",
        "{\"b\":" F32_ENTRY("[1]", "0", "4") ",\"c\":" F32_ENTRY("[1]", "4", "8") "}", 8);
}

static const char *write_index(const char *text)
{
    write_shards();
    return scratch_write("m.safetensors.index.json", text, strlen(text));
}

static void test_index(void **state)
{
    (void)state;
    struct safetensors *file;
    const char *path =
        write_index("{\"metadata\":{\"total_size\":12,\"x\":[1.5e3,{\"y\":null}]},"
                    "\"weight_map\":{\"c\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\","
                    "\"b\":\"m-2.safetensors\"}} ");
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), 3);
    assert_string_equal(safetensors_find(file, "a")->file, scratch_path("m-1.safetensors"));
    assert_string_equal(safetensors_find(file, "c")->file, scratch_path("m-2.safetensors"));
    assert_string_equal(safetensors_metadata(file, "heads"), "4");
    assert_null(safetensors_metadata(file, "head"));
    safetensors_close(file);

    /* the hash of both, one after the other */
    char both[65], whole[65];
    unsigned char bytes[512];
    size_t n = 0;
    for (int i = 1; i <= 2; i++) {
        FILE *shard = fopen(scratch_path(i == 1 ? "m-1.safetensors" : "m-2.safetensors"), "rb");
        assert_non_null(shard);
        n += fread(bytes + n, 1, sizeof bytes - n, shard);
        fclose(shard);
    }
    assert_int_equal(safetensors_sha256(path, both), OK);
    assert_int_equal(safetensors_sha256(scratch_write("both", bytes, n), whole), OK);
    assert_string_equal(both, whole);
}

static const struct index_refusal {
    const char *name, *json;
    enum status code;
    const char *parts[2];
} index_refusals[] = {
    {"index: shard with /",
     "{\"weight_map\":{\"a\":\"x/m-1.safetensors\"}}",
     ERR_FORMAT,
     {"without /"}},
    {"index: absolute shard",
     "{\"weight_map\":{\"a\":\"/m-1.safetensors\"}}",
     ERR_FORMAT,
     {"without /"}},
    {"index: shard with ..", "{\"weight_map\":{\"a\":\"..\"}}", ERR_FORMAT, {".."}},
    {"index: empty shard", "{\"weight_map\":{\"a\":\"\"}}", ERR_FORMAT, {"file name"}},
    {"index: shard missing",
     "{\"weight_map\":{\"a\":\"m-3.safetensors\"}}",
     ERR_IO,
     {"m-3.safetensors"}},
    {"index: not in its shard",
     "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\","
     "\"c\":\"m-2.safetensors\"}}",
     ERR_FORMAT,
     {"\"b\"", "not in its shard"}},
    {"index: in no shard",
     "{\"weight_map\":{\"z\":\"m-1.safetensors\"}}",
     ERR_FORMAT,
     {"\"z\"", "not in its shard"}},
    {"index: duplicate",
     "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"a\":\"m-1.safetensors\"}}",
     ERR_FORMAT,
     {"\"a\"", "duplicate key"}},
    {"index: two maps",
     "{\"weight_map\":{\"a\":\"m-1.safetensors\"},\"weight_map\":{}}",
     ERR_FORMAT,
     {"duplicate key"}},
    {"index: no map", "{\"metadata\":{}}", ERR_FORMAT, {"weight_map"}},
    {"index: trailing text",
     "{\"weight_map\":{\"a\":\"m-1.safetensors\"}} x",
     ERR_FORMAT,
     {"after its end"}},
    {"index: bad number skipped", "{\"metadata\":{\"n\":1.}}", ERR_FORMAT, {"malformed number"}},
    {"index: bad word skipped", "{\"metadata\":nul}", ERR_FORMAT, {"value is expected"}},
};

static void test_index_refusal(void **state)
{
    const struct index_refusal *r = *state;
    expect_refused(write_index(r->json), r->code,
                   (const char *const[]){r->parts[0], r->parts[1], NULL});
}

static void test_index_shards_overlap(void **state)
{
    (void)state;
    scratch_safetensors(
        "d-1.safetensors",
        "{\"a\":" F32_ENTRY("[1]", "0", "4") ",\"b\":" F32_ENTRY("[1]", "4", "8") "}", 8);
    scratch_safetensors("d-2.safetensors", "{\"b\":" F32_ENTRY("[1]", "0", "4") "}", 4);
    const char *json = "{\"weight_map\":{\"a\":\"d-1.safetensors\",\"b\":\"d-2.safetensors\"}}";
    expect_refused(scratch_write("d.safetensors.index.json", json, strlen(json)), ERR_FORMAT,
                   (const char *const[]){"\"b\"", "in two shards", NULL});
}

static void test_sha256(void **state)
{
    (void)state;
    char hex[65];
    assert_int_equal(safetensors_sha256(scratch_write("abc", "abc", 3), hex), OK);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_failure(safetensors_sha256(scratch_path("none"), hex), ERR_IO,
                   (const char *const[]){"none", NULL});
}

static const float values[] = {1.5F, -2, 3, 4, 5, 6, 7};
static const struct safetensors_output outputs[] = {
    {"a \"b\"\\\n\xE2\x82\xAC", 2, {2, 3}, values},
    {"scalar", 0, {0}, values + 6},
    {"empty", 2, {0, 7}, NULL},
};

static void test_write(void **state)
{
    (void)state;
    static const char *const metadata[] = {"kind", "dit", "ti\"tle", "x\ty", NULL};
    const char *path = scratch_path("written.safetensors");
    struct safetensors *file;
    float out[6];
    size_t before = scratch_count();
    assert_int_equal(safetensors_write(path, outputs, 3, metadata), OK);
    assert_int_equal(scratch_count(), before + 1);
    assert_int_equal(safetensors_open(path, &file), OK);
    const struct safetensors_tensor *t = safetensors_find(file, outputs[0].name);
    assert_non_null(t);
    assert_int_equal((uintptr_t)t->data % 8, 0);
    assert_int_equal(t->dims, 2);
    assert_true(t->shape[0] == 2 && t->shape[1] == 3);
    assert_int_equal(safetensors_read_floats(file, t, 0, 6, out), OK);
    assert_memory_equal(out, values, sizeof out);
    t = safetensors_find(file, "scalar");
    assert_int_equal(t->dims, 0);
    assert_int_equal(safetensors_read_floats(file, t, 0, 1, out), OK);
    assert_true(out[0] == 7);
    assert_int_equal(safetensors_find(file, "empty")->bytes, 0);
    assert_string_equal(safetensors_metadata(file, "ti\"tle"), "x\ty");
    safetensors_close(file);

    /* an existing file is replaced, and one that is being read stays what it was */
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_write(path, outputs + 1, 1, NULL), OK);
    assert_int_equal(safetensors_count(file), 3);
    safetensors_close(file);
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), 1);
    safetensors_close(file);
    assert_int_equal(scratch_count(), before + 1);
}

static void expect_no_write(const char *path, const struct safetensors_output *tensors,
                            size_t count, enum status code, const char *part)
{
    size_t before = scratch_count();
    expect_failure(safetensors_write(path, tensors, count, NULL), code,
                   (const char *const[]){path, part, NULL});
    assert_int_equal(scratch_count(), before);
}

static void test_write_failures(void **state)
{
    (void)state;
    static const struct safetensors_output twice[] = {{"x", 1, {1}, values}, {"x", 1, {1}, values}};
    static const struct safetensors_output latin1[] = {{"\xE9", 1, {1}, values}};
    assert_int_equal(scratch_mkdir("taken"), 0);
    expect_no_write(scratch_path("nowhere/f.safetensors"), outputs, 3, ERR_IO, "No such file");
    expect_no_write(scratch_path("taken"), outputs, 3, ERR_IO, "replaced");
    const char *path = scratch_safetensors("kept.safetensors", "{}", 0);
    expect_no_write(path, twice, 2, ERR_FORMAT, "duplicate key");
    expect_no_write(path, latin1, 1, ERR_FORMAT, "UTF-8");
    struct safetensors *file;
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), 0);
    safetensors_close(file);
}

/* A full disk, as a limit on the size of a file. */
static void test_write_disk_full(void **state)
{
    (void)state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 64, .rlim_max = old.rlim_max};
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    size_t before = scratch_count();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status status = safetensors_write(scratch_path("full.safetensors"), outputs, 3, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, former);
    expect_failure(status, ERR_IO,
                   (const char *const[]){"full.safetensors", "cannot be written", NULL});
    assert_int_equal(scratch_count(), before);
}

#define COUNT(array) (sizeof array / sizeof *array)
#define ADD_ALL(cases, function)                                                                   \
    for (size_t i = 0; i < COUNT(cases); i++)                                                      \
        tests[n++] = (struct CMUnitTest)                                                           \
        {                                                                                          \
            .name = cases[i].name, .test_func = function, .initial_state = (void *)&cases[i]       \
        }

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_index_shards_overlap),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_failures),
        cmocka_unit_test(test_write_disk_full),
    };
    struct CMUnitTest tests[COUNT(index_refusals) + COUNT(others)];
    size_t n = 0;
    ADD_ALL(index_refusals, test_index_refusal);
    for (size_t i = 0; i < COUNT(others); i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("safetensors_files", tests, n, scratch_make, scratch_remove);
}

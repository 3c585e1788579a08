/* Known answers (golden/rng.json), and independence of how a tensor is cut into calls. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "common/rng.h"

static char *read_golden(void)
{
    const char *root = getenv("DITTO_TEST_ROOT");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/rng.json", root ? root : ".");
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: cannot open; set DITTO_TEST_ROOT to the source root", path);
    enum { SIZE = 1 << 16 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    size_t length = fread(text, 1, SIZE - 1, file);
    fclose(file);
    text[length] = 0;
    return text;
}

static int load(void **state)
{
    char *text = read_golden();
    *state = cJSON_Parse(text);
    if (*state) {
        /* cJSON holds numbers as doubles: seeds beyond 2^53 are read from the text again. */
        cJSON_AddStringToObject(*state, "source", text);
    }
    free(text);
    return *state ? 0 : -1;
}

static int unload(void **state)
{
    cJSON_Delete(*state);
    return 0;
}

static const cJSON *field(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_non_null(item);
    return item;
}

static uint64_t hex(const cJSON *item)
{
    assert_true(cJSON_IsString(item));
    return strtoull(item->valuestring, NULL, 16);
}

static void read_words(const cJSON *array, uint32_t *words, int n)
{
    assert_int_equal(cJSON_GetArraySize(array), n);
    for (int i = 0; i < n; i++)
        words[i] = (uint32_t)cJSON_GetArrayItem(array, i)->valuedouble;
}

static void test_philox(void **state)
{
    const cJSON *cases = field(*state, "philox4x32-10"), *item;
    assert_true(cJSON_GetArraySize(cases) >= 2);
    cJSON_ArrayForEach(item, cases)
    {
        uint32_t counter[4], key[2], out[4];
        read_words(field(item, "counter"), counter, 4);
        read_words(field(item, "key"), key, 2);
        rng_philox4x32_10(counter, key, out);
        for (int i = 0; i < 4; i++)
            assert_int_equal(out[i], hex(cJSON_GetArrayItem(field(item, "out"), i)));
    }
}

static void test_fnv(void **state)
{
    const cJSON *cases = field(*state, "fnv1a64"), *item;
    assert_true(cJSON_GetArraySize(cases) >= 2);
    cJSON_ArrayForEach(item, cases) assert_int_equal(rng_fnv1a64(item->string), hex(item));
    assert_int_equal(rng_fnv1a64(""), 0xcbf29ce484222325u);
}

/* The seed of the n-th case of "normals", exactly. */
static uint64_t seed_of(const cJSON *golden, int n)
{
    const char *p = field(golden, "source")->valuestring;
    for (int i = 0; i <= n; i++) {
        p = strstr(p, "\"seed\":");
        assert_non_null(p);
        p += strlen("\"seed\":");
    }
    return strtoull(p, NULL, 10);
}

static void test_normals(void **state)
{
    const cJSON *cases = field(*state, "normals"), *item;
    assert_true(cJSON_GetArraySize(cases) >= 5);
    int n = 0;
    cJSON_ArrayForEach(item, cases)
    {
        const cJSON *values = field(item, "values");
        float out[64];
        int count = cJSON_GetArraySize(values);
        assert_in_range(count, 1, 64);
        rng_normals(seed_of(*state, n++), field(item, "tensor")->valuestring,
                    (uint64_t)field(item, "first")->valuedouble, (size_t)count, out);
        for (int i = 0; i < count; i++)
            if (out[i] != (float)cJSON_GetArrayItem(values, i)->valuedouble)
                fail_msg("case %d, value %d: %.9g is not %.9g", n - 1, i, (double)out[i],
                         cJSON_GetArrayItem(values, i)->valuedouble);
    }
}

static void test_any_cut(void **state)
{
    (void)state;
    enum { N = 45 };
    float whole[N], part[N + 1];
    rng_normals(5, "x_T", 1000, N, whole);
    for (size_t first = 0; first <= N; first++)
        for (size_t n = 0; n <= N - first; n++) {
            part[n] = -77;
            rng_normals(5, "x_T", 1000 + first, n, part);
            assert_memory_equal(part, whole + first, n * sizeof *part);
            assert_true(part[n] == -77);
        }
}

/* Blocks beyond 2^32 use the counter's second word. */
static void test_far_elements(void **state)
{
    (void)state;
    float near[4], far[4];
    rng_normals(5, "x_T", 0, 4, near);
    rng_normals(5, "x_T", (uint64_t)4 << 32, 4, far);
    assert_memory_not_equal(near, far, sizeof near);
}

/* Mean, variance and fourth moment of 2^16 normals, each within five standard errors. */
static void test_moments(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    rng_normals(11, "moments", 0, N, x);
    double mean = 0, square = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double v = x[i];
        mean += v / N;
        square += v * v / N;
        fourth += v * v * v * v / N;
    }
    free(x);
    assert_true(fabs(mean) < 5 / sqrt(N));
    assert_true(fabs(square - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),       cmocka_unit_test(test_fnv),
        cmocka_unit_test(test_normals),      cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_far_elements), cmocka_unit_test(test_moments),
    };
    return cmocka_run_group_tests_name("rng", tests, load, unload);
}

/* What JSON is refused, and that numbers and text are written exactly. */
#include "bench/json.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_refused(const char *text, size_t bytes, const char *rule)
{
    cJSON *value = NULL;
    status_clear();
    assert_int_equal(json_parse("FILE", text, bytes, &value), ERR_FORMAT);
    assert_null(value);
    if (!strstr(status_first()->text, rule) || !strstr(status_first()->text, "FILE"))
        fail_msg("\"%s\" does not say \"%s\"", status_first()->text, rule);
    status_clear();
}

static void refuses(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"", "not valid JSON"},
        {"{\"a\": }", "not valid JSON"},
        {"{\"a\": 1} x", "text follows"},
        {"{\"a\": 1}{\"a\": 1}", "text follows"},
        {"{\"a\": 1, \"b\": {\"c\": 1, \"d\": 2, \"c\": 3}}", "\"c\" stands twice"},
        {"[{\"x\": 1, \"x\": 1}]", "\"x\" stands twice"},
        {"{\"a\": 1e999}", "out of range"},
        {"\"\xff\"", "UTF-8"},
        {"\"\xc0\xaf\"", "UTF-8"},        /* overlong */
        {"\"\xed\xa0\x80\"", "UTF-8"},    /* a surrogate */
        {"\"\xf4\x90\x80\x80\"", "UTF-8"}, /* above U+10FFFF */
        {"\"\xe2\x82\"", "UTF-8"},        /* cut short */
        {"\"a\\u0000b\"", "u0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    assert_refused("\"a\0b\"", 5, "UTF-8");
}

static void accepts(void **state)
{
    (void)state;
    const char *text = " {\"a\": {\"b\": 1.5, \"t\": \"\xc3\xa9 \\\\u0000\"}, \"n\": null}\n";
    cJSON *value = NULL;
    assert_int_equal(json_parse("FILE", text, strlen(text), &value), OK);
    assert_true(json_number(value, "a.b") == 1.5);
    assert_string_equal(json_text(value, "a.t"), "\xc3\xa9 \\u0000");
    assert_true(isnan(json_number(value, "n")) && isnan(json_number(value, "a.x.y")));
    assert_null(json_text(value, "a.b"));
    cJSON_Delete(value);
}

static void writes_exactly(void **state)
{
    (void)state;
    cJSON *object = cJSON_CreateObject();
    json_add_u64(object, "u", UINT64_MAX);
    json_add_u64(object, "v", 9007199254740993u); /* 2^53 + 1 */
    json_add_i64(object, "i", INT64_MIN);
    json_add_number(object, "x", 0.1, "");
    json_add_number(object, "nan", NAN, "no samples");
    json_add_number(object, "inf", -INFINITY, "divided by zero");
    json_add_text(object, "path", "a\xff\xc3\xa9\n\"");
    json_add_text(object, "none", NULL);
    char *line = json_print(object);
    assert_string_equal(line, "{\"u\":18446744073709551615,\"v\":9007199254740993,"
                              "\"i\":-9223372036854775808,\"x\":0.1,\"nan\":null,"
                              "\"nan_reason\":\"no samples\",\"inf\":null,"
                              "\"inf_reason\":\"divided by zero\",\"path\":\"a\\\\xff\xc3\xa9\\n\\\"\","
                              "\"none\":null}");
    free(line);
    cJSON_Delete(object);
}

/* Doubles survive a round trip where the locale has decimal commas. */
static void round_trips(void **state)
{
    (void)state;
    const double values[] = {0.1, 1.0 / 3.0, 1e-300, 123456789.123456789, -2.5e17, 4503599627370497.5,
                             7410.6005000000005, 0.1 + 0.2};
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        skip(); /* tools/test makes this locale */
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        cJSON *array = cJSON_CreateArray(), *back = NULL;
        json_add_number(array, NULL, values[i], "");
        char *line = json_print(array);
        assert_null(strchr(line, ','));
        assert_int_equal(json_parse("line", line, strlen(line), &back), OK);
        assert_true(back->child->valuedouble == values[i]);
        free(line);
        cJSON_Delete(array);
        cJSON_Delete(back);
    }
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(accepts),
        cmocka_unit_test(writes_exactly),
        cmocka_unit_test(round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

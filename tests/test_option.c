/* Every type's good and bad texts, canonical form, the locale, sets. */
#include <limits.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/option.h"

static const char *const mode_choices[] = {"peers", "all", NULL};
static const struct option steps = {
    .name = "steps", .type = OPTION_INT, .fallback = "20", .min = 1, .max = 10000};
static const struct option seed = {.name = "seed",
                                   .type = OPTION_INT,
                                   .fallback = "0",
                                   .min = INT64_MIN,
                                   .max = (double)INT64_MAX};
static const struct option scale = {
    .name = "cfg-scale", .type = OPTION_REAL, .fallback = "1.0", .min = 0, .max = 1e6};
static const struct option offset = {.name = "offset",
                                     .type = OPTION_REAL,
                                     .fallback = "",
                                     .min = -1e300,
                                     .max = 1e300,
                                     .unit = "s"};
static const struct option mode = {
    .name = "stale-mode", .type = OPTION_CHOICE, .fallback = "peers", .choices = mode_choices};
static const struct option blocks = {
    .name = "stale-blocks", .type = OPTION_RANGE, .fallback = "all", .min = 1, .max = 1000};
static const struct option resolution = {.name = "resolution",
                                         .type = OPTION_EXTENT,
                                         .fallback = "32",
                                         .min = 1,
                                         .max = 16384,
                                         .unit = "pixels"};
static const struct option init = {.name = "init", .type = OPTION_TEXT, .fallback = ""};
static const struct option resume = {.name = "resume", .type = OPTION_FLAG, .fallback = ""};
static const struct option *const table[] = {&steps,  &seed,       &scale, &offset, &mode,
                                             &blocks, &resolution, &init,  &resume, NULL};
static const struct option *const part[] = {&steps, &scale, NULL};

static int clear(void **state)
{
    (void)state;
    status_clear();
    return 0;
}

static void assert_canonical(const struct option *option, const char *text, const char *expected)
{
    union option_value value;
    char *out;
    if (option_canonical(option, text, &value, &out) != OK)
        fail_msg("--%s %s: %s", option->name, text, status_first()->text);
    assert_string_equal(out, expected);
    free(out);
}

/* The message must hold the option, the text, and `rule`; the value stays what it was. */
static void assert_refused(const struct option *option, const char *text, const char *rule)
{
    union option_value value, before;
    memset(&value, 0x5a, sizeof value);
    before = value;
    status_clear();
    if (option_parse(option, text, &value) != ERR_USAGE)
        fail_msg("--%s %s is accepted", option->name, text);
    assert_memory_equal(&value, &before, sizeof value);
    const char *message = status_first()->text;
    if (!strstr(message, option->name) || !strstr(message, rule))
        fail_msg("\"%s\" does not say \"%s\"", message, rule);
}

static void test_int(void **state)
{
    (void)state;
    union option_value value;
    assert_int_equal(option_parse(&seed, "-9223372036854775808", &value), OK);
    assert_true(value.i == INT64_MIN);
    assert_int_equal(option_parse(&seed, "9223372036854775807", &value), OK);
    assert_true(value.i == INT64_MAX);
    assert_canonical(&steps, "1", "1");
    assert_canonical(&steps, "0010000", "10000");
    assert_canonical(&seed, "-0", "0");
    static const char *const malformed[] = {"",     "x",   "-",     "+5",  " 5",  "5 ", "5x",
                                            "0x10", "1.0", "1,000", "1e3", "--5", "nan"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        assert_refused(&steps, malformed[i], "not an integer; allowed: an integer from 1 to 10000");
    assert_refused(&steps, "0", "\"0\" is out of range; allowed: an integer from 1 to 10000");
    assert_refused(&steps, "10001", "out of range");
    assert_refused(&seed, "9223372036854775808", "out of range");
    assert_refused(&seed, "-9223372036854775809", "out of range");
}

static void test_real(void **state)
{
    (void)state;
    union option_value value;
    assert_int_equal(option_parse(&scale, "7.5", &value), OK);
    assert_true(value.r == 7.5);
    static const char *const good[][2] = {{"0.5", "0.5"},
                                          {"5e-1", "0.5"},
                                          {".5", "0.5"},
                                          {"1.", "1"},
                                          {"100", "100"},
                                          {"0", "0"},
                                          {"-0", "0"},
                                          {"1E5", "100000"},
                                          {"0.1", "0.1"},
                                          {"1e-7", "1e-07"},
                                          {"1.0000000000000002", "1.0000000000000002"},
                                          {"0.3333333333333333", "0.3333333333333333"}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_canonical(&scale, good[i][0], good[i][1]);
    assert_canonical(&offset, "-1.5e200", "-1.5e+200");
    static const char *const malformed[] = {"",      "x",  "nan", "inf",   "-inf", "infinity",
                                            "0x1p3", " 1", "1 ",  "1,5",   "1.5s", "1e",
                                            "e5",    ".",  "-",   "1.2.3", "+1.0"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        assert_refused(&scale, malformed[i],
                       "not a decimal number; allowed: a number from 0 to 1000000");
    assert_refused(&scale, "-0.001", "out of range");
    assert_refused(&scale, "1000000.1", "out of range");
    assert_refused(&offset, "1e999", "out of range; allowed: a number from -1e+300 to 1e+300 s");
}

static void test_real_round_trip(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u; /* xorshift */
    for (int i = 0; i < 2000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        double number = (double)(int64_t)x * 0x1p-40;
        union option_value value = {.r = 0};
        char text[64], *out;
        snprintf(text, sizeof text, "%.17g", number);
        assert_int_equal(option_canonical(&offset, text, &value, &out), OK);
        assert_true(value.r == number && strtod(out, NULL) == number);
        assert_true(strlen(out) <= strlen(text));
        free(out);
    }
}

static void test_choice(void **state)
{
    (void)state;
    union option_value value;
    assert_int_equal(option_parse(&mode, "all", &value), OK);
    assert_int_equal(value.choice, 1);
    assert_canonical(&mode, "peers", "peers");
    assert_refused(&mode, "peer", "--stale-mode: \"peer\" is unknown; allowed: peers, all");
    assert_refused(&mode, "", "allowed: peers, all");
    assert_refused(&mode, "ALL", "allowed: peers, all");
}

static void test_range(void **state)
{
    (void)state;
    union option_value value;
    assert_int_equal(option_parse(&blocks, "1-12", &value), OK);
    assert_int_equal(value.range.first, 1);
    assert_int_equal(value.range.last, 12);
    assert_int_equal(option_parse(&blocks, "all", &value), OK);
    assert_int_equal(value.range.first, 0);
    assert_int_equal(value.range.last, INT_MAX);
    assert_canonical(&blocks, "all", "all");
    assert_canonical(&blocks, "01-2", "1-2");
    assert_canonical(&blocks, "3", "3");
    assert_canonical(&blocks, "3-3", "3");
    assert_refused(&blocks, "2-1", "a range that ends before it starts; allowed: a, a-b or all");
    assert_refused(&blocks, "0-1", "out of range");
    assert_refused(&blocks, "1-1001", "out of range");
    assert_refused(&blocks, "1--2", "out of range");
    assert_refused(&blocks, "1-2-3", "not a range");
    assert_refused(&blocks, "1-2 ", "not a range");
    assert_refused(&blocks, "1-", "not an integer");
    assert_refused(&blocks, "-1", "out of range");
    assert_refused(&blocks, "", "not an integer");
}

static void test_extent(void **state)
{
    (void)state;
    union option_value value;
    assert_int_equal(option_parse(&resolution, "24x48", &value), OK);
    assert_int_equal(value.extent.height, 24);
    assert_int_equal(value.extent.width, 48);
    assert_int_equal(option_parse(&resolution, "16", &value), OK);
    assert_int_equal(value.extent.height, 16);
    assert_int_equal(value.extent.width, 16);
    assert_canonical(&resolution, "24x48", "24x48");
    assert_canonical(&resolution, "32x32", "32");
    assert_canonical(&resolution, "32", "32");
    assert_refused(&resolution, "0", "N or HxW, positive integers from 1 to 16384 pixels");
    assert_refused(&resolution, "16x0", "out of range");
    assert_refused(&resolution, "16x", "not an integer");
    assert_refused(&resolution, "16x16x3", "not an extent");
    assert_refused(&resolution, "16X16", "not an extent");
    assert_refused(&resolution, "99999999999999999999", "out of range");
}

static void test_flag_and_text(void **state)
{
    (void)state;
    assert_canonical(&resume, "", "true");
    assert_canonical(&resume, "true", "true");
    assert_canonical(&resume, "false", "false");
    assert_refused(&resume, "1", "neither true nor false; allowed: no value, true or false");
    assert_canonical(&init, "a file, with \"all\".bin", "a file, with \"all\".bin");
    assert_canonical(&init, "", "");
}

static void test_set(void **state)
{
    (void)state;
    struct option_set set = {0}, copy;
    assert_int_equal(option_set_add(&set, part), OK);
    assert_int_equal(option_assign(&set, "steps", "7"), OK);
    assert_int_equal(option_set_add(&set, table), OK);
    assert_int_equal(set.count, 9);
    assert_int_equal(option_int(&set, &steps), 7); /* left alone by the second table */
    assert_true(option_real(&set, &scale) == 1);
    assert_int_equal(option_choice(&set, &mode), 0);
    assert_string_equal(option_text(&set, &mode), "peers");
    assert_string_equal(option_text(&set, &offset), "");
    assert_true(option_real(&set, &offset) == 0);
    assert_string_equal(option_text(&set, &resume), "false");
    assert_null(option_find(&set, "step"));
    assert_ptr_equal(option_find(&set, "init"), option_setting(&set, &init));

    const struct option_setting *s = option_find(&set, "resolution");
    assert_true(option_is_default(s) && !s->is_given);
    assert_int_equal(option_assign(&set, "resolution", "32x32"), OK);
    assert_true(option_is_default(s) && s->is_given);
    assert_int_equal(option_assign(&set, "resolution", "32x16"), OK);
    assert_false(option_is_default(s));

    assert_int_equal(option_set_copy(&copy, &set), OK);
    assert_int_equal(option_assign(&set, "resolution", "8"), OK);
    assert_string_equal(option_text(&copy, &resolution), "32x16");
    assert_int_equal(option_setting(&copy, &resolution)->value.extent.width, 16);
    option_set_free(&set);
    assert_int_equal(set.count, 0);
    assert_int_equal(option_int(&copy, &steps), 7);
    option_set_free(&copy);
}

static void test_bad_assignments(void **state)
{
    (void)state;
    struct option_set set = {0};
    assert_int_equal(option_assign(&set, "steps", "1"), ERR_USAGE);
    assert_int_equal(option_set_add(&set, table), OK);
    static const char *const nearest[][2] = {{"step", "--steps"},
                                             {"resolutoin", "--resolution"},
                                             {"stale-block", "--stale-blocks"},
                                             {"sede", "--seed"},
                                             {"cfgscale", "--cfg-scale"}};
    for (size_t i = 0; i < sizeof nearest / sizeof nearest[0]; i++) {
        status_clear();
        assert_int_equal(option_assign(&set, nearest[i][0], "1"), ERR_USAGE);
        assert_non_null(strstr(status_first()->text, nearest[i][0]));
        assert_non_null(strstr(status_first()->text, nearest[i][1]));
    }
    char longest[2000];
    memset(longest, 'y', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(option_assign(&set, longest, "1"), ERR_USAGE);
    assert_int_equal(option_assign(&set, "steps", longest), ERR_USAGE);

    /* A refused value changes nothing. */
    assert_int_equal(option_assign(&set, "steps", "0"), ERR_USAGE);
    assert_int_equal(option_int(&set, &steps), 20);
    assert_false(option_setting(&set, &steps)->is_given);

    static const struct option other_steps = {.name = "steps", .type = OPTION_TEXT, .fallback = ""};
    static const struct option *const clash[] = {&other_steps, NULL};
    assert_int_equal(option_set_add(&set, clash), ERR_INTERNAL);
    option_set_free(&set);
}

static void test_locale(void **state)
{
    (void)state;
    static const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8",  "de_DE",      "fr_FR.UTF-8",
                                        "fr_FR",       "it_IT.UTF-8", "es_ES.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof comma / sizeof comma[0] && !found; i++)
        found = setlocale(LC_ALL, comma[i]);
    if (!found)
        skip(); /* no locale with decimal commas is installed */
    char out[8];
    snprintf(out, sizeof out, "%.1f", 0.5);
    assert_string_equal(out, "0,5");
    test_real(state);
    test_int(state);
    snprintf(out, sizeof out, "%.1f", 0.5);
    assert_string_equal(out, "0,5"); /* and the process keeps its locale */
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_int, clear),
        cmocka_unit_test_setup(test_real, clear),
        cmocka_unit_test_setup(test_real_round_trip, clear),
        cmocka_unit_test_setup(test_choice, clear),
        cmocka_unit_test_setup(test_range, clear),
        cmocka_unit_test_setup(test_extent, clear),
        cmocka_unit_test_setup(test_flag_and_text, clear),
        cmocka_unit_test_setup(test_set, clear),
        cmocka_unit_test_setup(test_bad_assignments, clear),
        cmocka_unit_test_setup(test_locale, clear),
    };
    return cmocka_run_group_tests_name("option", tests, NULL, NULL);
}

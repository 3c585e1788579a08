/* The test hooks do what they say, only to whom they say, and never read a malformed value as off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fault.h"

static int off(void **state)
{
    (void)state;
    status_clear();
    return fault_set(NULL, NULL, NULL, NULL) == OK ? 0 : -1;
}

static void test_off(void **state)
{
    (void)state;
    for (int rank = -1; rank < 4; rank++) {
        assert_int_equal(fault_at_call(rank, 0), OK);
        assert_int_equal(fault_slow_percent(rank), 0);
    }
    assert_int_equal(fault_delay_ns(), 0);
}

static void test_fail(void **state)
{
    (void)state;
    assert_int_equal(fault_set("2:5", NULL, NULL, NULL), OK);
    for (int rank = 0; rank < 4; rank++)
        for (uint64_t call = 0; call < 8; call++) {
            status_clear();
            enum status expected = rank == 2 && call == 5 ? ERR_INTERNAL : OK;
            assert_int_equal(fault_at_call(rank, call), expected);
            assert_int_equal(status_first()->code, expected);
        }
}

static int64_t call_time_ns(int rank, uint64_t call)
{
    int64_t start = clock_ns();
    assert_int_equal(fault_at_call(rank, call), OK);
    return clock_ns() - start;
}

static void test_stall(void **state)
{
    (void)state;
    enum { MS = 60 };
    const int64_t ns = (int64_t)MS * 1000000;
    assert_int_equal(fault_set(NULL, NULL, "1:3:60", NULL), OK);
    assert_true(call_time_ns(1, 3) >= ns);
    assert_true(call_time_ns(1, 2) < ns);
    assert_true(call_time_ns(0, 3) < ns);
}

static void test_delay_and_slow(void **state)
{
    (void)state;
    assert_int_equal(fault_set(NULL, "7", NULL, "1:250"), OK);
    assert_int_equal(fault_delay_ns(), 7000000);
    assert_int_equal(fault_slow_percent(1), 250);
    assert_int_equal(fault_slow_percent(0), 0);
    assert_int_equal(fault_set(NULL, "3600000", NULL, NULL), OK);
    assert_true(fault_delay_ns() == 3600000 * (int64_t)1000000);
    assert_int_equal(fault_slow_percent(1), 0);
}

static void assert_malformed(const char *variable, enum status code)
{
    assert_int_equal(code, ERR_USAGE);
    assert_non_null(strstr(status_first()->text, variable));
    status_clear();
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const pairs[] = {
        "",     "1",    ":",    "1:",   ":1",    "1:2:3",         "a:b",
        "-1:2", "1 :2", "1:2 ", "1:-2", "1:0x2", "99999999999:1", "1:99999999999999999999"};
    static const char *const single[] = {"", "x", "-1", "1.5", "1ms", " 1", "3600001"};
    static const char *const triples[] = {"1:2", "1:2:", "1:2:3:4", "1:2:3600001", "1::3"};
    assert_int_equal(fault_set("2:5", "7", NULL, NULL), OK);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_malformed("DITTO_TEST_FAIL", fault_set(pairs[i], NULL, NULL, NULL));
        assert_malformed("DITTO_TEST_SLOW", fault_set(NULL, NULL, NULL, pairs[i]));
    }
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        assert_malformed("DITTO_TEST_DELAY_MS", fault_set(NULL, single[i], NULL, NULL));
    for (size_t i = 0; i < sizeof triples / sizeof triples[0]; i++)
        assert_malformed("DITTO_TEST_STALL", fault_set(NULL, NULL, triples[i], NULL));
    /* What was set before stays. */
    assert_int_equal(fault_delay_ns(), 7000000);
    assert_int_equal(fault_at_call(2, 5), ERR_INTERNAL);
}

static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("DITTO_TEST_FAIL", "0:1", 1), 0);
    assert_int_equal(setenv("DITTO_TEST_DELAY_MS", "3", 1), 0);
    assert_int_equal(setenv("DITTO_TEST_STALL", "0:2:1", 1), 0);
    assert_int_equal(setenv("DITTO_TEST_SLOW", "0:50", 1), 0);
    assert_int_equal(fault_read_environment(), OK);
    assert_int_equal(fault_at_call(0, 1), ERR_INTERNAL);
    assert_int_equal(fault_delay_ns(), 3000000);
    assert_int_equal(fault_slow_percent(0), 50);
    assert_true(call_time_ns(0, 2) >= 1000000);
    status_clear();
    assert_int_equal(setenv("DITTO_TEST_SLOW", "0", 1), 0);
    assert_malformed("DITTO_TEST_SLOW", fault_read_environment());
    unsetenv("DITTO_TEST_FAIL");
    unsetenv("DITTO_TEST_DELAY_MS");
    unsetenv("DITTO_TEST_STALL");
    unsetenv("DITTO_TEST_SLOW");
    assert_int_equal(fault_read_environment(), OK);
    test_off(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_off, off),
        cmocka_unit_test_setup(test_fail, off),
        cmocka_unit_test_setup(test_stall, off),
        cmocka_unit_test_setup(test_delay_and_slow, off),
        cmocka_unit_test_setup(test_malformed, off),
        cmocka_unit_test_setup(test_environment, off),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}

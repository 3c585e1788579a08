/* Order statistics, against values worked out by hand or by the binomial distribution. */
#include "bench/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void median_of_odd_even_one_none(void **state)
{
    (void)state;
    double odd[] = {5, 1, 4}, even[] = {4, 1, 3, 2}, one[] = {7};
    stats_sort(odd, 3);
    stats_sort(even, 4);
    assert_true(stats_median(odd, 3) == 4.0);
    assert_true(stats_median(even, 4) == 2.5);
    assert_true(stats_median(one, 1) == 7.0);
    assert_true(isnan(stats_median(one, 0)));
}

static void percentile_is_nearest_rank(void **state)
{
    (void)state;
    double v[20];
    for (int i = 0; i < 20; i++)
        v[i] = i + 1;
    assert_true(stats_percentile(v, 20, 95.0) == 19.0); /* 0.95 * 20 = 19 exactly */
    assert_true(stats_percentile(v, 19, 95.0) == 19.0);
    assert_true(stats_percentile(v, 1, 95.0) == 1.0);
    assert_true(stats_percentile(v, 20, 0.0) == 1.0);
    assert_true(stats_percentile(v, 20, 100.0) == 20.0);
}

/* Ranks from tables of the sign test: the largest k with P(Binomial(n, 1/2) < k) <= 0.025. */
static void ranks_of_the_interval(void **state)
{
    (void)state;
    const size_t expected[][2] = {{0, 0},  {1, 0},  {5, 0},  {6, 1},  {7, 1},   {8, 1},  {9, 2},
                                  {12, 3}, {15, 4}, {20, 6}, {25, 8}, {100, 40}, {1000, 469}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(stats_median_rank95(expected[i][0]), expected[i][1]);
}

static void summary(void **state)
{
    (void)state;
    const double v[] = {1, 2, 3, 4, 5, 6, 70};
    struct stats s;
    stats_summarise(v, 7, &s);
    assert_true(s.median == 4.0 && s.min == 1.0 && s.max == 70.0 && s.p95 == 70.0);
    assert_true(s.has_ci && s.ci_low == 1.0 && s.ci_high == 70.0);
    stats_summarise(v, 5, &s);
    assert_false(s.has_ci);
    assert_true(isnan(s.ci_low) && isnan(s.ci_high));
    stats_summarise(v, 0, &s);
    assert_true(isnan(s.median) && isnan(s.min) && isnan(s.max) && isnan(s.p95));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_of_odd_even_one_none),
        cmocka_unit_test(percentile_is_nearest_rank),
        cmocka_unit_test(ranks_of_the_interval),
        cmocka_unit_test(summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

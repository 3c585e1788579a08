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

/* By hand: median 10, absolute deviations 0 0 1 1 1 2 40, MAD 1. */
static void outliers_are_flagged(void **state)
{
    (void)state;
    const double one[] = {10, 11, 50, 9, 10, 12, 9}, equal[] = {5, 5, 5, 5, 9}, few[] = {1, 1.1, 0.9, 99};
    const double edge[] = {10, 9, 11, 5, 15, 8, 12}; /* MAD 2, z of 5: 1.69 */
    bool flags[7];
    assert_int_equal(stats_outliers(one, 7, flags), 1);
    for (int i = 0; i < 7; i++)
        assert_int_equal(flags[i], i == 2);
    assert_int_equal(stats_outliers(equal, 5, flags), 0);
    assert_int_equal(stats_outliers(few, 4, flags), 0);
    assert_int_equal(stats_outliers(edge, 7, flags), 0);
}

/* Exact p by going through all arrangements; the example of Hollander and Wolfe, and its mirror image. */
static void rank_sum_exact(void **state)
{
    (void)state;
    double a[] = {1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
    double b[] = {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.061, 3.14, 1.295};
    stats_sort(a, 9);
    stats_sort(b, 9);
    assert_true(fabs(stats_rank_sum(a, 9, b, 9) - 0.13591114767585355) < 1e-12);
    assert_true(fabs(stats_rank_sum(b, 9, a, 9) - 0.13591114767585355) < 1e-12);
    const double low[] = {1, 2, 3, 4, 5}, high[] = {6, 7, 8, 9};
    assert_true(fabs(stats_rank_sum(low, 5, high, 4) - 2.0 / 126.0) < 1e-15);
    const double odd[] = {1.1, 3.3, 5.5, 7.7}, even[] = {2.2, 4.4, 6.6, 8.8, 9.9};
    assert_true(fabs(stats_rank_sum(odd, 4, even, 5) - 52.0 / 126.0) < 1e-12);
    assert_true(isnan(stats_rank_sum(low, 0, high, 4)));
}

/* Normal approximation with ties (U 7, sum of t^3 - t 78), and of many samples (U 190). */
static void rank_sum_approximate(void **state)
{
    (void)state;
    const double a[] = {1, 2, 2, 3, 3, 4}, b[] = {2, 3, 4, 4, 5, 5, 6};
    assert_true(fabs(stats_rank_sum(a, 6, b, 7) - 0.04953461343562674) < 1e-9);
    double many[30], more[30];
    for (int i = 0; i < 30; i++) {
        many[i] = i;
        more[i] = i + 10.5;
    }
    assert_true(fabs(stats_rank_sum(many, 30, more, 30) - 0.00012477053789099963) < 1e-9);
    assert_true(stats_rank_sum(more, 30, more, 30) > 0.99);
    const double flat[] = {2, 2, 2};
    assert_true(stats_rank_sum(flat, 3, flat, 3) == 1.0);
}

static void holm_by_hand(void **state)
{
    (void)state;
    double p[] = {0.04, NAN, 0.01, 0.03, 0.005};
    const double expected[] = {0.06, NAN, 0.03, 0.06, 0.02};
    stats_holm(p, 5);
    for (int i = 0; i < 5; i++)
        assert_true(isnan(expected[i]) ? isnan(p[i]) : fabs(p[i] - expected[i]) < 1e-12);
    double equal[] = {0.02, 0.02, 0.9};
    stats_holm(equal, 3);
    assert_true(fabs(equal[0] - 0.06) < 1e-12 && fabs(equal[1] - 0.06) < 1e-12 && equal[2] == 0.9);
}

/* Ranks of the interval from tables of U at 2.5%: 4 and 4: the outermost pair; 9 and 9: 17 + 1. */
static void ratio_with_interval(void **state)
{
    (void)state;
    const double a[] = {1, 2, 4, 8}, b[] = {3, 6, 12, 24};
    struct stats_ratio r;
    stats_compare(a, 4, b, 4, &r);
    assert_true(fabs(r.ratio - 3.0) < 1e-12 && r.has_ci);
    assert_true(fabs(r.low - 3.0 / 8.0) < 1e-12 && fabs(r.high - 24.0) < 1e-12);
    stats_compare(a, 3, b, 3, &r);
    assert_true(fabs(r.ratio - 3.0) < 1e-12 && !r.has_ci && isnan(r.low));
    double nine[9], one[9], ratios[81];
    for (int i = 0; i < 9; i++) {
        nine[i] = 100 + i * i;
        one[i] = 50 + 3 * i;
    }
    for (int i = 0; i < 81; i++)
        ratios[i] = nine[i % 9] / one[i / 9];
    stats_sort(ratios, 81);
    stats_compare(one, 9, nine, 9, &r);
    assert_true(r.ratio == ratios[40] && r.low == ratios[17] && r.high == ratios[63]);
    stats_compare(a, 0, b, 4, &r);
    assert_true(isnan(r.ratio) && !r.has_ci);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_of_odd_even_one_none),
        cmocka_unit_test(percentile_is_nearest_rank),
        cmocka_unit_test(ranks_of_the_interval),
        cmocka_unit_test(summary),
        cmocka_unit_test(outliers_are_flagged),
        cmocka_unit_test(rank_sum_exact),
        cmocka_unit_test(rank_sum_approximate),
        cmocka_unit_test(holm_by_hand),
        cmocka_unit_test(ratio_with_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

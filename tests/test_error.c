/* Error metrics: closed forms, and an image pair whose values were computed by NumPy in float64 from the
 * definitions (SSIM by separable convolution there, by windows in the code). */
#include "bench/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { HEIGHT = 13, WIDTH = 17, PLANES = 2, VALUES = PLANES * HEIGHT * WIDTH };

static float reference[VALUES], result[VALUES];

static void assert_close(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance * fmax(1.0, fabs(expected))))
        fail_msg("%.17g is not %.17g", actual, expected);
}

static void fill_images(void)
{
    for (int i = 0; i < VALUES; i++) {
        reference[i] = (float)((i * 7919 % 1009) / 512.0 - 1.0);
        result[i] = (float)(reference[i] + (i * 104729 % 997) / 1024.0 - 0.5);
    }
}

static void against_numpy(void **state)
{
    (void)state;
    struct error_metrics e;
    fill_images();
    error_measure(result, reference, PLANES, HEIGHT, WIDTH, &e);
    assert_close(e.rel_l2, 0.4958571573509164, 1e-12);
    assert_close(e.max_abs, 0.5, 1e-12);
    assert_close(e.psnr_range, 1.96484375, 1e-12);
    assert_close(e.psnr_db, 16.852461037988395, 1e-12);
    assert_close(e.ssim, 0.7183962616496744, 1e-10);
    assert_close(e.cosine, 0.8961676729840503, 1e-12);
    assert_int_equal(e.non_finite, 0);
}

static void equal_images(void **state)
{
    (void)state;
    struct error_metrics e;
    fill_images();
    error_measure(reference, reference, PLANES, HEIGHT, WIDTH, &e);
    assert_true(e.rel_l2 == 0.0 && e.max_abs == 0.0);
    assert_true(isinf(e.psnr_db) && e.psnr_db > 0.0);
    assert_close(e.ssim, 1.0, 1e-12);
    assert_close(e.cosine, 1.0, 1e-12);
}

static void small_images_have_no_ssim(void **state)
{
    (void)state;
    struct error_metrics e;
    fill_images();
    error_measure(result, reference, 1, 10, WIDTH, &e);
    assert_true(isnan(e.ssim));
    error_measure(result, reference, 1, HEIGHT, 10, &e);
    assert_true(isnan(e.ssim));
    error_measure(result, reference, 1, 11, 11, &e);
    assert_false(isnan(e.ssim));
}

/* |(1,1) - (1,3)| / |(1,3)| = 2 / sqrt(10); mean square 2, range 2: psnr = 10 log10(4/2). */
static void by_hand(void **state)
{
    (void)state;
    const float a[] = {1, 1}, b[] = {1, 3};
    struct error_metrics e;
    error_measure(a, b, 1, 1, 2, &e);
    assert_close(e.rel_l2, 2.0 / sqrt(10.0), 1e-15);
    assert_close(e.psnr_db, 10.0 * log10(2.0), 1e-14);
    assert_close(e.cosine, 4.0 / (sqrt(2.0) * sqrt(10.0)), 1e-15);
    assert_close(error_rel_l2(a, b, 2), 2.0 / sqrt(10.0), 1e-15);
}

static void degenerate_values(void **state)
{
    (void)state;
    const float zero[] = {0, 0}, one[] = {1, 1}, bad[] = {NAN, 1}, infinite[] = {1, INFINITY};
    struct error_metrics e;
    assert_true(error_rel_l2(zero, zero, 2) == 0.0);
    assert_true(isinf(error_rel_l2(one, zero, 2)));
    error_measure(zero, one, 1, 1, 2, &e);
    assert_true(isnan(e.cosine) && isnan(e.psnr_db) && e.psnr_range == 0.0 && e.rel_l2 == 1.0);
    error_measure(bad, one, 1, 1, 2, &e);
    assert_int_equal(e.non_finite, 1);
    assert_true(isnan(e.rel_l2) && isnan(e.max_abs) && isnan(e.psnr_db) && isnan(e.cosine));
    error_measure(infinite, one, 1, 1, 2, &e);
    assert_int_equal(e.non_finite, 1);
    assert_true(isnan(e.rel_l2));
    assert_true(isnan(error_rel_l2(bad, one, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_numpy),     cmocka_unit_test(equal_images),
        cmocka_unit_test(small_images_have_no_ssim), cmocka_unit_test(by_hand),
        cmocka_unit_test(degenerate_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

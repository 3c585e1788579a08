/* The exponentials of device cpu, densely over their range. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/device_cpu_vector.h"

enum { COUNT = 1003 }; /* not a multiple of any vector */

static void exp_is_accurate(void **state)
{
    (void)state;
    double worst = 0, at = 0;
    for (double first = -87.3; first < 88.3; first += 0.05) {
        float x[COUNT], shifted[COUNT];
        double sum = 0;
        for (int i = 0; i < COUNT; i++)
            x[i] = shifted[i] = (float)(first + 0.05 * i / COUNT);
        double got = device_cpu_vector_exp(COUNT, shifted, 0);
        for (int i = 0; i < COUNT; i++) {
            double off = fabs(shifted[i] / exp(x[i]) - 1);
            sum += shifted[i];
            if (off > worst) {
                worst = off;
                at = x[i];
            }
        }
        assert_true(isinf(got) || fabs(got / sum - 1) < 64 * 0x1p-24);
    }
    print_message("largest relative error %.3g, at %.9g\n", worst, at);
    assert_true(worst < 2e-7);
}

/* The answers where exp leaves the range of normal numbers, in a vector's body and in its rest. */
static void exp_at_the_ends(void **state)
{
    (void)state;
    for (size_t place = 0; place < 20; place += 19) {
        float x[20] = {0};
        x[place] = -87.34f;
        assert_true(device_cpu_vector_exp(20, x, 0) == 19 && x[place] == 0);
        x[place] = -INFINITY;
        (void)device_cpu_vector_exp(20, x, 0);
        assert_true(x[place] == 0);
        x[place] = 1e30f;
        (void)device_cpu_vector_exp(20, x, 0);
        assert_true(x[place] > 2.3e38f && isfinite(x[place]));
        x[place] = NAN;
        (void)device_cpu_vector_exp(20, x, 0);
        assert_true(isnan(x[place]));
    }
}

static void max_finds_every_place(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40; n++)
        for (size_t place = 0; place < n; place++) {
            float x[40];
            for (size_t i = 0; i < 40; i++)
                x[i] = i < n ? -3 : 7;
            x[place] = -2;
            assert_true(device_cpu_vector_max(n, x) == -2);
        }
    assert_true(device_cpu_vector_max(0, NULL) == -INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(exp_at_the_ends),
        cmocka_unit_test(max_finds_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A platform calibrated on this machine predicts its own runs. Other work on the machine only makes runs
 * slower, so the fastest of several counts on both sides. */
#include "bench/calibrate.h"
#include "bench/launch.h"
#include "bench/stats.h"
#include "common/clock.h"
#include "tests/run_point.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ATTEMPTS = 6 };
#define WITHIN 2.0 /* a factor: one figure for all sizes of product, and caches that are not modelled */
#define POINT "model=dit-s-2 resolution=256 steps=1 repeat=3 warmup-runs=1 strategy=%s gpus=%d "

static double measured_us(const char *strategy, int gpus)
{
    struct run_point run;
    run_point_well(&run, POINT "device=%s", strategy, gpus, device_list()[0]->name);
    double least = INFINITY;
    for (int i = 0; i < run.measured.repeat; i++)
        least = fmin(least, run.measured.latency_us[i]);
    run_point_free(&run);
    return least;
}

static double predicted_us(const struct platform *p, const char *strategy, int gpus)
{
    char line[256], *rest = NULL;
    struct option_set o;
    struct point point;
    struct measurement m;
    const struct measure_request request = {.want_output = false};
    assert_int_equal(point_options_init(&o), OK);
    snprintf(line, sizeof line, POINT, strategy, gpus);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        assert_int_equal(option_assign(&o, word, equals + 1), OK);
    }
    if (point_resolve_on(&o, p, NULL, &point) != OK || measure_point(&point, &request, &m) != OK)
        fail_msg("%s", status_first()->text);
    double us = m.latency_us[0];
    measure_free(&m);
    point_close(&point);
    option_set_free(&o);
    return us;
}

/* ---- are the cores ours? ---- */

static void *spin(void *result)
{
    int64_t start = clock_ns(), work = 0;
    for (volatile int i = 0; i < 20 * 1000 * 1000; i++)
        work += i;
    *(double *)result = (double)(clock_ns() - start) + (work == 0);
    return NULL;
}

/* The longest of `count` threads that do the same work at once. */
static double slowest_of(int count)
{
    double took[2] = {INFINITY, INFINITY};
    pthread_t threads[2];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, spin, &took[i]), 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return count == 1 ? took[0] : fmax(took[0], took[1]);
}

/* How much longer a fixed piece of work takes when two threads do it at once; 1 where two cores are free. Both
 * are timed in threads: the compiler makes different code of a call that it can see through. */
static double crowding(void)
{
    double alone = slowest_of(1);
    return slowest_of(2) / alone;
}

static bool cores_are_taken(void)
{
    double factors[5];
    for (int i = 0; i < 5; i++)
        factors[i] = crowding();
    stats_sort(factors, 5);
    printf("two threads at once take %.2f times as long as one\n", stats_median(factors, 5));
    return stats_median(factors, 5) > 1.2;
}

static void predicts_itself(void **state)
{
    (void)state;
    if (cores_are_taken())
        skip(); /* what others leave of the cores cannot be predicted */
    static const struct {
        const char *strategy;
        int gpus;
    } cases[] = {{"serial", 1}, {"tp", 2}};
    for (int c = 0; c < 2 && cases[c].gpus <= launch_usable_cores(); c++) {
        double real = INFINITY, predicted = INFINITY;
        for (int i = 0; i < ATTEMPTS && !(real < WITHIN * predicted && predicted < WITHIN * real); i++) {
            struct platform p;
            struct calibration sizes = {.device = device_list()[0], .transport = comm_find("threads")};
            calibrate_sizes(&sizes);
            assert_int_equal(calibrate(&sizes, &p), OK);
            predicted = fmin(predicted, predicted_us(&p, cases[c].strategy, cases[c].gpus));
            real = fmin(real, measured_us(cases[c].strategy, cases[c].gpus));
        }
        printf("%s on %d: measured %.0f us, predicted %.0f us\n", cases[c].strategy, cases[c].gpus, real,
               predicted);
        if (real < WITHIN * predicted && predicted < WITHIN * real)
            continue;
        if (cores_are_taken())
            skip(); /* by now */
        fail_msg("%s on %d: measured %g us, predicted %g us", cases[c].strategy, cases[c].gpus, real, predicted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicts_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

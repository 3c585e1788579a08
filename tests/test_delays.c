/* Strategies with stale activations hide the time that messages take: on threads, whose messages a test
 * hook delivers late, and in virtual time, where nothing else disturbs. */
#include "common/fault.h"
#include "tests/run_point.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- on threads ---- */

enum { STEPS = 6, TP_STEPS = 20, PATCHES = 8, ROUNDS = 15 };

/* Steps long enough for delays of whole milliseconds, on a fast device and on `ref`. */
static const char *problem(int *blocks)
{
    bool is_ref = strcmp(device_list()[0]->name, "ref") == 0;
    *blocks = is_ref ? 4 : 12;
    return is_ref ? "model=tests/models/tiny.safetensors resolution=32 gpus=2"
                  : "model=models/dit-fashion.safetensors resolution=32 gpus=2";
}

/* Time of one run's steps after the first, in which every message takes delay_ms, at no cost to the
 * processors. */
static double stale_ms(const struct run_point *run, int delay_ms)
{
    struct measure_request request = {.want_output = false};
    struct measurement measured;
    char delay[16];
    double ms = 0;
    snprintf(delay, sizeof delay, "%d", delay_ms);
    assert_int_equal(fault_set(NULL, delay, NULL, NULL), OK);
    assert_int_equal(measure_point(&run->point, &request, &measured), OK);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    for (int step = 1; step < measured.steps; step++)
        ms += measured.per_step_us[step] / 1000;
    measure_free(&measured);
    return ms;
}

/* What a delay of `part` of the time between two uses of a rank (`uses`: in all steps but the first)
 * costs, of calls x delay. Other load on the machine comes and goes, and only adds time: the quickest
 * runs with and without the delay count, of as many as it takes to lose less than `enough` (0: few). */
static double lost_share(const char *arguments, double part, int uses, int calls, double enough)
{
    struct run_point run;
    int blocks, delay_ms = 0, round = 0;
    double without = INFINITY, with = INFINITY, share = INFINITY;
    run_point_well(&run, "%s %s", problem(&blocks), arguments);
    for (; round < 3 || (round < ROUNDS && !(share < enough) && enough > 0); round++) {
        without = fmin(without, stale_ms(&run, 0));
        int fits_ms = (int)fmax(1, part * without / uses);
        if (delay_ms == 0 || fits_ms < delay_ms) {
            delay_ms = fits_ms;
            with = INFINITY;
        }
        with = fmin(with, stale_ms(&run, delay_ms));
        share = (with - without) / (calls * delay_ms);
    }
    printf("%s: %.0f ms, with %d ms a message %.0f ms: %.3f lost, %d rounds\n", arguments, without,
           delay_ms, with, share, round);
    run_point_free(&run);
    return share;
}

/* A synchronous all-reduce is waited for at once; a stale one has a step's time to end. */
static void test_tp_stale_hides_delays(void **state)
{
    (void)state;
    int steps = TP_STEPS - 1, blocks;
    problem(&blocks);
    int calls = blocks * 2 * steps;
    assert_true(lost_share("steps=20 strategy=tp", 0.1, steps, calls, 0) > 0.9);
    assert_true(lost_share("steps=20 strategy=tp-stale stale-mode=all", 0.6, steps, calls, 0.05) < 0.05);
}

/* A gather has a step's time to end. */
static void test_distrifusion_hides_delays(void **state)
{
    (void)state;
    int steps = STEPS - 1, blocks;
    problem(&blocks);
    assert_true(lost_share("steps=6 strategy=distrifusion staleness=0", 0.3, steps, blocks * steps, 0) > 0.5);
    assert_true(lost_share("steps=6 strategy=distrifusion", 0.6, steps, blocks * (steps - 1), 0.05) < 0.05);
}

/* A message has a patch's time in one stage; a rank sends or receives two messages a patch. With one
 * patch there is nothing else to do meanwhile. */
static void test_pipefusion_hides_delays(void **state)
{
    (void)state;
    int steps = STEPS - 1, patches = PATCHES * steps;
    assert_true(lost_share("steps=6 strategy=pipefusion patches=1", 0.5, steps, 2 * steps, 0) > 0.5);
    assert_true(lost_share("steps=6 strategy=pipefusion patches=8", 0.6, patches, 2 * patches, 0.15) < 0.15);
}

/* ---- in virtual time ---- */

/* A machine whose messages between two ranks take message_us, and whose bytes take next to nothing. */
static const char *platform(double message_us)
{
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "{\"schema\": \"ditto.platform/1\", \"name\": \"late\", \"summary\": \"late messages\","
        " \"protocol\": \"nccl\", \"gpu\": {\"name\": \"any\", \"sms\": 132,"
        " \"memory_gib\": 80, \"peak_tflops\": {\"bf16\": 989}, \"memory_gb_per_s\": 3350,"
        " \"gemm_ceiling\": 0.75, \"attention_ceiling\": 0.6, \"gemm_memory_ceiling\": 0.85,"
        " \"memory_ceiling\": 0.8, \"launch_us\": 3, \"overlap_cost\": 0, \"host_op_us\": 0},"
        " \"node\": {\"gpus\": 0, \"link\": \"nvlink\", \"gpus_per_port\": 1,"
        " \"bus_gb_per_s\": 370.8, \"ll_cap_gb_per_s\": 141}, \"message_us\": %.3f}",
        message_us);
    return scratch_write("late.json", text, (size_t)length);
}

/* Time of the steps after the first. */
static double virtual_us(int stages, int patches, double message_us)
{
    struct run_point run;
    double us = 0;
    run_point_well(&run,
                   "device=sim platform=%s model=dit-xl-2 dtype=bf16 resolution=512 steps=10 "
                   "strategy=pipefusion gpus=%d patches=%d",
                   platform(message_us), stages, patches);
    for (int step = 1; step < run.measured.steps; step++)
        us += run.measured.per_step_us[step];
    run_point_free(&run);
    return us;
}

/* What messages of `part` of a patch's time in one stage cost, of calls x that time. */
static double virtual_share(int stages, int patches, double part)
{
    double without = virtual_us(stages, patches, 0), calls = 2.0 * patches * 9;
    double message_us = part * without / (9 * patches);
    return (virtual_us(stages, patches, message_us) - without) / (calls * message_us);
}

/* Hidden exactly when M tau >= N (tau + c), but for filling the pipe once. */
static void test_pipe_of_twice_the_stages_hides_messages(void **state)
{
    (void)state;
    static const int stages[] = {2, 4, 7};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        assert_true(virtual_share(stages[i], 2 * stages[i], 0.9) < 0.05);
        assert_true(virtual_share(stages[i], 4 * stages[i], 0.9) < 0.05);
        assert_true(virtual_share(stages[i], stages[i], 0.9) > 0.4);
    }
    assert_true(virtual_share(2, 1, 0.5) > 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipe_of_twice_the_stages_hides_messages),
        cmocka_unit_test(test_tp_stale_hides_delays),
        cmocka_unit_test(test_distrifusion_hides_delays),
        cmocka_unit_test(test_pipefusion_hides_delays),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

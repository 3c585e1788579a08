/* Options of tp-stale beyond its golden cases: repair, coded changes, the sampler's time. Values
 * are checked against an independent implementation by tests/e2e/test_stale_options.py. */
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FP32_TOLERANCE 5e-6
#define TINY \
    "model=tests/models/tiny.safetensors resolution=16 steps=6 class=1 strategy=tp-stale "

/* ---- claims ---- */

/* run_point_well compares counted, moved and claimed bytes, and stale memory. */
static void test_claims(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "repair=1",
        "repair=1 extrapolate=1 extrapolate-in=logsnr refresh=3",
        "repair=3 stale-blocks=1-2",
        "repair=100 stale-mode=peers extrapolate=0.5 cfg-scale=2",
        "repair=2 stale-halves=attn",
        "stale-mode=peers own-change=1.5",
        "stale-mode=coded",
        "stale-mode=coded code-bits=8 refresh=2",
        "stale-mode=coded code-bits=3 stale-blocks=1-3 stale-halves=mlp cfg-scale=2",
        "stale-mode=coded resolution=10 code-bits=2"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int gpus = 1; gpus <= 4; gpus++) {
            struct run_point run;
            run_point_well(&run, TINY "gpus=%d %s", gpus, variants[i]);
            run_point_free(&run);
        }
}

/* Per block in fp32 at S = 256, D = 128: a row of codes is a step and floor(32 / bits) codes a
 * word. */
static void test_coded_bytes(void **state)
{
    (void)state;
    static const struct {
        int bits, gpus;
        uint64_t row_words;
    } rows[] = {{8, 2, 33}, {4, 4, 17}, {3, 8, 14}, {2, 2, 9}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_point run;
        uint64_t parts = (uint64_t)rows[i].gpus;
        uint64_t one_way = 256 * rows[i].row_words * 4 * (parts - 1) / parts;
        run_point_well(&run,
                       "model=bench-image resolution=32 steps=3 strategy=tp-stale "
                       "stale-mode=coded code-bits=%d gpus=%d",
                       rows[i].bits, rows[i].gpus);
        for (int rank = 0; rank < rows[i].gpus; rank++) {
            assert_int_equal(run_point_sent(&run, rank, COMM_ALL_TO_ALL, TRAFFIC_HIDDEN),
                             2 * 24 * one_way);
            assert_int_equal(run_point_sent(&run, rank, COMM_ALL_GATHER, TRAFFIC_HIDDEN),
                             2 * 24 * one_way);
        }
        run_point_free(&run);
    }
}

/* ---- equalities ---- */

static void test_limits(void **state)
{
    (void)state;
    run_point_expect_equal(TINY "gpus=3 repair=1 staleness=0", TINY "gpus=3 staleness=0", 0);
    run_point_expect_equal(TINY "gpus=3 repair=2 warmup-steps=6", TINY "gpus=3 staleness=0", 0);
    run_point_expect_equal(TINY "gpus=2 stale-mode=coded refresh=1", TINY "gpus=2 staleness=0", 0);
    /* the model's last half is synchronous: with it alone nothing is old */
    run_point_expect_equal(TINY "gpus=2 repair=1 stale-blocks=3 stale-halves=mlp",
                           TINY "gpus=2 staleness=0", 0);
    /* one rank's own part is fresh at once, and the repair finds nothing to put right */
    run_point_expect_equal(TINY "gpus=1 repair=1 stale-mode=peers", TINY "gpus=1 staleness=0",
                           FP32_TOLERANCE);
    run_point_expect_equal(TINY "gpus=2 extrapolate=0.5 extrapolate-in=steps",
                           TINY "gpus=2 extrapolate=0.5", 0);
}

/* Without the own part's change a rank has nothing of its own: mode all. */
static void test_own_change(void **state)
{
    (void)state;
    run_point_expect_equal(TINY "gpus=3 stale-mode=peers own-change=0 refresh=3",
                           TINY "gpus=3 refresh=3", FP32_TOLERANCE);
    run_point_expect_equal(TINY "gpus=3 stale-mode=peers own-change=1",
                           TINY "gpus=3 stale-mode=peers", 0);
}

/* A repair comes after the model's last half at the latest; beyond that its distance changes
 * nothing. */
static void test_late_repairs_are_one(void **state)
{
    (void)state;
    run_point_expect_equal(TINY "gpus=2 repair=8", TINY "gpus=2 repair=1000", 0);
    run_point_expect_equal(TINY "gpus=3 repair=2", TINY "gpus=1 repair=2", FP32_TOLERANCE);
}

static double distance_to_tp(const char *arguments)
{
    struct run_point run, fresh;
    run_point_well(&run, TINY "gpus=2 %s", arguments);
    run_point_well(&fresh, TINY "gpus=2 staleness=0");
    double distance = run_point_distance_to(&run, &fresh);
    run_point_free(&run);
    run_point_free(&fresh);
    return distance;
}

/* What each option is for: less of an error, in this order. */
static void test_errors_shrink(void **state)
{
    (void)state;
    double stale = distance_to_tp(""), late = distance_to_tp("repair=1000"),
           early = distance_to_tp("repair=1"),
           two_bits = distance_to_tp("stale-mode=coded code-bits=2"),
           eight_bits = distance_to_tp("stale-mode=coded code-bits=8");
    print_message("stale %.2g, repaired late %.2g, early %.2g, 2 bits %.2g, 8 bits %.2g\n", stale,
                  late, early, two_bits, eight_bits);
    assert_true(late < stale && early < late && early > 100 * FP32_TOLERANCE);
    assert_true(eight_bits < 0.1 * two_bits && eight_bits > FP32_TOLERANCE);
}

/* ---- refusals ---- */

static void expect_refusal(const char *options, const char *text)
{
    struct run_point run;
    run_point(&run, TINY "gpus=2 %s", options);
    if (run.status != ERR_UNSUPPORTED || !strstr(run.failure.text, text))
        fail_msg("%s: %s, \"%s\"", options, status_name(run.status), run.failure.text);
    run_point_free(&run);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal("repair=1 staleness=2 warmup-steps=2", "--repair");
    expect_refusal("repair=1 stale-mode=peers stale-transport=allgather", "allreduce");
    expect_refusal("stale-mode=coded staleness=2 warmup-steps=2", "coded");
    expect_refusal("stale-mode=coded repair=1", "coded");
    expect_refusal("stale-mode=coded extrapolate=1", "coded");
    expect_refusal("own-change=2", "peers");
    expect_refusal("stale-mode=coded stale-transport=allgather", "peers");
}

/* ---- overlap ---- */

/* What a rank waits for, in virtual time, of 20 steps of DiT-XL/2 at 2048 px on 8 GPUs. */
static double exposed_us(const char *options)
{
    struct run_point run;
    run_point_well(&run,
                   "model=dit-xl-2 resolution=2048 steps=20 gpus=8 device=sim platform=h100-nvlink "
                   "dtype=bf16 strategy=tp-stale warmup-runs=0 transport=virtual %s",
                   options);
    double us = run.measured.ranks[0].exposed_us;
    run_point_free(&run);
    return us;
}

/* Where the arithmetic of a half takes longer than its exchange, what a repaired step still waits
 * for is its last half and the price of overlapping. */
static void test_repair_hides_communication(void **state)
{
    (void)state;
    double sync = exposed_us("staleness=0"), stale = exposed_us(""),
           repaired = exposed_us("repair=1");
    print_message("a rank waits %.0f us, stale %.0f, repaired %.0f\n", sync, stale, repaired);
    assert_true(stale < 0.6 * sync && repaired < 0.6 * sync);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_coded_bytes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_own_change),
        cmocka_unit_test(test_late_repairs_are_one),
        cmocka_unit_test(test_errors_shrink),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_repair_hides_communication),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

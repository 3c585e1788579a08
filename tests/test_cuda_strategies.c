/* Device `cuda` over both of its transports: every strategy against the reference device at 1, 2 and 4
 * ranks with equal bytes, golden cases, 16-bit dtypes, failures. Run over the emulator, and on a GPU.
 *
 * $DITTO_TEST_SMALL: one step of a model of 3 blocks, 16 tokens, 2 ranks (for sanitizers).
 * $DITTO_TEST_TRANSPORT: that one alone (one GPU cannot run nccl). */
#include "bench/calibrate.h"
#include "common/clock.h"
#include "common/fault.h"
#include "kernels/device_plugin.h"
#include "tests/run_point.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* docs/measuring.md: relative L2 of the final latent in fp32. */
#define FP32_TOLERANCE 5e-6

#define IMAGE "model=tests/models/tiny.safetensors resolution=8 steps=3"
#define CODED IMAGE " strategy=tp-stale stale-mode=coded gpus=2"

static const char *const transports[] = {"local", "nccl"};
enum { TRANSPORTS = sizeof transports / sizeof *transports };

static bool is_small(void)
{
    return getenv("DITTO_TEST_SMALL") != NULL;
}

static bool is_wanted(const char *transport)
{
    const char *only = getenv("DITTO_TEST_TRANSPORT");
    return only == NULL || strcmp(only, transport) == 0;
}

static const char *image(void)
{
    return is_small() ? "model=tests/models/tiny-sigma.safetensors resolution=8 steps=1"
                      : IMAGE;
}

static const char *video(void)
{
    return is_small() ? "model=tests/models/tiny-video.safetensors resolution=4 frames=4 steps=1"
                      : "model=tests/models/tiny-video.safetensors resolution=8 frames=4 steps=2";
}

/* Runs, expects success and matching bytes. */
static void run_well(struct run_point *run, const char *arguments)
{
    run_point(run, "%s", arguments);
    if (run->status != OK)
        fail_msg("%s: %s", arguments, run->failure.text);
    const char *wrong = run_point_check_bytes(run);
    if (wrong != NULL)
        fail_msg("%s: %s", arguments, wrong);
}

/* ---- every strategy ---- */

static void expect_equal(const char *problem, const struct run_point *reference, const char *transport)
{
    char arguments[1024];
    struct run_point run;
    snprintf(arguments, sizeof arguments, "%s device=cuda transport=%s", problem, transport);
    run_well(&run, arguments);
    double distance = run_point_distance_to(&run, reference);
    if (!(distance <= FP32_TOLERANCE))
        fail_msg("%s: relative L2 %g > %g", arguments, distance, FP32_TOLERANCE);
    run_point_free(&run);
}

/* Stale strategies too: the same arithmetic on the same old values. */
static void check_strategy(const struct strategy *strategy, int gpus)
{
    char problem[512], arguments[1024];
    struct run_point reference;
    bool is_video = !strategy->runs_image;
    snprintf(problem, sizeof problem, "%s strategy=%s gpus=%d", is_video ? video() : image(),
             strategy->name, gpus);
    snprintf(arguments, sizeof arguments, "%s device=ref transport=threads", problem);
    run_well(&reference, arguments);
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            expect_equal(problem, &reference, transports[t]);
    run_point_free(&reference);
}

static void strategies_on(int gpus)
{
    for (const struct strategy *const *s = strategy_list(); *s != NULL; s++)
        if (gpus == 1 || strcmp((*s)->name, "serial") != 0)
            check_strategy(*s, gpus);
}

static void test_strategies_on_one_rank(void **state)
{
    (void)state;
    if (!is_small())
        strategies_on(1);
}

static void test_strategies_on_two_ranks(void **state)
{
    (void)state;
    strategies_on(2);
}

static void test_strategies_on_four_ranks(void **state)
{
    (void)state;
    if (!is_small())
        strategies_on(4);
}

/* Guidance split over two groups: a twin, and groups of a split communicator. */
static void test_guidance_in_two_groups(void **state)
{
    (void)state;
    char problem[512], arguments[1024];
    struct run_point reference;
    snprintf(problem, sizeof problem, "%s strategy=tp gpus=4 cfg-degree=2 cfg-scale=3", image());
    snprintf(arguments, sizeof arguments, "%s device=ref transport=threads", problem);
    run_well(&reference, arguments);
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            expect_equal(problem, &reference, transports[t]);
    run_point_free(&reference);
}

/* Codes round, and a last bit decides where to: not the dtype's tolerance, but far less than what the codes
 * leave out. */
static void check_coded(const char *transport, const struct run_point *reference, double left_out)
{
    char arguments[512];
    struct run_point run;
    snprintf(arguments, sizeof arguments, CODED " device=cuda transport=%s", transport);
    run_well(&run, arguments);
    double distance = run_point_distance_to(&run, reference);
    if (!(distance <= 0.3 * left_out))
        fail_msg("%s: relative L2 %g, and the codes leave out %g", arguments, distance, left_out);
    run_point_free(&run);
}

static void test_coded_changes(void **state)
{
    (void)state;
    struct run_point reference, exact;
    run_well(&reference, CODED " device=ref transport=threads");
    run_well(&exact, IMAGE " strategy=tp gpus=2 device=ref transport=threads");
    double left_out = run_point_distance_to(&reference, &exact);
    assert_true(left_out > 10 * FP32_TOLERANCE);
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            check_coded(transports[t], &reference, left_out);
    run_point_free(&exact);
    run_point_free(&reference);
}

/* ---- golden cases ---- */

/* One of each kind, each over the other transport than the one before. */
static const struct {
    const char *file, *strategy;
    int gpus;
} golden[] = {
    {"tiny-serial.safetensors", "tp", 2},
    {"tiny-cfg.safetensors", "tp-sp", 2},
    {"sigma-serial.safetensors", "ring", 3},
    {"f16-serial.safetensors", "ulysses", 2},
    {"tiny-tp-stale-all.safetensors", "tp-stale", 2},
    {"tiny-tp-stale-peers-n3.safetensors", "tp-stale", 3},
    {"tiny-distrifusion-n2.safetensors", "distrifusion", 2},
    {"tiny-pipefusion-m3.safetensors", "pipefusion", 2},
    {"video-t5.safetensors", "dsp", 2},
};

static void check_golden(const struct golden_case *g, const char *strategy, int gpus,
                         const char *transport)
{
    char arguments[2048];
    struct run_point run;
    snprintf(arguments, sizeof arguments, "%s strategy=%s gpus=%d device=cuda transport=%s",
             g->arguments, strategy, gpus, transport);
    run_well(&run, arguments);
    double distance = run_point_distance(&run, g->x0, g->count);
    if (!(distance <= FP32_TOLERANCE))
        fail_msg("%s: relative L2 %g > %g", arguments, distance, FP32_TOLERANCE);
    run_point_free(&run);
}

static void test_golden(void **state)
{
    (void)state;
    size_t count, found = 0;
    struct golden_case *cases = is_small() ? NULL : golden_load(&count);
    if (is_small())
        return;
    assert_non_null(cases);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (size_t c = 0; c < count; c++)
            if (strcmp(cases[c].file, golden[i].file) == 0) {
                const char *transport = transports[i % TRANSPORTS];
                check_golden(&cases[c], golden[i].strategy, golden[i].gpus,
                             is_wanted(transport) ? transport : getenv("DITTO_TEST_TRANSPORT"));
                found++;
            }
    golden_free(cases, count);
    assert_int_equal(found, sizeof golden / sizeof *golden);
}

/* ---- dtypes ---- */

/* Against the reference device in the same dtype: what two orders of summation make of roundings. */
static void check_dtype(const char *dtype, double tolerance)
{
    struct run_point reference, run;
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s strategy=tp gpus=2 dtype=%s", image(), dtype);
    run_point(&reference, "%s device=ref transport=threads", arguments);
    run_point(&run, "%s device=cuda transport=local", arguments);
    assert_int_equal(reference.status, OK);
    if (run.status != OK)
        fail_msg("%s: %s", arguments, run.failure.text);
    double distance = run_point_distance_to(&run, &reference);
    if (!(distance <= tolerance))
        fail_msg("%s: relative L2 %g > %g", arguments, distance, tolerance);
    run_point_free(&run);
    run_point_free(&reference);
}

static void test_16_bit_dtypes(void **state)
{
    (void)state;
    check_dtype("bf16", 4 * 0x1p-8);
    check_dtype("fp16", 4 * 0x1p-11);
}

/* ---- calibration ---- */

static void check_calibration(const char *transport)
{
    struct calibration c = {.device = device_find("cuda"), .transport = comm_find(transport),
                            .dtype = DTYPE_BF16, .tokens = 16, .hidden = 64};
    struct platform p;
    if (calibrate(&c, &p) != OK)
        fail_msg("%s: %s", transport, status_first()->text);
    const double figures[] = {p.gpu.peak_flops[DTYPE_BF16], p.gpu.gemm_ceiling, p.gpu.attention_ceiling,
                              p.gpu.memory_bandwidth, p.gpu.launch_s, p.node.bus, p.node.latency_s};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (!(figures[i] > 0 && isfinite(figures[i])))
            fail_msg("%s: figure %zu is %g", transport, i, figures[i]);
    assert_true(fmax(p.gpu.gemm_ceiling, p.gpu.attention_ceiling) == 1);
    assert_true(p.gpu.peak_flops[DTYPE_FP32] == 0 && p.gpu.peak_flops[DTYPE_FP16] == 0);
}

static void test_calibration(void **state)
{
    (void)state;
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            check_calibration(transports[t]);
}

/* ---- failures ---- */

/* Rank 1 fails at its 5th call: all ranks return soon, with its reason. */
static void expect_injected_failure(const char *transport)
{
    struct run_point run;
    assert_int_equal(fault_set("1:5", NULL, NULL, NULL), OK);
    int64_t start = clock_ns();
    run_point(&run, "%s strategy=tp gpus=2 device=cuda transport=%s timeout=20", image(), transport);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    assert_int_equal(run.status, ERR_INTERNAL);
    assert_non_null(strstr(run.failure.text, "comm call 5 of rank 1"));
    assert_true(clock_ns() - start < (int64_t)10 * 1000000000);
    run_point_free(&run);
}

static void test_a_failing_rank_ends_all(void **state)
{
    (void)state;
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            expect_injected_failure(transports[t]);
}

/* Rank 1 stays away for longer than the deadline. */
static void expect_timeout(const char *transport)
{
    struct run_point run;
    assert_int_equal(fault_set(NULL, NULL, "1:5:6000", NULL), OK);
    run_point(&run, "%s strategy=tp gpus=2 device=cuda transport=%s timeout=3", image(), transport);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    if (run.status != ERR_TIMEOUT)
        fail_msg("%s: %s: %s", transport, status_name(run.status), run.failure.text);
    run_point_free(&run);
}

static void test_a_missing_rank_is_a_timeout(void **state)
{
    (void)state;
    for (int t = 0; t < TRANSPORTS; t++)
        if (is_wanted(transports[t]))
            expect_timeout(transports[t]);
}

static void test_too_much_memory_is_oom(void **state)
{
    (void)state;
    struct lane_system *lanes;
    struct device_config config = {.nranks = 1, .threads = 1};
    struct device *d;
    struct devmem memory;
    assert_int_equal(device_open(device_find("cuda"), &config, &d), OK);
    lanes = d->lanes;
    status_clear();
    assert_int_equal(lane_alloc(lanes, (size_t)1 << 44, &memory), ERR_MEMORY);
    assert_non_null(strstr(status_first()->text, "cannot allocate 17592186044416 bytes"));
    status_clear();
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies_on_one_rank),
        cmocka_unit_test(test_strategies_on_two_ranks),
        cmocka_unit_test(test_strategies_on_four_ranks),
        cmocka_unit_test(test_guidance_in_two_groups),
        cmocka_unit_test(test_coded_changes),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_16_bit_dtypes),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_a_failing_rank_ends_all),
        cmocka_unit_test(test_a_missing_rank_is_a_timeout),
        cmocka_unit_test(test_too_much_memory_is_oom),
    };
    if (device_plugin_load() != OK) {
        fprintf(stderr, "%s\n", status_first()->text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

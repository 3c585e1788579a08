/* ulysses, ring, usp, tsp and dsp compute what serial computes: golden files, every shape and number of
 * ranks, guidance, reduced precision, slow messages, failures, refusals. What they send is in test_sequence_bytes.c. */
#include "common/fault.h"
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FP32_TOLERANCE 5e-6
/* 8 heads of 8 channels, so that 8 ranks can share them. */
#define IMAGE "model=tests/models/tiny.safetensors heads=8 steps=1 class=1 "
#define VIDEO "model=tests/models/tiny-video.safetensors heads=8 steps=1 class=1 "
enum { LINE = 1024 };

static const char *const on_images[] = {"tp", "tp-sp", "ulysses", "ring", "usp", "tsp", NULL};
static const char *const on_videos[] = {"tp", "tp-sp", "ulysses", "ring", "dsp", NULL};
static const int rank_counts[] = {1, 2, 3, 4, 8};
enum { RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

/* On `ref` every head and every row has the bits it has on one rank. */
static bool is_bit_equal(const char *strategy)
{
    return strcmp(strategy, "ulysses") == 0 || strcmp(strategy, "dsp") == 0;
}

/* Heads cannot be shared equally by 3 ranks: test_refusals. */
static bool is_refused(const char *strategy, int gpus)
{
    return strcmp(strategy, "ulysses") == 0 && gpus == 3;
}

/* ---- golden files ---- */

static void expect_golden(const struct golden_case *g, const char *strategy, int gpus)
{
    struct run_point run;
    run_point_well(&run, "%s repeat=0 strategy=%s gpus=%d", g->arguments, strategy, gpus);
    double distance = run_point_distance(&run, g->x0, g->count);
    if (!(distance <= FP32_TOLERANCE))
        fail_msg("%s, %s on %d ranks: relative L2 %g", g->file, strategy, gpus, distance);
    run_point_free(&run);
}

/* On the device that users get. tp and tp-sp, and serial on `ref`, meet the files in suite_strategy. */
static void golden_of(bool is_video, const char *const *strategies)
{
    size_t count, seen = 0;
    struct golden_case *cases = golden_load(&count);
    assert_non_null(cases);
    for (size_t i = 0; i < count; i++) {
        const struct golden_case *g = &cases[i];
        bool is_large = strncmp(g->file, "fashion", 7) == 0; /* seconds each: suite_strategy */
        if (strcmp(g->strategy, "serial") != 0 || (g->frames > 0) != is_video || is_large)
            continue;
        seen++;
        for (const char *const *s = strategies + 2; *s; s++)
            for (int gpus = 3; gpus <= 4; gpus++)
                if (!is_refused(*s, gpus))
                    expect_golden(g, *s, gpus);
    }
    assert_true(seen >= 3);
    golden_free(cases, count);
}

static void test_golden_images(void **state)
{
    (void)state;
    golden_of(false, on_images);
}

static void test_golden_videos(void **state)
{
    (void)state;
    golden_of(true, on_videos);
}

/* ---- every shape and number of ranks ---- */

static void expect_serial(const char *shape, const char *strategy, int gpus, const struct run_point *serial,
                          bool is_ref)
{
    struct run_point run;
    double tolerance = is_ref && is_bit_equal(strategy) ? 0 : FP32_TOLERANCE;
    run_point_well(&run, "%s strategy=%s gpus=%d", shape, strategy, gpus);
    double distance = run_point_distance_to(&run, serial);
    if (!(distance <= tolerance))
        fail_msg("%s, %s on %d ranks: relative L2 %g > %g", shape, strategy, gpus, distance, tolerance);
    run_point_free(&run);
}

static void expect_all_serial(const char *shape, const char *device, const char *const *strategies)
{
    char line[LINE];
    struct run_point serial;
    snprintf(line, sizeof line, "%s device=%s", shape, device);
    run_point_well(&serial, "%s strategy=serial", line);
    for (const char *const *s = strategies; *s; s++)
        for (int i = 0; i < RANK_COUNTS; i++)
            if (!is_refused(*s, rank_counts[i]))
                expect_serial(line, *s, rank_counts[i], &serial, strcmp(device, "ref") == 0);
    run_point_free(&serial);
}

static void test_images_equal_serial(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        IMAGE "resolution=12",                /* 36 tokens */
        IMAGE "resolution=4x16",              /* wide */
        IMAGE "resolution=6x10 cfg-scale=3",  /* 15 tokens, a batch of two */
        IMAGE "resolution=2x6"};              /* 3 tokens: ranks that hold nothing */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_all_serial(shapes[i], "ref", on_images);
    expect_all_serial(shapes[2], device_list()[0]->name, on_images);
}

static void test_videos_equal_serial(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        VIDEO "resolution=6x10 frames=1", VIDEO "resolution=6x10 frames=5 cfg-scale=3",
        VIDEO "resolution=6 frames=7", VIDEO "resolution=8 frames=8",
        VIDEO "resolution=2 frames=3"}; /* one token a frame */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_all_serial(shapes[i], "ref", on_videos);
    expect_all_serial(shapes[1], device_list()[0]->name, on_videos);
}

/* Every split of 8 ranks into groups and rings; with the largest groups it is ulysses itself. */
static void test_usp_degrees(void **state)
{
    (void)state;
    static const char shape[] = IMAGE "resolution=6x10 device=ref";
    struct run_point serial;
    run_point_well(&serial, "%s strategy=serial", shape);
    for (int degree = 1; degree <= 8; degree *= 2) {
        char line[LINE];
        snprintf(line, sizeof line, "%s ulysses-degree=%d", shape, degree);
        expect_serial(line, "usp", 8, &serial, true);
    }
    run_point_expect_equal(IMAGE "resolution=6x10 device=ref strategy=usp gpus=8",
                           IMAGE "resolution=6x10 device=ref strategy=serial", 0);
    run_point_free(&serial);
}

/* Not given, U is the largest that divides the ranks and the heads. */
static void test_usp_default_degree(void **state)
{
    (void)state;
    static const struct {
        int heads, gpus, ulysses, ring;
    } cases[] = {{8, 8, 8, 1}, {4, 8, 4, 2}, {4, 6, 2, 3}, {8, 3, 1, 3}, {2, 8, 2, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run_point run;
        run_point_well(&run, IMAGE "resolution=8 repeat=0 strategy=usp heads=%d gpus=%d", cases[i].heads,
                       cases[i].gpus);
        assert_int_equal(run.point.layout.degree[AXIS_ULYSSES], cases[i].ulysses);
        assert_int_equal(run.point.layout.degree[AXIS_RING], cases[i].ring);
        run_point_free(&run);
    }
}

/* Two groups of ranks, one half of guidance each, against the batch of two. */
static void expect_cfg_degree(const char *shape, const char *const *strategies)
{
    for (const char *const *s = strategies; *s; s++) {
        char one[LINE], two[LINE];
        snprintf(one, sizeof one, "%s cfg-scale=3 strategy=%s gpus=4", shape, *s);
        snprintf(two, sizeof two, "%s cfg-scale=3 cfg-degree=2 strategy=%s gpus=8", shape, *s);
        run_point_expect_equal(two, one, FP32_TOLERANCE);
    }
}

static void test_cfg_degree(void **state)
{
    (void)state;
    expect_cfg_degree(IMAGE "resolution=6x10", on_images);
    expect_cfg_degree(VIDEO "resolution=6x10 frames=5", on_videos);
}

/* ---- reduced precision ---- */

static void expect_within_noise(const char *shape, const char *const *strategies)
{
    struct run_point serial;
    struct measure_request request = {.want_output = true, .splits_inner = true};
    struct measurement split;
    run_point_well(&serial, "%s strategy=serial", shape);
    assert_int_equal(measure_point(&serial.point, &request, &split), OK);
    double floor = run_point_distance(&serial, split.x0, split.values);
    assert_true(floor > 1e-5);
    for (const char *const *s = strategies; *s; s++) {
        struct run_point run;
        run_point_well(&run, "%s strategy=%s gpus=8", shape, *s);
        double distance = run_point_distance_to(&run, &serial);
        if (!(distance <= 5 * floor))
            fail_msg("%s, %s: relative L2 %g, noise floor %g", shape, *s, distance, floor);
        run_point_free(&run);
    }
    measure_free(&split);
    run_point_free(&serial);
}

static void test_bf16(void **state)
{
    (void)state;
    expect_within_noise(IMAGE "resolution=12 device=ref dtype=bf16", on_images);
    expect_within_noise(VIDEO "resolution=6x10 frames=5 device=ref dtype=bf16", on_videos);
}

/* ---- slow and failing ranks ---- */

/* Messages that arrive late change nothing: every buffer is waited for before it is used again. */
static void expect_same_when_late(const char *shape, const char *const *strategies)
{
    for (const char *const *s = strategies; *s; s++) {
        struct run_point prompt, late;
        run_point_well(&prompt, "%s strategy=%s gpus=4", shape, *s);
        assert_int_equal(fault_set(NULL, "1", NULL, "1:300"), OK);
        run_point(&late, "%s strategy=%s gpus=4", shape, *s);
        assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
        assert_int_equal(late.status, OK);
        assert_true(run_point_distance_to(&late, &prompt) <= 0);
        run_point_free(&prompt);
        run_point_free(&late);
    }
}

static void test_late_messages(void **state)
{
    (void)state;
    expect_same_when_late(IMAGE "resolution=6x10", on_images);
    expect_same_when_late(VIDEO "resolution=6x10 frames=5", on_videos);
}

/* Whatever call fails, all ranks end, and the first failure is the one reported. */
static void expect_failures(const char *shape, const char *const *strategies)
{
    for (const char *const *s = strategies; *s; s++)
        for (int call = 0; call < 8; call += 3) {
            struct run_point run;
            char where[16];
            snprintf(where, sizeof where, "1:%d", call);
            assert_int_equal(fault_set(where, NULL, NULL, NULL), OK);
            run_point(&run, "%s strategy=%s gpus=4", shape, *s);
            assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
            if (run.status != ERR_INTERNAL)
                fail_msg("%s, %s, call %d: %s", shape, *s, call, status_name(run.status));
            run_point_free(&run);
        }
}

static void test_injected_failures(void **state)
{
    (void)state;
    expect_failures(IMAGE "resolution=6x10", on_images);
    expect_failures(VIDEO "resolution=6x10 frames=5", on_videos);
}

/* ---- refusals ---- */

static void expect_refusal(const char *arguments, const char *reason)
{
    struct run_point run;
    run_point(&run, "%s", arguments);
    if (run.status != ERR_UNSUPPORTED || !strstr(run.point.refusal.text, reason))
        fail_msg("%s: %s, \"%s\", instead of a refusal with \"%s\"", arguments, status_name(run.status),
                 run.failure.text, reason);
    run_point_free(&run);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(IMAGE "resolution=8 strategy=ulysses gpus=3", "the 8 heads");
    expect_refusal(VIDEO "resolution=8 frames=8 strategy=ulysses gpus=16", "the 8 heads");
    expect_refusal(IMAGE "resolution=8 strategy=usp gpus=4 ulysses-degree=3", "4 ranks");
    expect_refusal(IMAGE "resolution=8 strategy=usp gpus=2 ulysses-degree=4", "2 ranks");
    expect_refusal(IMAGE "resolution=8 strategy=usp gpus=6 ulysses-degree=3", "the 8 heads");
    expect_refusal(IMAGE "resolution=8 strategy=tsp gpus=9", "8 attention heads");
    expect_refusal(VIDEO "resolution=8 strategy=usp gpus=2", "image models only");
    expect_refusal(VIDEO "resolution=8 strategy=tsp gpus=2", "image models only");
    expect_refusal(IMAGE "resolution=8 strategy=dsp gpus=2", "video models only");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_images),       cmocka_unit_test(test_golden_videos),
        cmocka_unit_test(test_images_equal_serial), cmocka_unit_test(test_videos_equal_serial),
        cmocka_unit_test(test_usp_degrees),         cmocka_unit_test(test_usp_default_degree),
        cmocka_unit_test(test_cfg_degree),          cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_late_messages),       cmocka_unit_test(test_injected_failures),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every registered strategy on every host device: golden cases, claims, refusals, faults. Cases of the
 * manifest whose strategy is not built are an error, so nothing is passed over. */
#include "common/clock.h"
#include "common/fault.h"
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* docs/measuring.md: relative L2 of the final latent in fp32. */
#define FP32_TOLERANCE 5e-6
#define BENCH_IMAGE "model=bench-image resolution=32 steps=1 "

static const char *const exact_on_images[] = {"serial", "tp", "tp-sp"};

/* Runs, expects success and matching bytes. */
static void run_well(struct run_point *run, const char *arguments)
{
    run_point(run, "%s", arguments);
    if (run->status != OK)
        fail_msg("%s: %s", arguments, run->failure.text);
    const char *wrong = run_point_check_bytes(run);
    if (wrong)
        fail_msg("%s: %s", arguments, wrong);
}

static void run_golden(const struct golden_case *g, const char *strategy, int gpus, const char *device)
{
    char arguments[2048];
    struct run_point run;
    snprintf(arguments, sizeof arguments, "%s strategy=%s gpus=%d device=%s", g->arguments, strategy,
             gpus, device);
    run_well(&run, arguments);
    double distance = run_point_distance(&run, g->x0, g->count);
    if (!(distance <= FP32_TOLERANCE))
        fail_msg("%s: relative L2 %g > %g", arguments, distance, FP32_TOLERANCE);
    run_point_free(&run);
}

/* The slow reference device takes the small models only. */
static bool is_small(const struct golden_case *g)
{
    return strncmp(g->file, "fashion", 7) != 0;
}

/* Large models run on one and on several ranks, small ones on every number up to four. */
static bool is_run_on(const struct golden_case *g, int gpus)
{
    return is_small(g) || gpus == 1 || gpus == 3;
}

static void run_golden_on_ranks(const struct golden_case *g, const char *device)
{
    bool is_serial = strcmp(g->strategy, "serial") == 0;
    bool is_fixed = g->is_peers || strcmp(g->strategy, "distrifusion") == 0;
    if (is_serial) {
        for (size_t i = 0; i < sizeof exact_on_images / sizeof *exact_on_images; i++)
            for (int gpus = 1; gpus <= (i ? 4 : 1); gpus++)
                if (is_run_on(g, gpus))
                    run_golden(g, exact_on_images[i], gpus, device);
        return;
    }
    for (int gpus = 1; gpus <= 4; gpus++)
        if (!is_fixed && is_run_on(g, gpus))
            run_golden(g, g->strategy, gpus, device);
    if (is_fixed)
        run_golden(g, g->strategy, g->gpus, device);
}

/* Sanitizers make every run ten times as long: each strategy still has cases among these. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CASE_STRIDE = 4 };
#else
enum { CASE_STRIDE = 1 };
#endif

static void golden_on(const char *device, bool small_only)
{
    size_t count;
    struct golden_case *cases = golden_load(&count);
    assert_non_null(cases);
    for (size_t i = 0; i < count; i += CASE_STRIDE)
        if (!small_only || is_small(&cases[i]))
            run_golden_on_ranks(&cases[i], device);
    golden_free(cases, count);
}

static void test_golden_ref(void **state)
{
    (void)state;
    golden_on("ref", true);
}

static void test_golden_best_device(void **state)
{
    (void)state;
    if (strcmp(device_list()[0]->name, "ref") == 0)
        skip(); /* a build with ref alone: test_golden_ref has run what it can */
    golden_on(device_list()[0]->name, false);
}

/* ---- byte tables ---- */

/* What each rank sends per block in fp32 at S = 256, D = 128, F = 512, H = 8. */
static void expect_block_bytes(const char *strategy, int gpus, const uint64_t *per_rank)
{
    char arguments[256];
    struct run_point run;
    snprintf(arguments, sizeof arguments, BENCH_IMAGE "strategy=%s gpus=%d", strategy, gpus);
    run_well(&run, arguments);
    for (int rank = 0; rank < gpus; rank++) {
        uint64_t sent = 0;
        for (int op = 0; op < COMM_OPS; op++)
            sent += run_point_sent(&run, rank, (enum comm_op)op, TRAFFIC_HIDDEN);
        assert_int_equal(sent, 12 * per_rank[rank]);
    }
    run_point_free(&run);
}

static void test_byte_tables(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        uint64_t bytes;
    } even[] = {{1, 0}, {2, 262144}, {4, 393216}, {8, 458752}};
    for (size_t i = 0; i < sizeof even / sizeof *even; i++) {
        uint64_t per_rank[8];
        for (int rank = 0; rank < 8; rank++)
            per_rank[rank] = even[i].bytes;
        expect_block_bytes("tp", even[i].gpus, per_rank);
        expect_block_bytes("tp-sp", even[i].gpus, per_rank);
    }
    expect_block_bytes("tp", 3, (uint64_t[]){349528, 349528, 349520});
    expect_block_bytes("tp-sp", 3, (uint64_t[]){350208, 349184, 349184});
}

/* Gathered parts on every step, and the noise averaged on stale steps. */
static void test_stale_byte_tables(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        uint64_t gathered, noise[8];
    } rows[] = {{2, 262144, {16384, 16384}},
                {3, 524288, {21848, 21844, 21844}},
                {4, 786432, {24576, 24576, 24576, 24576}},
                {8, 1835008, {28672, 28672, 28672, 28672, 28672, 28672, 28672, 28672}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char arguments[256];
        struct run_point run;
        snprintf(arguments, sizeof arguments,
                 "model=bench-image resolution=32 steps=3 strategy=tp-stale gpus=%d stale-mode=peers "
                 "stale-transport=allgather",
                 rows[i].gpus);
        run_well(&run, arguments);
        for (int rank = 0; rank < rows[i].gpus; rank++) {
            /* step 0 awaited, step 1 started, step 2 not started: nobody would read it */
            assert_int_equal(run_point_sent(&run, rank, COMM_ALL_GATHER, TRAFFIC_HIDDEN),
                             2 * 12 * rows[i].gathered);
            assert_int_equal(run_point_sent(&run, rank, COMM_ALL_REDUCE, TRAFFIC_NOISE),
                             2 * rows[i].noise[rank]);
        }
        run_point_free(&run);
    }
}

/* ---- equalities ---- */

#define TINY "model=tests/models/tiny.safetensors resolution=16 steps=6 class=1 "

static void expect_equal(const char *a, const char *b, double tolerance)
{
    struct run_point left, right;
    run_well(&left, a);
    run_well(&right, b);
    double distance = run_point_distance_to(&left, &right);
    if (!(distance <= tolerance))
        fail_msg("%s against %s: relative L2 %g > %g", a, b, distance, tolerance);
    run_point_free(&left);
    run_point_free(&right);
}

static void test_staleness_limits(void **state)
{
    (void)state;
    expect_equal(TINY "strategy=tp-stale gpus=3 staleness=0", TINY "strategy=tp gpus=3", 0);
    expect_equal(TINY "strategy=tp-stale gpus=3 warmup-steps=6", TINY "strategy=tp gpus=3", 0);
    expect_equal(TINY "strategy=tp-stale gpus=1 stale-mode=peers", TINY "strategy=serial",
                 FP32_TOLERANCE);
    expect_equal(TINY "strategy=tp-stale gpus=2 stale-blocks=3 stale-halves=mlp refresh=1",
                 TINY "strategy=tp gpus=2", 0);
}

static void test_transports_agree(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "gpus=2", "gpus=3 staleness=2 warmup-steps=3 refresh=2", "gpus=4 extrapolate=0.5",
        "gpus=3 staleness=2 warmup-steps=2 extrapolate=0.7 stale-blocks=1-2 refresh=3",
        "gpus=4 stale-halves=attn cfg-scale=2.5"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char a[512], b[512];
        snprintf(a, sizeof a, TINY "strategy=tp-stale stale-mode=peers %s", variants[i]);
        snprintf(b, sizeof b, TINY "strategy=tp-stale stale-mode=peers stale-transport=allgather %s",
                 variants[i]);
        expect_equal(a, b, FP32_TOLERANCE);
    }
}

/* Mode all does not depend on the ranks, beyond rounding. */
static void test_all_is_the_same_for_every_rank_count(void **state)
{
    (void)state;
    for (int gpus = 2; gpus <= 4; gpus++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 TINY "strategy=tp-stale staleness=2 warmup-steps=2 refresh=3 gpus=%d", gpus);
        expect_equal(arguments, TINY "strategy=tp-stale staleness=2 warmup-steps=2 refresh=3 gpus=1",
                     FP32_TOLERANCE);
    }
}

static void test_cfg_degree(void **state)
{
    (void)state;
    for (size_t i = 0; strategy_list()[i]; i++) {
        const struct strategy *s = strategy_list()[i];
        char one[512], two[512];
        int ranks = s == &strategy_serial ? 1 : 2;
        if (!s->runs_image)
            continue;
        snprintf(one, sizeof one, TINY "cfg-scale=3 strategy=%s gpus=%d", s->name, ranks);
        snprintf(two, sizeof two, TINY "cfg-scale=3 cfg-degree=2 strategy=%s gpus=%d", s->name,
                 2 * ranks);
        expect_equal(two, one, FP32_TOLERANCE);
    }
}

static void test_stale_differs(void **state)
{
    (void)state;
    struct run_point stale, fresh;
    run_well(&stale, TINY "strategy=tp-stale gpus=2");
    run_well(&fresh, TINY "strategy=tp gpus=2");
    assert_true(run_point_distance_to(&stale, &fresh) > 1e-3);
    run_point_free(&stale);
    run_point_free(&fresh);
}

/* Several ranks' messages in reduced precision stay within 5 times the problem's noise floor. */
static void test_bf16(void **state)
{
    (void)state;
    struct run_point serial, split, run;
    struct measure_request request = {.want_output = true, .splits_inner = true};
    struct measurement noisy;
    run_well(&serial, TINY "device=ref dtype=bf16");
    run_well(&split, TINY "device=ref dtype=bf16");
    assert_int_equal(measure_point(&split.point, &request, &noisy), OK);
    double floor = run_point_distance(&serial, noisy.x0, noisy.values);
    assert_true(floor > 1e-5);
    for (int gpus = 2; gpus <= 4; gpus++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, TINY "device=ref dtype=bf16 strategy=tp gpus=%d", gpus);
        run_well(&run, arguments);
        assert_true(run_point_distance_to(&run, &serial) <= 5 * floor);
        run_point_free(&run);
    }
    measure_free(&noisy);
    run_point_free(&serial);
    run_point_free(&split);
}

/* ---- refusals ---- */

static void expect_refusal(const char *arguments, enum status status, const char *text)
{
    struct run_point run;
    run_point(&run, "%s", arguments);
    if (run.status != status || !strstr(run.failure.text, text))
        fail_msg("%s: %s, \"%s\", instead of %s with \"%s\"", arguments, status_name(run.status),
                 run.failure.text, status_name(status), text);
    run_point_free(&run);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(TINY "strategy=tp gpus=5", ERR_UNSUPPORTED, "4 attention heads");
    expect_refusal(TINY "strategy=tp-stale gpus=8", ERR_UNSUPPORTED, "4 attention heads");
    expect_refusal(TINY "strategy=serial gpus=2", ERR_UNSUPPORTED, "one rank");
    expect_refusal(TINY "strategy=tp-stale gpus=2 staleness=3 warmup-steps=2", ERR_UNSUPPORTED,
                   "--warmup-steps");
    expect_refusal(TINY "strategy=tp-stale gpus=2 stale-transport=allgather", ERR_UNSUPPORTED, "peers");
    expect_refusal(TINY "strategy=tp-stale gpus=2 stale-blocks=4-7", ERR_UNSUPPORTED, "blocks 0-3");
    expect_refusal("model=tests/models/tiny-video.safetensors resolution=16 strategy=tp-stale gpus=2",
                   ERR_UNSUPPORTED, "video");
    expect_refusal(TINY "resolution=15", ERR_USAGE, "--resolution");
    expect_refusal(TINY "class=5", ERR_USAGE, "classes 0 to 4");
    expect_refusal(TINY "frames=2", ERR_USAGE, "--frames");
    expect_refusal(TINY "cfg-degree=2", ERR_USAGE, "--cfg-scale");
    expect_refusal(TINY "strategy=nosuch", ERR_USAGE, "serial");
    expect_refusal(TINY "device=cpu dtype=fp16", ERR_UNSUPPORTED, "fp16");
}

/* ---- faults ---- */

/* Whatever call of whatever rank fails, all ranks end, and the first failure is the one reported. */
static void inject(const char *arguments, int rank, int call)
{
    char where[32];
    struct run_point run;
    snprintf(where, sizeof where, "%d:%d", rank, call);
    assert_int_equal(fault_set(where, NULL, NULL, NULL), OK);
    int64_t start = clock_ns();
    run_point(&run, "%s", arguments);
    double seconds = (double)(clock_ns() - start) * 1e-9;
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    if (run.status == OK || run.status == ERR_PEER || seconds > 5)
        fail_msg("%s, rank %d, call %d: %s after %.1f s", arguments, rank, call,
                 status_name(run.status), seconds);
    run_point_free(&run);
}

static void test_injected_failures(void **state)
{
    (void)state;
    static const char *const points[] = {
        TINY "steps=2 repeat=0 strategy=tp gpus=2", TINY "steps=2 repeat=0 strategy=tp-sp gpus=3",
        TINY "steps=3 repeat=0 strategy=tp-stale gpus=3",
        TINY "steps=3 repeat=0 strategy=tp-stale gpus=2 stale-mode=peers stale-transport=allgather"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int call = 0; call < 16; call += i == 0 ? 1 : 3)
            inject(points[i], call % 2, call);
}

static void test_stalled_rank(void **state)
{
    (void)state;
    struct run_point run;
    assert_int_equal(fault_set(NULL, NULL, "1:3:900", NULL), OK);
    run_point(&run, TINY "strategy=tp gpus=2 timeout=0.2");
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    assert_int_equal(run.status, ERR_TIMEOUT);
    assert_non_null(strstr(run.failure.text, "rank 1"));
    run_point_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_ref),
        cmocka_unit_test(test_golden_best_device),
        cmocka_unit_test(test_byte_tables),
        cmocka_unit_test(test_stale_byte_tables),
        cmocka_unit_test(test_staleness_limits),
        cmocka_unit_test(test_transports_agree),
        cmocka_unit_test(test_all_is_the_same_for_every_rank_count),
        cmocka_unit_test(test_cfg_degree),
        cmocka_unit_test(test_stale_differs),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_injected_failures),
        cmocka_unit_test(test_stalled_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

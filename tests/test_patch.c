/* distrifusion and pipefusion: what they compute, send and hold, to the definitions in
 * docs/strategies.md. Traces and faults are in test_patch_schedule.c, delays in test_delays.c. */
#include "bench/launch.h"
#include "bench/rank_setup.h"
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FP32_TOLERANCE 5e-6
#define TINY           "model=tests/models/tiny.safetensors resolution=16 steps=6 class=1 "
enum { LINE = 1024 };

/* `ref`, and the device that users get. */
static const char *device(int i)
{
    return i == 0 ? "ref" : device_list()[0]->name;
}

static int devices(void)
{
    return strcmp(device_list()[0]->name, "ref") == 0 ? 1 : 2;
}

/* Those of the trained model take seconds each: suite_strategy runs them, and distrifusion's. */
static bool is_large(const struct golden_case *g)
{
    return strncmp(g->file, "fashion", 7) == 0;
}

/* ---- values ---- */

/* A patch meets the same operations on any number of stages. */
static void expect_same_on_stages(const char *arguments, int most_stages, const float *golden,
                                  size_t count)
{
    struct run_point one;
    run_point_well(&one, "%s strategy=pipefusion gpus=1", arguments);
    if (golden && !(run_point_distance(&one, golden, count) <= FP32_TOLERANCE))
        fail_msg("%s: relative L2 %g", arguments, run_point_distance(&one, golden, count));
    for (int stages = 2; stages <= most_stages; stages++) {
        struct run_point run;
        run_point_well(&run, "%s strategy=pipefusion gpus=%d", arguments, stages);
        if (memcmp(run.measured.x0, one.measured.x0, one.measured.values * sizeof(float)) != 0)
            fail_msg("%s: %d stages differ from one", arguments, stages);
        run_point_free(&run);
    }
    run_point_free(&one);
}

static void test_golden_pipefusion_is_equal_on_all_stages(void **state)
{
    (void)state;
    size_t count, seen = 0;
    struct golden_case *cases = golden_load(&count);
    assert_non_null(cases);
    for (size_t i = 0; i < count; i++)
        for (int d = 0; d < devices(); d++) {
            char line[2 * LINE];
            if (strcmp(cases[i].strategy, "pipefusion") != 0 || is_large(&cases[i]))
                continue;
            snprintf(line, sizeof line, "%s device=%s", cases[i].arguments, device(d));
            expect_same_on_stages(line, 4, cases[i].x0, cases[i].count);
            seen++;
        }
    golden_free(cases, count);
    assert_true(seen >= 7 * (size_t)devices());
}

/* Fewer patches than stages, as many, four times, every token one; few steps after the warm-up. */
static void test_any_patches_and_steps(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "patches=1 warmup-steps=0", "patches=3",          "patches=4",
        "patches=16 steps=4",       "patches=64 steps=3", "patches=64 steps=3 warmup-steps=0",
        "patches=5 warmup-steps=5", "patches=5 steps=1",  "patches=5 steps=1 warmup-steps=0",
        "patches=7 warmup-steps=6", "patches=7 warmup-steps=9"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int d = 0; d < devices(); d++) {
            char line[LINE];
            snprintf(line, sizeof line, TINY "%s device=%s", variants[i], device(d));
            expect_same_on_stages(line, 4, NULL, 0);
        }
}

/* Where nothing is stale the output is serial's: to the bit on `ref`, whose rows do not depend on how
 * many rows a call has. */
static void test_exact_limits(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "strategy=distrifusion gpus=3 staleness=0",
        "strategy=distrifusion gpus=3 warmup-steps=6",
        "strategy=distrifusion gpus=4 refresh=1",
        "strategy=distrifusion gpus=2 warmup-steps=5 staleness=5 steps=5",
        "strategy=distrifusion gpus=1",
        "strategy=distrifusion gpus=1 warmup-steps=3 staleness=3",
        "strategy=pipefusion gpus=1 patches=1",
        "strategy=pipefusion gpus=3 patches=1",
        "strategy=pipefusion gpus=4 patches=1 warmup-steps=0",
        "strategy=pipefusion gpus=2 patches=8 warmup-steps=6",
        "strategy=pipefusion gpus=4 patches=8 warmup-steps=7",
        "strategy=pipefusion gpus=3 patches=5 steps=1"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int d = 0; d < devices(); d++)
            for (int guided = 0; guided < 2 - d; guided++) {
                char line[LINE], serial[LINE];
                const char *steps = strstr(variants[i], "steps=1") ? "steps=1"
                                    : strstr(variants[i], " steps=5") ? "steps=5"
                                                                      : "";
                snprintf(line, sizeof line, TINY "%s cfg-scale=%d device=%s", variants[i],
                         1 + guided, device(d));
                snprintf(serial, sizeof serial, TINY "strategy=serial %s cfg-scale=%d device=%s",
                         steps, 1 + guided, device(d));
                run_point_expect_equal(line, serial, d == 0 ? 0 : FP32_TOLERANCE);
            }
}

static void test_stale_steps_differ(void **state)
{
    (void)state;
    static const char *const variants[] = {"strategy=distrifusion gpus=2",
                                           "strategy=distrifusion gpus=2 staleness=2 warmup-steps=2",
                                           "strategy=pipefusion gpus=2 patches=4",
                                           "strategy=pipefusion gpus=1 patches=2 warmup-steps=0"};
    struct run_point serial, run;
    run_point_well(&serial, TINY "strategy=serial");
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        run_point_well(&run, TINY "%s", variants[i]);
        assert_true(run_point_distance_to(&run, &serial) > 1e-4);
        run_point_free(&run);
    }
    run_point_free(&serial);
}

/* Options of other strategies change nothing, the counted phases included. */
static void test_options_of_others_are_ignored(void **state)
{
    (void)state;
    run_point_expect_equal(TINY "strategy=pipefusion gpus=2 patches=4 staleness=0 refresh=2",
                           TINY "strategy=pipefusion gpus=2 patches=4", 0);
}

static void test_cfg_degree(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "strategy=distrifusion", "strategy=distrifusion staleness=2 warmup-steps=3 refresh=2",
        "strategy=pipefusion patches=5", "strategy=pipefusion patches=2 warmup-steps=0"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            char one[LINE], two[LINE];
            snprintf(one, sizeof one, TINY "cfg-scale=3 %s gpus=%d", variants[i], ranks);
            snprintf(two, sizeof two, TINY "cfg-scale=3 cfg-degree=2 %s gpus=%d", variants[i],
                     2 * ranks);
            run_point_expect_equal(two, one, FP32_TOLERANCE);
        }
}

/* ---- two images in one process ---- */

struct two_images {
    struct point *point;
    float *x0[2]; /* of the last rank */
};

static enum status sample_image(struct rank *rank, float *x0)
{
    size_t values = region_tokens(rank->own) * rank->problem->token_values;
    TRY(rank_load_noise(rank));
    TRY(team_barrier(rank->team));
    TRY(rank->strategy->sample(rank));
    return x0 ? lane_download(rank->lanes, x0, rank_own_latent(rank), values * sizeof *x0) : OK;
}

static enum status sample_two(struct team *team, void *context)
{
    struct two_images *images = context;
    struct rank_setup setup = {0};
    bool keeps = team->rank == images->point->nranks - 1;
    enum status status = rank_setup_open(&setup, images->point, team, 0);
    for (int i = 0; status == OK && i < 2; i++)
        status = sample_image(&setup.rank, keeps ? images->x0[i] : NULL);
    if (status != OK)
        team_abort(team, status);
    status = team_agree(team, status);
    rank_setup_close(&setup);
    return status;
}

static void expect_two_equal_images(const char *arguments)
{
    struct run_point run;
    run_point_well(&run, "%s", arguments);
    struct two_images images = {.point = &run.point};
    for (int i = 0; i < 2; i++)
        images.x0[i] = calloc(run.measured.values, sizeof(float));
    assert_int_equal(launch("threads", run.point.nranks, 20, sample_two, &images), OK);
    assert_true(images.x0[0][0] != 0);
    if (memcmp(images.x0[0], images.x0[1], run.measured.values * sizeof(float)) != 0)
        fail_msg("%s: a second image differs from the first", arguments);
    free(images.x0[0]);
    free(images.x0[1]);
    run_point_free(&run);
}

static void test_nothing_is_left_over_between_images(void **state)
{
    (void)state;
    expect_two_equal_images(TINY "strategy=pipefusion gpus=1 patches=4 warmup-steps=0");
    expect_two_equal_images(TINY "strategy=pipefusion gpus=3 patches=4 warmup-steps=0");
    expect_two_equal_images(TINY "strategy=pipefusion gpus=2 patches=5 warmup-steps=1");
    expect_two_equal_images(TINY "strategy=distrifusion gpus=3 staleness=2 warmup-steps=2");
}

/* ---- bytes ---- */

#define BENCH_IMAGE "model=bench-image resolution=32 " /* S = 256, D = 128, 12 blocks */
enum { A = 131072, BLOCKS = 12, LATENT = 16384 };

/* Step 0 is awaited, step 1 started, step 2 not: nobody would read it. */
static void expect_gathered(int gpus, const uint64_t *per_block)
{
    struct run_point run;
    run_point_well(&run, BENCH_IMAGE "steps=3 strategy=distrifusion gpus=%d", gpus);
    for (int r = 0; r < gpus; r++) {
        const struct rank_result *rank = &run.measured.ranks[r];
        for (int phase = 0; phase < STEP_PHASES; phase++)
            assert_int_equal(rank->counts.of[phase][COMM_ALL_GATHER][TRAFFIC_KV].sent_bytes,
                             BLOCKS * per_block[r]);
        assert_int_equal(rank->memory.peak[MEMORY_STALE], 2 * A * BLOCKS);
        assert_int_equal(run_point_sent_all(&run, r),
                         2 * BLOCKS * per_block[r] +
                             run_point_sent(&run, r, COMM_ALL_GATHER, TRAFFIC_LATENT));
    }
    run_point_free(&run);
}

static void test_distrifusion_bytes(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        uint64_t per_block[8];
    } rows[] = {
        {1, {0}},
        {2, {131072, 131072}},
        {3, {176128, 174080, 174080}},
        {4, {196608, 196608, 196608, 196608}},
        {8, {229376, 229376, 229376, 229376, 229376, 229376, 229376, 229376}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_gathered(rows[i].gpus, rows[i].per_block);
}

static void test_exchanges_nobody_reads_are_not_started(void **state)
{
    (void)state;
    struct run_point run;
    run_point_well(&run, TINY "steps=8 strategy=distrifusion gpus=2 refresh=3");
    const struct comm_counts *counts = &run.measured.ranks[0].counts;
    /* synchronous: 0, 3, 6; stale: 1, 2, 4, 5, 7; read one later: 1, 4 */
    assert_int_equal(counts->of[PHASE_SYNC][COMM_ALL_GATHER][TRAFFIC_KV].calls, 3 * 4);
    assert_int_equal(counts->of[PHASE_STALE][COMM_ALL_GATHER][TRAFFIC_KV].calls, 2 * 4);
    run_point_free(&run);
}

/* Two slots a block; what is in flight is in them. */
static void test_distrifusion_buffers(void **state)
{
    (void)state;
    struct run_point run;
    for (int gpus = 1; gpus <= 4; gpus++) {
        run_point_well(&run, TINY "strategy=distrifusion gpus=%d staleness=2 warmup-steps=2", gpus);
        uint64_t tensor = problem_hidden_elements(&run.point.problem) * sizeof(float);
        for (int r = 0; r < gpus; r++)
            assert_int_equal(run.measured.ranks[r].memory.peak[MEMORY_STALE], 2 * tensor * 4 * 2);
        run_point_free(&run);
    }
}

static void expect_stage_bytes(const struct run_point *run, int stage, int patches, int blocks)
{
    const struct rank_result *rank = &run->measured.ranks[stage];
    int stages = run->measured.nranks;
    bool is_last = stage == stages - 1;
    for (int phase = 0; phase < STEP_PHASES; phase++) {
        const struct comm_count *hidden = &rank->counts.of[phase][COMM_SEND][TRAFFIC_HIDDEN];
        const struct comm_count *latent = &rank->counts.of[phase][COMM_SEND][TRAFFIC_LATENT];
        uint64_t pieces = phase == PHASE_SYNC ? 1 : 2 * (uint64_t)patches;
        uint64_t steps = phase == PHASE_SYNC ? 1 : 2; /* of step 2's latent nothing is sent */
        assert_int_equal(hidden->calls, is_last ? 0 : pieces);
        assert_int_equal(hidden->sent_bytes, is_last ? 0 : steps * A);
        bool returns = is_last && stages > 1;
        assert_int_equal(latent->calls, !returns ? 0 : phase == PHASE_SYNC ? 1 : patches);
        assert_int_equal(latent->sent_bytes, returns ? LATENT : 0);
    }
    assert_int_equal(rank->memory.peak[MEMORY_STALE], 2 * A * blocks);
}

static void test_pipefusion_bytes(void **state)
{
    (void)state;
    static const struct {
        int gpus, patches, blocks[8];
    } rows[] = {{1, 8, {12}},
                {2, 8, {6, 6}},
                {3, 7, {4, 4, 4}},
                {4, 3, {3, 3, 3, 3}},
                {8, 8, {2, 2, 2, 2, 1, 1, 1, 1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_point run;
        run_point_well(&run, BENCH_IMAGE "steps=3 strategy=pipefusion gpus=%d patches=%d",
                       rows[i].gpus, rows[i].patches);
        for (int stage = 0; stage < rows[i].gpus; stage++)
            expect_stage_bytes(&run, stage, rows[i].patches, rows[i].blocks[stage]);
        run_point_free(&run);
    }
}

/* The latent stays in fp32 whatever the dtype; with guidance a patch carries both halves. */
static void test_claims_of_other_points(void **state)
{
    (void)state;
    static const char *const points[] = {
        "strategy=pipefusion gpus=3 patches=5 dtype=bf16",
        "strategy=pipefusion gpus=3 patches=5 cfg-scale=2 warmup-steps=2",
        "strategy=pipefusion gpus=4 patches=5 cfg-scale=2 cfg-degree=2",
        "strategy=distrifusion gpus=3 dtype=bf16 staleness=2 warmup-steps=3 refresh=2",
        "strategy=distrifusion gpus=6 cfg-scale=2 cfg-degree=2"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct run_point run;
        run_point_well(&run, TINY "device=ref %s", points[i]);
        run_point_free(&run);
    }
}

/* Twins exchange each patch's noise: one call in the warm-up, then one a patch. */
static void test_twins_exchange_patches(void **state)
{
    (void)state;
    struct run_point run;
    run_point_well(&run, TINY "strategy=pipefusion gpus=4 patches=5 cfg-scale=2 cfg-degree=2");
    for (int r = 0; r < 4; r++) {
        const struct comm_counts *counts = &run.measured.ranks[r].counts;
        bool is_last = r % 2 == 1;
        assert_int_equal(counts->of[PHASE_SYNC][COMM_SENDRECV][TRAFFIC_CFG].calls, is_last);
        assert_int_equal(counts->of[PHASE_STALE][COMM_SENDRECV][TRAFFIC_CFG].calls,
                         is_last ? 5 * 5 : 0);
    }
    run_point_free(&run);
}

/* ---- refusals ---- */

static void expect_refusal(const char *arguments, const char *text)
{
    struct run_point run;
    run_point(&run, "%s", arguments);
    if (run.status != ERR_UNSUPPORTED || !strstr(run.point.refusal.text, text))
        fail_msg("%s: %s, \"%s\"", arguments, status_name(run.status), run.failure.text);
    run_point_free(&run);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(TINY "strategy=pipefusion gpus=5", "5 stages cannot share 4 blocks");
    expect_refusal(TINY "strategy=pipefusion gpus=10 cfg-scale=2 cfg-degree=2", "5 stages");
    expect_refusal(TINY "strategy=pipefusion gpus=2 patches=65", "64 tokens");
    expect_refusal(TINY "strategy=distrifusion gpus=2 staleness=2", "--warmup-steps");
    expect_refusal(TINY "resolution=2x4 strategy=distrifusion gpus=3", "2 tokens");
    expect_refusal("model=bench-video resolution=16 strategy=distrifusion gpus=2", "video");
    expect_refusal("model=bench-video resolution=16 strategy=pipefusion gpus=2", "video");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_pipefusion_is_equal_on_all_stages),
        cmocka_unit_test(test_any_patches_and_steps),
        cmocka_unit_test(test_exact_limits),
        cmocka_unit_test(test_stale_steps_differ),
        cmocka_unit_test(test_options_of_others_are_ignored),
        cmocka_unit_test(test_cfg_degree),
        cmocka_unit_test(test_nothing_is_left_over_between_images),
        cmocka_unit_test(test_distrifusion_bytes),
        cmocka_unit_test(test_exchanges_nobody_reads_are_not_started),
        cmocka_unit_test(test_distrifusion_buffers),
        cmocka_unit_test(test_pipefusion_bytes),
        cmocka_unit_test(test_claims_of_other_points),
        cmocka_unit_test(test_twins_exchange_patches),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* distrifusion and pipefusion in time: what overlaps what, slow ranks, ranks that fail. */
#include "common/clock.h"
#include "common/fault.h"
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TINY "model=tests/models/tiny.safetensors resolution=16 class=1 "
enum { LINE = 1024 };

/* ---- the trace ---- */

struct traced {
    struct run_point run;
    struct measurement measured; /* with events */
};

static void trace(struct traced *t, const char *arguments)
{
    struct measure_request request = {.want_trace = true};
    run_point_well(&t->run, "%s", arguments);
    assert_int_equal(measure_point(&t->run.point, &request, &t->measured), OK);
    assert_int_equal(t->measured.dropped_events, 0);
}

static void traced_free(struct traced *t)
{
    measure_free(&t->measured);
    run_point_free(&t->run);
}

/* -1 in step, layer, patch or rank: any. */
static bool is_at(const struct trace_event *e, const char *name, int rank, int step, int layer,
                  int patch)
{
    return strcmp(e->name, name) == 0 && (rank < 0 || e->rank == rank) &&
           (step < 0 || e->step == step) && (layer < 0 || e->layer == layer) &&
           (patch < 0 || e->patch == patch);
}

/* The only such event of the lane. */
static const struct trace_event *only(const struct traced *t, const char *lane, const char *name,
                                      int rank, int step, int layer, int patch)
{
    const struct trace_event *found = NULL;
    for (size_t i = 0; i < t->measured.event_count; i++) {
        const struct trace_event *e = &t->measured.events[i];
        if (strcmp(e->lane, lane) != 0 || !is_at(e, name, rank, step, layer, patch))
            continue;
        if (found)
            fail_msg("%s %s of rank %d, step %d, layer %d, patch %d: twice", lane, name, rank, step,
                     layer, patch);
        found = e;
    }
    if (!found)
        fail_msg("%s %s of rank %d, step %d, layer %d, patch %d: none", lane, name, rank, step,
                 layer, patch);
    return found;
}

#define PIPE TINY "resolution=8 strategy=pipefusion gpus=4 patches=8 steps=4 "
enum { PIPE_STAGES = 4, PIPE_PATCHES = 8, PIPE_STEPS = 4 };

static int pieces(int step)
{
    return step == 0 ? 1 : PIPE_PATCHES;
}

/* The attention of one patch in one stage (a block each) stands for the patch's time there. */
static const struct trace_event *patch_in_stage(const struct traced *t, int stage, int step,
                                                int patch)
{
    return only(t, "compute", "attention", stage, step, stage, patch);
}

/* The hidden state of one patch on a link, as the rank at its `lane` end saw it. */
static const struct trace_event *on_link(const struct traced *t, const char *lane, int rank,
                                         int peer, int step, int patch)
{
    const struct trace_event *e =
        only(t, lane, lane, rank, step, -1, patch); /* named after the operation, like the lane */
    assert_int_equal(e->peer, peer);
    assert_int_equal(e->traffic, TRAFFIC_HIDDEN);
    return e;
}

static double us(int64_t ps)
{
    return (double)ps / 1e6;
}

/* Every operation under its patch and step, on the lane of its link; a patch reaches a stage after it
 * has left the one before. */
static void test_trace_names_every_patch(void **state)
{
    (void)state;
    struct traced t;
    trace(&t, PIPE);
    for (int step = 0; step < PIPE_STEPS; step++)
        for (int patch = 0; patch < pieces(step); patch++)
            for (int stage = 0; stage + 2 < PIPE_STAGES; stage++) {
                const struct trace_event *here = patch_in_stage(&t, stage, step, patch);
                const struct trace_event *there = patch_in_stage(&t, stage + 1, step, patch);
                const struct trace_event *sent =
                    on_link(&t, "send", stage, stage + 1, step, patch);
                const struct trace_event *received =
                    on_link(&t, "recv", stage + 1, stage, step, patch);
                assert_true(us(here->end_ps) <= us(sent->begin_ps) + 0.01);
                assert_true(us(received->end_ps) <=
                            us(there->begin_ps) + 0.01);
            }
    traced_free(&t);
}

typedef const struct trace_event *place_fn(const struct traced *, int step);

static const struct trace_event *enters_last_stage(const struct traced *t, int step)
{
    return patch_in_stage(t, PIPE_STAGES - 1, step, 0);
}

static const struct trace_event *is_all_in(const struct traced *t, int step)
{
    return patch_in_stage(t, 0, step, PIPE_PATCHES - 1);
}

static const struct trace_event *next_step_enters(const struct traced *t, int step)
{
    return patch_in_stage(t, 0, step + 1, 0);
}

static const struct trace_event *is_all_out(const struct traced *t, int step)
{
    return patch_in_stage(t, PIPE_STAGES - 1, step, PIPE_PATCHES - 1);
}

static void expect_before(const char *slow, place_fn *earlier, place_fn *later)
{
    struct traced t;
    assert_int_equal(fault_set(NULL, NULL, NULL, slow), OK);
    trace(&t, PIPE);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    for (int step = 1; step + 1 < PIPE_STEPS; step++) {
        const struct trace_event *a = earlier(&t, step), *b = later(&t, step);
        if (!(us(a->begin_ps) < us(b->begin_ps)))
            fail_msg("slow %s, step %d: %.1f us is not before %.1f us", slow, step,
                     us(a->begin_ps), us(b->begin_ps));
    }
    /* the step of the warm-up is one patch that passes the stages one after the other */
    const struct trace_event *out = patch_in_stage(&t, PIPE_STAGES - 1, 0, 0);
    const struct trace_event *next = patch_in_stage(&t, 0, 1, 0);
    assert_true(us(next->begin_ps) >= us(out->end_ps));
    traced_free(&t);
}

/* Stages work on different patches at the same time, and step i+1 enters the pipe before step i has left
 * it. A stage that takes its time, asleep, leaves the others no excuse to be late. */
static void test_trace_shows_fill_and_overlap(void **state)
{
    (void)state;
    expect_before("0:2000", enters_last_stage, is_all_in);
    expect_before("3:2000", next_step_enters, is_all_out);
}

/* ---- slow ranks ---- */

static void expect_same_when_slow(const char *arguments, const char *stall, const char *slow)
{
    struct run_point quick, held;
    run_point_well(&quick, "%s", arguments);
    assert_int_equal(fault_set(NULL, NULL, stall, slow), OK);
    run_point_well(&held, "%s", arguments);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    if (memcmp(quick.measured.x0, held.measured.x0, quick.measured.values * sizeof(float)) != 0)
        fail_msg("%s: another result when slow (%s %s)", arguments, stall ? stall : "",
                 slow ? slow : "");
    run_point_free(&quick);
    run_point_free(&held);
}

static void test_slow_ranks_change_nothing(void **state)
{
    (void)state;
    static const char *const points[] = {TINY "resolution=8 strategy=pipefusion gpus=3 patches=8 steps=3",
                                         TINY "resolution=8 strategy=pipefusion gpus=3 patches=2 steps=3",
                                         TINY "resolution=8 strategy=distrifusion gpus=3 steps=5 refresh=3"};
    static const char *const stalls[] = {"0:5:30", "1:9:30", "2:7:30"};
    static const char *const slow[] = {"0:200", "1:200", "2:200"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int rank = 0; rank < 3; rank++) {
            expect_same_when_slow(points[i], stalls[rank], NULL);
            expect_same_when_slow(points[i], NULL, slow[rank]);
        }
}

static void test_a_rank_that_does_not_come_ends_the_run(void **state)
{
    (void)state;
    static const char *const points[] = {TINY "strategy=pipefusion gpus=3 patches=4 steps=3",
                                         TINY "strategy=distrifusion gpus=3 steps=3"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct run_point run;
        assert_int_equal(fault_set(NULL, NULL, "1:6:1500", NULL), OK);
        run_point(&run, "%s timeout=0.3", points[i]);
        assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
        assert_int_equal(run.status, ERR_TIMEOUT);
        if (!strstr(run.failure.text, "did not come"))
            fail_msg("%s: %s", points[i], run.failure.text);
        run_point_free(&run);
    }
}

/* ---- failures ---- */

/* Operations that a rank starts in one run. */
static uint64_t calls_of(const struct run_point *run, int rank)
{
    uint64_t calls = 0;
    for (int phase = 0; phase < STEP_PHASES; phase++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int kind = 0; kind < TRAFFIC_KINDS; kind++)
                calls += run->measured.ranks[rank].counts.of[phase][op][kind].calls;
    return calls;
}

static void inject(const char *arguments, int rank, uint64_t call)
{
    char where[32], what[64];
    struct run_point run;
    snprintf(where, sizeof where, "%d:%llu", rank, (unsigned long long)call);
    snprintf(what, sizeof what, "call %llu of rank %d fails", (unsigned long long)call, rank);
    assert_int_equal(fault_set(where, NULL, NULL, NULL), OK);
    int64_t start = clock_ns();
    run_point(&run, "%s repeat=0", arguments);
    double seconds = (double)(clock_ns() - start) * 1e-9;
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
    if (run.status != ERR_INTERNAL || !strstr(run.failure.text, what) || seconds > 5)
        fail_msg("%s, rank:call %s: %s after %.1f s: %s", arguments, where,
                 status_name(run.status), seconds, run.failure.text);
    run_point_free(&run);
}

/* Whichever send, receive or gather fails on whichever rank, all ranks end, and that one is reported. */
static void test_any_failure_ends_in_time(void **state)
{
    (void)state;
    static const char *const points[] = {
        TINY "resolution=8 strategy=pipefusion gpus=3 patches=3 steps=3",
        TINY "resolution=8 strategy=pipefusion gpus=4 patches=2 steps=2 cfg-scale=2 cfg-degree=2",
        TINY "resolution=8 strategy=distrifusion gpus=2 steps=3"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct run_point run;
        run_point_well(&run, "%s", points[i]);
        for (int rank = 0; rank < run.measured.nranks; rank++) {
            assert_true(calls_of(&run, rank) > 0);
            for (uint64_t call = 0; call < calls_of(&run, rank); call++)
                inject(points[i], rank, call);
        }
        run_point_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_names_every_patch),
        cmocka_unit_test(test_trace_shows_fill_and_overlap),
        cmocka_unit_test(test_slow_ranks_change_nothing),
        cmocka_unit_test(test_a_rank_that_does_not_come_ends_the_run),
        cmocka_unit_test(test_any_failure_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

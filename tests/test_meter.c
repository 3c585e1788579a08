/* The meter on a clock that the test sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/meter.h"

/* A lane system whose marks say `now`; with is_late they carry an event, and say nothing until
 * asked. */
struct test_clock {
    struct lane_system base; /* must be first */
    int64_t now;
    bool is_late;
    int resets;
};

static enum status clock_mark(struct lane_system *system, struct lane *lane, struct mark *out)
{
    struct test_clock *clock = (struct test_clock *)system;
    (void)lane;
    *out = (struct mark){.ps = clock->now};
    if (clock->is_late)
        out->event = (struct event *)(void *)clock; /* any address: opaque to the meter */
    return OK;
}

static int64_t clock_mark_ps(struct lane_system *system, const struct mark *mark)
{
    (void)system;
    return mark->ps;
}

static void clock_reset_marks(struct lane_system *system)
{
    ((struct test_clock *)system)->resets++;
}

static const struct lane_ops clock_ops = {
    .name = "test clock",
    .mark = clock_mark,
    .mark_ps = clock_mark_ps,
    .reset_marks = clock_reset_marks,
};

static struct test_clock clock_new(void)
{
    return (struct test_clock){.base = {.ops = &clock_ops}};
}

/* One wait from `begin` to `end` for an operation that was matched at `matched`. */
static enum status wait_once(struct meter *m, struct test_clock *clock, enum comm_op op,
                             int64_t begin, int64_t matched, int64_t end)
{
    struct comm_request r = {.call = {.op = op, .traffic = TRAFFIC_KV, .to = 1, .from = 2}};
    r.step = 4;
    r.layer = 5;
    r.patch = 6;
    clock->now = matched;
    TRY(lane_mark(&clock->base, NULL, &r.matched));
    clock->now = end;
    TRY(lane_mark(&clock->base, NULL, &r.ended));
    struct mark begun;
    clock->now = begin;
    TRY(meter_wait_begin(m, &begun));
    clock->now = end;
    return meter_wait_end(m, &begun, &r);
}

static void check_times(bool is_late)
{
    struct test_clock clock = clock_new();
    clock.is_late = is_late;
    struct meter m;
    struct meter_times times;
    assert_int_equal(meter_open(&m, &clock.base, 2, 3, 0), OK);
    clock.now = 1000;
    assert_int_equal(meter_start(&m), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_ALL_REDUCE, 1100, 1130, 1150), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_ALL_REDUCE, 1200, 1190, 1220), OK); /* no bubble */
    assert_int_equal(wait_once(&m, &clock, COMM_ALL_REDUCE, 1300, 1400, 1305), OK); /* all bubble */
    clock.now = 2000;
    assert_int_equal(meter_stop(&m), OK);
    meter_resolve(&m, &times);
    assert_int_equal(times.total_ps, 1000);
    assert_int_equal(times.exposed_ps, 50 + 20 + 5);
    assert_int_equal(times.bubble_ps, 30 + 0 + 5);
    assert_int_equal(times.compute_ps, 1000 - 75);

    meter_reset(&m);
    assert_int_equal(clock.resets, 2);
    assert_int_equal(meter_start(&m), OK);
    assert_int_equal(meter_stop(&m), OK);
    meter_resolve(&m, &times);
    assert_int_equal(times.exposed_ps, 0);
    assert_int_equal(times.bubble_ps, 0);
    meter_close(&m);
}

static void test_exposed_time_and_bubble(void **state)
{
    (void)state;
    check_times(false);
    check_times(true);
}

static void test_more_waits_than_room(void **state)
{
    (void)state;
    struct test_clock clock = clock_new();
    clock.is_late = true;
    struct meter m;
    assert_int_equal(meter_open(&m, &clock.base, 1, 1, 0), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_SEND, 1, 2, 3), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_SEND, 1, 2, 3), ERR_INTERNAL);
    status_clear();
    meter_close(&m);
}

static void test_counts_by_phase_and_only_when_counting(void **state)
{
    (void)state;
    struct test_clock clock = clock_new();
    struct meter m;
    assert_int_equal(meter_open(&m, &clock.base, 2, 0, 0), OK);
    meter_count(&m, COMM_SEND, TRAFFIC_KV, 1, 1); /* not counting yet */
    m.is_counting = true;
    meter_step(&m, 0, PHASE_SYNC);
    meter_count(&m, COMM_SEND, TRAFFIC_KV, 10, 7);
    meter_step(&m, 1, PHASE_STALE);
    meter_count(&m, COMM_SEND, TRAFFIC_KV, 100, 70);
    meter_count(&m, COMM_SEND, TRAFFIC_KV, 100, 70);
    m.mode = RUN_COMPUTE;
    meter_count(&m, COMM_SEND, TRAFFIC_KV, 1, 1);
    const struct comm_count *sync = &m.counts.of[PHASE_SYNC][COMM_SEND][TRAFFIC_KV];
    const struct comm_count *stale = &m.counts.of[PHASE_STALE][COMM_SEND][TRAFFIC_KV];
    assert_int_equal(sync->calls, 1);
    assert_int_equal(sync->payload_bytes, 10);
    assert_int_equal(sync->sent_bytes, 7);
    assert_int_equal(stale->calls, 2);
    assert_int_equal(stale->payload_bytes, 200);
    assert_int_equal(stale->sent_bytes, 140);
    meter_reset(&m);
    assert_int_equal(sync->calls + stale->calls, 0);
    meter_close(&m);
}

static void test_ends_of_steps(void **state)
{
    (void)state;
    struct test_clock clock = clock_new();
    struct meter m;
    assert_int_equal(meter_open(&m, &clock.base, 2, 0, 0), OK);
    assert_int_equal(meter_step_end(&m), ERR_INTERNAL); /* in no step */
    for (int step = 0; step < 2; step++) {
        meter_step(&m, step, PHASE_SYNC);
        clock.now = 10 * (step + 1);
        assert_int_equal(meter_step_end(&m), OK);
    }
    assert_int_equal(lane_mark_ps(&clock.base, &m.step_ends[0]), 10);
    assert_int_equal(lane_mark_ps(&clock.base, &m.step_ends[1]), 20);
    meter_step(&m, 2, PHASE_SYNC);
    assert_int_equal(meter_step_end(&m), ERR_INTERNAL); /* more steps than were announced */
    status_clear();
    meter_close(&m);
}

static void check_event(const struct meter_event *event, const char *name, const char *lane,
                        int peer, int64_t begin, int64_t end)
{
    assert_string_equal(event->name, name);
    assert_string_equal(event->lane, lane);
    assert_int_equal(event->peer, peer);
    assert_int_equal(event->begin_ps, begin);
    assert_int_equal(event->end_ps, end);
}

static void test_trace(void **state)
{
    (void)state;
    struct test_clock clock = clock_new();
    struct meter m;
    struct meter_times times;
    int event;
    assert_int_equal(meter_open(&m, &clock.base, 1, 9, 6), OK);
    clock.now = 100;
    assert_int_equal(meter_start(&m), OK);
    meter_step(&m, 3, PHASE_SYNC);
    meter_at(&m, 2, 1);
    assert_int_equal(meter_begin(&m, "linear", &event), OK);
    clock.now = 140;
    assert_int_equal(meter_end(&m, event), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_BROADCAST, 150, 160, 170), OK);
    assert_int_equal(wait_once(&m, &clock, COMM_SENDRECV, 180, 190, 200), OK);
    assert_int_equal(m.dropped_events, 0);
    assert_int_equal(meter_begin(&m, "linear", &event), OK); /* full */
    assert_int_equal(event, -1);
    assert_int_equal(meter_end(&m, event), OK);
    assert_int_equal(m.dropped_events, 1);
    assert_int_equal(meter_stop(&m), OK);
    meter_resolve(&m, &times);
    assert_int_equal(m.event_count, 6);
    check_event(&m.events[0], "linear", "compute", -1, 0, 40);
    check_event(&m.events[1], "broadcast", "comm", -1, 60, 70);
    check_event(&m.events[2], "broadcast", "wait", -1, 50, 70);
    check_event(&m.events[3], "sendrecv", "send", 1, 90, 100);
    check_event(&m.events[4], "sendrecv", "recv", 2, 90, 100);
    check_event(&m.events[5], "sendrecv", "wait", -1, 80, 100);
    assert_int_equal(m.events[0].step, 3);
    assert_int_equal(m.events[0].layer, 2);
    assert_int_equal(m.events[0].patch, 1);
    assert_int_equal(m.events[1].step, 4); /* where it was started */
    assert_int_equal(m.events[1].layer, 5);
    assert_int_equal(m.events[1].patch, 6);
    assert_int_equal(m.events[1].traffic, TRAFFIC_KV);
    assert_int_equal(m.events[2].layer, 2); /* where it was awaited */
    meter_close(&m);
}

static void test_no_trace_when_not_asked_for(void **state)
{
    (void)state;
    struct test_clock clock = clock_new();
    struct meter m;
    int event;
    assert_int_equal(meter_open(&m, &clock.base, 1, 1, 0), OK);
    assert_int_equal(meter_begin(&m, "linear", &event), OK);
    assert_int_equal(event, -1);
    assert_int_equal(m.dropped_events, 0);
    meter_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed_time_and_bubble),
        cmocka_unit_test(test_more_waits_than_room),
        cmocka_unit_test(test_counts_by_phase_and_only_when_counting),
        cmocka_unit_test(test_ends_of_steps),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_no_trace_when_not_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Counters, waits and the trace of one rank; see meter.h. */
#include "common/meter.h"

#include <stdlib.h>
#include <string.h>

enum status meter_open(struct meter *m, struct lane_system *lanes, int steps, size_t max_waits,
                       size_t max_events)
{
    *m = (struct meter){.lanes = lanes, .is_tracing = max_events > 0};
    m->waits = calloc(max_waits + 1, sizeof *m->waits);
    m->events = calloc(max_events + 1, sizeof *m->events);
    m->step_ends = calloc((size_t)steps + 1, sizeof *m->step_ends);
    if (m->waits == NULL || m->events == NULL || m->step_ends == NULL) {
        meter_close(m);
        return FAIL(ERR_MEMORY, "meter: no memory for %zu waits, %zu events and %d steps",
                    max_waits, max_events, steps);
    }
    m->wait_capacity = max_waits;
    m->event_capacity = max_events;
    m->step_capacity = steps;
    meter_reset(m);
    return OK;
}

void meter_close(struct meter *m)
{
    free(m->waits);
    free(m->events);
    free(m->step_ends);
    *m = (struct meter){0};
}

void meter_reset(struct meter *m)
{
    m->counts = (struct comm_counts){0};
    m->wait_count = m->event_count = m->dropped_events = 0;
    m->waited_ps = m->bubble_ps = 0;
    m->step = m->layer = m->patch = -1;
    m->phase = PHASE_SYNC;
    m->lanes->ops->reset_marks(m->lanes);
}

void meter_step(struct meter *m, int step, enum step_phase phase)
{
    m->step = step;
    m->phase = phase;
    m->layer = m->patch = -1;
}

enum status meter_step_end(struct meter *m)
{
    if (m->step < 0 || m->step >= m->step_capacity)
        return FAIL(ERR_INTERNAL, "meter: step %d of %d ends", m->step, m->step_capacity);
    return lane_mark(m->lanes, NULL, &m->step_ends[m->step]);
}

void meter_at(struct meter *m, int layer, int patch)
{
    m->layer = layer;
    m->patch = patch;
}

enum status meter_start(struct meter *m)
{
    return lane_now(m->lanes, &m->start);
}

enum status meter_stop(struct meter *m)
{
    return lane_now(m->lanes, &m->stop);
}

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void add_wait(struct meter *m, const struct meter_wait *wait, int64_t *waited, int64_t *bubble)
{
    int64_t begin = lane_mark_ps(m->lanes, &wait->begin), end = lane_mark_ps(m->lanes, &wait->end);
    *waited += end - begin;
    *bubble += within(lane_mark_ps(m->lanes, &wait->matched), begin, end) - begin;
}

void meter_resolve(struct meter *m, struct meter_times *out)
{
    int64_t start = lane_mark_ps(m->lanes, &m->start);
    *out = (struct meter_times){.total_ps = lane_mark_ps(m->lanes, &m->stop) - start,
                                .exposed_ps = m->waited_ps, .bubble_ps = m->bubble_ps};
    for (size_t i = 0; i < m->wait_count; i++)
        add_wait(m, &m->waits[i], &out->exposed_ps, &out->bubble_ps);
    out->compute_ps = out->total_ps - out->exposed_ps;
    for (size_t i = 0; i < m->event_count; i++) {
        struct meter_event *event = &m->events[i];
        event->begin_ps = lane_mark_ps(m->lanes, &event->begin) - start;
        event->end_ps = lane_mark_ps(m->lanes, &event->end) - start;
    }
}

/* NULL: not tracing, or the trace is full. */
static struct meter_event *new_event(struct meter *m, const char *name, const char *lane)
{
    if (!m->is_tracing)
        return NULL;
    if (m->event_count == m->event_capacity) {
        m->dropped_events++;
        return NULL;
    }
    struct meter_event *event = &m->events[m->event_count++];
    *event = (struct meter_event){.name = name, .lane = lane, .peer = -1};
    event->step = m->step;
    event->layer = m->layer;
    event->patch = m->patch;
    return event;
}

enum status meter_begin(struct meter *m, const char *name, int *event)
{
    struct meter_event *e = new_event(m, name, "compute");
    *event = e == NULL ? -1 : (int)(e - m->events);
    return e == NULL ? OK : lane_mark(m->lanes, NULL, &e->begin);
}

enum status meter_end(struct meter *m, int event)
{
    return event < 0 ? OK : lane_mark(m->lanes, NULL, &m->events[event].end);
}

void meter_count(struct meter *m, enum comm_op op, enum traffic traffic, uint64_t payload,
                 uint64_t sent)
{
    if (!m->is_counting || m->mode == RUN_COMPUTE)
        return;
    struct comm_count *count = &m->counts.of[m->phase][op][traffic];
    count->calls++;
    count->payload_bytes += payload;
    count->sent_bytes += sent;
}

enum status meter_wait_begin(struct meter *m, struct mark *begin)
{
    return lane_mark(m->lanes, NULL, begin);
}

/* The operation itself, on one of its lanes, where in the model it was started. */
static void trace_operation(struct meter *m, const struct comm_request *r, const char *lane,
                            int peer)
{
    struct meter_event *event = new_event(m, comm_op_name(r->call.op), lane);
    if (event == NULL)
        return;
    event->peer = peer;
    event->traffic = r->call.traffic;
    event->step = r->step;
    event->layer = r->layer;
    event->patch = r->patch;
    event->begin = r->matched;
    event->end = r->ended;
}

static void trace_wait(struct meter *m, const struct comm_request *r, const struct meter_wait *wait)
{
    enum comm_op op = r->call.op;
    bool sends = op == COMM_SEND || op == COMM_SENDRECV;
    bool receives = op == COMM_RECV || op == COMM_SENDRECV;
    if (sends)
        trace_operation(m, r, "send", r->call.to);
    if (receives)
        trace_operation(m, r, "recv", r->call.from);
    if (!sends && !receives)
        trace_operation(m, r, "comm", -1);
    struct meter_event *event = new_event(m, comm_op_name(op), "wait");
    if (event == NULL)
        return;
    event->traffic = r->call.traffic;
    event->begin = wait->begin;
    event->end = wait->end;
}

enum status meter_wait_end(struct meter *m, const struct mark *begin, const struct comm_request *r)
{
    struct meter_wait wait = {.begin = *begin, .matched = r->matched};
    TRY(lane_mark(m->lanes, NULL, &wait.end));
    trace_wait(m, r, &wait);
    if (!wait.begin.event && !wait.matched.event && !wait.end.event) {
        add_wait(m, &wait, &m->waited_ps, &m->bubble_ps);
        return OK;
    }
    if (m->wait_count == m->wait_capacity)
        return FAIL(ERR_INTERNAL, "meter: more than %zu waits in one run", m->wait_capacity);
    m->waits[m->wait_count++] = wait;
    return OK;
}

/* Control messages of a team of MPI processes; advanced by whoever polls the engine. */
#include "common/team_mpi_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum { TAG_CONTROL = 1, MOST_TURN_NS = 50 * 1000 * 1000, LEAST_TURN_NS = 1000 * 1000 };
enum { GIVE_UP_NS = 100 * 1000 * 1000 };

/* head, then mpi_pulse[nranks] or mpi_cause */
static void *body(struct mpi_control_head *head)
{
    return head + 1;
}

/* ---- sending ---- */

/* False: the last message of this kind to that rank is still on its way. */
static bool send(struct team_mpi *t, struct mpi_outbox *out, enum mpi_control_kind kind, int to,
                 const void *data, size_t bytes)
{
    int is_done = 0;
    if (out->request != MPI_REQUEST_NULL &&
        (MPI_Test(&out->request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !is_done))
        return false;
    *out->message = (struct mpi_control_head){t->generation, (int)kind, t->base.rank};
    memcpy(body(out->message), data, bytes);
    return MPI_Isend(out->message, (int)(sizeof *out->message + bytes), MPI_BYTE, to, TAG_CONTROL,
                     mpi_engine_control(), &out->request) == MPI_SUCCESS;
}

static void send_cause(struct team_mpi *t, enum mpi_control_kind kind, int to)
{
    struct mpi_cause cause = {.code = (int)t->cause.code, .rank = t->cause.rank};
    memcpy(cause.text, t->cause.text, sizeof cause.text);
    send(t, &t->failure_out[kind][to], kind, to, &cause, sizeof cause);
}

static void send_cause_to_others(struct team_mpi *t, enum mpi_control_kind kind)
{
    for (int r = 0; r < t->base.nranks; r++)
        if (r != t->base.rank)
            send_cause(t, kind, r);
}

/* ---- aborting, settling ---- */

static void set_cause(struct team_mpi *t, const struct failure *cause)
{
    t->cause = *cause;
    atomic_store(&t->aborted, (int)cause->code);
}

void team_mpi_control_abort(struct team_mpi *t, const struct failure *cause)
{
    if (atomic_load(&t->aborted) != OK)
        return;
    set_cause(t, cause);
    send_cause_to_others(t, CONTROL_ABORT);
}

/* Rank 0 knows when all have settled, and its cause becomes everybody's. */
static void note_settled(struct team_mpi *t, int rank)
{
    if (t->has_settled[rank])
        return;
    t->has_settled[rank] = true;
    if (++t->settled < t->base.nranks || t->base.rank != 0)
        return;
    send_cause_to_others(t, CONTROL_CAUSE);
    atomic_store(&t->is_settled, true);
}

void team_mpi_control_settle(struct team_mpi *t)
{
    if (t->base.rank != 0 && !t->has_settled[t->base.rank])
        send_cause(t, CONTROL_SETTLED, 0);
    note_settled(t, t->base.rank);
}

static void take_cause(struct team_mpi *t, struct mpi_control_head *head)
{
    struct mpi_cause *cause = body(head);
    struct failure failure = {.code = (enum status)cause->code, .rank = cause->rank, .file = __FILE__};
    memcpy(failure.text, cause->text, sizeof failure.text);
    if (head->kind == CONTROL_CAUSE || atomic_load(&t->aborted) == OK)
        set_cause(t, &failure);
    if (head->kind == CONTROL_SETTLED)
        note_settled(t, head->rank);
    if (head->kind == CONTROL_CAUSE)
        atomic_store(&t->is_settled, true);
}

/* ---- pulses ---- */

static void take_pulses(struct team_mpi *t, const struct mpi_pulse *heard)
{
    uint64_t others = 0;
    int64_t now = clock_ns();
    for (int r = 0; r < t->base.nranks; r++) {
        if (r == t->base.rank)
            continue;
        if (heard[r].ticks > t->pulses[r].ticks) {
            t->pulses[r] = heard[r];
            t->heard_ns[r] = now;
        }
        others += t->pulses[r].beats;
    }
    atomic_store(&t->other_beats, others);
}

static void take_turn(struct team_mpi *t)
{
    int64_t now = clock_ns();
    int n = t->base.nranks, to = (t->base.rank + t->stride) % n;
    if (now < t->next_turn_ns || n == 1)
        return;
    t->next_turn_ns = now + t->turn_ns;
    struct mpi_pulse *own = &t->pulses[t->base.rank];
    own->ticks++;
    own->beats = atomic_load(&t->own_beats);
    own->waits = atomic_load(&t->waits);
    send(t, &t->pulse_out[to], CONTROL_PULSE, to, t->pulses, t->pulse_bytes);
    t->stride = 2 * t->stride < n ? 2 * t->stride : 1;
}

/* ---- receiving ---- */

static void receive(struct team_mpi *t)
{
    if (MPI_Irecv(t->received, (int)t->most_bytes, MPI_BYTE, MPI_ANY_SOURCE, TAG_CONTROL,
                  mpi_engine_control(), &t->receive) != MPI_SUCCESS)
        t->receive = MPI_REQUEST_NULL;
}

/* Messages of an earlier team may still come. */
static void take_message(struct team_mpi *t)
{
    if (t->received->generation != t->generation)
        return;
    if (t->received->kind == CONTROL_PULSE)
        take_pulses(t, body(t->received));
    else
        take_cause(t, t->received);
}

static enum mpi_progress advance(struct mpi_work *work)
{
    struct team_mpi *t = (struct team_mpi *)((char *)work - offsetof(struct team_mpi, work));
    enum mpi_progress progress = MPI_WORK_IDLE;
    int has_come = 0;
    while (t->receive != MPI_REQUEST_NULL &&
           MPI_Test(&t->receive, &has_come, MPI_STATUS_IGNORE) == MPI_SUCCESS && has_come) {
        take_message(t);
        receive(t);
        progress = MPI_WORK_MOVED;
    }
    take_turn(t);
    return progress;
}

/* ---- opening and closing ---- */

static bool open_outboxes(struct team_mpi *t, struct mpi_outbox **out)
{
    size_t n = (size_t)t->base.nranks;
    *out = calloc(n, sizeof **out);
    bool good = *out != NULL;
    for (size_t r = 0; *out != NULL && r < n; r++) {
        (*out)[r].request = MPI_REQUEST_NULL;
        (*out)[r].message = calloc(1, t->most_bytes);
        good = good && (*out)[r].message != NULL;
    }
    return good;
}

static int64_t turn_ns(double timeout_s)
{
    double ns = timeout_s * 1e9 / 16;
    return ns < LEAST_TURN_NS ? LEAST_TURN_NS : ns > MOST_TURN_NS ? MOST_TURN_NS : (int64_t)ns;
}

enum status team_mpi_control_open(struct team_mpi *t)
{
    size_t n = (size_t)t->base.nranks;
    t->pulse_bytes = n * sizeof *t->pulses;
    t->most_bytes = sizeof *t->received + t->pulse_bytes + sizeof(struct mpi_cause);
    t->turn_ns = turn_ns(t->base.timeout_s);
    t->stride = 1;
    t->receive = MPI_REQUEST_NULL;
    t->received = calloc(1, t->most_bytes);
    t->pulses = calloc(n, sizeof *t->pulses);
    t->heard_ns = calloc(n, sizeof *t->heard_ns);
    t->has_settled = calloc(n, sizeof *t->has_settled);
    bool good = t->received && t->pulses && t->heard_ns && t->has_settled &&
                open_outboxes(t, &t->pulse_out);
    for (int kind = 0; kind < CONTROL_FAILURES; kind++)
        good = good && open_outboxes(t, &t->failure_out[kind]);
    if (!good)
        return FAIL(ERR_MEMORY, "team: no memory for %zu ranks", n);
    for (size_t r = 0; r < n; r++)
        t->heard_ns[r] = clock_ns();
    t->work = (struct mpi_work){.advance = advance, .is_background = true};
    mpi_engine_lock();
    receive(t);
    mpi_engine_add(&t->work);
    mpi_engine_unlock();
    return OK;
}

/* Short messages leave at once unless the peer's process stands still; then the message is left to the
 * library, with its buffer. */
static void close_outbox(struct mpi_outbox *out, int64_t until_ns)
{
    int is_done = out->request == MPI_REQUEST_NULL;
    while (!is_done && MPI_Test(&out->request, &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_done &&
           clock_ns() < until_ns)
        ;
    if (is_done)
        free(out->message);
    else
        MPI_Request_free(&out->request);
}

static void close_outboxes(struct team_mpi *t, struct mpi_outbox *out)
{
    int64_t until_ns = clock_ns() + GIVE_UP_NS;
    for (int r = 0; out != NULL && r < t->base.nranks; r++)
        close_outbox(&out[r], until_ns);
    free(out);
}

void team_mpi_control_close(struct team_mpi *t)
{
    mpi_engine_remove(&t->work);
    if (t->receive != MPI_REQUEST_NULL) {
        MPI_Cancel(&t->receive);
        MPI_Wait(&t->receive, MPI_STATUS_IGNORE);
    }
    close_outboxes(t, t->pulse_out);
    for (int kind = 0; kind < CONTROL_FAILURES; kind++)
        close_outboxes(t, t->failure_out[kind]);
}

void team_mpi_control_free(struct team_mpi *t)
{
    free(t->received);
    free(t->pulses);
    free(t->heard_ns);
    free(t->has_settled);
    free(t);
}

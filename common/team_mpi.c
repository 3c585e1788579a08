/* Team whose ranks are MPI processes: gather and broadcast through the root, with deadlines. */
#include "common/team_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/mpi_world.h"
#include "common/team_mpi_control.h"

/* A rank whose process is silent for so many turns is not scheduled any more. */
enum { SILENT_TURNS = 6 };
enum { PINGS = 12 };

static struct team_mpi *mpi_team(struct team *t)
{
    return (struct team_mpi *)t;
}

/* ---- waiting ---- */

static bool is_silent(const struct team_mpi *t, int rank)
{
    double ns = (double)(clock_ns() - t->heard_ns[rank]);
    int turns = SILENT_TURNS;
    for (int reach = 1; reach < t->base.nranks; reach *= 2)
        turns++;
    return ns > 0.5e9 * t->base.timeout_s && ns > (double)turns * (double)t->turn_ns;
}

int team_mpi_missing(struct team *base, int suspect)
{
    struct team_mpi *t = mpi_team(base);
    int missing = suspect;
    mpi_engine_lock();
    for (int r = base->nranks - 1; r >= 0; r--)
        if (suspect < 0 || t->pulses[suspect].waits > 0)
            if (r != base->rank && t->pulses[r].waits == 0)
                missing = r;
    for (int r = base->nranks - 1; r >= 0; r--)
        if (r != base->rank && is_silent(t, r))
            missing = r;
    mpi_engine_unlock();
    return missing;
}

void team_mpi_waits(struct team *t, bool waits)
{
    atomic_store(&mpi_team(t)->waits, waits);
}

static enum status await(struct team *t, struct mpi_exchange *x, const char *what)
{
    bool ended = false;
    char why[200];
    int64_t start = clock_ns();
    struct team_deadline deadline = team_deadline_start(t);
    for (;;) {
        mpi_engine_poll();
        mpi_engine_lock();
        enum status s = mpi_exchange_test(x, &ended, why);
        int missing = mpi_exchange_missing(x);
        mpi_engine_unlock();
        if (s != OK)
            return FAIL(s, "%s: %s", what, why);
        if (ended)
            return OK;
        if (team_status(t) != OK)
            return team_peer_failed(t);
        if (team_deadline_passed(t, &deadline))
            return FAIL(ERR_TIMEOUT, "%s: rank %d did not come within %g s", what,
                        team_mpi_missing(t, missing), t->timeout_s);
        mpi_engine_pause(start, t->is_oversubscribed);
    }
}

enum status team_mpi_await(struct team *t, struct mpi_exchange *x, const char *what)
{
    team_mpi_waits(t, true);
    enum status s = await(t, x, what);
    team_mpi_waits(t, false);
    if (s == OK)
        return OK;
    mpi_engine_lock();
    mpi_exchange_abandon(x);
    mpi_engine_unlock();
    return s;
}

/* ---- gather and broadcast ---- */

/* What a rank says before its data. */
struct head {
    int kind, root; /* 'g', 'b' */
    uint64_t bytes;
};

/* One gather or broadcast. The data may be long; heads are known to be short. */
struct meeting {
    struct team_mpi *team;
    int head_tag, body_tag;
    struct mpi_exchange exchange;
};

static struct meeting next_meeting(struct team_mpi *t)
{
    uint64_t number = t->exchanges++;
    return (struct meeting){
        .team = t,
        .head_tag = mpi_engine_tag(t->generation, 0, MPI_PHASE_TEAM_HEAD, number),
        .body_tag = mpi_engine_tag(t->generation, 0, MPI_PHASE_TEAM_BODY, number),
    };
}

static enum status send_to(struct meeting *m, const struct head *head, const void *data, int to)
{
    mpi_engine_lock();
    enum status s = mpi_exchange_send(&m->exchange, head, sizeof *head, to, m->head_tag);
    if (s == OK)
        s = mpi_exchange_send(&m->exchange, data, head->bytes, to, m->body_tag);
    mpi_engine_unlock();
    return s;
}

static enum status receive(struct meeting *m, void *data, size_t bytes, int from, int tag)
{
    mpi_engine_lock();
    enum status s = mpi_exchange_recv(&m->exchange, data, bytes, from, tag);
    mpi_engine_unlock();
    return s;
}

static enum status check_head(const struct head *mine, const struct head *theirs, int own, int other)
{
    if (mine->kind == theirs->kind && mine->root == theirs->root && mine->bytes == theirs->bytes)
        return OK;
    return FAIL(ERR_MISMATCH,
                "team: rank %d calls '%c' with root %d and %zu bytes, rank %d '%c' with root %d and %zu "
                "bytes",
                own, mine->kind, mine->root, (size_t)mine->bytes, other, theirs->kind, theirs->root,
                (size_t)theirs->bytes);
}

static enum status collect(struct meeting *m, const struct head *head, struct head *heads, char *recv)
{
    struct team *t = &m->team->base;
    for (int r = 0; r < t->nranks; r++)
        if (r != t->rank)
            TRY(receive(m, &heads[r], sizeof heads[r], r, m->head_tag));
    TRY(team_mpi_await(t, &m->exchange, "team"));
    for (int r = 0; r < t->nranks; r++)
        if (r != t->rank) {
            TRY(check_head(head, &heads[r], t->rank, r));
            TRY(receive(m, recv + (size_t)r * head->bytes, head->bytes, r, m->body_tag));
        }
    return team_mpi_await(t, &m->exchange, "team");
}

static enum status gather(struct meeting *m, const struct head *head, const void *send, void *recv)
{
    struct team *t = &m->team->base;
    if (t->rank != head->root) {
        TRY(send_to(m, head, send, head->root));
        return team_mpi_await(t, &m->exchange, "team");
    }
    struct head *heads = calloc((size_t)t->nranks, sizeof *heads);
    if (heads == NULL)
        return FAIL(ERR_MEMORY, "team: no memory for %d ranks", t->nranks);
    enum status s = collect(m, head, heads, recv);
    free(heads);
    if (s == OK && head->bytes > 0)
        memcpy((char *)recv + (size_t)t->rank * head->bytes, send, head->bytes);
    return s;
}

static enum status broadcast(struct meeting *m, const struct head *head, void *data)
{
    struct team *t = &m->team->base;
    struct head theirs = {0};
    if (t->rank == head->root) {
        for (int r = 0; r < t->nranks; r++)
            if (r != t->rank)
                TRY(send_to(m, head, data, r));
        return team_mpi_await(t, &m->exchange, "team");
    }
    TRY(receive(m, &theirs, sizeof theirs, head->root, m->head_tag));
    TRY(team_mpi_await(t, &m->exchange, "team"));
    TRY(check_head(head, &theirs, t->rank, head->root));
    TRY(receive(m, data, head->bytes, head->root, m->body_tag));
    return team_mpi_await(t, &m->exchange, "team");
}

static void abort_with_own(struct team_mpi *t, enum status why)
{
    struct failure cause = *status_first();
    if (cause.code == OK)
        snprintf(cause.text, sizeof cause.text, "%s", status_text(why));
    cause.code = why;
    cause.rank = t->base.rank;
    mpi_engine_lock();
    team_mpi_control_abort(t, &cause);
    mpi_engine_unlock();
}

static enum status end_meeting(struct meeting *m, enum status s)
{
    if (s != OK) {
        mpi_engine_lock();
        mpi_exchange_abandon(&m->exchange);
        mpi_engine_unlock();
        abort_with_own(m->team, s);
    }
    mpi_exchange_free(&m->exchange);
    return s;
}

static enum status mpi_gather(struct team *t, int root, const void *send, size_t bytes, void *recv)
{
    if (team_status(t) != OK)
        return team_peer_failed(t);
    struct meeting m = next_meeting(mpi_team(t));
    const struct head head = {'g', root, bytes};
    return end_meeting(&m, gather(&m, &head, send, recv));
}

static enum status mpi_broadcast(struct team *t, int root, void *data, size_t bytes)
{
    if (team_status(t) != OK)
        return team_peer_failed(t);
    struct meeting m = next_meeting(mpi_team(t));
    const struct head head = {'b', root, bytes};
    return end_meeting(&m, broadcast(&m, &head, data));
}

/* ---- the rest of the interface ---- */

static void mpi_abort(struct team *t, enum status why)
{
    abort_with_own(mpi_team(t), why);
}

static enum status mpi_status(struct team *t)
{
    return (enum status)atomic_load(&mpi_team(t)->aborted);
}

static const struct failure *mpi_cause(struct team *t)
{
    return &mpi_team(t)->cause;
}

static int missing_to_settle(struct team_mpi *t)
{
    int missing = 0;
    mpi_engine_lock();
    while (t->base.rank == 0 && missing + 1 < t->base.nranks && t->has_settled[missing])
        missing++;
    mpi_engine_unlock();
    return team_mpi_missing(&t->base, missing);
}

/* What communicators have under way is given up by their works' own turn, before this returns. */
static enum status await_settled(struct team *base)
{
    struct team_mpi *t = mpi_team(base);
    int64_t start = clock_ns();
    struct team_deadline deadline = team_deadline_start(base);
    for (;;) {
        mpi_engine_poll();
        if (atomic_load(&t->is_settled))
            return OK;
        if (team_deadline_passed(base, &deadline))
            return FAIL(ERR_TIMEOUT, "team: rank %d did not end its phase within %g s of the abort",
                        missing_to_settle(t), base->timeout_s);
        mpi_engine_pause(start, base->is_oversubscribed);
    }
}

static enum status mpi_settle(struct team *t)
{
    team_heartbeat(t);
    mpi_engine_lock();
    team_mpi_control_settle(mpi_team(t));
    mpi_engine_unlock();
    team_mpi_waits(t, true);
    enum status s = await_settled(t);
    team_mpi_waits(t, false);
    return s;
}

static void mpi_heartbeat(struct team *t)
{
    atomic_fetch_add_explicit(&mpi_team(t)->own_beats, 1, memory_order_relaxed);
}

static uint64_t mpi_beats(struct team *t)
{
    return atomic_load_explicit(&mpi_team(t)->own_beats, memory_order_relaxed) +
           atomic_load_explicit(&mpi_team(t)->other_beats, memory_order_relaxed);
}

static int64_t mpi_clock_offset_ps(struct team *t)
{
    return mpi_team(t)->clock_offset_ps;
}

static const struct team_ops mpi_ops = {
    .name = "mpi",
    .gather = mpi_gather,
    .broadcast = mpi_broadcast,
    .abort = mpi_abort,
    .status = mpi_status,
    .cause = mpi_cause,
    .settle = mpi_settle,
    .heartbeat = mpi_heartbeat,
    .beats = mpi_beats,
    .clock_offset_ps = mpi_clock_offset_ps,
};

bool team_is_mpi(const struct team *t)
{
    return t->ops == &mpi_ops;
}

uint64_t team_mpi_generation(const struct team *t)
{
    return ((const struct team_mpi *)t)->generation;
}

/* ---- clocks ---- */

/* There and back: rank 0 answers with its time. */
static enum status ping(struct team_mpi *t, int other, int64_t *ps)
{
    struct meeting m = next_meeting(t);
    const bool asks = t->base.rank != 0;
    char token = 0;
    enum status s = OK;
    for (int turn = 0; turn < 2 && s == OK; turn++) {
        const bool sends = (turn == 0) == asks;
        if (turn == 1 && sends)
            *ps = clock_ps();
        void *data = turn == 0 ? (void *)&token : (void *)ps;
        size_t bytes = turn == 0 ? sizeof token : sizeof *ps;
        int tag = turn == 0 ? m.head_tag : m.body_tag;
        mpi_engine_lock();
        s = sends ? mpi_exchange_send(&m.exchange, data, bytes, other, tag)
                  : mpi_exchange_recv(&m.exchange, data, bytes, other, tag);
        mpi_engine_unlock();
        if (s == OK)
            s = team_mpi_await(&t->base, &m.exchange, "team");
    }
    return end_meeting(&m, s);
}

/* Rank 0's time in the middle of the fastest ping is the best guess of the other's. */
static enum status compare_clocks(struct team_mpi *t, int other)
{
    int64_t fastest = INT64_MAX, theirs = 0;
    for (int i = 0; i < PINGS; i++) {
        int64_t begin = clock_ps();
        TRY(ping(t, other, &theirs));
        int64_t took = clock_ps() - begin;
        if (t->base.rank == 0 || took >= fastest)
            continue;
        fastest = took;
        t->clock_offset_ps = theirs - (begin + took / 2);
    }
    return OK;
}

static enum status compare_all_clocks(struct team_mpi *t)
{
    if (t->base.rank != 0)
        return compare_clocks(t, 0);
    for (int r = 1; r < t->base.nranks; r++) {
        t->exchanges = 0; /* as on that rank */
        TRY(compare_clocks(t, r));
    }
    t->exchanges = PINGS;
    return OK;
}

/* ---- opening and closing ---- */

void team_mpi_close(struct team *base)
{
    if (base == NULL)
        return;
    mpi_engine_lock();
    team_mpi_control_close(mpi_team(base));
    mpi_engine_unlock();
    team_mpi_control_free(mpi_team(base));
}

/* Nobody leaves before all have come, so that no message of this team meets an earlier one. */
enum status team_mpi_open(int nranks, double timeout_s, uint64_t generation, struct team **out)
{
    ASSERT_CMP(nranks, <=, mpi_world_size());
    ASSERT_CMP(mpi_world_rank(), <, nranks);
    struct team_mpi *t = calloc(1, sizeof *t);
    if (t == NULL)
        return FAIL(ERR_MEMORY, "team: no memory for %d ranks", nranks);
    t->base = (struct team){
        .ops = &mpi_ops,
        .rank = mpi_world_rank(),
        .nranks = nranks,
        .timeout_s = timeout_s,
        .is_oversubscribed = mpi_world_is_oversubscribed(nranks),
    };
    t->generation = generation;
    enum status s = team_mpi_control_open(t);
    if (s == OK)
        s = compare_all_clocks(t);
    if (s == OK)
        s = team_barrier(&t->base);
    if (s == OK)
        *out = &t->base;
    else
        team_mpi_close(&t->base);
    return s;
}

/* Team whose ranks are threads of one process: slots in one shared object, a mutex and a condition.
 */
#include "common/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* What a rank brings to a meeting. Read by the others while the owner waits for the next meeting.
 */
struct slot {
    char kind; /* 'g', 'b' */
    int root;
    size_t bytes;
    const void *data;
};

struct thread_rank {
    struct team base; /* must be first */
    struct team_threads *shared;
    struct slot slot;
    uint64_t arrived; /* meetings this rank has come to */
    bool has_settled;
};

struct team_threads {
    int nranks;
    pthread_mutex_t mutex; /* guards everything below but the atomics */
    pthread_cond_t changed;
    uint64_t meetings; /* that all ranks have come to */
    int waiting;       /* ranks that came to the present one */
    int settled;
    struct failure cause; /* written once, before `aborted` */
    _Atomic int aborted;  /* enum status */
    _Atomic uint64_t beats;
    struct thread_rank ranks[];
};

static struct thread_rank *thread_rank(struct team *t)
{
    return (struct thread_rank *)t;
}

static void abort_locked(struct thread_rank *r, enum status why)
{
    struct team_threads *shared = r->shared;
    if (atomic_load(&shared->aborted) != OK)
        return;
    const struct failure *first = status_first();
    shared->cause = *first;
    shared->cause.code = why;
    shared->cause.rank = r->base.rank;
    if (first->code == OK)
        snprintf(shared->cause.text, sizeof shared->cause.text, "%s", status_text(why));
    atomic_store(&shared->aborted, why);
    pthread_cond_broadcast(&shared->changed);
}

static void wait_slice(struct team_threads *shared)
{
    int64_t until = clock_ns() + TEAM_SLICE_NS;
    struct timespec at = {until / 1000000000, until % 1000000000};
    pthread_cond_timedwait(&shared->changed, &shared->mutex, &at);
}

static enum status meeting_timed_out(struct thread_rank *r)
{
    struct team_threads *shared = r->shared;
    int missing = 0;
    while (missing < shared->nranks - 1 && shared->ranks[missing].arrived > shared->meetings)
        missing++;
    return FAIL(ERR_TIMEOUT, "team: rank %d did not come within %g s", missing, r->base.timeout_s);
}

/* Returns when all ranks have come. A meeting that is complete ends well even if the team was
 * aborted since: nobody who took part in it may be left out. Called and returns with the mutex
 * held. */
static enum status meet(struct thread_rank *r)
{
    struct team_threads *shared = r->shared;
    if (atomic_load(&shared->aborted) != OK)
        return team_peer_failed(&r->base);
    uint64_t mine = r->arrived++;
    if (++shared->waiting == shared->nranks) {
        shared->waiting = 0;
        shared->meetings++;
        pthread_cond_broadcast(&shared->changed);
    }
    struct team_deadline deadline = team_deadline_start(&r->base);
    while (shared->meetings == mine) {
        if (atomic_load(&shared->aborted) != OK)
            return team_peer_failed(&r->base);
        if (team_deadline_passed(&r->base, &deadline))
            return meeting_timed_out(r);
        wait_slice(shared);
    }
    return OK;
}

static enum status check_slots(struct thread_rank *r)
{
    const struct slot *first = &r->shared->ranks[0].slot;
    for (int q = 1; q < r->shared->nranks; q++) {
        const struct slot *slot = &r->shared->ranks[q].slot;
        if (slot->kind != first->kind || slot->root != first->root || slot->bytes != first->bytes)
            return FAIL(
                ERR_MISMATCH,
                "team: rank 0 calls '%c' with root %d and %zu bytes, rank %d '%c' with root "
                "%d and %zu bytes",
                first->kind, first->root, first->bytes, q, slot->kind, slot->root, slot->bytes);
    }
    return OK;
}

/* The data is copied with the mutex held and only while the team is not aborted, because after an
 * abort its owner may have left. */
static enum status take(struct thread_rank *r, void *data)
{
    struct team_threads *shared = r->shared;
    if (atomic_load(&shared->aborted) != OK)
        return team_peer_failed(&r->base);
    const struct slot *own = &r->slot;
    if (own->bytes == 0)
        return OK;
    if (own->kind == 'b' && r->base.rank != own->root)
        memcpy(data, shared->ranks[own->root].slot.data, own->bytes);
    if (own->kind == 'g' && r->base.rank == own->root)
        for (int q = 0; q < shared->nranks; q++)
            memcpy((char *)data + (size_t)q * own->bytes, shared->ranks[q].slot.data, own->bytes);
    return OK;
}

static enum status exchange_locked(struct thread_rank *r, void *data)
{
    TRY(meet(r));
    TRY(check_slots(r));
    TRY(take(r, data));
    return meet(r);
}

static enum status exchange(struct team *t, struct slot slot, void *data)
{
    struct thread_rank *r = thread_rank(t);
    pthread_mutex_lock(&r->shared->mutex);
    r->slot = slot;
    enum status s = exchange_locked(r, data);
    if (s != OK)
        abort_locked(r, s);
    pthread_mutex_unlock(&r->shared->mutex);
    return s;
}

static enum status threads_gather(struct team *t, int root, const void *send, size_t bytes,
                                  void *recv)
{
    return exchange(t, (struct slot){'g', root, bytes, send}, recv);
}

static enum status threads_broadcast(struct team *t, int root, void *data, size_t bytes)
{
    return exchange(t, (struct slot){'b', root, bytes, data}, data);
}

static void threads_abort(struct team *t, enum status why)
{
    struct thread_rank *r = thread_rank(t);
    pthread_mutex_lock(&r->shared->mutex);
    abort_locked(r, why);
    pthread_mutex_unlock(&r->shared->mutex);
}

static enum status threads_status(struct team *t)
{
    return (enum status)atomic_load(&thread_rank(t)->shared->aborted);
}

static const struct failure *threads_cause(struct team *t)
{
    return &thread_rank(t)->shared->cause;
}

static enum status settle_locked(struct thread_rank *r)
{
    struct team_threads *shared = r->shared;
    if (!r->has_settled) {
        r->has_settled = true;
        shared->settled++;
        pthread_cond_broadcast(&shared->changed);
    }
    struct team_deadline deadline = team_deadline_start(&r->base);
    while (shared->settled < shared->nranks) {
        if (team_deadline_passed(&r->base, &deadline)) {
            int missing = 0;
            while (shared->ranks[missing].has_settled)
                missing++;
            return FAIL(ERR_TIMEOUT, "team: rank %d did not end its phase within %g s of the abort",
                        missing, r->base.timeout_s);
        }
        wait_slice(shared);
    }
    return OK;
}

static enum status threads_settle(struct team *t)
{
    struct thread_rank *r = thread_rank(t);
    team_heartbeat(t);
    pthread_mutex_lock(&r->shared->mutex);
    enum status s = settle_locked(r);
    pthread_mutex_unlock(&r->shared->mutex);
    return s;
}

static void threads_heartbeat(struct team *t)
{
    atomic_fetch_add_explicit(&thread_rank(t)->shared->beats, 1, memory_order_relaxed);
}

static uint64_t threads_beats(struct team *t)
{
    return atomic_load_explicit(&thread_rank(t)->shared->beats, memory_order_relaxed);
}

static const struct team_ops threads_ops = {
    .name = "threads",
    .gather = threads_gather,
    .broadcast = threads_broadcast,
    .abort = threads_abort,
    .status = threads_status,
    .cause = threads_cause,
    .settle = threads_settle,
    .heartbeat = threads_heartbeat,
    .beats = threads_beats,
};

static bool more_than_cores(int nranks)
{
    cpu_set_t usable;
    return sched_getaffinity(0, sizeof usable, &usable) == 0 && nranks > CPU_COUNT(&usable);
}

static void open_waiting(struct team_threads *shared)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&shared->mutex, NULL);
    pthread_cond_init(&shared->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum status team_threads_open(int nranks, double timeout_s, struct team_threads **out)
{
    ASSERT_CMP(nranks, >=, 1);
    struct team_threads *shared =
        calloc(1, sizeof *shared + (size_t)nranks * sizeof shared->ranks[0]);
    if (shared == NULL)
        return FAIL(ERR_MEMORY, "team: no memory for %d ranks", nranks);
    shared->nranks = nranks;
    open_waiting(shared);
    for (int rank = 0; rank < nranks; rank++) {
        shared->ranks[rank].shared = shared;
        shared->ranks[rank].base = (struct team){
            .ops = &threads_ops,
            .rank = rank,
            .nranks = nranks,
            .timeout_s = timeout_s,
            .is_oversubscribed = more_than_cores(nranks),
        };
    }
    *out = shared;
    return OK;
}

struct team *team_threads_rank(struct team_threads *shared, int rank)
{
    ASSERT(rank >= 0 && rank < shared->nranks);
    return &shared->ranks[rank].base;
}

void team_threads_close(struct team_threads *shared)
{
    if (shared == NULL)
        return;
    pthread_cond_destroy(&shared->changed);
    pthread_mutex_destroy(&shared->mutex);
    free(shared);
}

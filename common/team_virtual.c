/* Meetings of fibers: no locks, because ranks take turns. */
#include "common/team_virtual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fiber.h"
#include "common/log.h"

struct slot {
    const char *name; /* "gather" */
    int root;
    size_t bytes;
    const void *data;
};

struct virtual_rank {
    struct team base; /* must be first */
    struct team_virtual *shared;
    struct slot slot;
    bool has_settled;
};

struct team_virtual {
    int nranks, waiting, settled;
    bool is_hopeless; /* stuck again after the abort: somebody will never settle */
    uint64_t meetings, beats;
    enum status aborted;
    struct failure cause;
    struct virtual_rank ranks[];
};

static struct virtual_rank *virtual_rank(struct team *t)
{
    return (struct virtual_rank *)t;
}

static void describe_meeting(const void *what, char *out, size_t size)
{
    const struct virtual_rank *r = what;
    snprintf(out, size, "%s of the team, %d of %d ranks came", r->slot.name, r->shared->waiting,
             r->shared->nranks);
}

static enum status meet(struct virtual_rank *r)
{
    struct team_virtual *shared = r->shared;
    if (shared->aborted != OK)
        return team_peer_failed(&r->base);
    uint64_t mine = shared->meetings;
    if (++shared->waiting == shared->nranks) {
        shared->waiting = 0;
        shared->meetings++;
        fiber_align_clocks();
        fiber_wake_all();
    }
    while (shared->meetings == mine) {
        if (shared->aborted != OK)
            return team_peer_failed(&r->base);
        fiber_block(describe_meeting, r);
    }
    return OK;
}

static enum status check_slot(const struct virtual_rank *r)
{
    const struct slot *first = &r->shared->ranks[0].slot, *mine = &r->slot;
    if (mine->name == first->name && mine->root == first->root && mine->bytes == first->bytes)
        return OK;
    return FAIL(ERR_MISMATCH,
                "team: rank 0 calls %s with root %d and %zu bytes, rank %d %s with root %d and %zu bytes",
                first->name, first->root, first->bytes, r->base.rank, mine->name, mine->root,
                mine->bytes);
}

static enum status exchange(struct team *t, struct slot slot, void *data, bool gathers)
{
    struct virtual_rank *r = virtual_rank(t);
    const struct virtual_rank *all = r->shared->ranks;
    r->slot = slot;
    enum status s = meet(r);
    if (s == OK)
        s = check_slot(r);
    if (s == OK && gathers && t->rank == slot.root)
        for (int q = 0; q < t->nranks && slot.bytes > 0; q++)
            memcpy((char *)data + (size_t)q * slot.bytes, all[q].slot.data, slot.bytes);
    if (s == OK && !gathers && t->rank != slot.root && slot.bytes > 0)
        memcpy(data, all[slot.root].slot.data, slot.bytes);
    if (s == OK)
        s = meet(r); /* the data may go */
    if (s != OK)
        team_abort(t, s);
    return s;
}

static const char gather_name[] = "gather", broadcast_name[] = "broadcast";

static enum status virtual_gather(struct team *t, int root, const void *send, size_t bytes, void *recv)
{
    return exchange(t, (struct slot){gather_name, root, bytes, send}, recv, true);
}

static enum status virtual_broadcast(struct team *t, int root, void *data, size_t bytes)
{
    return exchange(t, (struct slot){broadcast_name, root, bytes, data}, data, false);
}

static void virtual_abort(struct team *t, enum status why)
{
    struct team_virtual *shared = virtual_rank(t)->shared;
    if (shared->aborted != OK)
        return;
    const struct failure *first = status_first();
    shared->cause = *first;
    shared->cause.code = why;
    shared->cause.rank = t->rank;
    if (first->code == OK)
        snprintf(shared->cause.text, sizeof shared->cause.text, "%s", status_text(why));
    shared->aborted = why;
    fiber_wake_all();
}

static enum status virtual_status(struct team *t)
{
    return virtual_rank(t)->shared->aborted;
}

static const struct failure *virtual_cause(struct team *t)
{
    return &virtual_rank(t)->shared->cause;
}

static void describe_settling(const void *what, char *out, size_t size)
{
    const struct team_virtual *shared = what;
    snprintf(out, size, "the end of the phase, %d of %d ranks came", shared->settled, shared->nranks);
}

static enum status virtual_settle(struct team *t)
{
    struct virtual_rank *r = virtual_rank(t);
    struct team_virtual *shared = r->shared;
    if (!r->has_settled) {
        r->has_settled = true;
        if (++shared->settled == shared->nranks)
            fiber_wake_all();
    }
    while (shared->settled < shared->nranks) {
        if (shared->is_hopeless)
            return FAIL(ERR_TIMEOUT, "team: only %d of %d ranks came to the end of their phase",
                        shared->settled, shared->nranks);
        fiber_block(describe_settling, shared);
    }
    return OK;
}

static void virtual_heartbeat(struct team *t)
{
    virtual_rank(t)->shared->beats++;
}

static uint64_t virtual_beats(struct team *t)
{
    return virtual_rank(t)->shared->beats;
}

static const struct team_ops virtual_ops = {
    .name = "virtual",
    .gather = virtual_gather,
    .broadcast = virtual_broadcast,
    .abort = virtual_abort,
    .status = virtual_status,
    .cause = virtual_cause,
    .settle = virtual_settle,
    .heartbeat = virtual_heartbeat,
    .beats = virtual_beats,
};

enum status team_virtual_open(int nranks, struct team_virtual **out)
{
    ASSERT_CMP(nranks, >=, 1);
    struct team_virtual *shared = calloc(1, sizeof *shared + (size_t)nranks * sizeof shared->ranks[0]);
    if (shared == NULL)
        return FAIL(ERR_MEMORY, "team: no memory for %d ranks", nranks);
    shared->nranks = nranks;
    for (int rank = 0; rank < nranks; rank++) {
        shared->ranks[rank].shared = shared;
        shared->ranks[rank].base =
            (struct team){.ops = &virtual_ops, .rank = rank, .nranks = nranks};
    }
    *out = shared;
    return OK;
}

struct team *team_virtual_rank(struct team_virtual *shared, int rank)
{
    ASSERT(rank >= 0 && rank < shared->nranks);
    return &shared->ranks[rank].base;
}

void team_virtual_close(struct team_virtual *shared)
{
    free(shared);
}

/* The first who wait, as far as a failure's text goes; everybody on the log. */
static void report_deadlock(const struct team_virtual *shared)
{
    char line[160], text[400] = "";
    size_t used = 0;
    int waiting = 0;
    for (int rank = 0; rank < shared->nranks; rank++) {
        if (!fiber_waits(rank, line, sizeof line)) {
            log_error("deadlock: rank %d has ended", rank);
            continue;
        }
        log_error("deadlock: rank %d waits for %s", rank, line);
        waiting++;
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "; rank %d: %s", rank, line);
    }
    (void)FAIL(ERR_TIMEOUT, "deadlock: %d of %d ranks wait and none can run%s", waiting,
               shared->nranks, text);
}

void team_virtual_stuck(struct team_virtual *shared)
{
    if (shared->aborted == OK) {
        report_deadlock(shared);
        virtual_abort(&shared->ranks[log_rank() < 0 ? 0 : log_rank()].base, ERR_TIMEOUT);
    } else {
        shared->is_hopeless = true;
    }
    fiber_wake_all();
}

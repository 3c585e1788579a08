/* The control plane between ranks, in host memory, untimed: agree, barrier, gather, broadcast, abort,
 * heartbeat. The launcher makes a rank's team; transports bootstrap from it.
 *
 * All calls but abort, heartbeat and status are collective: every rank of the team makes the same calls
 * in the same order. A call blocks until the ranks it needs have come, and ends with ERR_PEER when the
 * team was aborted, or with ERR_TIMEOUT, naming a rank that did not come, when no rank of the team made
 * progress for the deadline. There is no bare wait anywhere. */
#ifndef COMMON_TEAM_H
#define COMMON_TEAM_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct team;

struct team_ops {
    const char *name; /* "threads", "mpi", "virtual" */
    /* REQUIRED. Every rank gives `bytes` bytes; on the root `recv` takes nranks * bytes, rank 0 first. */
    enum status (*gather)(struct team *, int root, const void *send, size_t bytes, void *recv);
    /* REQUIRED. The root's bytes reach everybody's `data`. */
    enum status (*broadcast)(struct team *, int root, void *data, size_t bytes);
    /* REQUIRED. Wakes every waiter of every rank with ERR_PEER; idempotent, the first one counts; any
     * rank, any time. The failure recorded by the calling rank becomes the team's cause. */
    void (*abort)(struct team *, enum status why);
    /* REQUIRED. OK, or the status that the team was aborted with. */
    enum status (*status)(struct team *);
    /* REQUIRED. Of an aborted team: what it was aborted for (code, rank, text). */
    const struct failure *(*cause)(struct team *);
    /* REQUIRED. Of an aborted team: returns when every rank has called it at least once, so that none is
     * inside a timed phase any more, or with ERR_TIMEOUT. Not ended by the abort. */
    enum status (*settle)(struct team *);
    /* REQUIRED. This rank made progress: deadlines of all ranks start anew. Cheap. */
    void (*heartbeat)(struct team *);
    /* REQUIRED. A count that grows with every heartbeat of any rank. */
    uint64_t (*beats)(struct team *);
    /* OPTIONAL: 0, the ranks share a clock. What to add to this rank's clock_ps() to have rank 0's. */
    int64_t (*clock_offset_ps)(struct team *);
};

/* Back ends embed it as their first member. */
struct team {
    const struct team_ops *ops;
    int rank, nranks;
    double timeout_s;       /* seconds without progress of any rank */
    bool is_oversubscribed; /* more ranks than usable cores: wait by blocking, not by spinning */
};

enum status team_gather(struct team *, int root, const void *send, size_t bytes, void *recv) WARN_UNUSED;
enum status team_broadcast(struct team *, int root, void *data, size_t bytes) WARN_UNUSED;
/* Returns when all ranks have come. */
enum status team_barrier(struct team *) WARN_UNUSED;
/* Everybody gives a status and everybody returns the worst; a rank whose own was OK records ERR_PEER
 * with the first failure's text and rank. Used at the end of every phase outside timing. Of an aborted
 * team it still waits until every rank has come to the end of a phase (buffers may be freed after it),
 * and the worst includes what the team was aborted with. */
enum status team_agree(struct team *, enum status mine) WARN_UNUSED;
/* `why` is a failure; the calling rank's recorded failure travels with it. */
void team_abort(struct team *, enum status why);
enum status team_status(struct team *);
/* Of an aborted team: records ERR_PEER with the first failure's rank and text, and returns it. */
enum status team_peer_failed(struct team *);
void team_heartbeat(struct team *);
int64_t team_clock_offset_ps(struct team *);

/* A wait without any rank's progress. Whoever waits for another rank wakes at least every
 * TEAM_SLICE_NS to look at team_status and at its deadline. */
enum { TEAM_SLICE_NS = 20 * 1000 * 1000 };
struct team_deadline {
    uint64_t beats;
    int64_t since_ns;
};
struct team_deadline team_deadline_start(struct team *);
/* Whether no rank has made progress for timeout_s. */
bool team_deadline_passed(struct team *, struct team_deadline *);

/* Ranks as threads of this process: one shared object, one struct team a rank. */
struct team_threads;
enum status team_threads_open(int nranks, double timeout_s, struct team_threads **out) WARN_UNUSED;
struct team *team_threads_rank(struct team_threads *, int rank); /* owned by the shared object */
void team_threads_close(struct team_threads *); /* after every rank's thread has ended */

#endif

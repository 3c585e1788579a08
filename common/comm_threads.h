/* Transport `threads`: ranks are threads of one process, and what moves bytes is whoever waits.
 *
 * There is no progress thread. Starting an operation publishes the rank's buffers and counts and
 * never blocks. Once every rank it needs has done so, the operation is a list of tasks (copies, and
 * sums of chunks), and any rank that waits for it takes tasks until none is left: an operation ends
 * although all ranks but one are busy computing.
 *
 * This header is shared by the transport's own files; comm.c takes the transport from it. */
#ifndef COMMON_COMM_THREADS_H
#define COMMON_COMM_THREADS_H

#include "common/comm.h"
#include "common/comm_match.h"

#include <pthread.h>
#include <stdatomic.h>

extern const struct comm_ops comm_threads;

/* What one rank brings to an operation. Counts and offsets are copies: after an abort the caller's
 * may be gone while others still look at them. */
struct threads_post {
    bool is_posted;
    struct comm_post says;
    const char *send;
    char *recv;
    size_t *send_offsets, *recv_offsets; /* filled where the op has them */
    struct threads_operation *pair; /* of a sendrecv's send: its receive */
};

enum threads_state { OPERATION_OPEN, OPERATION_MISMATCHED, OPERATION_MATCHED, OPERATION_DONE };

/* Channel 0: collectives, one post a rank. Channel 1 + from * nranks + to: the messages of one
 * link; the sender's post is 0, the receiver's 1. The k-th starts of a channel meet in the
 * operation number k. */
struct threads_operation {
    struct threads_operation *next;      /* in its bucket, or among the free */
    struct threads_operation *next_made; /* of all, for close */
    size_t channel;
    uint64_t number;
    int needed, posted, awaited;  /* posts; guarded by the group's mutex */
    _Atomic int state;            /* enum threads_state */
    int64_t matched_ps, ready_ps; /* last post; arrival; set before MATCHED */
    int64_t ended_ps;             /* set before DONE */
    char mismatch[256];           /* set before MISMATCHED */
    size_t tasks;                 /* set before MATCHED */
    _Atomic size_t next_task, tasks_done;
    pthread_cond_t changed; /* the state did */
    struct threads_post posts[];
};

enum { THREADS_BUCKETS = 64 };

/* A communicator: what its ranks share. The last rank that closes it frees it. */
struct threads_group {
    int nranks;
    int *team_ranks;         /* for messages */
    _Atomic uint64_t *moved; /* bytes that left each rank */
    pthread_mutex_t mutex;   /* guards everything below */
    int users;
    struct threads_operation *made, *unused, *buckets[THREADS_BUCKETS];
    /* split: each rank's wish, and what came of it */
    pthread_cond_t has_split;
    int splitting;
    uint64_t splits;
    bool split_failed;
    struct threads_part {
        int color, key, rank;
        struct threads_group *group;
    } * parts;
};

/* ---- comm_threads_group.c ---- */

/* NULL: out of memory. In use by nranks ranks. */
struct threads_group *threads_group_new(int nranks);
/* One rank less uses it. */
void threads_group_release(struct threads_group *);
/* All parts are known: makes the groups and gives every part its own. */
void threads_group_divide(struct threads_group *);
/* Operation `number` of the channel, made or taken from the unused at its first post. NULL: out of
 * memory. With the mutex held. */
struct threads_operation *threads_group_operation(struct threads_group *, size_t channel,
                                                  uint64_t number);
/* One rank less awaits it. Takes the mutex. */
void threads_group_awaited(struct threads_group *, struct threads_operation *);
void threads_cond_init(pthread_cond_t *); /* on the monotonic clock */

/* ---- comm_threads_tasks.c ---- */

/* Whether all posts of an operation fit together; else writes which do not into op->mismatch. */
bool threads_posts_match(const struct threads_group *, struct threads_operation *);
size_t threads_task_count(const struct threads_group *, const struct threads_operation *);
/* Tasks may run in any order and at the same time. */
void threads_task_run(struct threads_group *, const struct threads_operation *, size_t task);

#endif

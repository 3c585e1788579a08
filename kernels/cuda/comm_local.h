/* Transport `local`: ranks are threads of one process, on one GPU or on several, and bytes move by
 * copies between their buffers; events order the lanes of the ranks.
 *
 * Starting an operation publishes the rank's buffers and events and never blocks. Whoever starts last
 * puts the work of all ranks on their lanes. A rank that waits blocks its thread until then, because a
 * lane can only wait for an event that has been recorded; no lane ever waits for a thread.
 *
 * This header is shared by the transport's own files, and by `nccl` for messages of a rank to itself. */
#ifndef KERNELS_CUDA_COMM_LOCAL_H
#define KERNELS_CUDA_COMM_LOCAL_H

#include "kernels/cuda/lane_cuda.h"

#include <pthread.h>
#include <stdatomic.h>

/* What one rank brings to an operation. Counts and offsets are copies: after an abort the caller's may be
 * gone. Events are the poster's; `ready` is recorded by it, the others by whoever puts the work on lanes. */
struct local_post {
    bool is_posted;
    enum comm_op op;
    enum dtype dtype;
    int root;
    size_t count; /* of a receive: what it expects */
    char *send, *recv, *parts;      /* parts: room for everybody's part of the rank's chunk */
    size_t *send_counts, *send_offsets, *recv_counts, *recv_offsets; /* where the op has them */
    struct event *ready;   /* the buffers are the operation's */
    struct event *matched; /* every rank is ready */
    struct event *summed;  /* all_reduce: the rank's chunk is there */
    struct event *done;    /* the rank has read what it needs of others */
    struct event *ended;   /* everybody has: the buffers are the caller's again */
    struct local_operation *pair; /* of a sendrecv's send: its receive */
};

/* Channel 0: collectives, one post a rank. Channel 1 + from * nranks + to: the messages of one link; the
 * sender's post is 0, the receiver's 1. The k-th starts of a channel meet in operation number k. */
struct local_operation {
    struct local_operation *next;
    size_t channel;
    uint64_t number;
    int needed, posted, awaited;
    bool is_queued;     /* on all lanes */
    enum status status; /* of matching and queueing */
    char why[256];
    struct local_post posts[];
};

/* What the ranks of a communicator share; the last that closes it frees it. */
struct local_group {
    int nranks, users;
    pthread_mutex_t mutex; /* guards everything below but `moved` */
    pthread_cond_t changed;
    struct local_operation *open, *unused;
    int splitting; /* ranks that have come to the split under way */
    uint64_t splits;
    struct local_member {
        struct cuda_lanes *lanes;
        struct lane *collective, **to, **from; /* to, from: nranks links; NULL before first use */
        _Atomic uint64_t moved;                /* bytes that others have read */
        int color, key, split_rank;            /* of the split under way, and what came of it */
        struct local_group *split_group;
    } members[];
};

/* One rank's communicator. */
struct local_comm;

/* ---- comm_local.c ---- */

/* A communicator of the rank with itself. */
enum status local_open_alone(struct team *, struct cuda_lanes *, struct local_comm **out) WARN_UNUSED;
/* Device memory that the communicator keeps: the same for every call of no more bytes, so that calls on one
 * lane may share it. */
enum status local_room(struct local_comm *, size_t bytes, char **out) WARN_UNUSED;
/* As in struct comm_ops. */
enum status local_start(void *comm, struct comm_request *);
enum status local_wait(void *comm, struct comm_request *);
void local_close(void *comm);

/* ---- comm_local_group.c ---- */

/* NULL: out of memory. In use by nranks ranks. */
struct local_group *local_group_new(int nranks);
void local_group_release(struct local_group *);
/* Waits for `changed`, with the mutex held, for at most TEAM_SLICE_NS. */
void local_group_wait(struct local_group *);
/* Everybody's color and key are known: makes the groups and gives every member its own. With the mutex
 * held. */
enum status local_group_divide(struct local_group *) WARN_UNUSED;
/* Operation `number` of the channel, made at its first post. NULL: out of memory. With the mutex held. */
struct local_operation *local_group_operation(struct local_group *, size_t channel, uint64_t number);
/* One rank less awaits it. With the mutex held. */
void local_group_awaited(struct local_group *, struct local_operation *);

/* ---- comm_local_queue.c ---- */

/* With the mutex held and all posts made: checks that they fit, and puts the operation on the lanes.
 * The calling thread's GPU may be another afterwards. */
enum status local_queue(struct local_group *, struct local_operation *) WARN_UNUSED;

#endif

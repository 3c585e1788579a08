/* Communication between ranks: moves device data, and accounts for it.
 *
 * Strategies call the checked wrappers below and never a transport's operations. A wrapper checks its
 * arguments, counts calls, payload and sent bytes (by operation and by traffic, synchronous steps and
 * stale steps apart), times, injects test faults, and calls the transport.
 *
 * Started and awaited apart. An operation is started by its call and ended by comm_wait; with a NULL
 * request the call does both. It is ordered after everything put on the rank's compute lane so far;
 * comm_wait orders what follows on the compute lane after it and does not block the host where the lane
 * is a queue. From the start to its comm_wait both buffers belong to the operation; afterwards both are
 * the caller's, the send buffer too: peers have read it. After an abort no buffer may be freed before
 * every rank has left `sample`.
 *
 * All ranks of a communicator start the same collectives in the same order with matching sizes
 * (ERR_MISMATCH otherwise, where the transport can tell). They may be awaited in any order. Messages
 * between two ranks match in the order in which they were started, sends and receives apart; receives
 * may be posted early; a message is never dropped or reordered.
 *
 * Reductions add in rank order (fp32 sums, rounded once to the dtype): every rank and every run gets
 * the same bits. Transport `nccl` has its own order and is judged by the dtype table.
 *
 * Counts are in elements of `dtype`, offsets in elements from the start of the buffer. Sizes may be
 * zero. In place: all_reduce with send == recv; all_gather with send == recv + offset of the own part;
 * reduce_scatter with recv == send + offset of the own part. No other overlap. */
#ifndef COMMON_COMM_H
#define COMMON_COMM_H

#include "common/dtype.h"
#include "common/lane.h"
#include "common/team.h"

enum { COMM_MAX_RANKS = 1024 };

/* Operation: what is done. */
enum comm_op {
    COMM_ALL_REDUCE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_SEND,
    COMM_RECV,
    COMM_SENDRECV,
    COMM_OPS,
};
const char *comm_op_name(enum comm_op op); /* "all_reduce" */

/* Traffic: what is carried. A record's bytes are kept per (op, traffic). */
enum traffic {
    TRAFFIC_HIDDEN,  /* hidden states and partial sums */
    TRAFFIC_KV,      /* keys and values */
    TRAFFIC_HEADS,   /* q, k, v, o switched between tokens and heads; DSP's switches */
    TRAFFIC_WEIGHTS, /* weight shards (tsp) */
    TRAFFIC_NOISE,   /* predicted noise averaged over ranks (tp-stale peers) */
    TRAFFIC_LATENT,  /* latent patches and the final gather */
    TRAFFIC_CFG,     /* predicted noise exchanged between the halves of guidance */
    TRAFFIC_KINDS,
};
const char *traffic_name(enum traffic t); /* "hidden" */

/* What a rank sent, of one (op, traffic). payload: bytes of the whole logical array (all_reduce,
 * reduce_scatter, all_gather: all ranks' parts; all_to_all: the local array; broadcast: the array;
 * point to point: the message, counted by the sender). sent: bytes that left this rank, without the
 * copy to itself, as a ring or a pairwise exchange must send them (docs/measuring.md). */
struct comm_count {
    uint64_t calls, payload_bytes, sent_bytes;
};
enum step_phase { PHASE_SYNC, PHASE_STALE, STEP_PHASES };
struct comm_counts {
    struct comm_count of[STEP_PHASES][COMM_OPS][TRAFFIC_KINDS];
};

struct comm;
struct meter;

/* What a transport is asked to do. v-forms only: the wrappers expand the even forms. Arrays have
 * nranks entries and stay valid until the operation is awaited. */
struct comm_call {
    enum comm_op op;
    enum traffic traffic;
    enum dtype dtype;
    struct devmem send, recv;
    size_t count;                              /* all_reduce, broadcast, send: elements to send */
    const size_t *send_counts, *send_offsets;  /* all_to_all, reduce_scatter: part for each rank */
    const size_t *recv_counts, *recv_offsets;  /* all_gather, all_to_all: part from each rank */
    size_t recv_count;                         /* recv, sendrecv: elements to receive */
    bool is_even; /* found by the wrapper: all parts of a table are equal, so the first speaks for all */
    int root, to, from;                        /* broadcast; send, sendrecv; recv, sendrecv */
};

/* An operation under way. Owner: the caller; zero-initialised means "nothing pending". It may be moved
 * only while nothing is pending. */
struct comm_request {
    struct comm *comm; /* NULL: nothing pending */
    struct comm_call call;
    void *transport;      /* the transport's handle */
    uint64_t sequence;    /* of this communicator */
    struct mark posted;   /* when this rank started it */
    struct mark matched;  /* when the last rank it needs, this one too, had started it; by comm_wait.
                             `nccl` cannot see that: it gives its own start */
    struct mark ended;    /* when it had ended; set by comm_wait */
    int layer, patch, step; /* where in the model it was started, for traces */
};

/* One transport. Back ends stay dumb: no counting, no checking beyond what they need. */
struct comm_ops {
    const char *name, *summary;
    enum memory_kind memory;
    /* REQUIRED. A communicator over all ranks of the team; collective. */
    enum status (*open)(struct team *, struct lane_system *, void **backend);
    /* REQUIRED. Collective over the parent: ranks that give the same color form a group, ordered by
     * (key, parent rank). color < 0: this rank gets no group and *backend = NULL. */
    enum status (*split)(void *parent, int color, int key, void **backend, int *rank, int *nranks);
    /* REQUIRED. Not collective; nothing is pending. Accepts NULL. */
    void (*close)(void *backend);
    /* REQUIRED. Puts the operation on its lane: never blocks on a peer (a transport may block for local
     * resources only). Sets request->transport and posted. */
    enum status (*start)(void *backend, struct comm_request *);
    /* REQUIRED. Orders the compute lane after the operation; sets matched and ended. */
    enum status (*wait)(void *backend, struct comm_request *);
    /* REQUIRED. Bytes this rank has really sent to other ranks, counted where they are moved. */
    uint64_t (*moved_bytes)(void *backend);
};

/* NULL-terminated: the transports that are built in, then those registered. */
const struct comm_ops *const *comm_transports(void);
/* Adds what a plug-in brings, which lives for the rest of the process. Before ranks start. */
enum status comm_register(const struct comm_ops *) WARN_UNUSED;
const struct comm_ops *comm_find(const char *name);

/* An operation that fails aborts the team. A skipped operation (RUN_COMPUTE) leaves its request not
 * pending. A group shares its parent's meter and must be closed before it. */

/* Collective over the team. `meter` takes the counts and times (may be NULL in tests). `lanes` must be
 * of the transport's memory kind. */
enum status comm_open(const struct comm_ops *, struct team *, struct lane_system *lanes,
                      struct meter *, struct comm **out) WARN_UNUSED;
enum status comm_split(struct comm *parent, int color, int key, struct comm **out) WARN_UNUSED;
void comm_close(struct comm *); /* accepts NULL */
int comm_rank(const struct comm *);
int comm_nranks(const struct comm *);
uint64_t comm_moved_bytes(const struct comm *);
/* All-reduce is a reduce-scatter and an all-gather of chunks of elements: chunk `rank` starts at *offset
 * and has the returned size; the first count mod nranks chunks have one more. */
size_t comm_chunk(size_t count, int rank, int nranks, size_t *offset);
/* The bytes that `call` makes this rank send: the accounting rule itself. */
uint64_t comm_sent_bytes(const struct comm_call *call, int rank, int nranks);
uint64_t comm_payload_bytes(const struct comm_call *call, int nranks);

/* ---- operations; request NULL: start and wait ---- */

enum status comm_all_reduce(struct comm *, enum traffic, enum dtype, struct devmem send,
                            struct devmem recv, size_t count, struct comm_request *) WARN_UNUSED;
/* Every rank's part of counts[rank] elements lands at offsets[rank] of recv, on every rank. */
enum status comm_all_gatherv(struct comm *, enum traffic, enum dtype, struct devmem send,
                             struct devmem recv, const size_t *counts, const size_t *offsets,
                             struct comm_request *) WARN_UNUSED;
/* send holds all parts at offsets[]; rank r receives the sum of everybody's part r. */
enum status comm_reduce_scatterv(struct comm *, enum traffic, enum dtype, struct devmem send,
                                 struct devmem recv, const size_t *counts, const size_t *offsets,
                                 struct comm_request *) WARN_UNUSED;
enum status comm_all_to_allv(struct comm *, enum traffic, enum dtype, struct devmem send,
                             const size_t *send_counts, const size_t *send_offsets,
                             struct devmem recv, const size_t *recv_counts,
                             const size_t *recv_offsets, struct comm_request *) WARN_UNUSED;
/* The root's `buffer` reaches everybody's `buffer`. */
enum status comm_broadcast(struct comm *, enum traffic, enum dtype, struct devmem buffer, size_t count,
                           int root, struct comm_request *) WARN_UNUSED;
enum status comm_send(struct comm *, enum traffic, enum dtype, struct devmem send, size_t count, int to,
                      struct comm_request *) WARN_UNUSED;
enum status comm_recv(struct comm *, enum traffic, enum dtype, struct devmem recv, size_t count,
                      int from, struct comm_request *) WARN_UNUSED;
/* One operation: sends to `to` while receiving from `from`; the two sizes may differ. */
enum status comm_sendrecv(struct comm *, enum traffic, enum dtype, struct devmem send,
                          size_t send_count, int to, struct devmem recv, size_t recv_count, int from,
                          struct comm_request *) WARN_UNUSED;
/* Even forms: every part has `count` elements and part r stands at r * count. */
enum status comm_all_gather(struct comm *, enum traffic, enum dtype, struct devmem send,
                            struct devmem recv, size_t count, struct comm_request *) WARN_UNUSED;
enum status comm_reduce_scatter(struct comm *, enum traffic, enum dtype, struct devmem send,
                                struct devmem recv, size_t count, struct comm_request *) WARN_UNUSED;
enum status comm_all_to_all(struct comm *, enum traffic, enum dtype, struct devmem send,
                            struct devmem recv, size_t count, struct comm_request *) WARN_UNUSED;

/* Ends a started operation; OK at once when nothing is pending. */
enum status comm_wait(struct comm_request *) WARN_UNUSED;
static inline int comm_is_pending(const struct comm_request *r)
{
    return r->comm != NULL;
}

#endif

/* What the files of transport `nccl` share: a rank's communicator, NCCL's results, a call. */
#ifndef KERNELS_CUDA_COMM_NCCL_H
#define KERNELS_CUDA_COMM_NCCL_H

#include "kernels/cuda/comm_local.h"

#include <nccl.h>

enum { NCCL_MOST_UNDER_WAY = 32 };

struct nccl_link {
    ncclComm_t comm;
    struct lane *lane;
    int peer; /* its rank in the link's communicator */
};

/* What comm_wait needs of one operation. */
struct nccl_handle {
    struct nccl_handle *next;
    struct event *ended[2];      /* of the receive or the collective; of the send */
    struct comm_request self[2]; /* the same, of messages to itself */
};

struct nccl_comm {
    struct cuda_lanes *lanes;
    struct team *team;
    ncclComm_t comm;
    struct lane *lane;
    int rank, nranks;
    struct nccl_link *to, *from; /* nranks each; the own entry is unused */
    struct local_comm *self;
    struct nccl_handle *unused;
    cudaEvent_t under_way[NCCL_MOST_UNDER_WAY]; /* ends of the last collectives */
    unsigned started;                           /* collectives */
    struct lane_watch watch;
    uint64_t moved;
    bool is_aborted;
};

/* ---- NCCL's results: comm_nccl.c ---- */

enum status nccl_failed(ncclResult_t result, const char *call, const char *file, int line);
#define NCCL_TRY(call)                                                                             \
    do {                                                                                           \
        ncclResult_t nccl_try_ = (call);                                                           \
        if (nccl_try_ != ncclSuccess && nccl_try_ != ncclInProgress)                               \
            return nccl_failed(nccl_try_, #call, __FILE__, __LINE__);                              \
    } while (0)

/* Returns when NCCL has taken in what it was told of this communicator, polling with the team's deadline;
 * `what` is the failure's text until then. */
enum status nccl_settle(struct nccl_comm *c, ncclComm_t comm, const char *what) WARN_UNUSED;

/* ---- collectives: comm_nccl_collectives.c ---- */

/* One call being started: its buffers as NCCL takes them. */
struct nccl_work {
    struct nccl_comm *c;
    const struct comm_call *call;
    size_t element;
    ncclDataType_t type;
    char *send, *recv;
    cudaStream_t stream;
};

static inline void nccl_count_sent(const struct nccl_work *w, int to, size_t elements)
{
    if (to != w->c->rank)
        w->c->moved += elements * w->element;
}

/* Puts one collective on the call's stream, and counts the bytes it moves. */
enum status nccl_collective(const struct nccl_work *w) WARN_UNUSED;

/* ---- opening and closing: comm_nccl_open.c ---- */

/* As in struct comm_ops. */
enum status nccl_open(struct team *team, struct lane_system *system, void **backend);
enum status nccl_split(void *parent, int color, int key, void **backend, int *rank, int *nranks);
void nccl_close(void *comm);

#endif

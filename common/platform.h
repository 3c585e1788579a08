/* What the simulator knows of a machine: its GPUs, its nodes, its network. One JSON file each
 * (bench/platforms, bench/platform_file.h); this is its contents in SI units. docs/simulator.md says
 * where every figure comes from. */
#ifndef COMMON_PLATFORM_H
#define COMMON_PLATFORM_H

#include "common/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How time of communication follows from bytes. */
enum platform_protocol {
    PROTOCOL_NCCL,       /* the public model of NCCL's tuner: algorithms, protocols, latencies */
    PROTOCOL_ALPHA_BETA, /* every hop costs a latency and its bytes */
};
enum platform_link { LINK_NVLINK, LINK_PCIE };

/* One GPU (or the cores of one rank). Ceilings are the shares of a peak that work really reaches. */
struct platform_gpu {
    int sms;                        /* 0: no waves of thread blocks */
    double peak_flops[DTYPE_COUNT]; /* FLOP/s; 0: this dtype is refused */
    double memory_bandwidth;        /* bytes/s */
    uint64_t memory_bytes;          /* 0: not limited */
    double gemm_ceiling, attention_ceiling;    /* of the peak */
    double gemm_memory_ceiling, memory_ceiling; /* of the bandwidth: products; elementwise work */
    double launch_s;                /* of a kernel */
    double overlap_cost;            /* slow-down of computing per time that a transfer overlaps it */
    double host_op_s;               /* host time of a framework operation */
};

/* One level of links. */
struct platform_level {
    double bus;        /* bytes/s per direction, as NCCL counts bus bandwidth */
    double all_to_all; /* the same for all-to-all and point to point among many; bus unless it differs */
    double ll_cap;     /* bytes/s: what the low-latency protocol reaches at most */
    double latency_s;  /* PROTOCOL_ALPHA_BETA: of a hop */
};

/* Copies and framework operations of a slower implementation, for comparing with its published figures
 * (docs/simulator.md, "Emulation"). All zero: ditto itself. Bytes are read plus written. */
struct platform_emulation {
    double modulate, residual, gelu, attention; /* bytes per byte of the tensor, beyond ditto's own */
    double merge_total;                         /* of a merge instead of ditto's own; 0: as ditto */
    double reduced, gathered, switched;         /* per byte of payload, on the compute lane at the wait */
    double gathered_lane;                       /* per byte of payload, on the communicator's lane */
    double host_ops, host_merge;                /* framework operations per device operation; per merge */
    double host_collective, host_gather_each, host_message; /* and per communication */
};

struct platform {
    char name[64], summary[160];
    char sha256[65]; /* of the file */
    struct platform_gpu gpu;
    enum platform_protocol protocol;
    enum platform_link link;
    int node_ranks;  /* GPUs of a node; 0: all are in one */
    int port_ranks;  /* neighbours that share one port to the rest of their node; 1: none do */
    int nics;        /* of a node */
    struct platform_level node, network; /* network.bus: of one NIC */
    double message_s;                    /* of each message of an all-to-all or point to point */
    struct platform_emulation emulation;
};

static inline int platform_node_of(const struct platform *p, int rank)
{
    return p->node_ranks > 0 ? rank / p->node_ranks : 0;
}
static inline int platform_port_of(const struct platform *p, int rank)
{
    return p->port_ranks > 1 ? rank / p->port_ranks : rank;
}

/* Seconds to the simulator's picoseconds. */
static inline int64_t platform_ps(double seconds)
{
    return (int64_t)(seconds * 1e12 + 0.5);
}

#endif

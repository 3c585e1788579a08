/* Device memory, lanes, events and time marks: what devices and transports both build on.
 *
 * A lane is an ordered queue of work of one rank: a CUDA stream, a clock of the simulator, or, on host
 * devices, nothing at all, because there the work is done when the call returns. A rank has one compute
 * lane, on which its device works. A communicator has one lane of its own for collectives; every
 * point-to-point link (peer, direction) is a lane too, because a send queued behind a pre-posted
 * receive on one in-order lane would never start.
 *
 * Nothing here blocks the host except lane_sync. Time is integer picoseconds on a clock that never
 * decreases: wall clock, CUDA events, or virtual time. */
#ifndef COMMON_LANE_H
#define COMMON_LANE_H

#include "common/status.h"
#include <stddef.h>
#include <stdint.h>

/* An address in device memory. Opaque: host code cannot dereference it by accident. Devices and
 * transports of host memory use lane_host_pointer. addr 0 is "none". */
struct devmem {
    uintptr_t addr;
};
#define DEVMEM_NONE ((struct devmem){0})
static inline struct devmem devmem_at(struct devmem m, size_t bytes)
{
    return (struct devmem){m.addr + bytes};
}
static inline int devmem_is_none(struct devmem m)
{
    return m.addr == 0;
}
/* Only for devices and transports whose memory is the host's. */
static inline void *lane_host_pointer(struct devmem m)
{
    return (void *)m.addr; /* NOLINT: the one place where an address becomes a pointer */
}

enum memory_kind { MEMORY_HOST, MEMORY_CUDA, MEMORY_VIRTUAL };

struct lane;  /* private to the back end */
struct event; /* private to the back end */

/* A point on a lane's time line. Valid to read after a lane_sync that follows it. */
struct mark {
    int64_t ps;          /* host and virtual lanes: known at once */
    struct event *event; /* back ends whose time is known only after a sync; else NULL */
};

struct lane_system;

struct lane_ops {
    const char *name;
    enum memory_kind memory;

    /* REQUIRED. Device memory, 64-byte aligned. ERR_MEMORY names the bytes asked for and those held. The
     * wrappers never pass 0 bytes or NONE. */
    enum status (*alloc)(struct lane_system *, size_t bytes, struct devmem *out);
    void (*free)(struct lane_system *, struct devmem, size_t bytes);
    /* REQUIRED. Between host and device memory, ordered after everything on the compute lane; the host's
     * buffer is the caller's again when the call returns. Used outside timing. download may leave zeros
     * where there is no data (virtual memory). */
    enum status (*upload)(struct lane_system *, struct devmem dst, const void *src, size_t bytes);
    enum status (*download)(struct lane_system *, void *dst, struct devmem src, size_t bytes);

    /* REQUIRED. Lanes beside the compute lane. */
    enum status (*open_lane)(struct lane_system *, const char *label, struct lane **out);
    void (*close_lane)(struct lane_system *, struct lane *);
    /* REQUIRED. Events order lanes: what is put on `after` from now on starts after everything put on
     * `before` so far. NULL is the compute lane. */
    enum status (*order)(struct lane_system *, struct lane *after, struct lane *before);
    /* REQUIRED. The time at which everything put on the lane so far has ended. NULL: compute lane. */
    enum status (*mark)(struct lane_system *, struct lane *, struct mark *out);
    /* OPTIONAL: a mark on the compute lane. The time now by the host's clock, while all lanes are idle:
     * before a run, or after a sync. Where marks are events, the first one after reset_marks is what
     * the others are counted from. */
    enum status (*now)(struct lane_system *, struct mark *out);
    /* REQUIRED. Picoseconds since the system's epoch; after a sync. Marks of one system compare; those of
     * `now` compare between the ranks of a process. */
    int64_t (*mark_ps)(struct lane_system *, const struct mark *);
    /* REQUIRED. The host waits for every lane of the rank. ERR_TIMEOUT, ERR_DEVICE, ERR_PEER. */
    enum status (*sync)(struct lane_system *);
    /* REQUIRED. Marks taken so far are used up; their events may be reused. */
    void (*reset_marks)(struct lane_system *);
    /* OPTIONAL: nothing is under way. After a failure: returns when the lanes are idle, having given up
     * what cannot end any more. Before any rank frees memory. */
    void (*drain)(struct lane_system *);
};

/* One rank's view of its device. Back ends embed it as their first member. */
struct lane_system {
    const struct lane_ops *ops;
    int rank;
};

/* The system of host memory: wall clock, lanes without a queue. Marks are
 * clock_ps(): those of all ranks of a process compare. open_lane gives NULL. Owner: the caller. */
enum status lane_host_open(int rank, struct lane_system **out) WARN_UNUSED;
void lane_host_close(struct lane_system *system); /* accepts NULL */

/* bytes 0 gives a valid address that must not be accessed; free it with bytes 0. free accepts NONE. */
enum status lane_alloc(struct lane_system *, size_t bytes, struct devmem *out) WARN_UNUSED;
void lane_free(struct lane_system *, struct devmem, size_t bytes);
enum status lane_upload(struct lane_system *, struct devmem dst, const void *src, size_t bytes)
    WARN_UNUSED;
enum status lane_download(struct lane_system *, void *dst, struct devmem src, size_t bytes) WARN_UNUSED;
enum status lane_mark(struct lane_system *, struct lane *, struct mark *out) WARN_UNUSED;
enum status lane_now(struct lane_system *, struct mark *out) WARN_UNUSED;
int64_t lane_mark_ps(struct lane_system *, const struct mark *);
enum status lane_sync(struct lane_system *) WARN_UNUSED;
void lane_drain(struct lane_system *); /* accepts NULL */

#endif

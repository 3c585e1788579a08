/* Lanes on CUDA: a lane is a stream, a mark an event, device memory a GPU's. Shared by the device, which
 * owns a rank's lane system, and the transports, which put their work on its lanes.
 *
 * Every function may be called from any thread of the process, by one at a time for a rank, except where
 * said; each makes the rank's GPU current. */
#ifndef KERNELS_CUDA_LANE_CUDA_H
#define KERNELS_CUDA_LANE_CUDA_H

#include "common/lane.h"
#include "common/team.h"
#include "kernels/cuda/host.h"

struct event {
    cudaEvent_t cuda;
};

struct lane {
    struct lane *next;
    cudaStream_t stream;
    cudaEvent_t reached; /* for order; no timing */
};

/* What a transport wants to be asked while the host waits for lanes. */
struct lane_watch {
    struct lane_watch *next;
    void *context;
    /* OPTIONAL. Has an operation under way failed? */
    enum status (*check)(void *context);
    /* OPTIONAL. Ends the operations under way, whatever the peers do. Idempotent. */
    void (*abort)(void *context);
};

struct cuda_lanes {
    struct lane_system base;
    int gpu;
    struct lane compute;
    struct lane *lanes; /* the others */
    struct team *team;  /* for deadlines; NULL before a transport is opened */
    struct lane_watch *watches;
    struct event **events; /* marks: the first events_used are taken; owned */
    size_t events_used, events_made;
    size_t events_seen;   /* of the taken ones, those known to have passed: a sign of life */
    cudaEvent_t base_event; /* base_ps by the host's clock */
    int64_t base_ps;
    bool has_base;
    size_t held; /* bytes */
};

static inline struct cuda_lanes *cuda_lanes(struct lane_system *system)
{
    return (struct cuda_lanes *)system;
}

enum status cuda_lanes_open(int rank, int gpu, struct cuda_lanes **out) WARN_UNUSED;
void cuda_lanes_close(struct cuda_lanes *); /* accepts NULL */
/* Makes the rank's GPU the calling thread's. */
enum status cuda_lanes_enter(const struct cuda_lanes *) WARN_UNUSED;
void cuda_lanes_watch(struct cuda_lanes *, struct lane_watch *);
void cuda_lanes_unwatch(struct cuda_lanes *, struct lane_watch *);
/* An event that stays the caller's until reset_marks. Not recorded yet. */
enum status cuda_lanes_event(struct cuda_lanes *, struct event **out) WARN_UNUSED;
/* One look at the team and the watches while the host waits for something. Starts with zeroed state. */
struct lane_waiting {
    bool is_started;
    unsigned looks;
    struct team_deadline deadline;
};
enum status cuda_lanes_look(struct cuda_lanes *, struct lane_waiting *, const char *what) WARN_UNUSED;

#endif

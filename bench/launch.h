/* Starts ranks and makes their team: threads of this process, fibers in virtual time, or the processes
 * that MPI gave us. Knows nothing of what the ranks do. */
#ifndef BENCH_LAUNCH_H
#define BENCH_LAUNCH_H

#include "common/team.h"

/* One rank's work. `team` is the rank's own; returns the rank's status. */
typedef enum status launch_fn(struct team *team, void *context);

/* Runs `work` on nranks ranks of the transport's kind and returns when all have ended. The status is the
 * worst of all ranks, and the calling thread's failure is the first rank's that failed by itself. */
enum status launch(const char *transport, int nranks, double timeout_s, launch_fn *work, void *context)
    WARN_UNUSED;
/* Cores this process may use (affinity mask). */
int launch_usable_cores(void);

#endif

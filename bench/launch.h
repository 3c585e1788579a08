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
/* The same where ranks may be other processes, which cannot be given a function: `description` is the text
 * that they make the same work from (struct launch_maker). */
enum status launch_described(const char *transport, int nranks, double timeout_s, launch_fn *work,
                             void *context, const char *description) WARN_UNUSED;
/* Cores this process may use (affinity mask). */
int launch_usable_cores(void);

/* ---- when an outer launcher (mpirun) started this program, as several processes ---- */

/* How many ranks it started, and which one this process is, from the environment that common MPI
 * libraries give; nothing is initialised. 0 and 0: there is no such launcher. */
int launch_outer_ranks(void);
int launch_outer_rank(void);

/* Makes work from its description, on a rank other than 0. */
struct launch_maker {
    enum status (*make)(const char *description, launch_fn **work, void **context);
    void (*drop)(void *context); /* accepts NULL */
};

/* Where a rank runs; texts belong to the launcher. */
struct launch_place {
    const char *host, *cores;
    bool is_bound; /* to fewer cores than the host has */
};

/* What a kind of outer launcher brings; used through the functions below. */
struct launch_outer {
    const char *transport;
    enum status (*launch)(int nranks, double timeout_s, launch_fn *, void *context,
                          const char *description);
    enum status (*begin)(double timeout_s);
    bool (*has_begun)(void);
    enum status (*serve)(const struct launch_maker *);
    bool (*is_over)(void);
    void (*end)(int exit_code);
    const char *(*library)(void);
    void (*place)(int rank, struct launch_place *);
};

/* Whether the ranks of this transport are the outer launcher's processes: those of `mpi` always, those of
 * `nccl` once it has begun (else they are threads). */
bool launch_uses_processes(const char *transport);
/* Joins the processes; collective over all of them. ERR_UNSUPPORTED: this build cannot. A library that
 * waits longer for processes that stand still ends this one. */
enum status launch_begin(double timeout_s) WARN_UNUSED;
bool launch_has_begun(void);
/* On ranks other than 0, instead of a command: takes part in what rank 0 launches until it ends. */
enum status launch_serve(const struct launch_maker *) WARN_UNUSED;
/* A rank failed inside timing: nothing can be launched any more, the job ends with this process. */
bool launch_is_over(void);
/* Before the program ends. Does not return after such a failure: it ends all processes. */
void launch_end(int exit_code);
/* After launch_begin. NULL before. */
const char *launch_library(void);
void launch_place(int rank, struct launch_place *out);

#endif

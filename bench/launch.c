/* Ranks as threads of this process. Other ways of starting ranks register in `launchers`. */
#include "bench/launch.h"

#include "bench/launch_fibers.h"
#include "bench/launch_mpi.h"
#include "common/log.h"
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Deep enough for library code that keeps tiles on the stack. */
enum { STACK_BYTES = 8 << 20 };

struct thread_rank {
    pthread_t thread;
    struct team *team;
    launch_fn *work;
    void *context;
    struct failure failure;
    enum status status;
    int is_started;
};

int launch_usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int cores = CPU_COUNT(&set);
    return cores > 0 ? cores : 1;
}

static void *rank_main(void *argument)
{
    struct thread_rank *rank = argument;
    status_bind(&rank->failure);
    log_set_rank(rank->team->rank, rank->team->nranks);
    rank->status = rank->work(rank->team, rank->context);
    if (rank->status != OK)
        team_abort(rank->team, rank->status);
    status_bind(NULL);
    return NULL;
}

static enum status start_threads(struct thread_rank *ranks, int nranks, struct team_threads *shared,
                                 launch_fn *work, void *context)
{
    pthread_attr_t attributes;
    enum status status = OK;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (int r = 0; r < nranks && status == OK; r++) {
        ranks[r].team = team_threads_rank(shared, r);
        ranks[r].work = work;
        ranks[r].context = context;
        ranks[r].failure.rank = -1;
        int error = pthread_create(&ranks[r].thread, &attributes, rank_main, &ranks[r]);
        ranks[r].is_started = error == 0;
        if (error)
            status = FAIL(ERR_MEMORY, "cannot start the thread of rank %d: %s", r, strerror(error));
    }
    if (status != OK && nranks > 0 && ranks[0].team)
        team_abort(ranks[0].team, status);
    pthread_attr_destroy(&attributes);
    return status;
}

/* The worst status, and as this thread's failure the text of the first rank that has it. */
static enum status join_threads(struct thread_rank *ranks, int nranks)
{
    int worst = -1;
    for (int r = 0; r < nranks; r++) {
        if (!ranks[r].is_started)
            continue;
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].status != OK && (worst < 0 || ranks[r].status > ranks[worst].status))
            worst = r;
    }
    if (worst < 0)
        return OK;
    const struct failure *f = &ranks[worst].failure;
    return status_fail(ranks[worst].status, f->file ? f->file : __FILE__, f->line, "%s",
                       f->text[0] ? f->text : status_text(ranks[worst].status));
}

static enum status launch_threads(int nranks, double timeout_s, launch_fn *work, void *context)
{
    struct team_threads *shared = NULL;
    TRY(team_threads_open(nranks, timeout_s, &shared));
    for (int r = 0; r < nranks; r++)
        team_threads_rank(shared, r)->is_oversubscribed = nranks > launch_usable_cores();
    struct thread_rank *ranks = calloc((size_t)nranks, sizeof *ranks);
    enum status status = ranks ? OK : FAIL(ERR_MEMORY, "no memory for %d ranks", nranks);
    if (status == OK) {
        status = start_threads(ranks, nranks, shared, work, context);
        enum status joined = join_threads(ranks, nranks);
        status = status != OK ? status : joined;
    }
    free(ranks);
    team_threads_close(shared);
    return status;
}

struct launcher {
    const char *transport;
    enum status (*launch)(int nranks, double timeout_s, launch_fn *work, void *context);
};

static const struct launcher launchers[] = {
    {"threads", launch_threads},
    {"nccl", launch_threads},
    {"local", launch_threads},
    {"virtual", launch_fibers},
};

#if HAVE_MPI
static const struct launch_outer *const outer = &launch_mpi_outer;
#else
static const struct launch_outer *const outer = NULL;
#endif

bool launch_uses_processes(const char *transport)
{
    return outer && (strcmp(outer->transport, transport) == 0 ||
                     (outer->has_begun() && strcmp(transport, "nccl") == 0));
}

enum status launch_described(const char *transport, int nranks, double timeout_s, launch_fn *work,
                             void *context, const char *description)
{
    if (launch_uses_processes(transport))
        return outer->launch(nranks, timeout_s, work, context, description);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (strcmp(launchers[i].transport, transport) == 0)
            return launchers[i].launch(nranks, timeout_s, work, context);
    return FAIL(ERR_UNSUPPORTED, "no way to start the ranks of transport %s", transport);
}

enum status launch(const char *transport, int nranks, double timeout_s, launch_fn *work, void *context)
{
    return launch_described(transport, nranks, timeout_s, work, context, NULL);
}

/* ---- outer launchers ---- */

/* Open MPI and its descendants; MPICH, Intel MPI, Cray MPI; MVAPICH. */
static const char *const outer_variables[][2] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
};

static int outer_number(int which)
{
    for (size_t i = 0; i < sizeof outer_variables / sizeof *outer_variables; i++) {
        const char *size = getenv(outer_variables[i][0]), *rank = getenv(outer_variables[i][1]);
        if (size && rank)
            return atoi(which == 0 ? size : rank);
    }
    return 0;
}

int launch_outer_ranks(void)
{
    return outer_number(0);
}

int launch_outer_rank(void)
{
    return outer_number(1);
}

enum status launch_begin(double timeout_s)
{
    if (!outer)
        return FAIL(ERR_UNSUPPORTED, "this program was built without MPI; --transport threads runs on one "
                                     "machine");
    return outer->begin(timeout_s);
}

bool launch_has_begun(void)
{
    return outer && outer->has_begun();
}

enum status launch_serve(const struct launch_maker *maker)
{
    return outer->serve(maker);
}

bool launch_is_over(void)
{
    return outer && outer->is_over();
}

void launch_end(int exit_code)
{
    if (outer)
        outer->end(exit_code);
}

const char *launch_library(void)
{
    return launch_has_begun() ? outer->library() : NULL;
}

void launch_place(int rank, struct launch_place *out)
{
    outer->place(rank, out);
}

/* Launching on the processes of an MPI job. */
#include "bench/launch_mpi.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mpi_world.h"
#include "common/team_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After a failure inside timing rank 0 writes what there is to write and ends the job; the others wait
 * this long for it. */
enum { GRACE_S = 5 };

static uint64_t generation;
static bool is_over; /* a team was aborted: its messages may be anywhere, the job ends */

/* One rank of a launch, from its team's opening to its closing. */
static enum status run_rank(int nranks, double timeout_s, uint64_t team_generation, launch_fn *work,
                            void *context)
{
    struct team *team = NULL;
    log_set_rank(mpi_world_rank(), nranks);
    enum status status = team_mpi_open(nranks, timeout_s, team_generation, &team);
    if (status != OK) {
        is_over = true;
        return status;
    }
    status = team_agree(team, work(team, context));
    if (team_status(team) != OK) {
        const struct failure cause = *team->ops->cause(team);
        is_over = true;
        status_clear();
        log_set_rank(0, 0);
        (void)FAIL(status, "rank %d: %.400s", cause.rank, cause.text);
    }
    team_mpi_close(team);
    return status;
}

static enum status tell_others(int nranks, double timeout_s, const char *description)
{
    char *text = NULL;
    if (asprintf(&text, "launch %d %.17g %llu\n%s", nranks, timeout_s, (unsigned long long)generation,
                 description) < 0)
        return FAIL(ERR_MEMORY, "no memory to describe a launch");
    enum status status = OK;
    for (int r = 1; r < nranks && status == OK; r++)
        status = mpi_world_tell(r, text);
    free(text);
    return status;
}

static enum status launch_processes(int nranks, double timeout_s, launch_fn *work, void *context,
                                    const char *description)
{
    if (!mpi_world_is_open())
        return FAIL(ERR_USAGE,
                    "transport mpi: ranks are processes that mpirun starts; use mpirun -n %d bench ..., or "
                    "bench sweep, which calls mpirun itself",
                    nranks);
    if (nranks > mpi_world_size())
        return FAIL(ERR_USAGE, "%d ranks: mpirun started %d", nranks, mpi_world_size());
    if (is_over)
        return FAIL(ERR_PEER, "this MPI job ended when a rank of it failed");
    if (nranks > 1 && description == NULL)
        return FAIL(ERR_INTERNAL, "work without a description cannot run in other processes");
    generation++;
    if (nranks > 1)
        TRY(tell_others(nranks, timeout_s, description));
    enum status status = run_rank(nranks, timeout_s, generation, work, context);
    log_set_rank(0, 0);
    return status;
}

/* ---- ranks other than 0 ---- */

static enum status refuse(struct team *team, void *context)
{
    enum status status = *(const enum status *)context;
    team_abort(team, status);
    return status;
}

/* "launch NRANKS TIMEOUT GENERATION\nDESCRIPTION" */
static enum status take_part(const char *text, const struct launch_maker *maker)
{
    int nranks = 0, length = 0;
    double timeout_s = 0;
    unsigned long long its_generation = 0;
    if (sscanf(text, "launch %d %lf %llu%n", &nranks, &timeout_s, &its_generation, &length) != 3)
        return FAIL(ERR_INTERNAL, "rank 0 says \"%.40s\"", text);
    launch_fn *work = NULL;
    void *context = NULL;
    enum status made = maker->make(text + length + 1, &work, &context);
    enum status status = made == OK
                             ? run_rank(nranks, timeout_s, its_generation, work, context)
                             : run_rank(nranks, timeout_s, its_generation, refuse, &made);
    maker->drop(context);
    return status;
}

static _Noreturn void await_end(enum status status)
{
    const struct failure failure = *status_first();
    clock_sleep_ns((int64_t)GRACE_S * 1000000000);
    log_error("%s: %s", status_name(status), failure.text);
    mpi_world_abort(EXIT_FAILURE);
}

static enum status serve(const struct launch_maker *maker)
{
    for (;;) {
        char *text = NULL;
        TRY(mpi_world_listen(&text));
        bool is_end = strcmp(text, "end") == 0;
        enum status status = is_end ? OK : take_part(text, maker);
        free(text);
        if (is_end)
            return OK;
        if (is_over)
            await_end(status);
        status_clear();
    }
}

/* ---- the job ---- */

static void end_job(int exit_code)
{
    if (!mpi_world_is_open())
        return;
    if (is_over)
        mpi_world_abort(exit_code);
    for (int r = 1; mpi_world_rank() == 0 && r < mpi_world_size(); r++)
        if (mpi_world_tell(r, "end") != OK)
            mpi_world_abort(exit_code);
    mpi_world_close();
}

static bool job_is_over(void)
{
    return is_over;
}

static void describe_place(int rank, struct launch_place *out)
{
    const struct mpi_place *place = mpi_world_place(rank);
    *out = (struct launch_place){.host = place->host, .cores = place->cores,
                                 .is_bound = place->is_bound};
}

const struct launch_outer launch_mpi_outer = {
    .transport = "mpi",
    .launch = launch_processes,
    .begin = mpi_world_open,
    .has_begun = mpi_world_is_open,
    .serve = serve,
    .is_over = job_is_over,
    .end = end_job,
    .library = mpi_world_library,
    .place = describe_place,
};

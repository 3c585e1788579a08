/* The MPI library of this process and the processes that its launcher started: opening and closing it,
 * who is where, and telling the others what to do next.
 *
 * Every rank of MPI_COMM_WORLD is one process. Rank 0 runs the program; the others listen. This header
 * needs no mpi.h; what talks MPI itself includes common/mpi_engine.h. */
#ifndef COMMON_MPI_WORLD_H
#define COMMON_MPI_WORLD_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a rank runs. Plain data: it travels. */
struct mpi_place {
    char host[64];
    char cores[64];   /* that it may use: "0-3,8"; cut where the list is longer */
    int core_count;
    int host_ranks;   /* ranks on that host */
    bool is_bound;    /* not to all cores of the host */
};

/* Collective over all processes that the launcher started; blocks until all have come. Idempotent.
 * ERR_UNSUPPORTED: the library cannot be used from several threads.
 *
 * The library's own calls have no deadline: its start waits for every process, and a process that stands
 * still in the middle of one can hold up the others. From here on a call that does not return within
 * timeout_s, or 10 s where that is less, ends this process with an error message, and mpirun the job. */
enum status mpi_world_open(double timeout_s) WARN_UNUSED;
bool mpi_world_is_open(void);
int mpi_world_rank(void);
int mpi_world_size(void);
const char *mpi_world_library(void); /* "Open MPI v4.1.4, ..." : the first line */
const struct mpi_place *mpi_world_place(int rank);
/* Whether the first nranks ranks have fewer cores than ranks on any host. */
bool mpi_world_is_oversubscribed(int nranks);

/* On rank 0: the next thing that `rank` hears. */
enum status mpi_world_tell(int rank, const char *text) WARN_UNUSED;
/* On the others: waits, without a deadline and at little cost, for what rank 0 tells. Owner of *text:
 * the caller, with free(). */
enum status mpi_world_listen(char **text) WARN_UNUSED;

/* Collective; nothing is under way. */
void mpi_world_close(void);
/* Flushes what was written and ends every process of the job with the exit code; does not return even
 * where the library does. */
_Noreturn void mpi_world_abort(int exit_code);

#endif

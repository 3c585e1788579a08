/* Team whose ranks are MPI processes: the first nranks of MPI_COMM_WORLD.
 *
 * Ranks of different processes do not see each other's heartbeats, so they pass on what they know: every
 * rank regularly sends its table of all ranks' counters (heartbeats, and whether it stands still in a
 * wait) to the rank 1, 2, 4, 8, ... further, in turn; whoever gets a table keeps the newer entries. After
 * log2(nranks) turns everybody knows. A turn is 1/16 of the timeout, at most 50 ms. The service thread
 * (mpi_engine.h) does it, so that a rank whose table no longer changes is one whose process stopped. */
#ifndef COMMON_TEAM_MPI_H
#define COMMON_TEAM_MPI_H

#include "common/team.h"

/* Collective over the first nranks processes; the others do not take part. `generation` is the same on
 * all of them, grows with every team, and starts at 1. mpi_world_open has been called. */
enum status team_mpi_open(int nranks, double timeout_s, uint64_t generation, struct team **out)
    WARN_UNUSED;
/* Not collective; every rank has ended its last team call, or the team was aborted. Accepts NULL. */
void team_mpi_close(struct team *);

/* ---- for comm_mpi*.c ---- */

bool team_is_mpi(const struct team *);
uint64_t team_mpi_generation(const struct team *);
/* The rank that a timeout should name: one that gives no sign of life, else `suspect` unless it waits
 * too, else one that does not wait. */
int team_mpi_missing(struct team *, int suspect);
/* Around a wait for other ranks. */
void team_mpi_waits(struct team *, bool waits);
struct mpi_exchange;
/* Waits until all of the exchange has ended; abandons it otherwise. ERR_PEER, ERR_TIMEOUT ("what: rank 2
 * did not come"), ERR_DEVICE. */
enum status team_mpi_await(struct team *, struct mpi_exchange *, const char *what) WARN_UNUSED;

#endif

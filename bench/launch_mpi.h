/* Ranks as the processes that an MPI launcher (mpirun) started. Rank 0 runs the program; the others wait
 * until it launches something, are told in text what, and make the same work from that. A launch with
 * fewer ranks than there are processes leaves the rest waiting. */
#ifndef BENCH_LAUNCH_MPI_H
#define BENCH_LAUNCH_MPI_H

#include "bench/launch.h"

extern const struct launch_outer launch_mpi_outer;

#endif

/* Transport `mpi`: ranks are processes, and all data goes in nonblocking point-to-point messages.
 *
 * Starting an operation posts all its sends and receives; nothing of it waits for a peer. An operation
 * consists of up to three exchanges: what every rank brings (posts: they tell mismatches, and when the
 * last peer had started), the data, and for an all-reduce the sums. Reductions send every rank the parts
 * that it adds, which it does in rank order with the arithmetic of `threads` (common/reduce.h): the bits
 * are the same. Operations advance whenever somebody polls the engine (common/mpi_engine.h): a rank that
 * waits, or the service thread of one that computes.
 *
 * Messages of all communicators of a team share one MPI communicator; tags tell them apart: the group, the
 * kind, and the operation's number in the group, or in its link for messages between two ranks.
 *
 * This header is shared by the transport's own files; comm.c takes the transport from it. */
#ifndef COMMON_COMM_MPI_H
#define COMMON_COMM_MPI_H

#include "common/comm.h"

extern const struct comm_ops comm_mpi;

#endif

/* What an operation of transport `mpi` consists of: posting it and advancing it. */
#ifndef COMMON_COMM_MPI_STEPS_H
#define COMMON_COMM_MPI_STEPS_H

#include "common/comm.h"
#include "common/comm_match.h"
#include "common/mpi_engine.h"

/* A communicator. */
struct mpi_comm {
    struct team *team;
    struct lane_system *lanes;
    int rank, nranks;
    int *team_ranks;             /* MPI's ranks, and those that messages name */
    int context;                 /* of the team's communicators */
    int *next_context;           /* the team's, shared by its communicators */
    uint64_t collectives;        /* started */
    uint64_t *sends, *recvs;     /* started, to and from each rank */
    _Atomic uint64_t moved;      /* bytes that left this rank, without posts */
    struct mpi_operation *made, *unused;
};

enum mpi_step { STEP_POSTS, STEP_DATA, STEP_SUM, STEP_RESULT, STEP_ENDED };

/* From start to wait. Its memory is kept for later ones: after some warm-up nothing is allocated. */
struct mpi_operation {
    struct mpi_work work;
    struct mpi_comm *comm;
    struct mpi_operation *next_unused, *next_made;
    struct comm_call call;
    uint64_t number, to_number, from_number;
    enum mpi_step step;
    struct mpi_exchange posts, data;
    size_t *words;   /* posts on their way: the own ones, and one row a peer */
    char *staging;   /* parts of others that this rank adds: one after the other in group order */
    size_t staging_bytes, summed;
    int64_t matched_ps, ended_ps; /* set before has_ended */
    enum status status;           /* what it ended with, and why */
    char why[256];
    _Atomic bool has_ended;
};

/* Memory for the operation's posts. ERR_MEMORY. */
enum status mpi_operation_reserve(struct mpi_operation *) WARN_UNUSED;
/* Posts everything and adds it to the engine. `call` and the numbers are set. With the lock held. After a
 * failure nothing is under way. */
enum status mpi_operation_post(struct mpi_operation *) WARN_UNUSED;
/* Gives up what is under way and leaves the engine. With the lock held. */
void mpi_operation_abandon(struct mpi_operation *);
/* The rank it waits for (of the team), or -1. With the lock held. */
int mpi_operation_missing(const struct mpi_operation *);

#endif

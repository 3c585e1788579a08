/* What team_mpi.c and comm_mpi*.c share: the lock around the MPI library, the thread that makes progress
 * while the rank computes, and exchanges of messages of any length.
 *
 * MPI moves data only while somebody calls it. Work under way is therefore kept in one list, and whoever
 * polls advances all of it: the rank while it waits, and otherwise a service thread that wakes often
 * while something is under way and seldom else. Every MPI call is made with the lock held. */
#ifndef COMMON_MPI_ENGINE_H
#define COMMON_MPI_ENGINE_H

#include "common/status.h"
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mpi_progress { MPI_WORK_IDLE, MPI_WORK_MOVED, MPI_WORK_ENDED };

/* Embedded in what is under way. */
struct mpi_work {
    /* Never blocks. ENDED: it has left the list and may be reused at once. */
    enum mpi_progress (*advance)(struct mpi_work *);
    struct mpi_work *next;
    bool is_background; /* not a reason to wake often */
};

void mpi_engine_lock(void);
void mpi_engine_unlock(void);
/* Before each of many calls under one lock: the watchdog gives every call its own time. */
void mpi_engine_next_call(void);
void mpi_engine_add(struct mpi_work *);    /* with the lock held */
void mpi_engine_remove(struct mpi_work *); /* with the lock held; nothing when it is not in the list */
/* Takes the lock and advances everything once. */
void mpi_engine_poll(void);
/* Between two polls of a wait that began at since_ns: blocks where ranks share cores, else spins. */
void mpi_engine_pause(int64_t since_ns, bool is_oversubscribed);

/* Separate MPI contexts, so that their tags never meet. */
MPI_Comm mpi_engine_data(void);
MPI_Comm mpi_engine_control(void);

/* What a message is, within its team (generation), communicator (context) and sequence number. */
enum mpi_phase {
    MPI_PHASE_TEAM_HEAD,
    MPI_PHASE_TEAM_BODY,
    MPI_PHASE_POST,   /* collectives: what the rank brings */
    MPI_PHASE_PARTS,  /* their data */
    MPI_PHASE_RESULT, /* of an all-reduce: the sums */
    MPI_PHASE_LINK_POST,
    MPI_PHASE_LINK_DATA,
    MPI_PHASE_LINK_READY, /* from the receiver: it has posted */
    MPI_PHASES,
};
enum { MPI_MAX_CONTEXTS = 128 };
/* Tags are reused after as many sequence numbers as MPI's tags have room for: 2^16 with Open MPI. */
int mpi_engine_tag(uint64_t generation, int context, enum mpi_phase phase, uint64_t sequence);

/* Sends and receives under way together. A long message is sent in pieces, which MPI keeps in order, so
 * that no count exceeds an int. {0} is empty. Functions want the lock held. */
struct mpi_exchange {
    MPI_Request *requests;
    int *peers; /* whom a receive is from; ~peer: whom a send is to */
    size_t count, room;
};
enum status mpi_exchange_send(struct mpi_exchange *, const void *data, size_t bytes, int to, int tag)
    WARN_UNUSED;
enum status mpi_exchange_recv(struct mpi_exchange *, void *data, size_t bytes, int from, int tag)
    WARN_UNUSED;
/* *ended: all of it has ended. ERR_DEVICE: the library reports an error, described in `why`, which has
 * room for 200. Does not record the failure: any thread may find it. */
enum status mpi_exchange_test(struct mpi_exchange *, bool *ended, char why[200]) WARN_UNUSED;
/* Whom the first receive that has not ended is from, or else whom the first send is to; -1: neither. */
int mpi_exchange_missing(const struct mpi_exchange *);
/* Gives up what is under way; buffers are the caller's again. */
void mpi_exchange_abandon(struct mpi_exchange *);
void mpi_exchange_free(struct mpi_exchange *); /* nothing is under way */

#endif

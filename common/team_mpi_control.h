/* The messages behind a team of MPI processes: who is alive, what failed, who has ended its phase. Shared
 * by team_mpi.c and team_mpi_control.c. */
#ifndef COMMON_TEAM_MPI_CONTROL_H
#define COMMON_TEAM_MPI_CONTROL_H

#include "common/mpi_engine.h"
#include "common/team.h"

/* What is known of a rank: its heartbeats, a count that grows while its process lives, and how many
 * waits it stands in (0 or 1). */
struct mpi_pulse {
    uint64_t beats, ticks, waits;
};

/* A failure on its way. */
struct mpi_cause {
    int code, rank;
    char text[sizeof((struct failure *)0)->text];
};

enum mpi_control_kind { CONTROL_ABORT, CONTROL_SETTLED, CONTROL_CAUSE, CONTROL_PULSE };
enum { CONTROL_FAILURES = CONTROL_PULSE };

struct mpi_control_head {
    uint64_t generation;
    int kind, rank;
};

/* A message to one peer, from post to end. */
struct mpi_outbox {
    MPI_Request request;
    struct mpi_control_head *message;
};

struct team_mpi {
    struct team base;     /* must be first */
    struct mpi_work work; /* the control messages; everything below but atomics: with the lock held */
    uint64_t generation, exchanges;
    int64_t clock_offset_ps;
    size_t pulse_bytes, most_bytes; /* of a message */
    MPI_Request receive;
    struct mpi_control_head *received;
    struct mpi_outbox *pulse_out;                     /* one a rank */
    struct mpi_outbox *failure_out[CONTROL_FAILURES]; /* one a rank */
    struct mpi_pulse *pulses;                         /* one a rank */
    int64_t *heard_ns;                                /* when a rank's ticks last grew */
    int64_t turn_ns, next_turn_ns;
    int stride; /* 1, 2, 4 ... */
    bool *has_settled;
    int settled;
    _Atomic uint64_t own_beats, other_beats;
    _Atomic uint64_t waits;
    _Atomic int aborted; /* enum status */
    _Atomic bool is_settled;
    struct failure cause; /* set before `aborted`; on all ranks the same once is_settled */
};

enum status team_mpi_control_open(struct team_mpi *) WARN_UNUSED;
void team_mpi_control_close(struct team_mpi *); /* with the lock held */
void team_mpi_control_free(struct team_mpi *);
/* With the lock held: the team is aborted for `cause`, unless it is already; tells the others. */
void team_mpi_control_abort(struct team_mpi *, const struct failure *cause);
/* With the lock held: this rank has ended its phase. */
void team_mpi_control_settle(struct team_mpi *);

#endif

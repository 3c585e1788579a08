/* Transport `virtual`: ranks are fibers, lanes are clocks (lane_virtual.h), and what travels is time.
 *
 * The k-th collectives that the ranks of a group start meet, and so do the k-th send and the k-th receive
 * of a link. Who comes last knows when the operation starts (when everybody is ready and the lane is
 * free) and, from comm_cost.h, when it ends. Nothing depends on who runs when, so a run is the same on
 * any machine. moved_bytes is the accounting rule's: no bytes move.
 *
 * This header is shared by the transport's own files; comm.c takes the transport from it. */
#ifndef COMMON_COMM_VIRTUAL_H
#define COMMON_COMM_VIRTUAL_H

#include "common/comm.h"
#include "common/comm_cost.h"

extern const struct comm_ops comm_virtual;

enum virtual_state { VIRTUAL_OPEN, VIRTUAL_MATCHED, VIRTUAL_MISMATCHED };

/* An operation that ranks meet in: a collective, or one message. */
struct virtual_operation {
    struct virtual_operation *next;      /* in its link's queue, or among the unused */
    struct virtual_operation *next_made; /* of all, for close */
    uint64_t number;
    int needed; /* ranks */
    bool is_message;
    int first_waiter;     /* group rank; -1: none */
    const size_t **parts; /* all-to-all: send counts of each rank, then receive counts; kept for reuse */
    struct {              /* zero at first */
        enum virtual_state state;
        int posted, awaited, first_poster;
        struct comm_call call; /* the first poster's: what the others are compared with */
        uint64_t bytes;        /* of the whole array; all-to-all: the most that a rank sends or receives */
        uint64_t far_bytes;    /* all-to-all: the most of it that crosses nodes */
        bool is_uneven;        /* all-to-all: parts differ, so every pair must be compared */
        struct virtual_operation *reply; /* of a sendrecv's message out: the message in */
        int64_t ready_ps, begin_ps, end_ps;
        int64_t slowed_ps; /* the most that overlap has cost a rank since the collective before */
        char mismatch[256];
    } each;
};

/* Messages from one rank of the group to another. */
struct virtual_link {
    struct virtual_link *next; /* of the same sender, last used first */
    int to, flows;             /* messages like this one that share its port or NIC */
    int64_t end_ps;
    uint64_t sends, receives;  /* started */
    struct virtual_operation *first, *last; /* in order; not yet started by both */
};

/* A communicator: what its ranks share. The last rank that closes it frees it. */
struct virtual_group {
    const struct platform *platform;
    struct comm_place place;
    int nranks, users;
    int *team_ranks, *nodes; /* of each rank */
    int *node_members;       /* ranks of the group in each rank's node */
    uint64_t *moved;         /* bytes, of each rank */
    int *next_waiter;        /* of each rank, in an operation's list */
    int64_t end_ps;          /* of the collectives' lane */
    /* collectives under way: numbers first .. first + count - 1, at number mod capacity */
    struct virtual_operation **collectives;
    uint64_t first;
    size_t count, capacity;
    struct virtual_operation *made, *unused;
    struct virtual_link **links; /* of each sender */
    /* split: each rank's wish, and what came of it */
    int splitting;
    uint64_t splits;
    bool split_failed;
    struct virtual_part {
        int color, key, rank;
        struct virtual_group *group;
    } *parts;
};

/* ---- comm_virtual_group.c ---- */

/* team_ranks: copied. group_of: see comm_place_find. NULL: out of memory. */
struct virtual_group *virtual_group_new(const struct platform *, const int *team_ranks, int nranks,
                                        const int *group_of, int team_size);
void virtual_group_release(struct virtual_group *);
/* All parts are known: makes the groups and gives every part its own. */
void virtual_group_divide(struct virtual_group *, int team_size);
/* Collective `number`, made when it is first asked for. NULL: out of memory. */
struct virtual_operation *virtual_group_collective(struct virtual_group *, uint64_t number);
struct virtual_link *virtual_group_link(struct virtual_group *, int from, int to);
/* The message that the sender (or receiver) of a link starts next. */
struct virtual_operation *virtual_link_next(struct virtual_group *, struct virtual_link *,
                                            bool is_sender);
/* One rank less needs it. */
void virtual_group_awaited(struct virtual_group *, struct virtual_operation *);

/* ---- comm_virtual_match.c ---- */

/* Rank `rank` brings `call`, ready at ready_ps. Finds it wanting (MISMATCHED), or, when it is the last,
 * gives the collective its times (MATCHED). Counts what an all-to-all moves. false: out of memory. */
bool virtual_match_collective(struct virtual_group *, struct virtual_operation *, int rank,
                              const struct comm_call *call, int64_t ready_ps, int64_t slowed_ps);
/* The same for a message of `bytes` that the sender or receiver of the link expects. */
void virtual_match_message(struct virtual_group *, struct virtual_link *, int from,
                           struct virtual_operation *, const struct comm_call *call, bool is_sender,
                           int64_t ready_ps);

#endif

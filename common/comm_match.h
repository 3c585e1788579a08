/* Whether what the ranks of an operation bring fits together, and the words for it when it does not:
 * the same for every transport that can tell. */
#ifndef COMMON_COMM_MATCH_H
#define COMMON_COMM_MATCH_H

#include "common/comm.h"

/* What one rank says about an operation it has started. */
struct comm_post {
    enum comm_op op;
    enum dtype dtype;
    int root;
    size_t count;               /* of a receive: what it expects */
    size_t *send_counts;        /* one a rank, where the op has them */
    size_t *recv_counts;
};

/* Of a collective; one post a rank. team_ranks are the names. False: `why` says which ranks disagree
 * about what. */
bool comm_match_collective(const struct comm_post *const *posts, int nranks, const int *team_ranks,
                           char *why, size_t size);
/* Of a message between two ranks. */
bool comm_match_message(const struct comm_post *send, const struct comm_post *recv, int from, int to,
                        char *why, size_t size);

#endif

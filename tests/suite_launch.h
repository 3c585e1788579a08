/* Ranks for the suites of team and comm: threads of the test's process. Asserts belong to the main
 * thread, so a rank returns a status and leaves its failure behind. */
#ifndef TESTS_SUITE_LAUNCH_H
#define TESTS_SUITE_LAUNCH_H

#include "common/comm.h"
#include "common/meter.h"

enum { SUITE_MAX_RANKS = 8 };

struct suite_rank {
    struct team *team;
    struct lane_system *lanes;
    struct meter *meter;
    struct comm *comm; /* NULL: launched without a transport */
    int rank, nranks;
    void *shared;
};
typedef enum status suite_body(struct suite_rank *);

struct suite_result {
    enum status status;     /* what the body returned */
    enum status agreed;     /* what team_agree made of it */
    struct failure failure; /* the rank's first */
    double seconds;         /* until the body returned */
};

/* Runs `body` on every rank; a failing one aborts the team, as in a measurement. transport NULL: a
 * team alone. */
void suite_launch(const struct comm_ops *transport, int nranks, double timeout_s, suite_body *body,
                  void *shared, struct suite_result results[SUITE_MAX_RANKS]);

/* The same, and fails the test unless every rank returned OK. */
void suite_expect_ok(const struct comm_ops *transport, int nranks, suite_body *body, void *shared);

/* Pseudo-random numbers that all ranks agree on. */
uint32_t suite_random(uint64_t seed, uint64_t i, uint64_t j);

#endif

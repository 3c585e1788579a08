/* Ranks for the suites of team and comm: threads of the test's process, or, when mpirun started it, its
 * processes, which all run the same tests. Asserts belong to the main thread, so a rank returns a status
 * and leaves its failure behind. */
#ifndef TESTS_SUITE_LAUNCH_H
#define TESTS_SUITE_LAUNCH_H

#include "common/comm.h"
#include "common/meter.h"

enum { SUITE_MAX_RANKS = 8 };

/* A test and the number of ranks it needs: 0, any; SUITE_THREADS, ranks that are threads. */
enum { SUITE_THREADS = -1 };
struct suite_test {
    const char *name;
    void (*run)(void **state);
    int nranks;
};
#define SUITE_TEST(function, nranks) {#function, function, nranks}
/* Runs the tests that fit the ranks there are; with processes, only rank 0 prints. For main to return. */
int suite_main(const char *name, const struct suite_test *tests, size_t count);
/* The transport under test: $DITTO_TEST_TRANSPORT, which a plug-in may bring; else `threads`, or `mpi` under
 * mpirun. */
const struct comm_ops *suite_transport(void);
/* Whether so many ranks can be had: under mpirun, as many as it started. */
bool suite_has_ranks(int nranks);

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

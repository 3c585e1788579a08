/* Ranks in virtual time for tests: fibers with lanes and a communicator on a given platform. */
#ifndef TESTS_SIM_RIG_H
#define TESTS_SIM_RIG_H

#include "common/comm.h"
#include "common/platform.h"

enum { SIM_RIG_MAX_RANKS = 256 };

struct sim_rank {
    struct team *team;
    struct lane_system *lanes;
    struct comm *comm;
    int rank, nranks;
    void *shared;
    int64_t end_ps; /* of the compute lane when the body returned */
};
typedef enum status sim_body(struct sim_rank *);

struct sim_result {
    enum status status;
    struct failure failure;
    int64_t end_ps;
};

/* The platform of tests/platforms/plain.json. */
struct platform sim_rig_plain(void);
/* Runs `body` on every rank; a failing one aborts the team. */
void sim_rig_run(const struct platform *, int nranks, sim_body *body, void *shared,
                 struct sim_result results[SIM_RIG_MAX_RANKS]);
/* The same, fails the test unless all end well, and returns the latest end. */
int64_t sim_rig_time(const struct platform *, int nranks, sim_body *body, void *shared);

#endif

#include "tests/sim_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/launch.h"
#include "bench/platform_file.h"
#include "common/lane_virtual.h"

struct run {
    const struct platform *platform;
    sim_body *body;
    void *shared;
    struct sim_result *results;
};

struct platform sim_rig_plain(void)
{
    const char *root = getenv("DITTO_TEST_ROOT");
    struct platform p;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/platforms/plain.json", root ? root : ".");
    if (platform_load(path, &p) != OK)
        fail_msg("%s", status_first()->text);
    return p;
}

static enum status with_comm(struct run *run, struct sim_rank *rank)
{
    TRY(comm_open(comm_find("virtual"), rank->team, rank->lanes, NULL, &rank->comm));
    enum status status = run->body(rank);
    struct mark end;
    if (status == OK)
        status = lane_mark(rank->lanes, NULL, &end);
    if (status == OK)
        rank->end_ps = end.ps;
    if (status != OK)
        team_abort(rank->team, status);
    enum status agreed = team_agree(rank->team, status);
    comm_close(rank->comm);
    return status != OK ? status : agreed;
}

static enum status rank_work(struct team *team, void *context)
{
    struct run *run = context;
    struct sim_rank rank = {.team = team, .rank = team->rank, .nranks = team->nranks,
                            .shared = run->shared};
    struct sim_result *result = &run->results[team->rank];
    TRY(lane_virtual_open(team->rank, run->platform, &rank.lanes));
    result->status = with_comm(run, &rank);
    result->failure = *status_first();
    result->end_ps = rank.end_ps;
    lane_virtual_close(rank.lanes);
    return result->status;
}

void sim_rig_run(const struct platform *platform, int nranks, sim_body *body, void *shared,
                 struct sim_result results[SIM_RIG_MAX_RANKS])
{
    struct run run = {.platform = platform, .body = body, .shared = shared, .results = results};
    memset(results, 0, SIM_RIG_MAX_RANKS * sizeof *results);
    enum status status = launch("virtual", nranks, 1, rank_work, &run);
    (void)status; /* every rank's own is in results */
    status_clear();
}

int64_t sim_rig_time(const struct platform *platform, int nranks, sim_body *body, void *shared)
{
    static struct sim_result results[SIM_RIG_MAX_RANKS];
    int64_t latest = 0;
    sim_rig_run(platform, nranks, body, shared, results);
    for (int r = 0; r < nranks; r++) {
        if (results[r].status != OK)
            fail_msg("rank %d: %s", r, results[r].failure.text);
        latest = results[r].end_ps > latest ? results[r].end_ps : latest;
    }
    return latest;
}

#include "tests/suite_launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "config.h"
#include "kernels/device_plugin.h"
#if HAVE_MPI
#include "common/mpi_world.h"
#include "common/team_mpi.h"
#endif

enum { MAX_WAITS = 100000, TIMEOUT_S = 20 };

struct thread {
    pthread_t id;
    const struct comm_ops *transport;
    suite_body *body;
    struct suite_rank rank;
    struct suite_result *result;
};

static enum status run_body(struct thread *t)
{
    struct suite_rank *rank = &t->rank;
    struct meter meter;
    TRY(meter_open(&meter, rank->lanes, 1, MAX_WAITS, 0));
    meter.is_counting = true;
    rank->meter = &meter;
    enum status s = OK;
    if (t->transport != NULL)
        s = comm_open(t->transport, rank->team, rank->lanes, &meter, &rank->comm);
    int64_t start = clock_ns();
    if (s == OK)
        s = t->body(rank);
    t->result->seconds = (double)(clock_ns() - start) * 1e-9;
    if (s != OK) {
        team_abort(rank->team, s);
        lane_drain(rank->lanes);
    }
    t->result->agreed = team_agree(rank->team, s);
    comm_close(rank->comm);
    meter_close(&meter);
    return s;
}

static enum status open_lanes(struct thread *t, struct device **gpu)
{
    if (t->transport == NULL || t->transport->memory != MEMORY_CUDA)
        return lane_host_open(t->rank.rank, &t->rank.lanes);
    struct device_config config = {.rank = t->rank.rank, .nranks = t->rank.nranks, .threads = 1};
    TRY(device_open(device_find("cuda"), &config, gpu));
    t->rank.lanes = (*gpu)->lanes;
    return OK;
}

static void *run_rank(void *argument)
{
    struct thread *t = argument;
    log_set_rank(t->rank.rank, t->rank.nranks);
    status_bind(&t->result->failure);
    status_clear();
    struct device *gpu = NULL; /* owns the lanes where the transport is CUDA's */
    t->result->status = open_lanes(t, &gpu);
    if (t->result->status == OK) {
        t->result->status = run_body(t);
        if (gpu == NULL)
            lane_host_close(t->rank.lanes);
    }
    device_close(gpu);
    status_bind(NULL);
    return NULL;
}

static void launch_threads(const struct comm_ops *transport, int nranks, double timeout_s,
                           suite_body *body, void *shared,
                           struct suite_result results[SUITE_MAX_RANKS])
{
    struct thread threads[SUITE_MAX_RANKS] = {0};
    struct team_threads *team;
    assert_int_equal(team_threads_open(nranks, timeout_s, &team), OK);
    for (int r = 0; r < nranks; r++) {
        threads[r].transport = transport;
        threads[r].body = body;
        threads[r].rank = (struct suite_rank){.rank = r, .nranks = nranks, .shared = shared};
        threads[r].rank.team = team_threads_rank(team, r);
        threads[r].result = &results[r];
        results[r] = (struct suite_result){0};
        assert_int_equal(pthread_create(&threads[r].id, NULL, run_rank, &threads[r]), 0);
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r].id, NULL);
    team_threads_close(team);
}

/* ---- ranks that are processes ---- */

static bool is_under_mpirun(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL;
}

#if HAVE_MPI
static uint64_t generation;

static void open_team(int nranks, double timeout_s, struct team **team)
{
    assert_int_equal(team_mpi_open(nranks, timeout_s, ++generation, team), OK);
}

/* Every process sees what became of every rank. */
static void share_results(int nranks, struct suite_result results[SUITE_MAX_RANKS])
{
    struct suite_result own = results[mpi_world_rank()];
    struct team *team;
    own.failure.file = NULL;
    open_team(nranks, TIMEOUT_S, &team);
    assert_int_equal(team_gather(team, 0, &own, sizeof own, results), OK);
    assert_int_equal(team_broadcast(team, 0, results, sizeof own * (size_t)nranks), OK);
    team_mpi_close(team);
}

static void launch_processes(const struct comm_ops *transport, int nranks, double timeout_s,
                             suite_body *body, void *shared,
                             struct suite_result results[SUITE_MAX_RANKS])
{
    struct thread own = {.transport = transport, .body = body};
    own.rank = (struct suite_rank){.rank = mpi_world_rank(), .nranks = nranks, .shared = shared};
    own.result = &results[own.rank.rank];
    *own.result = (struct suite_result){0};
    open_team(nranks, timeout_s, &own.rank.team);
    run_rank(&own);
    log_set_rank(0, 0);
    team_mpi_close(own.rank.team);
    status_clear();
    share_results(nranks, results);
}

bool suite_has_ranks(int nranks)
{
    return !is_under_mpirun() || mpi_world_size() == nranks;
}

static void open_processes(void)
{
    if (is_under_mpirun() && mpi_world_open(TIMEOUT_S) != OK)
        exit(1);
    if (!is_under_mpirun() || mpi_world_rank() == 0)
        return;
    cmocka_set_message_output(CM_OUTPUT_TAP); /* all on stdout */
    if (freopen("/dev/null", "w", stdout) == NULL)
        exit(1);
}

static void close_processes(void)
{
    mpi_world_close();
}
#else
static void launch_processes(const struct comm_ops *transport, int nranks, double timeout_s,
                             suite_body *body, void *shared,
                             struct suite_result results[SUITE_MAX_RANKS])
{
    launch_threads(transport, nranks, timeout_s, body, shared, results);
}

bool suite_has_ranks(int nranks)
{
    (void)nranks;
    return !is_under_mpirun();
}

static void open_processes(void)
{
}

static void close_processes(void)
{
}
#endif

/* ---- either ---- */

const struct comm_ops *suite_transport(void)
{
    const char *given = getenv("DITTO_TEST_TRANSPORT");
    if (given != NULL) {
        if (device_plugin_load() != OK)
            fail_msg("%s", status_first()->text);
        assert_non_null(comm_find(given));
        return comm_find(given);
    }
    return comm_find(is_under_mpirun() ? "mpi" : "threads");
}

void suite_launch(const struct comm_ops *transport, int nranks, double timeout_s, suite_body *body,
                  void *shared, struct suite_result results[SUITE_MAX_RANKS])
{
    assert_in_range(nranks, 1, SUITE_MAX_RANKS);
    if (is_under_mpirun())
        launch_processes(transport, nranks, timeout_s, body, shared, results);
    else
        launch_threads(transport, nranks, timeout_s, body, shared, results);
}

void suite_expect_ok(const struct comm_ops *transport, int nranks, suite_body *body, void *shared)
{
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(transport, nranks, TIMEOUT_S, body, shared, results);
    int failed = 0;
    for (int r = 0; r < nranks; r++)
        if (results[r].status != OK || results[r].agreed != OK) {
            fprintf(stderr, "rank %d of %d: %s: %s\n", r, nranks, status_name(results[r].status),
                    results[r].failure.text);
            failed++;
        }
    assert_int_equal(failed, 0);
}

uint32_t suite_random(uint64_t seed, uint64_t i, uint64_t j)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + j * 0x94d049bb133111ebu + 1;
    for (int round = 0; round < 3; round++) {
        x ^= x >> 31;
        x *= 0xd6e8feb86659fd93u;
    }
    return (uint32_t)(x >> 32);
}

static bool fits(const struct suite_test *test)
{
    if (test->nranks == SUITE_THREADS)
        return !is_under_mpirun();
    return test->nranks == 0 || suite_has_ranks(test->nranks);
}

int suite_main(const char *name, const struct suite_test *tests, size_t count)
{
    struct CMUnitTest *fitting = calloc(count, sizeof *fitting);
    size_t n = 0;
    if (fitting == NULL || fault_read_environment() != OK)
        return 1;
    open_processes();
    for (size_t i = 0; i < count; i++)
        if (fits(&tests[i]))
            fitting[n++] = (struct CMUnitTest){.name = tests[i].name, .test_func = tests[i].run};
    int failed = _cmocka_run_group_tests(name, fitting, n, NULL, NULL);
    close_processes();
    free(fitting);
    return failed;
}

#include "tests/suite_launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/log.h"

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
    if (s != OK)
        team_abort(rank->team, s);
    t->result->agreed = team_agree(rank->team, s);
    comm_close(rank->comm);
    meter_close(&meter);
    return s;
}

static void *run_rank(void *argument)
{
    struct thread *t = argument;
    log_set_rank(t->rank.rank, t->rank.nranks);
    status_bind(&t->result->failure);
    status_clear();
    t->result->status = lane_host_open(t->rank.rank, &t->rank.lanes);
    if (t->result->status == OK) {
        t->result->status = run_body(t);
        lane_host_close(t->rank.lanes);
    }
    status_bind(NULL);
    return NULL;
}

void suite_launch(const struct comm_ops *transport, int nranks, double timeout_s, suite_body *body,
                  void *shared, struct suite_result results[SUITE_MAX_RANKS])
{
    struct thread threads[SUITE_MAX_RANKS] = {0};
    struct team_threads *team;
    assert_in_range(nranks, 1, SUITE_MAX_RANKS);
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

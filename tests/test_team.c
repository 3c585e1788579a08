/* The control plane: ranks are threads, or processes under mpirun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/suite_launch.h"

static const int sizes[] = {1, 2, 3, 4, 8};
enum { SIZES = sizeof sizes / sizeof sizes[0], MS = 1000000 };

/* ---- values ---- */

static enum status exchange_with_root(struct suite_rank *s, int root)
{
    uint32_t mine[3] = {(uint32_t)s->rank, (uint32_t)root, 7}, all[SUITE_MAX_RANKS][3] = {{0}};
    TRY(team_gather(s->team, root, mine, sizeof mine, all));
    for (int r = 0; s->rank == root && r < s->nranks; r++)
        if (all[r][0] != (uint32_t)r || all[r][1] != (uint32_t)root || all[r][2] != 7)
            return FAIL(ERR_INTERNAL, "root %d got %u from rank %d", root, all[r][0], r);
    char text[40] = "not the root's";
    if (s->rank == root)
        snprintf(text, sizeof text, "from %d", root);
    TRY(team_broadcast(s->team, root, text, sizeof text));
    char expected[40];
    snprintf(expected, sizeof expected, "from %d", root);
    if (strcmp(text, expected) != 0)
        return FAIL(ERR_INTERNAL, "broadcast from %d brought \"%s\"", root, text);
    return OK;
}

static enum status exchange_body(struct suite_rank *s)
{
    for (int round = 0; round < 20; round++)
        TRY(exchange_with_root(s, round % s->nranks));
    TRY(team_gather(s->team, 0, NULL, 0, NULL));
    return team_broadcast(s->team, 0, NULL, 0);
}

static void test_gather_and_broadcast(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++)
        if (suite_has_ranks(sizes[i]))
            suite_expect_ok(NULL, sizes[i], exchange_body, NULL);
}

static enum status barrier_body(struct suite_rank *s)
{
    atomic_int *arrived = s->shared;
    for (int round = 1; round <= 50; round++) {
        atomic_fetch_add(arrived, 1);
        TRY(team_barrier(s->team));
        if (atomic_load(arrived) < round * s->nranks)
            return FAIL(ERR_INTERNAL, "left barrier %d before all came", round);
        TRY(team_barrier(s->team));
    }
    return OK;
}

static void test_barrier_waits_for_all(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        atomic_int arrived = 0;
        suite_expect_ok(NULL, sizes[i], barrier_body, &arrived);
    }
}

static enum status disagree_body(struct suite_rank *s)
{
    char data[8] = {0}, all[SUITE_MAX_RANKS * 8];
    return team_gather(s->team, 0, data, s->rank == 1 ? 4 : 8, all);
}

static void test_different_sizes_are_a_mismatch(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(NULL, 3, 5, disagree_body, NULL, results);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(results[r].agreed, ERR_MISMATCH);
        assert_non_null(strstr(results[r].failure.text, "rank 1"));
    }
}

/* ---- agree ---- */

static enum status agree_body(struct suite_rank *s)
{
    enum status mine = OK;
    if (s->rank == 1)
        mine = FAIL(ERR_IO, "the disk of rank %d is full", s->rank);
    if (s->rank == 2)
        mine = FAIL(ERR_USAGE, "a lesser failure");
    enum status worst = team_agree(s->team, mine);
    if (worst != ERR_IO)
        return FAIL(ERR_INTERNAL, "agreed on %s", status_name(worst));
    const struct failure *first = status_first();
    bool is_peer = first->code == ERR_PEER && strstr(first->text, "rank 1") != NULL &&
                   strstr(first->text, "the disk of rank 1 is full") != NULL;
    if (mine == OK && !is_peer)
        return FAIL(ERR_INTERNAL, "recorded %s", first->text);
    status_clear();
    return team_agree(s->team, OK);
}

static void test_agree_spreads_the_worst_and_its_text(void **state)
{
    (void)state;
    suite_expect_ok(NULL, 3, agree_body, NULL);
    if (suite_has_ranks(8))
        suite_expect_ok(NULL, 8, agree_body, NULL);
}

/* ---- abort ---- */

static enum status abort_body(struct suite_rank *s)
{
    if (s->rank != 1)
        return team_barrier(s->team);
    clock_sleep_ns(30 * MS);
    return FAIL(ERR_DEVICE, "rank 1 lost its device");
}

static void test_abort_wakes_waiters_with_the_cause(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(NULL, 4, 20, abort_body, NULL, results);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(results[r].status, r == 1 ? ERR_DEVICE : ERR_PEER);
        assert_int_equal(results[r].agreed, ERR_DEVICE);
        assert_non_null(strstr(results[r].failure.text, "rank 1 lost its device"));
        assert_true(results[r].seconds < 2);
    }
}

/* Rank 0 fails at once; rank 1 still works on something that the others must not free. */
static enum status slow_to_leave_body(struct suite_rank *s)
{
    atomic_bool *has_left = s->shared;
    if (s->rank == 1) {
        clock_sleep_ns(100 * MS);
        atomic_store(has_left, true);
        return OK;
    }
    enum status mine = s->rank == 0 ? FAIL(ERR_IO, "first") : OK;
    if (mine != OK)
        team_abort(s->team, mine);
    enum status worst = team_agree(s->team, mine);
    if (worst != ERR_IO || !atomic_load(has_left))
        return FAIL(ERR_INTERNAL, "agreed on %s before rank 1 left", status_name(worst));
    return worst;
}

static void test_agree_after_abort_waits_for_every_rank(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    atomic_bool has_left = false;
    suite_launch(NULL, 3, 20, slow_to_leave_body, &has_left, results);
    for (int r = 0; r < 3; r++)
        assert_int_equal(results[r].agreed, ERR_IO);
    assert_int_equal(results[2].status, ERR_IO);
}

/* ---- deadlines ---- */

static enum status absent_body(struct suite_rank *s)
{
    if (s->rank != 2)
        return team_barrier(s->team);
    clock_sleep_ns(600 * MS);
    return OK;
}

static void test_timeout_names_the_missing_rank(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(NULL, 3, 0.2, absent_body, NULL, results);
    int timeouts = 0;
    for (int r = 0; r < 2; r++) {
        assert_non_null(strstr(results[r].failure.text, "rank 2 did not come"));
        assert_in_range((int)(results[r].seconds * 1000), 190, 500);
        timeouts += results[r].status == ERR_TIMEOUT;
    }
    assert_in_range(timeouts, 1, 2);
    assert_int_equal(results[2].agreed, ERR_TIMEOUT);
}

static enum status slow_but_alive_body(struct suite_rank *s)
{
    for (int i = 0; s->rank == 1 && i < 12; i++) {
        clock_sleep_ns(50 * MS);
        team_heartbeat(s->team);
    }
    return team_barrier(s->team);
}

static void test_progress_of_any_rank_moves_the_deadline(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(NULL, 3, 0.3, slow_but_alive_body, NULL, results);
    for (int r = 0; r < 3; r++)
        assert_int_equal(results[r].status, OK);
    assert_true(results[0].seconds > 0.55);
}

int main(void)
{
    static const struct suite_test tests[] = {
        SUITE_TEST(test_gather_and_broadcast, 0),
        SUITE_TEST(test_barrier_waits_for_all, SUITE_THREADS),
        SUITE_TEST(test_different_sizes_are_a_mismatch, 3),
        SUITE_TEST(test_agree_spreads_the_worst_and_its_text, 3),
        SUITE_TEST(test_abort_wakes_waiters_with_the_cause, 4),
        SUITE_TEST(test_agree_after_abort_waits_for_every_rank, SUITE_THREADS),
        SUITE_TEST(test_timeout_names_the_missing_rank, 3),
        SUITE_TEST(test_progress_of_any_rank_moves_the_deadline, 3),
    };
    return suite_main("test_team", tests, sizeof tests / sizeof tests[0]);
}

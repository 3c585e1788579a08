/* How operations end when something is wrong (mismatch, injected failure, a missing rank), and
 * when: late messages, busy peers. Over threads, or over mpi under mpirun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fault.h"
#include "tests/suite_launch.h"

enum { MS = 1000000, N = 64 };

static struct devmem address(void *memory)
{
    return (struct devmem){(uintptr_t)memory};
}

/* ---- mismatches ---- */

struct mismatch {
    suite_body *body;
    const char *says[3]; /* what every rank's failure says */
};

static enum status different_counts(struct suite_rank *s)
{
    float data[N] = {0};
    size_t count = s->rank == 2 ? 9 : 10;
    return comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(data), count,
                           NULL);
}

static enum status different_dtypes(struct suite_rank *s)
{
    float data[N] = {0};
    enum dtype dtype = s->rank == 1 ? DTYPE_BF16 : DTYPE_FP32;
    return comm_all_reduce(s->comm, TRAFFIC_KV, dtype, address(data), address(data), 8, NULL);
}

static enum status different_roots(struct suite_rank *s)
{
    float data[N] = {0};
    int root = s->rank == 1 ? 2 : 0;
    return comm_broadcast(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), 8, root, NULL);
}

static enum status different_operations(struct suite_rank *s)
{
    float data[N] = {0}, other[N] = {0};
    if (s->rank == 1)
        return comm_all_gather(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(other), 8,
                               NULL);
    return comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(other), 8, NULL);
}

static enum status different_parts(struct suite_rank *s)
{
    float data[N] = {0}, other[N] = {0};
    const size_t offsets[] = {0, 20, 40}, even[] = {5, 5, 5}, uneven[] = {5, 5, 6};
    return comm_all_gatherv(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(other),
                            s->rank == 1 ? uneven : even, offsets, NULL);
}

static enum status different_exchanges(struct suite_rank *s)
{
    float data[N] = {0}, other[N] = {0};
    const size_t offsets[] = {0, 20, 40}, fives[] = {5, 5, 5}, six[] = {6, 5, 5};
    return comm_all_to_allv(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data),
                            s->rank == 2 ? six : fives, offsets, address(other), fives, offsets,
                            NULL);
}

/* Ranks 2 and 0 disagree; what they exchange with rank 1 may be under way when they leave, so the
 * buffers outlive the body. */
static enum status different_messages(struct suite_rank *s)
{
    static float buffers[3][2][N];
    float *data = buffers[s->rank][0], *other = buffers[s->rank][1];
    int to = (s->rank + 1) % 3, from = (s->rank + 2) % 3;
    return comm_sendrecv(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), 7, to, address(other),
                         s->rank == 0 ? 8 : 7, from, NULL);
}

/* A collective's mismatch is everybody's own failure, a message's that of one of its two ranks. Processes
 * may hear of another's failure before they have found it themselves. */
static void expect_mismatch(const struct mismatch *m, bool is_collective)
{
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(suite_transport(), 3, 20, m->body, NULL, results);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(results[r].agreed, ERR_MISMATCH);
        if (results[r].status != ERR_MISMATCH && is_collective &&
            strcmp(suite_transport()->name, "threads") == 0)
            fail_msg("rank %d returned %s: %s", r, status_name(results[r].status),
                     results[r].failure.text);
        for (int i = 0; i < 3; i++)
            if (strstr(results[r].failure.text, m->says[i]) == NULL)
                fail_msg("rank %d says \"%s\", not \"%s\"", r, results[r].failure.text, m->says[i]);
        assert_true(results[r].seconds < 2);
    }
    assert_true(results[0].status == ERR_MISMATCH || results[2].status == ERR_MISMATCH ||
                (is_collective && results[1].status == ERR_MISMATCH));
}

static void test_mismatches_name_ranks_and_values(void **state)
{
    (void)state;
    static const struct mismatch collectives[] = {
        {different_counts, {"10 on rank 0", "9 on rank 2", "count"}},
        {different_dtypes, {"rank 0 calls all_reduce of fp32", "rank 1", "bf16"}},
        {different_roots, {"0 on rank 0", "2 on rank 1", "root"}},
        {different_operations, {"rank 0 calls all_reduce", "rank 1 all_gather", "fp32"}},
        {different_parts, {"5 on rank 0", "6 on rank 1", "part"}},
        {different_exchanges, {"6 on rank 2", "5 on rank 0", "part"}},
    };
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++)
        expect_mismatch(&collectives[i], true);
    static const struct mismatch message = {different_messages,
                                            {"rank 2 sends 7", "rank 0 expects 8", "elements"}};
    expect_mismatch(&message, false);
}

/* ---- injected failures ---- */

enum { ROUNDS = 2, CALLS_A_ROUND = 7 };

static enum status one_round(struct suite_rank *s)
{
    float data[N] = {0}, other[N] = {0}, third[N] = {0};
    struct comm_request request = {0}, send = {0};
    int n = s->nranks, to = (s->rank + 1) % n, from = (s->rank + n - 1) % n;
    struct devmem a = address(data), b = address(other), c = address(third);
    enum status status = comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, a, a, N, &request);
    if (status == OK)
        status = comm_all_gather(s->comm, TRAFFIC_KV, DTYPE_FP32, b, c, 4, NULL);
    if (status == OK)
        status = comm_wait(&request);
    if (status == OK)
        status = comm_reduce_scatter(s->comm, TRAFFIC_KV, DTYPE_FP32, b, c, 4, NULL);
    if (status == OK)
        status = comm_all_to_all(s->comm, TRAFFIC_KV, DTYPE_FP32, b, c, 4, NULL);
    if (status == OK)
        status = comm_broadcast(s->comm, TRAFFIC_KV, DTYPE_FP32, b, 8, 0, NULL);
    if (status == OK)
        status = comm_send(s->comm, TRAFFIC_KV, DTYPE_FP32, a, 8, to, &send);
    if (status == OK)
        status = comm_recv(s->comm, TRAFFIC_KV, DTYPE_FP32, b, 8, from, NULL);
    if (status == OK)
        status = comm_wait(&send);
    /* Others may still use the buffers: they end their phase first. */
    return status == OK ? OK : team_agree(s->team, status);
}

static enum status rounds(struct suite_rank *s)
{
    for (int round = 0; round < ROUNDS; round++)
        TRY(one_round(s));
    return OK;
}

static void test_injected_failure_at_every_call(void **state)
{
    (void)state;
    enum { VICTIM = 2, RANKS = 4 };
    struct suite_result results[SUITE_MAX_RANKS];
    for (int call = 0; call < ROUNDS * CALLS_A_ROUND; call++) {
        char fail[40], says[80];
        snprintf(fail, sizeof fail, "%d:%d", VICTIM, call);
        snprintf(says, sizeof says, "comm call %d of rank %d fails", call, VICTIM);
        assert_int_equal(fault_set(fail, NULL, NULL, NULL), OK);
        suite_launch(suite_transport(), RANKS, 20, rounds, NULL, results);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(results[r].agreed, ERR_INTERNAL);
            assert_int_equal(results[r].failure.code, r == VICTIM ? ERR_INTERNAL : ERR_PEER);
            assert_non_null(strstr(results[r].failure.text, says));
            assert_true(results[r].seconds < 2);
        }
    }
    assert_int_equal(fault_set("2:14", NULL, NULL, NULL), OK); /* one call more than there are */
    suite_expect_ok(suite_transport(), RANKS, rounds, NULL);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
}

/* Call numbers go on over groups. */
static enum status calls_on_groups(struct suite_rank *s)
{
    float data[N] = {0};
    struct comm *group = NULL;
    TRY(comm_split(s->comm, 0, 0, &group));
    struct devmem a = address(data);
    enum status status = comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, a, a, 1, NULL);
    if (status == OK)
        status = comm_all_reduce(group, TRAFFIC_KV, DTYPE_FP32, a, a, 1, NULL);
    if (status == OK)
        status = comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, a, a, 1, NULL);
    status = team_agree(s->team, status);
    comm_close(group);
    return status;
}

static void test_groups_share_call_numbers(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    for (int call = 0; call < 4; call++) {
        char fail[40];
        snprintf(fail, sizeof fail, "1:%d", call);
        assert_int_equal(fault_set(fail, NULL, NULL, NULL), OK);
        suite_launch(suite_transport(), 2, 20, calls_on_groups, NULL, results);
        assert_int_equal(results[0].agreed, call < 3 ? ERR_INTERNAL : OK);
    }
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
}

/* ---- deadlines ---- */

struct absence {
    int missing;
    bool is_message;
};

static enum status come_or_not(struct suite_rank *s)
{
    const struct absence *absence = s->shared;
    float data[N] = {0};
    if (s->rank == absence->missing) {
        clock_sleep_ns(700 * MS);
        return OK;
    }
    if (absence->is_message)
        return comm_recv(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), 1, absence->missing, NULL);
    return comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(data), 1, NULL);
}

static void test_timeout_names_operation_and_missing_rank(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    for (int missing = 0; missing < 3; missing++)
        for (int is_message = 0; is_message < 2; is_message++) {
            struct absence absence = {missing, is_message};
            char says[80];
            snprintf(says, sizeof says, "%s: rank %d did not come",
                     is_message ? "recv" : "all_reduce", missing);
            suite_launch(suite_transport(), 3, 0.3, come_or_not, &absence, results);
            for (int r = 0; r < 3; r++) {
                assert_int_equal(results[r].agreed, ERR_TIMEOUT);
                if (r == missing)
                    continue;
                assert_true(results[r].status == ERR_TIMEOUT || results[r].status == ERR_PEER);
                assert_non_null(strstr(results[r].failure.text, says));
                assert_in_range((int)(results[r].seconds * 1000), 290, 600);
            }
        }
}

static enum status others_make_progress(struct suite_rank *s)
{
    float data = 0;
    struct devmem a = address(&data);
    for (int i = 0; s->rank < 2 && i < 10; i++) {
        clock_sleep_ns(60 * MS);
        TRY(s->rank == 0 ? comm_send(s->comm, TRAFFIC_KV, DTYPE_FP32, a, 1, 1, NULL)
                         : comm_recv(s->comm, TRAFFIC_KV, DTYPE_FP32, a, 1, 0, NULL));
    }
    return comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, a, a, 1, NULL);
}

static void test_progress_of_others_moves_the_deadline(void **state)
{
    (void)state;
    struct suite_result results[SUITE_MAX_RANKS];
    suite_launch(suite_transport(), 3, 0.3, others_make_progress, NULL, results);
    for (int r = 0; r < 3; r++)
        assert_int_equal(results[r].status, OK);
    assert_true(results[2].seconds > 0.5);
}

/* ---- time ---- */

enum { LATE_OPS = 4, LATE_MS = 20 };

static enum status late_messages(struct suite_rank *s)
{
    float data[LATE_OPS] = {0};
    struct comm_request requests[LATE_OPS] = {{0}};
    TRY(team_barrier(s->team));
    int64_t start = clock_ns();
    for (int i = 0; i < LATE_OPS; i++)
        TRY(comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(&data[i]), address(&data[i]),
                            1, NULL));
    int64_t one_by_one = clock_ns() - start;
    TRY(team_barrier(s->team));
    start = clock_ns();
    for (int i = 0; i < LATE_OPS; i++)
        TRY(comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(&data[i]), address(&data[i]),
                            1, &requests[i]));
    for (int i = 0; i < LATE_OPS; i++)
        TRY(comm_wait(&requests[i]));
    int64_t at_once = clock_ns() - start;
    if (one_by_one < (int64_t)LATE_OPS * LATE_MS * MS)
        return FAIL(ERR_INTERNAL, "%d late operations took %lld ns", LATE_OPS,
                    (long long)one_by_one);
    if (at_once < (int64_t)LATE_MS * MS || at_once > (int64_t)2 * LATE_MS * MS)
        return FAIL(ERR_INTERNAL, "overlapped operations took %lld ns", (long long)at_once);
    return OK;
}

static void test_late_messages_can_be_overlapped(void **state)
{
    (void)state;
    assert_int_equal(fault_set(NULL, "20", NULL, NULL), OK);
    suite_expect_ok(suite_transport(), 2, late_messages, NULL);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
}

/* Rank 0 starts and then computes, without a call to anything of ours: the others' operation ends without
 * it. Long enough that its data does not simply leave with the start. */
static enum status busy_peer(struct suite_rank *s)
{
    enum { LONG = 1 << 18 };
    static float all[SUITE_MAX_RANKS][2][LONG];
    float *data = all[s->rank][0], *sum = all[s->rank][1];
    for (int i = 0; i < LONG; i++)
        data[i] = 1;
    struct comm_request request = {0};
    TRY(team_barrier(s->team));
    int64_t start = clock_ns();
    TRY(comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(data), address(sum), LONG, &request));
    if (s->rank == 0)
        clock_sleep_ns(600 * MS);
    int64_t waiting = clock_ns();
    TRY(comm_wait(&request));
    int64_t end = clock_ns();
    if (s->rank != 0 && end - start > 300 * MS)
        return FAIL(ERR_INTERNAL, "waited %lld ns for a busy peer", (long long)(end - start));
    if (s->rank == 0 && end - waiting > 50 * MS)
        return FAIL(ERR_INTERNAL, "an ended operation took %lld ns", (long long)(end - waiting));
    return sum[LONG - 1] == (float)s->nranks ? OK
                                             : FAIL(ERR_INTERNAL, "sum %g", (double)sum[LONG - 1]);
}

static void test_operations_end_while_a_peer_computes(void **state)
{
    (void)state;
    suite_expect_ok(suite_transport(), 3, busy_peer, NULL);
}

/* Waiting for a peer that starts late is a bubble; what is left of the wait is transfer. */
static enum status bubble(struct suite_rank *s)
{
    float data = 1;
    TRY(team_barrier(s->team));
    TRY(meter_start(s->meter));
    if (s->rank == 1)
        clock_sleep_ns(80 * MS);
    TRY(comm_all_reduce(s->comm, TRAFFIC_KV, DTYPE_FP32, address(&data), address(&data), 1, NULL));
    TRY(meter_stop(s->meter));
    struct meter_times times;
    meter_resolve(s->meter, &times);
    double bubble_ms = (double)times.bubble_ps * 1e-9, exposed_ms = (double)times.exposed_ps * 1e-9;
    if (s->rank == 0 ? bubble_ms < 60 || bubble_ms > exposed_ms : bubble_ms > 20)
        return FAIL(ERR_INTERNAL, "bubble of %g ms in %g ms", bubble_ms, exposed_ms);
    return OK;
}

static void test_bubble_is_the_wait_for_the_last_peer(void **state)
{
    (void)state;
    suite_expect_ok(suite_transport(), 2, bubble, NULL);
}

int main(void)
{
    static const struct suite_test tests[] = {
        SUITE_TEST(test_mismatches_name_ranks_and_values, 3),
        SUITE_TEST(test_injected_failure_at_every_call, 4),
        SUITE_TEST(test_groups_share_call_numbers, 2),
        SUITE_TEST(test_timeout_names_operation_and_missing_rank, 3),
        SUITE_TEST(test_progress_of_others_moves_the_deadline, 3),
        SUITE_TEST(test_late_messages_can_be_overlapped, SUITE_THREADS),
        SUITE_TEST(test_operations_end_while_a_peer_computes, 3),
        SUITE_TEST(test_bubble_is_the_wait_for_the_last_peer, 2),
    };
    return suite_main("suite_comm_faults", tests, sizeof tests / sizeof tests[0]);
}

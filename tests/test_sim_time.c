/* Virtual time: sums by hand, to the picosecond; NCCL's model at known points; the price of overlap; what is
 * said of ranks that disagree or wait for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bench/platform_file.h"
#include "common/comm_cost.h"
#include "common/fiber.h"
#include "common/lane_virtual.h"
#include "kernels/sim_cost.h"
#include "tests/sim_rig.h"

enum { US = 1000000 }; /* picoseconds */

/* Addresses need not exist. */
static struct devmem somewhere(size_t i)
{
    return (struct devmem){4096 + 4096 * i};
}

/* ---- alpha-beta: 1 us a hop, 1 GB/s, so 1 ns a byte ---- */

static enum status gather_kilobytes(struct sim_rank *r)
{
    return comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2), 250, NULL);
}

static enum status reduce_kilobytes(struct sim_rank *r)
{
    return comm_all_reduce(r->comm, TRAFFIC_HIDDEN, DTYPE_FP32, somewhere(1), somewhere(1), 1000, NULL);
}

static enum status scatter_kilobytes(struct sim_rank *r)
{
    return comm_reduce_scatter(r->comm, TRAFFIC_HIDDEN, DTYPE_FP32, somewhere(1), somewhere(2), 250,
                               NULL);
}

static enum status exchange_kilobytes(struct sim_rank *r)
{
    return comm_all_to_all(r->comm, TRAFFIC_HEADS, DTYPE_FP32, somewhere(1), somewhere(2), 250, NULL);
}

static enum status broadcast_kilobytes(struct sim_rank *r)
{
    return comm_broadcast(r->comm, TRAFFIC_WEIGHTS, DTYPE_FP32, somewhere(1), 1000, 0, NULL);
}

static enum status pass_on(struct sim_rank *r)
{
    if (r->rank > 0)
        TRY(comm_recv(r->comm, TRAFFIC_HIDDEN, DTYPE_FP32, somewhere(1), 250, r->rank - 1, NULL));
    if (r->rank < r->nranks - 1)
        TRY(comm_send(r->comm, TRAFFIC_HIDDEN, DTYPE_FP32, somewhere(1), 250, r->rank + 1, NULL));
    return OK;
}

static void sums_by_hand(void **state)
{
    (void)state;
    const struct platform p = sim_rig_plain();
    /* 4 ranks, 1000 bytes each: 3 steps of 1 us and 1000 bytes. */
    assert_int_equal(sim_rig_time(&p, 4, gather_kilobytes, NULL), 3 * (1 * US + 1 * US));
    /* 4000 bytes: 6 steps of 1 us and 1000 bytes. */
    assert_int_equal(sim_rig_time(&p, 4, reduce_kilobytes, NULL), 6 * (1 * US + 1 * US));
    assert_int_equal(sim_rig_time(&p, 4, scatter_kilobytes, NULL), 3 * (1 * US + 1 * US));
    /* 3 messages of 1000 bytes to others. */
    assert_int_equal(sim_rig_time(&p, 4, exchange_kilobytes, NULL), 3 * (1 * US + 1 * US));
    /* 4000 bytes, pipelined. */
    assert_int_equal(sim_rig_time(&p, 4, broadcast_kilobytes, NULL), 3 * US + 4 * US);
    assert_int_equal(sim_rig_time(&p, 5, pass_on, NULL), 4 * (1 * US + 1 * US));
    assert_int_equal(sim_rig_time(&p, 1, gather_kilobytes, NULL), 0);
}

/* Rank r comes r * 10 us late: the collective begins when the last one is ready. */
static enum status stagger(struct sim_rank *r)
{
    lane_virtual_compute(r->lanes, (int64_t)r->rank * 10 * US, 0);
    return gather_kilobytes(r);
}

/* Two collectives share the communicator's lane; computing meanwhile costs nothing on this platform. */
static enum status queue_two(struct sim_rank *r)
{
    struct comm_request first = {0}, second = {0};
    TRY(comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2), 250, &first));
    TRY(comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(3), 250, &second));
    lane_virtual_compute(r->lanes, 5 * US, 0);
    TRY(comm_wait(&second));
    return comm_wait(&first);
}

static void lanes_queue(void **state)
{
    (void)state;
    const struct platform p = sim_rig_plain();
    assert_int_equal(sim_rig_time(&p, 4, stagger, NULL), 30 * US + 6 * US);
    assert_int_equal(sim_rig_time(&p, 4, queue_two, NULL), 2 * 6 * US);
}

/* Computing x = 4 us under a transfer of c = 6 us: max(c, x) + 0.4 min(c, x); then x = 10 us. */
static enum status overlap(struct sim_rank *r)
{
    const int64_t *x = r->shared;
    struct comm_request request = {0};
    TRY(comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2), 250, &request));
    lane_virtual_compute(r->lanes, *x, 0);
    return comm_wait(&request);
}

/* Two transfers over the same computing: it pays for the time that at least one of them runs. */
static enum status overlap_twice(struct sim_rank *r)
{
    struct comm_request in = {0}, out = {0};
    int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    TRY(comm_recv(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), 250, before, &in));
    TRY(comm_send(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(2), 250, next, &out));
    lane_virtual_compute(r->lanes, 10 * US, 0);
    TRY(comm_wait(&in));
    return comm_wait(&out);
}

static void overlap_has_a_price(void **state)
{
    (void)state;
    struct platform p = sim_rig_plain();
    int64_t x = 4 * US;
    p.gpu.overlap_cost = 0.4;
    assert_int_equal(sim_rig_time(&p, 4, overlap, &x), 6 * US + 4 * US * 2 / 5);
    x = 10 * US;
    assert_int_equal(sim_rig_time(&p, 4, overlap, &x), 10 * US + 6 * US * 2 / 5);
    /* Messages of 2 us: 1 us and 1000 bytes, both at once. */
    assert_int_equal(sim_rig_time(&p, 4, overlap_twice, &x), 10 * US + 2 * US * 2 / 5);
}

/* The host issues an operation before it starts. */
static enum status three_operations(struct sim_rank *r)
{
    for (int i = 0; i < 3; i++)
        lane_virtual_compute(r->lanes, 1 * US, 1);
    return OK;
}

static void host_runs_ahead(void **state)
{
    (void)state;
    struct platform p = sim_rig_plain();
    p.gpu.host_op_s = 5e-6;
    assert_int_equal(sim_rig_time(&p, 1, three_operations, NULL), 3 * 5 * US + 1 * US);
    p.gpu.host_op_s = 0.25e-6;
    assert_int_equal(sim_rig_time(&p, 1, three_operations, NULL), US / 4 + 3 * US);
}

/* ---- NCCL ---- */

static struct platform shipped(const char *name)
{
    struct platform p;
    if (platform_load(name, &p) != OK)
        fail_msg("%s", status_first()->text);
    return p;
}

/* All-gather on 8 x H100, microseconds by NCCL's own model. */
static void nccl_points(void **state)
{
    (void)state;
    const struct platform p = shipped("h100-nvlink");
    const struct comm_place place = {.ranks = 8, .nodes = 1, .most_in_node = 8, .port_sharers = 1,
                                     .nic_sharers = 1};
    static const struct {
        uint64_t bytes;
        double us;
    } points[] = {{64 << 10, 11}, {1 << 20, 17}, {16 << 20, 70}, {256 << 20, 666}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        double us = (double)comm_cost_collective(&p, &place, COMM_ALL_GATHER, points[i].bytes) / US;
        if (!(us > points[i].us - 0.75 && us < points[i].us + 0.75))
            fail_msg("all-gather of %llu bytes: %g us, not about %g",
                     (unsigned long long)points[i].bytes, us, points[i].us);
    }
}

/* A ring over 1024 GPUs pays 4.8 ms of latency with the Simple protocol; LL and trees are why less. */
static void many_nodes(void **state)
{
    (void)state;
    const struct platform p = shipped("h100-ib400");
    const struct comm_place place = {.ranks = 1024, .nodes = 128, .most_in_node = 8, .port_sharers = 1,
                                     .nic_sharers = 1};
    double gather_us = (double)comm_cost_collective(&p, &place, COMM_ALL_GATHER, 1024) / US;
    double reduce_us = (double)comm_cost_collective(&p, &place, COMM_ALL_REDUCE, 1024) / US;
    assert_true(gather_us > 880 && gather_us < 890); /* 6.6 + 896 * 0.6 + 127 * 2.7 */
    assert_true(reduce_us > 80 && reduce_us < 90);   /* 6.8 + 2 (7 * 0.6 + 7 * 5) */
}

/* ---- where groups are ---- */

/* 4 GPUs, two a port: the groups {0,2} and {1,3} cross both ports at once, {0,1} and {2,3} none. */
static void ports_are_shared(void **state)
{
    (void)state;
    struct platform p = sim_rig_plain();
    const int strided[] = {0, 1, 0, 1}, blocks[] = {0, 0, 1, 1};
    p.port_ranks = 2;
    assert_int_equal(comm_place_find(&p, (const int[]){0, 2}, 2, strided, 4).port_sharers, 2);
    assert_int_equal(comm_place_find(&p, (const int[]){0, 1}, 2, blocks, 4).port_sharers, 1);
    p.node_ranks = 2;
    p.nics = 1;
    struct comm_place across = comm_place_find(&p, (const int[]){0, 2}, 2, strided, 4);
    assert_int_equal(across.nodes, 2);
    assert_int_equal(across.nic_sharers, 2);
    assert_int_equal(across.most_in_node, 1);
}

/* Ranks in another order make another ring of the same links. */
static enum status gather_reversed(struct sim_rank *r)
{
    struct comm *reversed;
    TRY(comm_split(r->comm, 0, -r->rank, &reversed));
    enum status status = comm_all_gather(reversed, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2),
                                         250, NULL);
    comm_close(reversed);
    return status;
}

static void order_of_ranks_is_free(void **state)
{
    (void)state;
    const struct platform p = shipped("h100-nvlink");
    assert_int_equal(sim_rig_time(&p, 8, gather_reversed, NULL),
                     sim_rig_time(&p, 8, gather_kilobytes, NULL));
}

/* ---- arithmetic ---- */

static void arithmetic_by_hand(void **state)
{
    (void)state;
    struct platform p = sim_rig_plain();
    struct linear_call product = {.m = 1000, .n = 1000, .k = 1000};
    /* 2e9 FLOPs at 1 TFLOP/s; 12e6 bytes at 100 GB/s would be 0.12 ms. */
    assert_int_equal(sim_cost_linear(&p, DTYPE_FP32, &product), 2000 * (int64_t)US);
    product.k = 10; /* 2e7 FLOPs: 20 us; 4.08e6 bytes: 40.8 us */
    assert_int_equal(sim_cost_linear(&p, DTYPE_FP32, &product), 408 * (int64_t)US / 10);
    struct attention_call attention = {.n0 = 1, .n1 = 1, .heads = 2, .nq = 256, .nk = 1000,
                                       .head_dim = 50};
    assert_int_equal(sim_cost_attention(&p, DTYPE_FP32, &attention), 1024 * (int64_t)US / 10);
    assert_int_equal(sim_cost_bytes(&p, 1e5), 1 * US);
    /* 4 blocks of 128 queries on 3 SMs are two waves: 2/3 busy. */
    p.gpu.sms = 3;
    assert_int_equal(sim_cost_attention(&p, DTYPE_FP32, &attention), 1536 * (int64_t)US / 10);
}

/* DiT-XL/2's q, k, v at 1024 px fill 85% of an H100 with tiles of 128 x 256. */
static void waves(void **state)
{
    (void)state;
    const struct platform p = shipped("h100-nvlink");
    double tiles = 4096.0 / 128 * 14; /* 3456 columns */
    assert_true(sim_cost_waves(&p, tiles) > 0.84 && sim_cost_waves(&p, tiles) < 0.86);
    assert_true(sim_cost_waves(&p, 132) == 1);
    assert_true(sim_cost_waves(&p, 133) < 0.51);
}

/* ---- failures ---- */

static enum status wait_for_ever(struct sim_rank *r)
{
    if (r->rank == 2)
        return comm_recv(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), 10, 0, NULL);
    return comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2), 10, NULL);
}

static void deadlock_is_reported(void **state)
{
    (void)state;
    static struct sim_result results[SIM_RIG_MAX_RANKS];
    const struct platform p = sim_rig_plain();
    sim_rig_run(&p, 3, wait_for_ever, NULL, results);
    int reports = 0;
    for (int r = 0; r < 3; r++) {
        const char *text = results[r].failure.text;
        assert_int_not_equal(results[r].status, OK);
        reports += strstr(text, "deadlock: 3 of 3 ranks wait") && strstr(text, "receive number 0") &&
                   strstr(text, "from rank 0") && strstr(text, "all_gather of kv number 0");
    }
    assert_int_equal(reports, 3); /* one finds it, the others are told */
}

static enum status disagree_in_size(struct sim_rank *r)
{
    return comm_all_reduce(r->comm, TRAFFIC_HIDDEN, DTYPE_FP32, somewhere(1), somewhere(1),
                           r->rank == 1 ? 11 : 10, NULL);
}

static enum status disagree_in_kind(struct sim_rank *r)
{
    return r->rank == 1 ? broadcast_kilobytes(r) : reduce_kilobytes(r);
}

static enum status disagree_in_parts(struct sim_rank *r)
{
    const size_t even[] = {5, 5, 5}, odd[] = {5, 6, 5}, offsets[] = {0, 6, 12};
    return comm_all_to_allv(r->comm, TRAFFIC_HEADS, DTYPE_FP32, somewhere(1), r->rank == 1 ? even : odd,
                            offsets, somewhere(2), even, offsets, NULL);
}

static enum status disagree_in_message(struct sim_rank *r)
{
    if (r->rank == 0)
        return comm_send(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), 7, 1, NULL);
    if (r->rank == 1)
        return comm_recv(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), 8, 0, NULL);
    return OK;
}

static void mismatches_have_names(void **state)
{
    (void)state;
    static struct sim_result results[SIM_RIG_MAX_RANKS];
    static const struct {
        sim_body *body;
        const char *text;
        int ranks; /* that take part */
    } cases[] = {{disagree_in_size, "all_reduce: 11 elements on rank 1, 10 on rank", 3},
                 {disagree_in_kind, "rank 1 started broadcast of fp32", 3},
                 {disagree_in_parts, "sends 6 elements to rank 1, which expects 5", 3},
                 {disagree_in_message, "sends 28 bytes to rank 1, which expects 32", 2}};
    const struct platform p = sim_rig_plain();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_rig_run(&p, 3, cases[i].body, NULL, results);
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_true(results[r].status == ERR_MISMATCH || results[r].status == ERR_PEER);
            if (!strstr(results[r].failure.text, cases[i].text))
                fail_msg("case %zu, rank %d: %s", i, r, results[r].failure.text);
        }
    }
}

static enum status one_fails(struct sim_rank *r)
{
    if (r->rank == 1)
        return FAIL(ERR_DEVICE, "rank 1 had enough");
    return gather_kilobytes(r);
}

static void one_failure_ends_all(void **state)
{
    (void)state;
    static struct sim_result results[SIM_RIG_MAX_RANKS];
    const struct platform p = sim_rig_plain();
    sim_rig_run(&p, 256, one_fails, NULL, results);
    for (int r = 0; r < 256; r++) {
        assert_int_equal(results[r].status, r == 1 ? ERR_DEVICE : ERR_PEER);
        assert_non_null(strstr(results[r].failure.text, "rank 1 had enough"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(lanes_queue),
        cmocka_unit_test(overlap_has_a_price),
        cmocka_unit_test(host_runs_ahead),
        cmocka_unit_test(nccl_points),
        cmocka_unit_test(many_nodes),
        cmocka_unit_test(ports_are_shared),
        cmocka_unit_test(order_of_ranks_is_free),
        cmocka_unit_test(arithmetic_by_hand),
        cmocka_unit_test(waves),
        cmocka_unit_test(deadlock_is_reported),
        cmocka_unit_test(mismatches_have_names),
        cmocka_unit_test(one_failure_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

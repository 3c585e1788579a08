/* What ulysses, ring, usp, tsp and dsp send and hold: the worked tables of docs/strategies.md, to the byte,
 * per rank, as counted; how often they call, and in which blocks. */
#include "tests/run_point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* fp32, D 128, 8 heads, 12 blocks, 6 pairs of a spatial and a temporal one; one step, so that totals are
 * those of all blocks. */
#define IMAGE "model=bench-image steps=1 repeat=1 "
#define VIDEO "model=bench-video steps=1 repeat=1 "
enum { BLOCKS = 12, PAIRS = 6, HIDDEN = 128 };

/* Of one kind of traffic, by all operations. */
static uint64_t sent(const struct run_point *run, int rank, enum traffic traffic)
{
    uint64_t bytes = 0;
    for (int op = 0; op < COMM_OPS; op++)
        bytes += run_point_sent(run, rank, (enum comm_op)op, traffic);
    return bytes;
}

/* Beside the latent's gather. */
static uint64_t sent_in_steps(const struct run_point *run, int rank)
{
    return run_point_sent_all(run, rank) - sent(run, rank, TRAFFIC_LATENT);
}

struct row {
    const char *strategy;
    int gpus;
    enum traffic traffic;
    uint64_t bytes[8]; /* per block or pair, of every rank; of rank 0 alone: of all of them */
};

static void expect_row(const char *shape, const struct row *row, uint64_t times)
{
    struct run_point run;
    run_point_well(&run, "%s strategy=%s gpus=%d", shape, row->strategy, row->gpus);
    for (int rank = 0; rank < row->gpus; rank++) {
        uint64_t want = row->bytes[row->bytes[1] ? rank : 0] * times;
        uint64_t is = sent(&run, rank, row->traffic);
        if (is != want)
            fail_msg("%s, %s on %d ranks, %s: rank %d sent %llu, not %llu", shape, row->strategy,
                     row->gpus, traffic_name(row->traffic), rank, (unsigned long long)is,
                     (unsigned long long)want);
    }
    run_point_free(&run);
}

static void test_image_table(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"ring", 2, TRAFFIC_KV, {131072}},         {"ring", 4, TRAFFIC_KV, {196608}},
        {"ring", 8, TRAFFIC_KV, {229376}},         {"ulysses", 2, TRAFFIC_HEADS, {131072}},
        {"ulysses", 4, TRAFFIC_HEADS, {98304}},    {"ulysses", 8, TRAFFIC_HEADS, {57344}},
        {"tsp", 2, TRAFFIC_WEIGHTS, {393216}},     {"tsp", 4, TRAFFIC_WEIGHTS, {589824}},
        {"tsp", 8, TRAFFIC_WEIGHTS, {688128}},     {"tsp", 2, TRAFFIC_KV, {131072}},
        {"tsp", 4, TRAFFIC_KV, {196608}},          {"tsp", 8, TRAFFIC_KV, {229376}},
        {"ring", 3, TRAFFIC_KV, {175104, 175104, 174080}},
        {"tsp", 3, TRAFFIC_WEIGHTS, {545792, 546816, 480256}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(IMAGE "resolution=32", &rows[i], BLOCKS);
}

/* [4(U-1)/(U^2 R) + 2(R-1)/(U R)]A, A = 131,072. */
static void test_usp_bytes(void **state)
{
    (void)state;
    static const struct {
        int ulysses, ring;
        uint64_t heads, kv;
    } cases[] = {{1, 4, 0, 196608}, {2, 2, 65536, 65536}, {4, 1, 98304, 0}, {2, 4, 32768, 98304},
                 {4, 2, 49152, 32768}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run_point run;
        int gpus = cases[i].ulysses * cases[i].ring;
        run_point_well(&run, IMAGE "resolution=32 strategy=usp gpus=%d ulysses-degree=%d", gpus,
                       cases[i].ulysses);
        for (int rank = 0; rank < gpus; rank++) {
            assert_int_equal(sent(&run, rank, TRAFFIC_HEADS), BLOCKS * cases[i].heads);
            assert_int_equal(sent(&run, rank, TRAFFIC_KV), BLOCKS * cases[i].kv);
        }
        run_point_free(&run);
    }
}

static void test_video_table(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"dsp", 2, TRAFFIC_HEADS, {131072}},     {"dsp", 4, TRAFFIC_HEADS, {98304}},
        {"dsp", 8, TRAFFIC_HEADS, {57344}},      {"ulysses", 2, TRAFFIC_HEADS, {262144}},
        {"ulysses", 4, TRAFFIC_HEADS, {196608}}, {"ulysses", 8, TRAFFIC_HEADS, {114688}},
        {"ring", 2, TRAFFIC_KV, {262144}},       {"ring", 4, TRAFFIC_KV, {393216}},
        {"ring", 8, TRAFFIC_KV, {458752}},       {"tp", 2, TRAFFIC_HIDDEN, {1048576}},
        {"tp", 4, TRAFFIC_HIDDEN, {1572864}},    {"tp", 8, TRAFFIC_HIDDEN, {1835008}},
        {"tp-sp", 2, TRAFFIC_HIDDEN, {1048576}}, {"tp-sp", 4, TRAFFIC_HIDDEN, {1572864}},
        {"tp-sp", 8, TRAFFIC_HIDDEN, {1835008}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(VIDEO "resolution=16 frames=8", &rows[i], PAIRS);
}

/* The table gives one switch; a pair has two. Padded, every rank sends the same. */
static void test_padded_switches(void **state)
{
    (void)state;
    expect_row(VIDEO "resolution=16 frames=5", &(struct row){"dsp", 4, TRAFFIC_HEADS, {49152}}, 2 * PAIRS);
    expect_row(VIDEO "resolution=12x20 frames=7", &(struct row){"dsp", 8, TRAFFIC_HEADS, {28672}},
               2 * PAIRS);
    expect_row(VIDEO "resolution=16 frames=1", &(struct row){"dsp", 4, TRAFFIC_HEADS, {24576}},
               2 * PAIRS);
}

/* ---- calls ---- */

/* Calls of a rank that are not the latent's gather. */
static uint64_t calls(const struct run_point *run, int rank)
{
    uint64_t n = 0;
    for (int op = 0; op < COMM_OPS; op++)
        for (int traffic = 0; traffic < TRAFFIC_KINDS; traffic++)
            if (traffic != TRAFFIC_LATENT)
                n += run->measured.ranks[rank].counts.of[PHASE_SYNC][op][traffic].calls;
    return n;
}

/* Communication is started in blocks of one parity only: 0 spatial, 1 temporal. */
static void expect_parity(const struct run_point *run, int parity)
{
    struct measure_request request = {.want_trace = true};
    struct measurement traced;
    size_t seen = 0;
    assert_int_equal(measure_point(&run->point, &request, &traced), OK);
    for (size_t i = 0; i < traced.event_count; i++) {
        const struct trace_event *e = &traced.events[i];
        bool is_arithmetic = strcmp(e->lane, "compute") == 0;
        if (is_arithmetic || e->traffic == TRAFFIC_LATENT || e->layer < 0)
            continue;
        assert_int_equal(e->layer % 2, parity);
        seen++;
    }
    assert_true(seen > 0);
    measure_free(&traced);
}

static void test_calls_per_pair(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        uint64_t per_pair;
        int parity;
    } cases[] = {{"dsp", 2, 0}, {"ulysses", 2, 1}, {"ring", 3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run_point run;
        run_point_well(&run, VIDEO "resolution=8 frames=5 gpus=4 strategy=%s", cases[i].strategy);
        for (int rank = 0; rank < 4; rank++)
            assert_int_equal(calls(&run, rank), PAIRS * cases[i].per_pair);
        expect_parity(&run, cases[i].parity);
        run_point_free(&run);
    }
}

/* Two matrices a shard: N broadcasts, N gathers, N-1 hops. */
static void test_calls_of_tsp(void **state)
{
    (void)state;
    struct run_point run;
    run_point_well(&run, IMAGE "resolution=8 gpus=4 strategy=tsp");
    const struct comm_counts *counts = &run.measured.ranks[1].counts;
    assert_int_equal(counts->of[PHASE_SYNC][COMM_BROADCAST][TRAFFIC_WEIGHTS].calls, BLOCKS * 2 * 4);
    assert_int_equal(counts->of[PHASE_SYNC][COMM_ALL_GATHER][TRAFFIC_KV].calls, BLOCKS * 4);
    assert_int_equal(counts->of[PHASE_SYNC][COMM_SENDRECV][TRAFFIC_WEIGHTS].calls, BLOCKS * 2 * 3);
    run_point_free(&run);
}

/* ---- tsp's weights ---- */

static void test_tsp_weight_bytes_ignore_tokens(void **state)
{
    (void)state;
    struct run_point few, many;
    run_point_well(&few, IMAGE "resolution=8 gpus=3 strategy=tsp");
    run_point_well(&many, IMAGE "resolution=24x32 cfg-scale=2 gpus=3 strategy=tsp");
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(sent(&few, rank, TRAFFIC_WEIGHTS), sent(&many, rank, TRAFFIC_WEIGHTS));
        assert_true(sent(&few, rank, TRAFFIC_KV) < sent(&many, rank, TRAFFIC_KV));
    }
    run_point_free(&few);
    run_point_free(&many);
}

static uint64_t weights_held(const struct run_point *run, int rank)
{
    return run->measured.ranks[rank].memory.held[MEMORY_WEIGHTS];
}

/* The four matrices of a block are 12D^2; biases, adaLN and the ends are on every rank. */
static void test_tsp_holds_its_share(void **state)
{
    (void)state;
    struct run_point serial;
    const uint64_t sharded = 12ULL * HIDDEN * HIDDEN * sizeof(float) * BLOCKS;
    run_point_well(&serial, IMAGE "resolution=8 strategy=serial");
    for (int gpus = 1; gpus <= 8; gpus++) {
        struct run_point run;
        uint64_t replicated = weights_held(&serial, 0) - sharded, total = 0;
        run_point_well(&run, IMAGE "resolution=8 strategy=tsp gpus=%d", gpus);
        for (int rank = 0; rank < gpus; rank++) {
            uint64_t share = weights_held(&run, rank) - replicated;
            if (8 % gpus == 0)
                assert_int_equal(share, sharded / (uint64_t)gpus);
            total += share;
        }
        assert_int_equal(total, sharded);
        run_point_free(&run);
    }
    run_point_free(&serial);
}

/* tp sends 4A, tsp 12D^2 e + 2A, both times (N-1)/N: equal where S = 6D. Counted in virtual time, by the
 * same wrappers, without the arithmetic. */
#define SIMULATED IMAGE "gpus=2 device=sim platform=h200-nvlink dtype=bf16 "

static void test_crossover_with_tp(void **state)
{
    (void)state;
    static const struct {
        const char *resolution;
        int sign; /* of tsp's bytes less tp's */
    } cases[] = {{"44x64", 1}, {"48x64", 0}, {"52x64", -1}}; /* 704, 768 and 832 tokens */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run_point tp, tsp;
        run_point_well(&tp, SIMULATED "strategy=tp resolution=%s", cases[i].resolution);
        run_point_well(&tsp, SIMULATED "strategy=tsp resolution=%s", cases[i].resolution);
        for (int rank = 0; rank < 2; rank++) {
            uint64_t a = sent_in_steps(&tp, rank), b = sent_in_steps(&tsp, rank);
            assert_int_equal((b > a) - (b < a), cases[i].sign);
        }
        run_point_free(&tp);
        run_point_free(&tsp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_table),
        cmocka_unit_test(test_usp_bytes),
        cmocka_unit_test(test_video_table),
        cmocka_unit_test(test_padded_switches),
        cmocka_unit_test(test_calls_per_pair),
        cmocka_unit_test(test_calls_of_tsp),
        cmocka_unit_test(test_tsp_weight_bytes_ignore_tokens),
        cmocka_unit_test(test_tsp_holds_its_share),
        cmocka_unit_test(test_crossover_with_tp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

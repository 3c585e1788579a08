/* Shardings of random activations: every split, switch and gather against slices taken here, with canaries
 * around the results, and the bytes of switches against the claim and the formula. */
#include "strategies/sharded.h"
#include "tests/suite_launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 16, LARGEST = 9, ROUNDS = 25 };
#define CANARY (-7.0f)

struct scenario {
    struct sharded_shape shape;
};

/* One rank's means and arrays; values are the index in the whole activation, plus one. */
struct bench {
    struct suite_rank *suite;
    const struct sharded_shape *shape;
    struct rank rank;
    struct problem problem;
    struct memory_ledger ledger;
    size_t whole;          /* elements */
    float *seen;           /* [GUARD + whole + GUARD] */
    struct devmem buffer[2]; /* the same, on the device */
};

static size_t elements(const struct bench *b, int dim)
{
    return sharded_elements(b->shape, b->suite->nranks, b->suite->rank, dim);
}

/* The index in the whole of element k of this rank's shard along `dim`. */
static size_t global_index(const struct bench *b, int dim, size_t k)
{
    const struct sharded_shape *s = b->shape;
    struct span part = {0, 0};
    if (dim != SHARDED_WHOLE)
        part = partition_span(s->size[dim], b->suite->nranks, b->suite->rank);
    size_t index = k % s->width, stride = s->width;
    k /= s->width;
    for (int d = s->dims - 1; d >= 0; d--) {
        size_t size = d == dim ? part.count : s->size[d];
        index += (k % size + (d == dim ? part.first : 0)) * stride;
        stride *= s->size[d];
        k /= size;
    }
    return index;
}

static struct devmem inner(const struct bench *b, int i)
{
    return devmem_at(b->buffer[i], GUARD * sizeof(float));
}

static enum status fill(struct bench *b, int i, bool with_values)
{
    size_t n = b->whole + 2 * GUARD;
    for (size_t k = 0; k < n; k++)
        b->seen[k] = with_values && k >= GUARD && k < GUARD + b->whole ? (float)(k - GUARD + 1) : CANARY;
    return lane_upload(b->rank.device->lanes, b->buffer[i], b->seen, n * sizeof(float));
}

/* Buffer i holds this rank's shard along `dim`, and canaries everywhere else. */
static enum status check(struct bench *b, int i, int from, int dim)
{
    size_t n = b->whole + 2 * GUARD, held = elements(b, dim);
    TRY(lane_download(b->rank.device->lanes, b->seen, b->buffer[i], n * sizeof(float)));
    for (size_t k = 0; k < n; k++) {
        bool is_inside = k >= GUARD && k < GUARD + held;
        float want = is_inside ? (float)(global_index(b, dim, k - GUARD) + 1) : CANARY;
        if (b->seen[k] != want)
            return FAIL(ERR_INTERNAL, "from %d to %d: element %zu of %zu is %g, not %g", from, dim,
                        k - GUARD, held, (double)b->seen[k], (double)want);
    }
    return OK;
}

static enum status check_bytes(const struct bench *b, int from, int to)
{
    const struct comm_count *count =
        &b->suite->meter->counts.of[PHASE_SYNC][COMM_ALL_TO_ALL][TRAFFIC_HEADS];
    struct cost cost = {0};
    sharded_cost(b->shape, b->suite->nranks, b->suite->rank, from, to, TRAFFIC_HEADS, DTYPE_FP32, 1, &cost);
    uint64_t claim = cost.sent_bytes[PHASE_SYNC][COMM_ALL_TO_ALL][TRAFFIC_HEADS];
    uint64_t ranks = (uint64_t)b->suite->nranks, padded = sizeof(float);
    for (int d = 0; d < b->shape->dims; d++) {
        uint64_t size = b->shape->size[d];
        padded *= d == from || d == to ? (size + ranks - 1) / ranks : size;
    }
    padded *= b->shape->width * (ranks - 1);
    if (count->calls != 1 || count->sent_bytes != claim || (b->shape->is_padded && claim != padded))
        return FAIL(ERR_INTERNAL, "from %d to %d: %llu calls, %llu bytes, claimed %llu, padded %llu", from,
                    to, (unsigned long long)count->calls, (unsigned long long)count->sent_bytes,
                    (unsigned long long)claim, (unsigned long long)padded);
    return OK;
}

/* From buffer `src` to the other one; each route is run twice. */
static enum status move(struct bench *b, int src, int from, int to)
{
    struct sharded_route *route = malloc(sizeof *route);
    if (!route)
        return FAIL(ERR_MEMORY, "no memory for a route");
    enum status status = sharded_open(&b->rank, b->suite->comm, TRAFFIC_HEADS, b->shape, from, to, route);
    for (int run = 0; run < 2 && status == OK; run++) {
        meter_reset(b->suite->meter);
        status = fill(b, 1 - src, false);
        if (status == OK)
            status = sharded_run(route, inner(b, src), inner(b, 1 - src));
        if (status == OK)
            status = check(b, 1 - src, from, to);
        if (status == OK && from != SHARDED_WHOLE && to != SHARDED_WHOLE)
            status = check_bytes(b, from, to);
    }
    free(route);
    return status;
}

/* From every dimension to every other: split, switch, gather. */
static enum status all_routes(struct bench *b)
{
    for (int from = 0; from < b->shape->dims; from++)
        for (int to = 0; to < b->shape->dims; to++) {
            TRY(fill(b, 0, true));
            TRY(move(b, 0, SHARDED_WHOLE, from));
            if (to == from) {
                TRY(move(b, 1, from, SHARDED_WHOLE));
                continue;
            }
            TRY(move(b, 1, from, to));
            TRY(move(b, 0, to, SHARDED_WHOLE));
        }
    return OK;
}

static enum status open_bench(struct bench *b)
{
    struct device_config config = {.rank = b->suite->rank, .nranks = b->suite->nranks, .threads = 1,
                                   .dtype = DTYPE_FP32};
    size_t bytes = (b->whole + 2 * GUARD) * sizeof(float);
    b->problem.dtype = DTYPE_FP32;
    b->rank.problem = &b->problem;
    TRY(device_open(device_find("ref"), &config, &b->rank.device));
    TRY(arena_open(b->rank.device->lanes, &b->ledger, &b->rank.scratch));
    TRY(arena_alloc(b->rank.scratch, MEMORY_ACTIVATIONS, bytes, &b->buffer[0]));
    TRY(arena_alloc(b->rank.scratch, MEMORY_ACTIVATIONS, bytes, &b->buffer[1]));
    b->seen = malloc(bytes);
    return b->seen ? OK : FAIL(ERR_MEMORY, "no memory for %zu bytes", bytes);
}

static enum status body(struct suite_rank *suite)
{
    const struct scenario *scenario = suite->shared;
    struct bench b = {.suite = suite, .shape = &scenario->shape};
    b.whole = sharded_elements(b.shape, suite->nranks, suite->rank, SHARDED_WHOLE);
    enum status status = open_bench(&b);
    if (status == OK)
        status = all_routes(&b);
    if (status != OK)
        team_abort(suite->team, status);
    status = team_agree(suite->team, status); /* nobody reads this rank's buffers any more */
    free(b.seen);
    arena_close(b.rank.scratch);
    device_close(b.rank.device);
    return status;
}

static struct scenario draw(uint64_t seed, bool is_padded)
{
    struct scenario s = {.shape = {.dims = 2 + (int)(suite_random(seed, 0, 0) % 3),
                                                 .is_padded = is_padded}};
    for (int d = 0; d < s.shape.dims; d++)
        s.shape.size[d] = 1 + suite_random(seed, 1, (uint64_t)d) % LARGEST;
    s.shape.width = 1 + suite_random(seed, 2, 0) % 3;
    return s;
}

static void random_shapes(bool is_padded)
{
    static const int ranks[] = {1, 2, 3, 4, 8};
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct scenario s = draw(seed, is_padded);
        suite_expect_ok(comm_find("threads"), ranks[seed % (sizeof ranks / sizeof *ranks)], body, &s);
    }
}

static void test_exact_messages(void **state)
{
    (void)state;
    random_shapes(false);
}

static void test_padded_messages(void **state)
{
    (void)state;
    random_shapes(true);
}

/* Fewer things than ranks, in either dimension and in both. */
static void test_ranks_without_anything(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 9}, {9, 1}, {1, 1}, {3, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int padded = 0; padded < 2; padded++) {
            struct scenario s = {.shape = {.dims = 2, .size = {sizes[i][0], sizes[i][1]}, .width = 2,
                                           .is_padded = padded == 1}};
            suite_expect_ok(comm_find("threads"), 4, body, &s);
        }
}

static void test_sizes_of_shards(void **state)
{
    (void)state;
    const struct sharded_shape shape = {.dims = 2, .size = {5, 7}, .width = 3};
    assert_int_equal(sharded_elements(&shape, 4, 0, SHARDED_WHOLE), 105);
    assert_int_equal(sharded_elements(&shape, 4, 0, 0), 2 * 7 * 3);
    assert_int_equal(sharded_elements(&shape, 4, 3, 0), 1 * 7 * 3);
    assert_int_equal(sharded_elements(&shape, 8, 7, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_messages),
        cmocka_unit_test(test_padded_messages),
        cmocka_unit_test(test_ranks_without_anything),
        cmocka_unit_test(test_sizes_of_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

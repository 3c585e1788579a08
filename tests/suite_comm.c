/* Every operation of a transport of host memory against a scalar oracle: values bit by bit,
 * nothing written beside them, and counted bytes equal to moved bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/suite_launch.h"

static const int rank_counts[] = {1, 2, 3, 4, 8};
static const size_t sizes[] = {0, 1, 2, 7, 64, 1023, 5003};
enum { RANK_COUNTS = sizeof rank_counts / sizeof rank_counts[0] };
enum { SIZES = sizeof sizes / sizeof sizes[0] };
enum { GUARD = 64, CANARY = 0xa5 };
static const float UNTOUCHED = -7.5f;

/* ---- arrays in device memory with canaries around, and what they should hold in the end ---- */

struct array {
    struct lane_system *lanes;
    enum dtype dtype;
    size_t n;
    struct devmem whole, data;
    char *staged; /* what `whole` holds before the operation */
    void *expected;
};

static size_t array_bytes(const struct array *a)
{
    return a->n * dtype_bytes(a->dtype);
}

static enum status array_open(struct array *a, struct lane_system *lanes, enum dtype dtype,
                              size_t n)
{
    *a = (struct array){.lanes = lanes, .dtype = dtype, .n = n};
    TRY(lane_alloc(lanes, array_bytes(a) + 2 * GUARD, &a->whole));
    a->data = devmem_at(a->whole, GUARD);
    a->expected = malloc(array_bytes(a) + 1);
    a->staged = malloc(array_bytes(a) + 2 * GUARD);
    if (a->expected == NULL || a->staged == NULL)
        return FAIL(ERR_MEMORY, "test array");
    memset(a->staged, CANARY, array_bytes(a) + 2 * GUARD);
    for (size_t i = 0; i < n; i++) {
        dtype_store(dtype, a->staged + GUARD, i, UNTOUCHED);
        dtype_store(dtype, a->expected, i, UNTOUCHED);
    }
    return OK;
}

/* Puts what was staged on the device. Nothing to do for an array that was not opened. */
static enum status array_load(const struct array *a)
{
    if (a->lanes == NULL)
        return OK;
    return lane_upload(a->lanes, a->whole, a->staged, array_bytes(a) + 2 * GUARD);
}

static void array_close(struct array *a)
{
    if (a->lanes == NULL)
        return;
    lane_free(a->lanes, a->whole, array_bytes(a) + 2 * GUARD);
    free(a->staged);
    free(a->expected);
}

static void expect(struct array *a, size_t i, float value)
{
    dtype_store(a->dtype, a->expected, i, value);
}

static void put(struct array *a, size_t i, float value)
{
    dtype_store(a->dtype, a->staged + GUARD, i, value);
    expect(a, i, value);
}

static struct devmem at(const struct array *a, size_t element)
{
    return devmem_at(a->data, element * dtype_bytes(a->dtype));
}

static enum status compare(const struct array *a, const char *whole, const char *what)
{
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)whole[i] != CANARY ||
            (unsigned char)whole[GUARD + array_bytes(a) + i] != CANARY)
            return FAIL(ERR_INTERNAL, "%s: wrote beside its %zu elements", what, a->n);
    const char *data = whole + GUARD, *expected = a->expected;
    size_t e = dtype_bytes(a->dtype);
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(data + i * e, expected + i * e, e) != 0)
            return FAIL(ERR_INTERNAL, "%s: element %zu of %zu is %.9g, not %.9g", what, i, a->n,
                        (double)dtype_load(a->dtype, data, i),
                        (double)dtype_load(a->dtype, expected, i));
    return OK;
}

static enum status array_check(const struct array *a, const char *what)
{
    if (a->lanes == NULL)
        return OK;
    size_t bytes = array_bytes(a) + 2 * GUARD;
    char *whole = malloc(bytes);
    if (whole == NULL)
        return FAIL(ERR_MEMORY, "test array");
    enum status status = lane_download(a->lanes, whole, a->whole, bytes);
    if (status == OK)
        status = compare(a, whole, what);
    free(whole);
    return status;
}

/* ---- one trial: one operation, one rank ---- */

struct trial {
    struct suite_rank *s;
    enum dtype dtype;
    uint64_t seed;
    size_t size;
    bool in_place, is_even;
    struct comm_request *request; /* NULL: started and awaited by one call */
    struct array send, recv;
    size_t counts[SUITE_MAX_RANKS], offsets[SUITE_MAX_RANKS]; /* of parts */
    size_t recv_counts[SUITE_MAX_RANKS], recv_offsets[SUITE_MAX_RANKS];
};
typedef enum status trial_start(struct trial *);

/* Element i of what rank r contributes, as the dtype holds it. */
static float element(const struct trial *t, int r, size_t i)
{
    uint32_t bits = 0;
    float value = (float)(int32_t)suite_random(t->seed, (uint64_t)r, i) * 0x1p-29f;
    dtype_store(t->dtype, &bits, 0, value);
    return dtype_load(t->dtype, &bits, 0);
}

static float rank_order_sum(const struct trial *t, size_t i)
{
    float sum = element(t, 0, i);
    for (int r = 1; r < t->s->nranks; r++)
        sum += element(t, r, i);
    return sum;
}

/* Parts in order, with gaps between them that nothing may touch. Returns the elements spanned. */
static size_t lay_out(const struct trial *t, uint64_t gaps, const size_t *counts, size_t *offsets)
{
    size_t end = 0;
    for (int r = 0; r < t->s->nranks; r++) {
        offsets[r] = end + (t->is_even ? 0 : suite_random(t->seed, gaps, (uint64_t)r) % 3);
        end = offsets[r] + counts[r];
    }
    return end;
}

static size_t part_size(const struct trial *t, uint64_t i, uint64_t j)
{
    return t->is_even ? t->size : suite_random(t->seed, 100 + i, j) % (t->size + 1);
}

static size_t common_parts(struct trial *t)
{
    for (int r = 0; r < t->s->nranks; r++)
        t->counts[r] = part_size(t, 0, (uint64_t)r);
    return lay_out(t, 7 + (uint64_t)t->s->rank, t->counts, t->offsets);
}

static enum status open_send(struct trial *t, size_t n)
{
    return array_open(&t->send, t->s->lanes, t->dtype, n);
}

static enum status open_recv(struct trial *t, size_t n)
{
    return array_open(&t->recv, t->s->lanes, t->dtype, n);
}

static enum status load(const struct trial *t)
{
    TRY(array_load(&t->send));
    return array_load(&t->recv);
}

static enum status start_all_reduce(struct trial *t)
{
    TRY(open_send(t, t->size));
    if (!t->in_place)
        TRY(open_recv(t, t->size));
    struct array *result = t->in_place ? &t->send : &t->recv;
    for (size_t i = 0; i < t->size; i++)
        put(&t->send, i, element(t, t->s->rank, i));
    for (size_t i = 0; i < t->size; i++)
        expect(result, i, rank_order_sum(t, i));
    TRY(load(t));
    return comm_all_reduce(t->s->comm, TRAFFIC_HIDDEN, t->dtype, t->send.data, result->data,
                           t->size, t->request);
}

static enum status start_all_gather(struct trial *t)
{
    int rank = t->s->rank;
    TRY(open_recv(t, common_parts(t)));
    for (int r = 0; r < t->s->nranks; r++)
        for (size_t i = 0; i < t->counts[r]; i++)
            expect(&t->recv, t->offsets[r] + i, element(t, r, i));
    struct array *source = &t->recv;
    size_t first = t->offsets[rank];
    if (!t->in_place) {
        TRY(open_send(t, t->counts[rank]));
        source = &t->send;
        first = 0;
    }
    for (size_t i = 0; i < t->counts[rank]; i++)
        put(source, first + i, element(t, rank, i));
    TRY(load(t));
    if (t->is_even)
        return comm_all_gather(t->s->comm, TRAFFIC_KV, t->dtype, at(source, first), t->recv.data,
                               t->size, t->request);
    return comm_all_gatherv(t->s->comm, TRAFFIC_KV, t->dtype, at(source, first), t->recv.data,
                            t->counts, t->offsets, t->request);
}

static enum status start_reduce_scatter(struct trial *t)
{
    int rank = t->s->rank;
    TRY(open_send(t, common_parts(t)));
    for (int r = 0; r < t->s->nranks; r++)
        for (size_t i = 0; i < t->counts[r]; i++)
            put(&t->send, t->offsets[r] + i, element(t, rank, 10000 * (size_t)r + i));
    struct array *target = &t->send;
    size_t first = t->offsets[rank];
    if (!t->in_place) {
        TRY(open_recv(t, t->counts[rank]));
        target = &t->recv;
        first = 0;
    }
    for (size_t i = 0; i < t->counts[rank]; i++)
        expect(target, first + i, rank_order_sum(t, 10000 * (size_t)rank + i));
    TRY(load(t));
    if (t->is_even)
        return comm_reduce_scatter(t->s->comm, TRAFFIC_HIDDEN, t->dtype, t->send.data,
                                   at(target, first), t->size, t->request);
    return comm_reduce_scatterv(t->s->comm, TRAFFIC_HIDDEN, t->dtype, t->send.data,
                                at(target, first), t->counts, t->offsets, t->request);
}

static enum status start_all_to_all(struct trial *t)
{
    uint64_t rank = (uint64_t)t->s->rank;
    for (int r = 0; r < t->s->nranks; r++) {
        t->counts[r] = part_size(t, rank, (uint64_t)r);
        t->recv_counts[r] = part_size(t, (uint64_t)r, rank);
    }
    TRY(open_send(t, lay_out(t, 20 + rank, t->counts, t->offsets)));
    TRY(open_recv(t, lay_out(t, 40 + rank, t->recv_counts, t->recv_offsets)));
    for (int r = 0; r < t->s->nranks; r++) {
        for (size_t i = 0; i < t->counts[r]; i++)
            put(&t->send, t->offsets[r] + i, element(t, (int)rank, 10000 * (size_t)r + i));
        for (size_t i = 0; i < t->recv_counts[r]; i++)
            expect(&t->recv, t->recv_offsets[r] + i, element(t, r, 10000 * rank + i));
    }
    TRY(load(t));
    if (t->is_even)
        return comm_all_to_all(t->s->comm, TRAFFIC_HEADS, t->dtype, t->send.data, t->recv.data,
                               t->size, t->request);
    return comm_all_to_allv(t->s->comm, TRAFFIC_HEADS, t->dtype, t->send.data, t->counts,
                            t->offsets, t->recv.data, t->recv_counts, t->recv_offsets, t->request);
}

static enum status start_broadcast(struct trial *t)
{
    int root = (int)(t->seed % (uint64_t)t->s->nranks);
    TRY(open_recv(t, t->size));
    for (size_t i = 0; i < t->size; i++) {
        if (t->s->rank == root)
            put(&t->recv, i, element(t, root, i));
        expect(&t->recv, i, element(t, root, i));
    }
    TRY(load(t));
    return comm_broadcast(t->s->comm, TRAFFIC_WEIGHTS, t->dtype, t->recv.data, t->size, root,
                          t->request);
}

/* Around a ring, messages of different sizes. With one rank it is a message to itself. */
static enum status start_sendrecv(struct trial *t)
{
    int n = t->s->nranks, rank = t->s->rank, to = (rank + 1) % n, from = (rank + n - 1) % n;
    size_t sent = part_size(t, 0, (uint64_t)rank), received = part_size(t, 0, (uint64_t)from);
    TRY(open_send(t, sent));
    TRY(open_recv(t, received));
    for (size_t i = 0; i < sent; i++)
        put(&t->send, i, element(t, rank, i));
    for (size_t i = 0; i < received; i++)
        expect(&t->recv, i, element(t, from, i));
    TRY(load(t));
    return comm_sendrecv(t->s->comm, TRAFFIC_KV, t->dtype, t->send.data, sent, to, t->recv.data,
                         received, from, t->request);
}

/* Rank 0 sends to the last one; the others have nothing to do. */
static enum status start_message(struct trial *t)
{
    int last = t->s->nranks - 1, rank = t->s->rank;
    if (last == 0 || (rank != 0 && rank != last))
        return OK;
    struct array *a = rank == 0 ? &t->send : &t->recv;
    TRY(array_open(a, t->s->lanes, t->dtype, t->size));
    for (size_t i = 0; i < t->size; i++) {
        if (rank == 0)
            put(a, i, element(t, 0, i));
        expect(a, i, element(t, 0, i));
    }
    TRY(load(t));
    if (rank == 0)
        return comm_send(t->s->comm, TRAFFIC_LATENT, t->dtype, a->data, t->size, last, t->request);
    return comm_recv(t->s->comm, TRAFFIC_LATENT, t->dtype, a->data, t->size, 0, t->request);
}

static const struct {
    const char *name;
    trial_start *start;
} operations[] = {
    {"all_reduce", start_all_reduce},
    {"all_gather", start_all_gather},
    {"reduce_scatter", start_reduce_scatter},
    {"all_to_all", start_all_to_all},
    {"broadcast", start_broadcast},
    {"sendrecv", start_sendrecv},
    {"message", start_message},
};
enum { OPERATIONS = sizeof operations / sizeof operations[0] };

static enum status trial_check(struct trial *t)
{
    TRY(array_check(&t->send, "send"));
    return array_check(&t->recv, "recv");
}

static void trial_close(struct trial *t)
{
    array_close(&t->send);
    array_close(&t->recv);
}

/* ---- counted bytes ---- */

static uint64_t counted_bytes(const struct meter *m)
{
    uint64_t bytes = 0;
    for (int p = 0; p < STEP_PHASES; p++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int k = 0; k < TRAFFIC_KINDS; k++)
                bytes += m->counts.of[p][op][k].sent_bytes;
    return bytes;
}

/* `of_groups`: what was moved on communicators that share the meter. */
static enum status check_bytes(const struct suite_rank *s, uint64_t of_groups)
{
    uint64_t counted = counted_bytes(s->meter), moved = comm_moved_bytes(s->comm) + of_groups;
    if (counted != moved)
        return FAIL(ERR_INTERNAL, "counted %llu bytes, moved %llu", (unsigned long long)counted,
                    (unsigned long long)moved);
    return OK;
}

/* ---- tests ---- */

/* Variants: bit 0 in place, bit 1 even parts, bit 2 started and awaited apart. */
static enum status run_trial(struct suite_rank *s, int op, enum dtype dtype, size_t size,
                             int variant)
{
    struct comm_request request = {0};
    struct trial t = {.s = s, .dtype = dtype, .size = size};
    t.seed = (uint64_t)(op * 1000 + variant) + size * 77 + (uint64_t)dtype;
    t.in_place = variant & 1;
    t.is_even = variant & 2;
    t.request = variant & 4 ? &request : NULL;
    enum status status = operations[op].start(&t);
    if (status == OK)
        status = comm_wait(&request);
    if (status == OK)
        status = trial_check(&t);
    if (status == OK)
        status = check_bytes(s, 0);
    if (status != OK)
        fprintf(stderr, "%s of %s, size %zu, variant %d, seed %llu\n", operations[op].name,
                dtype_name(dtype), size, variant, (unsigned long long)t.seed);
    trial_close(&t);
    return status;
}

static enum status every_operation(struct suite_rank *s)
{
    for (int op = 0; op < OPERATIONS; op++)
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            for (int i = 0; i < SIZES; i++)
                for (int variant = 0; variant < 8; variant++)
                    TRY(run_trial(s, op, (enum dtype)dtype, sizes[i], variant));
    return OK;
}

/* Every operation under way at once, awaited in an order of each rank's own. */
static enum status in_flight(struct suite_rank *s)
{
    enum { DEPTH = 5, ALL = DEPTH * OPERATIONS };
    struct trial trials[ALL] = {{0}};
    struct comm_request requests[ALL] = {{0}};
    enum status status = OK;
    for (int i = 0; i < ALL && status == OK; i++) {
        struct trial *t = &trials[i];
        *t = (struct trial){.s = s, .seed = (uint64_t)i, .size = 600, .request = &requests[i]};
        t->is_even = i % 2 == 0;
        status = operations[i % OPERATIONS].start(t);
    }
    for (int i = 0; i < ALL && status == OK; i++) {
        int own_order = (i * 3 + s->rank * 11) % ALL; /* 3 and ALL have no common divisor */
        status = comm_wait(&requests[own_order]);
        if (status == OK)
            status = trial_check(&trials[own_order]);
    }
    if (status == OK)
        status = check_bytes(s, 0);
    for (int i = 0; i < ALL; i++)
        trial_close(&trials[i]);
    return status;
}

static enum status in_flight_repeatedly(struct suite_rank *s)
{
    for (int round = 0; round < 10; round++)
        TRY(in_flight(s));
    return OK;
}

/* A few fp32 values in device memory. */
enum { CELLS = 2 * 12 };
struct cells {
    struct lane_system *lanes;
    struct devmem memory;
};

static enum status cells_open(struct cells *c, const struct suite_rank *s, const float *values, size_t n)
{
    c->lanes = s->lanes;
    TRY(lane_alloc(c->lanes, CELLS * sizeof *values, &c->memory));
    return lane_upload(c->lanes, c->memory, values, n * sizeof *values);
}

static struct devmem cell(const struct cells *c, size_t i)
{
    return devmem_at(c->memory, i * sizeof(float));
}

/* Their values now, and the end of them. */
static enum status cells_take(struct cells *c, float *values, size_t n)
{
    enum status status = lane_download(c->lanes, values, c->memory, n * sizeof *values);
    lane_free(c->lanes, c->memory, CELLS * sizeof *values);
    return status;
}

/* Messages of one link match in the order in which they were started, receives being early. */
static enum status messages_in_order(struct suite_rank *s)
{
    enum { MESSAGES = 12 };
    float values[CELLS] = {0}; /* sent, then received */
    struct cells cells;
    struct comm_request sends[MESSAGES] = {{0}}, recvs[MESSAGES] = {{0}};
    int n = s->nranks, to = (s->rank + 1) % n, from = (s->rank + n - 1) % n;
    for (int i = 0; i < MESSAGES; i++)
        values[i] = (float)(s->rank * 100 + i);
    TRY(cells_open(&cells, s, values, CELLS));
    for (size_t i = 0; i < MESSAGES; i++)
        TRY(comm_recv(s->comm, TRAFFIC_KV, DTYPE_FP32, cell(&cells, MESSAGES + i), 1, from,
                      &recvs[i]));
    TRY(team_barrier(s->team));
    for (size_t i = 0; i < MESSAGES; i++)
        TRY(comm_send(s->comm, TRAFFIC_KV, DTYPE_FP32, cell(&cells, i), 1, to, &sends[i]));
    for (int i = 0; i < MESSAGES; i++) {
        TRY(comm_wait(&recvs[MESSAGES - 1 - i]));
        TRY(comm_wait(&sends[i]));
    }
    TRY(cells_take(&cells, values, CELLS));
    for (int i = 0; i < MESSAGES; i++)
        if (values[MESSAGES + i] != (float)(from * 100 + i))
            return FAIL(ERR_INTERNAL, "message %d holds %g", i, (double)values[MESSAGES + i]);
    return check_bytes(s, 0);
}

/* The group's world ranks in its order, gathered, must be `members`. */
static enum status check_group(struct suite_rank *s, struct comm *group, const int *members, int n)
{
    float values[2 + SUITE_MAX_RANKS] = {(float)s->rank}, expected = 0; /* mine, sum, all */
    struct cells cells;
    if (comm_nranks(group) != n || members[comm_rank(group)] != s->rank)
        return FAIL(ERR_INTERNAL, "rank %d of %d in the group", comm_rank(group),
                    comm_nranks(group));
    TRY(cells_open(&cells, s, values, 2 + SUITE_MAX_RANKS));
    TRY(comm_all_gather(group, TRAFFIC_KV, DTYPE_FP32, cell(&cells, 0), cell(&cells, 2), 1, NULL));
    TRY(comm_all_reduce(group, TRAFFIC_KV, DTYPE_FP32, cell(&cells, 0), cell(&cells, 1), 1, NULL));
    TRY(cells_take(&cells, values, 2 + SUITE_MAX_RANKS));
    for (int r = 0; r < n; r++) {
        expected += (float)members[r];
        if (values[2 + r] != (float)members[r])
            return FAIL(ERR_INTERNAL, "group rank %d is world rank %g", r, (double)values[2 + r]);
    }
    if (values[1] != expected)
        return FAIL(ERR_INTERNAL, "group sum %g, not %g", (double)values[1], (double)expected);
    return OK;
}

static enum status split_in_two(struct suite_rank *s)
{
    static const int members[2][2] = {{1, 0}, {3, 2}}; /* keys reverse the order */
    struct comm *group = NULL;
    TRY(comm_split(s->comm, s->rank / 2, -s->rank, &group));
    enum status status = OK;
    for (int round = 0; round < 20 && status == OK; round++)
        status = check_group(s, group, members[s->rank / 2], 2);
    uint64_t moved = comm_moved_bytes(group);
    comm_close(group);
    TRY(status);
    float values[] = {1, 0}; /* the parent goes on */
    struct cells cells;
    TRY(cells_open(&cells, s, values, 2));
    TRY(comm_all_reduce(s->comm, TRAFFIC_HIDDEN, DTYPE_FP32, cell(&cells, 0), cell(&cells, 1), 1, NULL));
    TRY(cells_take(&cells, values, 2));
    return values[1] == 4 ? check_bytes(s, moved) : FAIL(ERR_INTERNAL, "sum %g", (double)values[1]);
}

/* Uneven groups, equal keys, a rank without a group, and groups of a group. */
static enum status split_unevenly(struct suite_rank *s)
{
    static const int first[] = {1, 2, 3, 4, 5}, second[] = {6, 7}, odd[] = {1, 3, 5},
                     even[] = {2, 4};
    struct comm *group = NULL, *inner = NULL;
    int color = s->rank == 0 ? -1 : s->rank > 5;
    TRY(comm_split(s->comm, color, 0, &group));
    if (s->rank == 0)
        return group == NULL ? OK : FAIL(ERR_INTERNAL, "color -1 got a group");
    enum status status = check_group(s, group, color == 0 ? first : second, color == 0 ? 5 : 2);
    if (status == OK && color == 0)
        status = comm_split(group, s->rank % 2, 5, &inner);
    if (status == OK && color == 0)
        status = check_group(s, inner, s->rank % 2 ? odd : even, s->rank % 2 ? 3 : 2);
    comm_close(inner);
    comm_close(group);
    return status;
}

static bool has_waited(const struct meter *m)
{
    return m->waited_ps != 0 || m->wait_count != 0;
}

/* RUN_COMPUTE: nothing is moved, counted or left pending. */
static enum status skipped(struct suite_rank *s)
{
    float values[] = {1, -1};
    struct cells cells;
    struct comm_request request = {0};
    s->meter->mode = RUN_COMPUTE;
    TRY(cells_open(&cells, s, values, 2));
    TRY(comm_all_reduce(s->comm, TRAFFIC_HIDDEN, DTYPE_FP32, cell(&cells, 0), cell(&cells, 1), 1,
                        &request));
    TRY(cells_take(&cells, values, 2));
    if (comm_is_pending(&request) || values[1] != -1 || counted_bytes(s->meter) != 0 ||
        comm_moved_bytes(s->comm) != 0 || has_waited(s->meter))
        return FAIL(ERR_INTERNAL, "a skipped operation did something");
    s->meter->mode = RUN_FULL;
    TRY(cells_open(&cells, s, values, 2));
    TRY(comm_all_reduce(s->comm, TRAFFIC_HIDDEN, DTYPE_FP32, cell(&cells, 0), cell(&cells, 1), 1,
                        &request));
    TRY(comm_wait(&request));
    TRY(cells_take(&cells, values, 2));
    if (values[1] != (float)s->nranks || !has_waited(s->meter))
        return FAIL(ERR_INTERNAL, "not skipped: sum %g", (double)values[1]);
    return comm_wait(&request); /* nothing pending: fine */
}

static void on_ranks(int nranks, suite_body *body)
{
    if (suite_has_ranks(nranks))
        suite_expect_ok(suite_transport(), nranks, body, NULL);
}

static void test_every_operation(void **state)
{
    (void)state;
    for (int i = 0; i < RANK_COUNTS; i++)
        on_ranks(rank_counts[i], every_operation);
}

static void test_many_in_flight_awaited_in_any_order(void **state)
{
    (void)state;
    for (int i = 0; i < RANK_COUNTS; i++)
        on_ranks(rank_counts[i], in_flight_repeatedly);
}

static void test_messages_match_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < RANK_COUNTS; i++)
        on_ranks(rank_counts[i], messages_in_order);
}

static void test_split_in_two(void **state)
{
    (void)state;
    on_ranks(4, split_in_two);
}

static void test_split_unevenly(void **state)
{
    (void)state;
    on_ranks(8, split_unevenly);
}

static void test_compute_only_skips_communication(void **state)
{
    (void)state;
    on_ranks(3, skipped);
}

/* The uneven row of the byte tables: an all-reduce of 32768 fp32 over 3 ranks, and tp-sp's parts.
 */
static void test_accounting_of_uneven_parts(void **state)
{
    (void)state;
    const size_t tokens[] = {86 * 128, 85 * 128, 85 * 128};
    static const uint64_t reduce[] = {174764, 174764, 174760}, both[] = {175104, 174592, 174592};
    for (int r = 0; r < 3; r++) {
        struct comm_call call = {.op = COMM_ALL_REDUCE, .dtype = DTYPE_FP32, .count = 32768};
        call.recv_counts = call.send_counts = tokens;
        assert_int_equal(comm_sent_bytes(&call, r, 3), reduce[r]);
        assert_int_equal(comm_payload_bytes(&call, 3), 131072);
        call.op = COMM_ALL_GATHER;
        uint64_t gathered = comm_sent_bytes(&call, r, 3);
        call.op = COMM_REDUCE_SCATTER;
        assert_int_equal(gathered + comm_sent_bytes(&call, r, 3), both[r]);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_null(comm_find("carrier pigeons"));
    assert_string_equal(comm_find("threads")->name, "threads");
    for (int op = 0; op < COMM_OPS; op++)
        assert_non_null(comm_op_name((enum comm_op)op));
    for (int t = 0; t < TRAFFIC_KINDS; t++)
        assert_non_null(traffic_name((enum traffic)t));
}

int main(void)
{
    static const struct suite_test tests[] = {
        SUITE_TEST(test_every_operation, 0),
        SUITE_TEST(test_many_in_flight_awaited_in_any_order, 0),
        SUITE_TEST(test_messages_match_in_order, 0),
        SUITE_TEST(test_split_in_two, 4),
        SUITE_TEST(test_split_unevenly, 8),
        SUITE_TEST(test_compute_only_skips_communication, 3),
        SUITE_TEST(test_accounting_of_uneven_parts, 0),
        SUITE_TEST(test_names, 0),
    };
    return suite_main("suite_comm", tests, sizeof tests / sizeof tests[0]);
}

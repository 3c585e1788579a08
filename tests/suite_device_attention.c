/* Every device against attention in double precision written here: views, log-sum-exp, merging, and
 * two devices at work at the same time. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device_rig.h"

static const double fp32_unit = 0x1p-24;

/* ---- the expectation ---- */

struct attention_case {
    struct attention_call call;
    struct buffer *q, *k, *v, *o, *lse; /* lse: or NULL */
    size_t q0, k0, v0;                  /* element of each buffer where the view starts */
};

/* n0, n1, heads, rows in a random order from the outside in, with room between. */
static size_t random_view(struct rig *rig, const struct attention_call *call, size_t rows,
                          struct attention_view *view)
{
    size_t extent[4] = {call->n0, call->n1, call->heads, rows};
    size_t *stride[4] = {&view->group0, &view->group1, &view->head, &view->row};
    size_t total = call->head_dim + rig_below(rig, 3);
    bool done[4] = {false};
    for (int i = 0; i < 4; i++) {
        size_t axis = rig_below(rig, 4);
        while (done[axis])
            axis = (axis + 1) % 4;
        done[axis] = true;
        *stride[axis] = total;
        total = total * extent[axis] + rig_below(rig, 3);
    }
    return total;
}

static size_t place(const struct attention_view *view, size_t g0, size_t g1, size_t h, size_t row)
{
    return g0 * view->group0 + g1 * view->group1 + h * view->head + row * view->row;
}

/* Score of one query and key, and the sum of the magnitudes in it. */
static double score(const struct attention_case *c, size_t q, size_t k, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (size_t i = 0; i < c->call.head_dim; i++) {
        double product = c->q->value[q + i] * c->k->value[k + i] * c->call.scale;
        sum += product;
        *magnitude += fabs(product);
    }
    return sum;
}

/* One query row. A score that is off by e changes its weight by e, and so does every other's. */
static void expect_row(struct attention_case *c, size_t g0, size_t g1, size_t h, size_t row)
{
    const struct attention_call *call = &c->call;
    size_t q = c->q0 + place(&call->q, g0, g1, h, row), o = place(&call->o, g0, g1, h, row);
    size_t keys = call->nk;
    double *weights = calloc(keys + 1, sizeof *weights), largest = -INFINITY, sum = 0, off = 0;
    assert_non_null(weights);
    for (size_t j = 0; j < keys; j++) {
        double magnitude;
        weights[j] = score(c, q, c->k0 + place(&call->k, g0, g1, h, j), &magnitude);
        largest = fmax(largest, weights[j]);
        off = fmax(off, ((double)call->head_dim + 3) * fp32_unit * magnitude);
    }
    for (size_t j = 0; j < keys; j++) {
        weights[j] = exp(weights[j] - largest);
        sum += weights[j];
    }
    for (size_t i = 0; i < call->head_dim; i++) {
        double result = 0, magnitude = 0;
        for (size_t j = 0; j < keys; j++) {
            double term = weights[j] / sum * c->v->value[c->v0 + place(&call->v, g0, g1, h, j) + i];
            result += term;
            magnitude += fabs(term);
        }
        rig_expect(c->o, o + i, result,
                   magnitude * (expm1(2 * off) + (double)(2 * keys + 16) * fp32_unit));
    }
    if (c->lse != NULL)
        rig_expect(c->lse, ((g0 * call->n1 + g1) * call->heads + h) * call->nq + row,
                   largest + log(sum), off + (double)(keys + 8) * fp32_unit);
    free(weights);
}

static void expect_attention(struct attention_case *c)
{
    for (size_t g0 = 0; g0 < c->call.n0; g0++)
        for (size_t g1 = 0; g1 < c->call.n1; g1++)
            for (size_t h = 0; h < c->call.heads; h++)
                for (size_t row = 0; row < c->call.nq; row++)
                    expect_row(c, g0, g1, h, row);
}

static struct attention_call random_sizes(struct rig *rig, size_t most)
{
    struct attention_call call = {.n0 = rig_size(rig, 3),
                                  .n1 = rig_size(rig, 3),
                                  .heads = rig_size(rig, 4),
                                  .nq = rig_size(rig, most),
                                  .head_dim = rig_size(rig, 40)};
    call.nk = rig_below(rig, 8) == 0 ? 0 : rig_size(rig, most);
    call.scale = 1 / sqrt((double)call.head_dim);
    return call;
}

static struct attention_case attention_case(struct rig *rig, struct attention_call sizes,
                                            double spread)
{
    struct attention_case c = {.call = sizes};
    struct attention_call *call = &c.call;
    c.q = rig_buffer(rig, "q", rig->dtype, random_view(rig, call, call->nq, &call->q), spread);
    c.k = rig_buffer(rig, "k", rig->dtype, random_view(rig, call, call->nk, &call->k), spread);
    c.v = rig_buffer(rig, "v", rig->dtype, random_view(rig, call, call->nk, &call->v), 1);
    c.o = rig_buffer(rig, "o", rig->dtype, random_view(rig, call, call->nq, &call->o), 1);
    size_t rows = call->n0 * call->n1 * call->heads * call->nq;
    c.lse = rig_coin(rig) ? rig_buffer(rig, "lse", DTYPE_FP32, rows, 1) : NULL;
    call->q.base = c.q->mem;
    call->k.base = c.k->mem;
    call->v.base = c.v->mem;
    call->o.base = c.o->mem;
    call->lse = c.lse == NULL ? DEVMEM_NONE : c.lse->mem;
    rig_shape(rig,
              "attention groups %zu x %zu heads %zu nq %zu nk %zu head_dim %zu lse %d "
              "q strides %zu %zu %zu %zu",
              call->n0, call->n1, call->heads, call->nq, call->nk, call->head_dim, c.lse != NULL,
              call->q.group0, call->q.group1, call->q.head, call->q.row);
    rig_reserve(rig, call, NULL);
    return c;
}

static void check_attention(struct rig *rig, struct attention_call sizes)
{
    struct attention_case c = attention_case(rig, sizes, 1);
    rig_ok(rig, device_attention(rig->device, &c.call));
    expect_attention(&c);
    rig_check(rig);
}

static void attention_small(struct rig *rig)
{
    check_attention(rig, random_sizes(rig, 50));
}

/* Beyond every tile of the devices. */
static void attention_large(struct rig *rig)
{
    struct attention_call sizes = {.n0 = 1,
                                   .n1 = 2,
                                   .heads = 2,
                                   .nq = 130 + rig_below(rig, 60),
                                   .nk = 130 + rig_below(rig, 200),
                                   .head_dim = 72,
                                   .scale = 0.1};
    check_attention(rig, sizes);
}

static void attention_matches_double(void **state)
{
    (void)state;
    rig_every_device(attention_small, 40);
    rig_every_device(attention_large, 2);
}

/* q, k and v side by side in one row, as a model's linear leaves them: [frames, tokens, batch, 3
 * D]. group0 is the frame or the token, group1 the half of the batch. */
static void check_packed(struct rig *rig)
{
    size_t frames = rig_size(rig, 4), tokens = rig_size(rig, 30), batch = 1 + rig_below(rig, 2);
    size_t heads = rig_size(rig, 4), d = rig_size(rig, 20), width = heads * d;
    bool over_frames = rig_coin(rig);
    size_t e = dtype_bytes(rig->dtype), in_row = 3 * width * batch, out_row = width * batch;
    rig_shape(rig, "packed frames %zu tokens %zu batch %zu heads %zu head_dim %zu over frames %d",
              frames, tokens, batch, heads, d, over_frames);
    struct buffer *qkv = rig_buffer(rig, "qkv", rig->dtype, frames * tokens * in_row, 1);
    struct attention_case c = {.q = qkv, .k = qkv, .v = qkv, .k0 = width, .v0 = 2 * width};
    c.o = rig_buffer(rig, "o", rig->dtype, frames * tokens * out_row, 1);
    struct attention_view in = {.base = qkv->mem,
                                .group0 = over_frames ? in_row : tokens * in_row,
                                .group1 = 3 * width,
                                .head = d,
                                .row = over_frames ? tokens * in_row : in_row};
    struct attention_view out = {.base = c.o->mem,
                                 .group0 = over_frames ? out_row : tokens * out_row,
                                 .group1 = width,
                                 .head = d,
                                 .row = over_frames ? tokens * out_row : out_row};
    c.call = (struct attention_call){.n0 = over_frames ? tokens : frames,
                                     .n1 = batch,
                                     .heads = heads,
                                     .nq = over_frames ? frames : tokens,
                                     .nk = over_frames ? frames : tokens,
                                     .head_dim = d,
                                     .scale = 0.3,
                                     .q = in,
                                     .k = in,
                                     .v = in,
                                     .o = out};
    c.call.k.base = devmem_at(qkv->mem, width * e);
    c.call.v.base = devmem_at(qkv->mem, 2 * width * e);
    rig_reserve(rig, &c.call, NULL);
    rig_ok(rig, device_attention(rig->device, &c.call));
    expect_attention(&c);
    rig_check(rig);
}

static void packed_qkv(void **state)
{
    (void)state;
    rig_every_device(check_packed, 20);
}

/* nk equal keys give lse = score + log(nk) and o = v. Every number is exact in every dtype. */
static void check_equal_keys(struct rig *rig)
{
    size_t d = 8, nk = (size_t)1 << rig_below(rig, 6);
    double query = (double)rig_below(rig, 9) - 4;
    rig_shape(rig, "equal keys nk %zu head_dim %zu query %g", nk, d, query);
    struct attention_call call = {.n0 = 1,
                                  .n1 = 1,
                                  .heads = 1,
                                  .nq = 1,
                                  .nk = nk,
                                  .head_dim = d,
                                  .scale = 0.25,
                                  .q = {.row = d},
                                  .k = {.row = d},
                                  .v = {.row = d},
                                  .o = {.row = d}};
    struct buffer *q = rig_buffer(rig, "q", rig->dtype, d, 1);
    struct buffer *kv = rig_buffer(rig, "kv", rig->dtype, nk * d, 1);
    struct buffer *o = rig_buffer(rig, "o", rig->dtype, d, 1);
    struct buffer *lse = rig_buffer(rig, "lse", DTYPE_FP32, 1, 1);
    double dot = 0;
    for (size_t i = 0; i < d; i++)
        q->value[i] = query;
    for (size_t i = 0; i < nk * d; i++)
        kv->value[i] = (double)(i % d) - 2;
    for (size_t i = 0; i < d; i++) {
        dot += query * kv->value[i];
        o->value[i] = kv->value[i];
    }
    rig_upload(rig, q);
    rig_upload(rig, kv);
    call.q.base = q->mem;
    call.k.base = call.v.base = kv->mem;
    call.o.base = o->mem;
    call.lse = lse->mem;
    rig_reserve(rig, &call, NULL);
    rig_ok(rig, device_attention(rig->device, &call));
    rig_expect(lse, 0, 0.25 * dot + log((double)nk), 0x1p-23);
    rig_check(rig);
}

static void lse_is_exact(void **state)
{
    (void)state;
    rig_every_device(check_equal_keys, 30);
}

/* ---- merge ---- */

/* Attends to keys first .. first+count-1 and merges that into the accumulator. */
static void merge_part(struct rig *rig, const struct attention_case *c,
                       const struct merge_call *merge, size_t first, size_t count)
{
    size_t e = dtype_bytes(rig->dtype);
    struct attention_call part = c->call;
    part.nk = count;
    part.k.base = devmem_at(part.k.base, first * part.k.row * e);
    part.v.base = devmem_at(part.v.base, first * part.v.row * e);
    part.o = merge->o_new;
    part.lse = merge->lse_new;
    rig_ok(rig, device_attention(rig->device, &part));
    rig_ok(rig, device_merge(rig->device, merge));
}

/* What the parts' own roundings add to the whole attention's error: each result was rounded to the
 * dtype, and each log-sum-exp, by which results are weighed, to fp32. No value exceeds 5. */
static void expect_merged(struct attention_case *c, struct buffer *o_acc, double parts)
{
    const struct attention_call *call = &c->call;
    expect_attention(c);
    for (size_t i = 0; i < o_acc->n; i++) {
        size_t row = i / call->head_dim, h = row / call->nq % call->heads;
        size_t g1 = row / call->nq / call->heads % call->n1;
        size_t g0 = row / call->nq / call->heads / call->n1;
        size_t at = place(&call->o, g0, g1, h, row % call->nq) + i % call->head_dim;
        double lse = call->nk == 0 ? 0 : fabs(c->lse->value[row]);
        rig_expect(o_acc, i, c->o->value[at],
                   4 * c->o->slack[at] + 5 * rig_unit(c->o->dtype) +
                       5 * parts * fp32_unit * (4 + 2 * lse));
        rig_expect(c->o, at, 0, 0); /* the last part was empty */
    }
    for (size_t row = 0; row < c->lse->n; row++)
        c->lse->slack[row] += parts * fp32_unit * (4 + fabs(c->lse->value[row]));
}

/* Parts of random length, some empty, onto an accumulator that starts as "empty" and full of NaN.
 */
static void check_merge(struct rig *rig, double spread)
{
    struct attention_case c = attention_case(rig, random_sizes(rig, 40), spread);
    const struct attention_call *call = &c.call;
    size_t rows = call->n0 * call->n1 * call->heads * call->nq, first = 0;
    struct buffer *o_acc = rig_buffer(rig, "o_acc", DTYPE_FP32, rows * call->head_dim, NAN);
    struct buffer *lse_acc = rig_buffer(rig, "lse_acc", DTYPE_FP32, rows, 1);
    struct buffer *lse_new = rig_buffer(rig, "lse_new", DTYPE_FP32, rows, 1);
    struct merge_call merge = {.n0 = call->n0,
                               .n1 = call->n1,
                               .heads = call->heads,
                               .nq = call->nq,
                               .head_dim = call->head_dim,
                               .o_acc = o_acc->mem,
                               .lse_acc = lse_acc->mem,
                               .lse_new = lse_new->mem,
                               .o_new = call->o};
    c.lse = lse_acc;
    for (size_t i = 0; i < rows; i++)
        lse_acc->value[i] = lse_new->value[i] = -INFINITY;
    rig_upload(rig, lse_acc);
    double parts = 1;
    for (size_t count; first < call->nk; first += count, parts++) {
        count = rig_below(rig, call->nk - first + 1);
        merge_part(rig, &c, &merge, first, count);
    }
    merge_part(rig, &c, &merge, first, 0);
    expect_merged(&c, o_acc, parts);
    rig_check(rig);
}

static void merge_ordinary(struct rig *rig)
{
    check_merge(rig, 1);
}

/* Scores of 1e4 and beyond, of both signs: exp overflows and vanishes in every part. */
static void merge_extreme(struct rig *rig)
{
    check_merge(rig, 100);
}

static void merged_parts_equal_the_whole(void **state)
{
    (void)state;
    rig_every_device(merge_ordinary, 30);
    rig_every_device(merge_extreme, 20);
}

/* ---- the definition of right ---- */

/* On ref a query's bits depend on the query and the keys alone. */
static void attention_row_by_row(struct rig *rig)
{
    struct attention_case c = attention_case(rig, random_sizes(rig, 40), 1);
    size_t e = dtype_bytes(rig->dtype);
    float *whole = calloc(c.o->n, sizeof *whole), *rows = calloc(c.o->n, sizeof *rows);
    assert_true(whole != NULL && rows != NULL);
    rig_ok(rig, device_attention(rig->device, &c.call));
    rig_download(rig, c.o, whole);
    rig_upload(rig, c.o);
    for (size_t h = 0; h < c.call.heads; h++)
        for (size_t row = 0, count; row < c.call.nq; row += count) {
            count = 1 + rig_below(rig, c.call.nq - row);
            struct attention_call part = c.call;
            part.lse = DEVMEM_NONE;
            part.heads = 1;
            part.nq = count;
            part.q.base = devmem_at(part.q.base, (h * part.q.head + row * part.q.row) * e);
            part.k.base = devmem_at(part.k.base, h * part.k.head * e);
            part.v.base = devmem_at(part.v.base, h * part.v.head * e);
            part.o.base = devmem_at(part.o.base, (h * part.o.head + row * part.o.row) * e);
            rig_ok(rig, device_attention(rig->device, &part));
        }
    rig_download(rig, c.o, rows);
    if (memcmp(whole, rows, c.o->n * sizeof *whole) != 0)
        rig_fail(rig, "rows differ in bits from the whole");
    free(whole);
    free(rows);
}

static void attention_row_bits(void **state)
{
    (void)state;
    for (enum dtype t = 0; t < DTYPE_COUNT; t++)
        rig_one_device("ref", t, attention_row_by_row, 20);
}

/* ---- two ranks at once ---- */

enum { WORKERS = 2, REPEATS = 200, SIDE = 48 };

/* One rank: its own device, its own arrays. It works once alone, then beside the others. */
struct worker {
    const struct device_ops *ops;
    int rank, repeats;
    enum status status;
    size_t differing; /* repeats */
    float alone[SIDE * SIDE];
};

static enum status worker_step(struct device *d, struct devmem x, struct devmem y, struct devmem z)
{
    struct linear_call linear = {.m = SIDE,
                                 .n = SIDE,
                                 .k = SIDE,
                                 .ldx = SIDE,
                                 .ldw = SIDE,
                                 .ldy = SIDE,
                                 .x = x,
                                 .w = x,
                                 .y = y};
    struct attention_view in = {.base = y, .head = SIDE / 4, .row = SIDE};
    struct attention_call attention = {.n0 = 1,
                                       .n1 = 1,
                                       .heads = 4,
                                       .nq = SIDE,
                                       .nk = SIDE,
                                       .head_dim = SIDE / 4,
                                       .scale = 0.1,
                                       .q = in,
                                       .k = in,
                                       .v = in,
                                       .o = in};
    attention.o.base = z;
    TRY(device_linear(d, &linear));
    return device_attention(d, &attention);
}

static enum status worker_work(struct worker *w, struct device *d, struct arena *arena)
{
    size_t bytes = SIDE * SIDE * sizeof(float);
    float values[SIDE * SIDE];
    struct devmem x, y, z;
    struct attention_call most = {
        .n0 = 1, .n1 = 1, .heads = 4, .nq = SIDE, .nk = SIDE, .head_dim = SIDE / 4};
    for (size_t i = 0; i < SIDE * SIDE; i++)
        values[i] = (float)((i * 7 + (size_t)w->rank * 5) % 23) / 16 - 0.7f;
    TRY(arena_alloc(arena, MEMORY_ACTIVATIONS, bytes, &x));
    TRY(arena_alloc(arena, MEMORY_ACTIVATIONS, bytes, &y));
    TRY(arena_alloc(arena, MEMORY_ACTIVATIONS, bytes, &z));
    TRY(device_reserve(d, arena, &most, NULL));
    TRY(lane_upload(d->lanes, x, values, bytes));
    for (int i = 0; i < w->repeats; i++) {
        TRY(worker_step(d, x, y, z));
        TRY(lane_download(d->lanes, values, z, bytes));
        w->differing += memcmp(values, w->alone, bytes) != 0;
    }
    if (w->repeats == 0) {
        TRY(worker_step(d, x, y, z));
        TRY(lane_download(d->lanes, w->alone, z, bytes));
    }
    return OK;
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct device_config config = {.rank = w->rank, .nranks = WORKERS, .threads = 1};
    struct memory_ledger ledger = {0};
    struct device *d;
    struct arena *arena;
    w->status = device_open(w->ops, &config, &d);
    if (w->status != OK)
        return NULL;
    w->status = arena_open(d->lanes, &ledger, &arena);
    if (w->status == OK) {
        w->status = worker_work(w, d, arena);
        arena_close(arena);
    }
    device_close(d);
    return NULL;
}

static void check_at_once(const struct device_ops *ops)
{
    static struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.ops = ops, .rank = i};
        worker_main(&workers[i]);
        assert_int_equal(workers[i].status, OK);
    }
    for (int i = 0; i < WORKERS; i++) {
        workers[i].repeats = REPEATS;
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(workers[i].status, OK);
        assert_int_equal(workers[i].differing, 0);
    }
}

/* A library that shares scratch memory between threads gives wrong values without an error. */
static void devices_work_at_once(void **state)
{
    (void)state;
    for (const struct device_ops *const *ops = device_list(); *ops != NULL; ops++)
        if ((*ops)->memory == MEMORY_HOST)
            check_at_once(*ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(packed_qkv),
        cmocka_unit_test(lse_is_exact),
        cmocka_unit_test(merged_parts_equal_the_whole),
        cmocka_unit_test(attention_row_bits),
        cmocka_unit_test(devices_work_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every device against loops in double precision written here: linear and the operations on rows.
 * What a result may be off follows from the arithmetic: one rounding to the dtype, and 2^-24 per
 * fp32 operation on the magnitudes that went through it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device_rig.h"

static const double fp32_unit = 0x1p-24;

static double activated(enum activation activation, double x)
{
    if (activation == ACTIVATION_GELU)
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return activation == ACTIVATION_SILU ? x / (1 + exp(-x)) : x;
}

/* ---- linear ---- */

struct linear_case {
    struct linear_call call;
    struct buffer *x, *w, *y, *bias; /* bias: or NULL */
};

static struct linear_case linear_case(struct rig *rig, size_t m, size_t n, size_t k)
{
    struct linear_case c = {.call = {.m = m, .n = n, .k = k}};
    struct linear_call *call = &c.call;
    call->ldx = k + rig_below(rig, 5);
    call->ldw = k + rig_below(rig, 5);
    call->ldy = n + rig_below(rig, 5);
    call->activation = (enum activation)rig_below(rig, 3);
    call->accumulate = rig_coin(rig);
    c.x = rig_buffer(rig, "x", rig->dtype, m * call->ldx, 1);
    c.w = rig_buffer(rig, "w", rig->dtype, n * call->ldw, 0.2);
    c.y = rig_buffer(rig, "y", rig->dtype, m * call->ldy, 1);
    c.bias = rig_coin(rig) ? rig_buffer(rig, "bias", rig->dtype, n, 1) : NULL;
    call->x = c.x->mem;
    call->w = c.w->mem;
    call->y = c.y->mem;
    call->bias = c.bias == NULL ? DEVMEM_NONE : c.bias->mem;
    rig_shape(rig,
              "linear m %zu n %zu k %zu ldx %zu ldw %zu ldy %zu activation %d accumulate %d "
              "bias %d split %d",
              m, n, k, call->ldx, call->ldw, call->ldy, (int)call->activation, call->accumulate,
              c.bias != NULL, rig->device->splits_inner);
    rig_reserve(rig, NULL, call);
    return c;
}

/* Element (row, col). `splits`: the first half was rounded to the dtype on its way. */
static void expect_linear(struct linear_case *c, size_t row, size_t col, bool splits)
{
    size_t at = row * c->call.ldy + col;
    double sum = 0, magnitude = 0, rounded = 0;
    for (size_t k = 0; k < c->call.k; k++) {
        double product = c->x->value[row * c->call.ldx + k] * c->w->value[col * c->call.ldw + k];
        sum += product;
        magnitude += fabs(product);
    }
    if (c->call.accumulate)
        sum += c->y->value[at];
    if (splits)
        rounded = rig_unit(c->y->dtype) * (magnitude + fabs(c->y->value[at]));
    magnitude += fabs(c->y->value[at]);
    if (c->bias != NULL)
        sum += c->bias->value[col];
    magnitude += c->bias == NULL ? 0 : fabs(c->bias->value[col]);
    double error = (double)(c->call.k + 4) * fp32_unit * magnitude + rounded;
    double y = activated(c->call.activation, sum);
    /* neither activation is steeper than 1.13; their own arithmetic: 8 fp32 operations */
    rig_expect(c->y, at, y, 1.13 * error + 8 * fp32_unit * fabs(y));
}

static void check_linear(struct rig *rig, size_t m, size_t n, size_t k)
{
    struct linear_case c = linear_case(rig, m, n, k);
    rig_ok(rig, device_linear(rig->device, &c.call));
    for (size_t row = 0; row < m; row++)
        for (size_t col = 0; col < n; col++)
            expect_linear(&c, row, col, rig->device->splits_inner);
    rig_check(rig);
}

static void linear_small(struct rig *rig)
{
    size_t m = rig_size(rig, 70), n = rig_size(rig, 90);
    check_linear(rig, m, n, rig_below(rig, 8) == 0 ? 0 : rig_size(rig, 300));
}

/* Beyond every tile of the devices. */
static void linear_large(struct rig *rig)
{
    check_linear(rig, 257 + rig_below(rig, 40), 513 + rig_below(rig, 40),
                 513 + rig_below(rig, 100));
}

static void linear_split(struct rig *rig)
{
    rig->device->splits_inner = true;
    linear_small(rig);
    rig->device->splits_inner = false;
}

static void linear_matches_double(void **state)
{
    (void)state;
    rig_every_device(linear_small, 40);
    rig_every_device(linear_large, 1);
    rig_every_device(linear_split, 10);
}

/* On the definition of right, a row's bits depend on the row alone. */
static void linear_row_by_row(struct rig *rig)
{
    size_t m = 1 + rig_below(rig, 80);
    struct linear_case c = linear_case(rig, m, rig_size(rig, 80), rig_size(rig, 400));
    size_t e = dtype_bytes(rig->dtype);
    float *whole = calloc(c.y->n, sizeof *whole), *rows = calloc(c.y->n, sizeof *rows);
    assert_true(whole != NULL && rows != NULL);
    rig_ok(rig, device_linear(rig->device, &c.call));
    rig_download(rig, c.y, whole);
    rig_upload(rig, c.y);
    for (size_t row = 0, count; row < m; row += count) {
        count = 1 + rig_below(rig, 3);
        struct linear_call part = c.call;
        part.m = m - row < count ? m - row : count;
        part.x = devmem_at(c.call.x, row * c.call.ldx * e);
        part.y = devmem_at(c.call.y, row * c.call.ldy * e);
        rig_ok(rig, device_linear(rig->device, &part));
    }
    rig_download(rig, c.y, rows);
    if (memcmp(whole, rows, c.y->n * sizeof *whole) != 0)
        rig_fail(rig, "rows differ in bits from the whole");
    free(whole);
    free(rows);
}

static void linear_row_bits(void **state)
{
    (void)state;
    for (enum dtype t = 0; t < DTYPE_COUNT; t++)
        rig_one_device("ref", t, linear_row_by_row, 10);
}

/* The same random cases on a device and on ref. The bounds above hold for each element in the worst
 * case; in the mean square roundings are independent, and a bound is sqrt(k) times tighter. */
enum { PAIRS = 10 };
static struct outcome {
    float *values;
    size_t n, inner;
} outcomes[2][PAIRS];
static int outcome_side;

static void linear_keep(struct rig *rig)
{
    struct linear_case c =
        linear_case(rig, rig_size(rig, 70), rig_size(rig, 90), rig_size(rig, 600));
    struct outcome *kept = &outcomes[outcome_side][rig->seed];
    rig_ok(rig, device_linear(rig->device, &c.call));
    *kept = (struct outcome){calloc(c.y->n, sizeof(float)), c.y->n, c.call.k};
    assert_non_null(kept->values);
    rig_download(rig, c.y, kept->values);
}

static void compare_outcomes(enum dtype t)
{
    for (size_t i = 0; i < PAIRS; i++) {
        struct outcome *got = &outcomes[0][i], *right = &outcomes[1][i];
        double apart = 0, size = 0;
        assert_int_equal(got->n, right->n);
        for (size_t j = 0; j < got->n; j++) {
            apart += pow(got->values[j] - right->values[j], 2);
            size += pow(right->values[j], 2);
        }
        double bound = rig_unit(t) + 4 * sqrt((double)got->inner) * fp32_unit;
        if (sqrt(apart / size) > bound)
            fail_msg("%s, seed %zu: relative L2 %g to ref", dtype_name(t), i, sqrt(apart / size));
        free(got->values);
        free(right->values);
    }
}

static void linear_matches_ref(void **state)
{
    (void)state;
    for (const struct device_ops *const *ops = device_list(); *ops != NULL; ops++)
        for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
            if ((*ops)->memory == MEMORY_VIRTUAL ||
                ((*ops)->has_dtype != NULL && !(*ops)->has_dtype(t)))
                continue;
            outcome_side = 0;
            rig_one_device((*ops)->name, t, linear_keep, PAIRS);
            outcome_side = 1;
            rig_one_device("ref", t, linear_keep, PAIRS);
            compare_outcomes(t);
        }
}

/* ---- rows ---- */

static void check_modulate(struct rig *rig, size_t width, double spread, double eps)
{
    struct modulate_call call = {.rows = rig_size(rig, 40), .width = width, .eps = eps};
    call.batch = 1 + rig_below(rig, 2);
    call.mod_stride = width + rig_below(rig, 9);
    bool in_place = rig_coin(rig);
    rig_shape(rig, "modulate rows %zu width %zu batch %zu spread %g eps %g in place %d", call.rows,
              width, call.batch, spread, eps, in_place);
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, call.rows * width, spread);
    struct buffer *y = in_place ? x : rig_buffer(rig, "y", rig->dtype, call.rows * width, 1);
    struct buffer *shift = rig_buffer(rig, "shift", rig->dtype, call.batch * call.mod_stride, 1);
    struct buffer *scale = rig_buffer(rig, "scale", rig->dtype, call.batch * call.mod_stride, 1);
    call.x = x->mem;
    call.y = y->mem;
    call.shift = shift->mem;
    call.scale = scale->mem;
    rig_ok(rig, device_modulate(rig->device, &call));
    for (size_t row = 0; row < call.rows; row++) {
        double mean = 0, variance = 0, largest = 0;
        for (size_t i = 0; i < width; i++)
            mean += x->value[row * width + i] / (double)width;
        for (size_t i = 0; i < width; i++) {
            double away = x->value[row * width + i] - mean;
            variance += away * away / (double)width;
            largest = fmax(largest, fabs(x->value[row * width + i]));
        }
        double inverse = 1 / sqrt(variance + eps);
        for (size_t i = 0; i < width; i++) {
            size_t mod = row % call.batch * call.mod_stride + i;
            double normal = (x->value[row * width + i] - mean) * inverse;
            double stretched = normal * (1 + scale->value[mod]);
            /* fp32 statistics: the mean is off by a few roundings of the largest value */
            double error = 4 * fp32_unit * largest * inverse + 8 * fp32_unit * fabs(normal);
            rig_expect(y, row * width + i, stretched + shift->value[mod],
                       error * fabs(1 + scale->value[mod]) + 4 * fp32_unit * fabs(stretched));
        }
    }
    rig_check(rig);
}

static void modulate_ordinary(struct rig *rig)
{
    check_modulate(rig, rig_size(rig, 600), 1, 1e-6);
}

/* Variance 1e-6: eps 1e-6 and 1e-5 give results apart by a factor of 2.3. */
static void modulate_low_variance(struct rig *rig)
{
    check_modulate(rig, 64 + rig_below(rig, 100), 1e-3, rig_coin(rig) ? 1e-6 : 1e-5);
}

static void modulate_matches_double(void **state)
{
    (void)state;
    rig_every_device(modulate_ordinary, 20);
    rig_every_device(modulate_low_variance, 10);
}

static void check_residual(struct rig *rig)
{
    struct residual_call call = {.rows = rig_size(rig, 40), .width = rig_size(rig, 600)};
    call.batch = 1 + rig_below(rig, 2);
    call.mod_stride = call.width + rig_below(rig, 9);
    bool has_bias = rig_coin(rig), has_gate = rig_coin(rig);
    rig_shape(rig, "residual rows %zu width %zu batch %zu bias %d gate %d", call.rows, call.width,
              call.batch, has_bias, has_gate);
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, call.rows * call.width, 1);
    struct buffer *y = rig_buffer(rig, "y", rig->dtype, call.rows * call.width, 1);
    struct buffer *bias = rig_buffer(rig, "bias", rig->dtype, call.width, 1);
    struct buffer *gate = rig_buffer(rig, "gate", rig->dtype, call.batch * call.mod_stride, 1);
    call.x = x->mem;
    call.y = y->mem;
    call.bias = has_bias ? bias->mem : DEVMEM_NONE;
    call.gate = has_gate ? gate->mem : DEVMEM_NONE;
    rig_ok(rig, device_residual(rig->device, &call));
    for (size_t i = 0; i < call.rows * call.width; i++) {
        size_t row = i / call.width, column = i % call.width;
        double addend = y->value[i] + (has_bias ? bias->value[column] : 0);
        double size = fabs(y->value[i]) + (has_bias ? fabs(bias->value[column]) : 0);
        double factor = has_gate ? gate->value[row % call.batch * call.mod_stride + column] : 1;
        double sum = x->value[i] + factor * addend;
        rig_expect(x, i, sum, 3 * fp32_unit * (fabs(factor) * size + fabs(sum)));
    }
    rig_check(rig);
}

static void check_add_rows(struct rig *rig)
{
    struct add_rows_call call = {.width = rig_size(rig, 500), .batch = 1 + rig_below(rig, 2)};
    call.inner = 1 + rig_below(rig, 4);
    call.period = rig_size(rig, 6);
    call.first = rig_below(rig, 3);
    call.rows = call.batch * call.inner * rig_size(rig, 12);
    bool in_place = rig_coin(rig);
    rig_shape(rig,
              "add_rows rows %zu width %zu batch %zu inner %zu period %zu first %zu in place %d",
              call.rows, call.width, call.batch, call.inner, call.period, call.first, in_place);
    struct buffer *src = rig_buffer(rig, "src", rig->dtype, call.rows * call.width, 1);
    struct buffer *dst = in_place ? src : rig_buffer(rig, "dst", rig->dtype, src->n, 1);
    struct buffer *table =
        rig_buffer(rig, "table", rig->dtype, (call.first + call.period) * call.width, 1);
    call.src = src->mem;
    call.dst = dst->mem;
    call.table = table->mem;
    rig_ok(rig, device_add_rows(rig->device, &call));
    for (size_t i = 0; i < src->n; i++) {
        size_t place = call.first + i / call.width / call.batch / call.inner % call.period;
        double sum = src->value[i] + table->value[place * call.width + i % call.width];
        rig_expect(dst, i, sum, 0);
    }
    rig_check(rig);
}

static void rows_match_double(void **state)
{
    (void)state;
    rig_every_device(check_residual, 20);
    rig_every_device(check_add_rows, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches_double), cmocka_unit_test(linear_row_bits),
        cmocka_unit_test(linear_matches_ref),    cmocka_unit_test(modulate_matches_double),
        cmocka_unit_test(rows_match_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Codes of changes, on every device: words by hand, random shapes against double precision, and
 * what an encoder and its peers must agree on to the bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device_rig.h"

static struct devmem alloc_words(struct rig *rig, size_t words)
{
    struct devmem codes;
    rig_ok(rig, arena_alloc(rig->arena, MEMORY_ACTIVATIONS, words * sizeof(uint32_t), &codes));
    return codes;
}

/* ---- by hand ---- */

static void expect_words(struct rig *rig, int bits, const uint32_t *words, size_t count)
{
    static const float changes[] = {7, -7, 1, 0, -3};
    uint32_t got[8];
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, 5, 1);
    struct buffer *base = rig_buffer(rig, "base", DTYPE_FP32, 5, 1);
    for (size_t i = 0; i < 5; i++) {
        x->value[i] = 2 + changes[i];
        base->value[i] = 2;
    }
    rig_upload(rig, x);
    rig_upload(rig, base);
    struct code_call call = {.rows = 1,
                             .width = 5,
                             .bits = bits,
                             .dtype = rig->dtype,
                             .x = x->mem,
                             .base = base->mem,
                             .codes = alloc_words(rig, count)};
    rig_shape(rig, "by hand, %d bits", bits);
    assert_int_equal(device_code_words(5, bits), count);
    rig_ok(rig, device_encode(rig->device, &call));
    rig_ok(rig, lane_sync(rig->device->lanes));
    rig_ok(rig, lane_download(rig->device->lanes, got, call.codes, count * sizeof *got));
    for (size_t i = 0; i < count; i++)
        if (got[i] != words[i])
            rig_fail(rig, "word %zu is %08x, not %08x", i, got[i], words[i]);
}

/* q = 7, step 1 (3f800000): levels 7 -7 1 0 -3 are codes e 0 8 7 4. */
static void check_four_bits(struct rig *rig)
{
    expect_words(rig, 4, (const uint32_t[]){0x3f800000, 0x4780e}, 2);
}

/* q = 1, step 7 (40e00000): levels 1 -1 0 0 0 are codes 2 0 1 1 1. */
static void check_two_bits(struct rig *rig)
{
    expect_words(rig, 2, (const uint32_t[]){0x40e00000, 0x152}, 2);
}

/* ---- random ---- */

static double group_step(const struct buffer *x, const struct buffer *base, size_t first, size_t n,
                         int bits)
{
    double largest = 0;
    for (size_t i = first; i < first + n; i++)
        largest = fmax(largest, fabs(x->value[i] - base->value[i]));
    return largest / ((1 << (bits - 1)) - 1);
}

/* After encoding and decoding, base is within half a step of x, and off its old value by whole
 * steps. */
static void check_group(struct rig *rig, const struct buffer *x, const struct buffer *base,
                        const float *got, size_t first, size_t n, int bits)
{
    double step = group_step(x, base, first, n, bits);
    for (size_t i = first; i < first + n; i++) {
        double slack = 0x1p-20 * (fabs(x->value[i]) + fabs(base->value[i]));
        double levels = step > 0 ? (got[i] - base->value[i]) / step : 0;
        if (fabs(got[i] - x->value[i]) > step / 2 + slack)
            rig_fail(rig, "base[%zu] %g is not within half a step %g of %g", i, got[i], step / 2,
                     x->value[i]);
        if (step > 0 && fabs(levels - nearbyint(levels)) > slack / step + 1e-4)
            rig_fail(rig, "base[%zu] moved by %g steps", i, levels);
    }
}

static void check_random(struct rig *rig)
{
    struct code_call call = {.rows = rig_size(rig, 9),
                             .width = rig_size(rig, 300),
                             .parts = 1,
                             .bits = 2 + (int)rig_below(rig, 7),
                             .dtype = rig->dtype};
    size_t n = call.rows * call.width;
    rig_shape(rig, "rows %zu width %zu bits %d", call.rows, call.width, call.bits);
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, n, 1);
    struct buffer *base = rig_buffer(rig, "base", DTYPE_FP32, n, 0.5);
    struct buffer *peer = rig_buffer(rig, "peer", DTYPE_FP32, n, 0.5);
    memcpy(peer->value, base->value, n * sizeof *peer->value);
    rig_upload(rig, peer);
    struct buffer *y = rig_buffer(rig, "y", rig->dtype, n, 1);
    call.codes = alloc_words(rig, call.rows * device_code_words(call.width, call.bits));
    call.x = x->mem;
    call.base = base->mem;
    rig_ok(rig, device_encode(rig->device, &call));
    call.x = DEVMEM_NONE;
    rig_ok(rig, device_decode(rig->device, &call));
    call.base = peer->mem;
    call.y = y->mem;
    rig_ok(rig, device_decode(rig->device, &call));
    rig_ok(rig, lane_sync(rig->device->lanes));
    float got[9 * 300];
    rig_download(rig, base, got);
    for (size_t row = 0; row < call.rows; row++)
        for (size_t i = 0; i < call.width; i += DEVICE_CODE_GROUP) {
            size_t left = call.width - i;
            check_group(rig, x, base, got, row * call.width + i,
                        left < DEVICE_CODE_GROUP ? left : DEVICE_CODE_GROUP, call.bits);
        }
    for (size_t i = 0; i < n; i++) /* exactly: what the encoder kept and what the peer decoded */
        base->value[i] = peer->value[i] = y->value[i] = got[i];
    for (size_t i = 0; i < n; i++)
        rig_expect(y, i, got[i], 0);
    rig_check(rig);
}

/* Three parts at once are three decodings in that order, to the bit. */
static void check_parts(struct rig *rig)
{
    struct code_call call = {.rows = 3, .width = 130, .parts = 1, .bits = 5, .dtype = rig->dtype};
    size_t n = call.rows * call.width, words = call.rows * device_code_words(call.width, call.bits);
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, 3 * n, 1);
    struct buffer *zero = rig_buffer(rig, "zero", DTYPE_FP32, n, 0);
    struct buffer *each = rig_buffer(rig, "each", DTYPE_FP32, n, 0);
    struct buffer *once = rig_buffer(rig, "once", DTYPE_FP32, n, 0);
    struct devmem codes = alloc_words(rig, 3 * words);
    rig_shape(rig, "three parts");
    for (size_t part = 0; part < 3; part++) {
        call.codes = devmem_at(codes, part * words * sizeof(uint32_t));
        call.x = devmem_at(x->mem, part * n * dtype_bytes(rig->dtype));
        call.base = zero->mem;
        rig_ok(rig, device_encode(rig->device, &call));
        call.base = each->mem;
        rig_ok(rig, device_decode(rig->device, &call));
    }
    call.parts = 3;
    call.codes = codes;
    call.base = once->mem;
    rig_ok(rig, device_decode(rig->device, &call));
    rig_ok(rig, lane_sync(rig->device->lanes));
    float got[3 * 130];
    rig_download(rig, each, got);
    for (size_t i = 0; i < n; i++)
        each->value[i] = once->value[i] = got[i];
    rig_check(rig);
}

/* A change of nothing, and changes among the smallest numbers, whose step is inexact. */
static void check_tiny_changes(struct rig *rig)
{
    struct code_call call = {.rows = 1, .width = 4, .parts = 1, .bits = 4, .dtype = rig->dtype};
    struct buffer *x = rig_buffer(rig, "x", rig->dtype, 4, 0);
    struct buffer *base = rig_buffer(rig, "base", DTYPE_FP32, 4, 0);
    rig_shape(rig, "tiny changes");
    call.codes = alloc_words(rig, device_code_words(4, 4));
    call.x = x->mem;
    call.base = base->mem;
    rig_ok(rig, device_encode(rig->device, &call));
    rig_ok(rig, device_decode(rig->device, &call));
    rig_check(rig);
    for (size_t i = 0; i < 4; i++)
        base->value[i] = (double)(i + 7) * 0x1p-149;
    rig_upload(rig, base);
    rig_ok(rig, device_encode(rig->device, &call));
    rig_ok(rig, device_decode(rig->device, &call));
    float got[4];
    rig_ok(rig, lane_sync(rig->device->lanes));
    rig_download(rig, base, got);
    for (size_t i = 0; i < 4; i++)
        if (!(got[i] >= 0 && got[i] <= 10 * 0x1p-149))
            rig_fail(rig, "base[%zu] became %g", i, got[i]);
}

static void four_bits_by_hand(void **state)
{
    (void)state;
    rig_every_device(check_four_bits, 1);
}

static void two_bits_by_hand(void **state)
{
    (void)state;
    rig_every_device(check_two_bits, 1);
}

static void random_shapes(void **state)
{
    (void)state;
    rig_every_device(check_random, 40);
}

static void parts_at_once(void **state)
{
    (void)state;
    rig_every_device(check_parts, 3);
}

static void tiny_changes(void **state)
{
    (void)state;
    rig_every_device(check_tiny_changes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bits_by_hand), cmocka_unit_test(two_bits_by_hand),
        cmocka_unit_test(random_shapes),     cmocka_unit_test(parts_at_once),
        cmocka_unit_test(tiny_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

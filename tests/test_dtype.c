/* Every 16-bit pattern there and back, and rounding against an oracle in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/dtype.h"
#include "common/rng.h"

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A 16-bit format as its definition says. */
struct format {
    int fraction_bits, min_exponent, max_exponent;
    float (*from)(uint16_t);
    uint16_t (*to)(float);
};
static const struct format bf16 = {7, -126, 127, dtype_from_bf16, dtype_to_bf16};
static const struct format fp16 = {10, -14, 15, dtype_from_fp16, dtype_to_fp16};

static double value_of(const struct format *f, unsigned bits)
{
    unsigned fraction = bits & ((1u << f->fraction_bits) - 1);
    int exponent = (int)((bits & 0x7fff) >> f->fraction_bits);
    double sign = bits & 0x8000 ? -1 : 1, step = ldexp(1, f->min_exponent - f->fraction_bits);
    if (exponent == 0)
        return sign * fraction * step;
    if (exponent > f->max_exponent - f->min_exponent + 1)
        return fraction ? NAN : sign * INFINITY;
    return sign * ldexp(step * ((1u << f->fraction_bits) + fraction), exponent - 1);
}

/* The nearest number of the format, ties to even, overflow to infinity (rint rounds so by default).
 */
static double rounded(const struct format *f, double x)
{
    if (x == 0 || !isfinite(x))
        return x;
    int exponent = ilogb(x);
    if (exponent < f->min_exponent)
        exponent = f->min_exponent;
    double step = ldexp(1, exponent - f->fraction_bits);
    double y = rint(x / step) * step;
    return fabs(y) >= ldexp(1, f->max_exponent + 1) ? copysign(INFINITY, x) : y;
}

static void check_all_patterns(const struct format *f)
{
    unsigned quiet = 1u << (f->fraction_bits - 1);
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        float value = f->from((uint16_t)bits);
        double expected = value_of(f, bits);
        if (isnan(expected)) {
            assert_true(isnan(value));
            assert_int_equal(f->to(value), bits | quiet);
            continue;
        }
        assert_true((double)value == expected);
        assert_int_equal(!!signbit(value), bits >> 15);
        assert_int_equal(f->to(value), bits);
    }
}

static void check_rounding_of(const struct format *f, uint32_t bits)
{
    float x = float_of(bits);
    uint16_t to = f->to(x);
    double got = value_of(f, to), expected = rounded(f, x);
    if (isnan(x) ? isnan(got) : got == expected && (to >> 15) == (bits >> 31))
        return;
    fail_msg("float 0x%08x (%.9g) became 0x%04x (%.9g), not %.9g", bits, (double)x, to, got,
             expected);
}

static void check_rounding(const struct format *f)
{
    for (uint32_t i = 0; i < 1 << 19; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0}, key[2] = {1, 2};
        uint32_t r[4];
        rng_philox4x32_10(counter, key, r);
        check_rounding_of(f, r[0]); /* any float */
        /* fp16's own range and its neighbourhood: exponents 2^-26 .. 2^17 */
        check_rounding_of(f, (r[1] & 0x807fffff) | (101 + r[2] % 44) << 23);
    }
    /* Every midpoint between neighbours, and the floats beside it. */
    for (unsigned bits = 0; bits < 0xffff; bits++) {
        double middle = (value_of(f, bits) + value_of(f, bits + 1)) / 2;
        if (!isfinite(middle))
            continue;
        for (uint32_t delta = 0; delta < 3; delta++)
            check_rounding_of(f, bits_of((float)middle) + delta - 1);
    }
}

static void test_bf16_patterns(void **state)
{
    (void)state;
    check_all_patterns(&bf16);
}

static void test_fp16_patterns(void **state)
{
    (void)state;
    check_all_patterns(&fp16);
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    check_rounding(&bf16);
}

static void test_fp16_rounding(void **state)
{
    (void)state;
    check_rounding(&fp16);
}

static void test_edges(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint16_t bf16, fp16;
    } edges[] = {
        {1.0f, 0x3f80, 0x3c00},
        {-0.0f, 0x8000, 0x8000},
        {65504.0f, 0x4780, 0x7bff},      /* fp16's largest */
        {65519.996f, 0x4780, 0x7bff},    /* just under the midpoint to 2^16 */
        {65520.0f, 0x4780, 0x7c00},      /* the midpoint: ties to even, infinity */
        {3.4028235e38f, 0x7f80, 0x7c00}, /* fp32's largest rounds up in bf16 */
        {0x1p-24f, 0x3380, 0x0001},      /* fp16's smallest */
        {0x1p-25f, 0x3300, 0x0000},      /* half of it: ties to even, zero */
        {0x1.000002p-25f, 0x3300, 0x0001},
        {0x1.ff8p-15f, 0x3880, 0x03ff}, /* fp16's largest subnormal */
        {0x1.ffcp-15f, 0x3880, 0x0400}, /* a tie: to even, the smallest normal */
        {0x1p-149f, 0x0000, 0x0000},    /* fp32's smallest */
        {-INFINITY, 0xff80, 0xfc00},
    };
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        assert_int_equal(dtype_to_bf16(edges[i].x), edges[i].bf16);
        assert_int_equal(dtype_to_fp16(edges[i].x), edges[i].fp16);
    }
    /* A NaN whose payload lies only in the bits that are cut off must not become infinity. */
    assert_int_equal(dtype_to_bf16(float_of(0x7f800001)), 0x7fc0);
    assert_int_equal(dtype_to_fp16(float_of(0xff800001)), 0xfe00);
}

static void test_arrays(void **state)
{
    (void)state;
    enum { N = 7 };
    static const char *const names[DTYPE_COUNT] = {"fp32", "bf16", "fp16"};
    static const size_t sizes[DTYPE_COUNT] = {4, 2, 2};
    const float values[N] = {0, 1, -2.5f, 0.099975586f, 1000, -0x1p-14f, 0.5f};
    for (int to = 0; to < DTYPE_COUNT; to++) {
        assert_string_equal(dtype_name((enum dtype)to), names[to]);
        assert_int_equal(dtype_bytes((enum dtype)to), sizes[to]);
        for (int from = 0; from < DTYPE_COUNT; from++) {
            uint32_t src[N + 1], dst[N + 1];
            memset(dst, 0xa5, sizeof dst);
            for (size_t i = 0; i < N; i++)
                dtype_store((enum dtype)from, src, i, values[i]);
            dtype_convert((enum dtype)to, dst, (enum dtype)from, src, N);
            for (size_t i = 0; i < N; i++) {
                uint32_t expected;
                float x = dtype_load((enum dtype)from, src, i);
                dtype_store((enum dtype)to, &expected, 0, x);
                assert_memory_equal((char *)dst + i * sizes[to], &expected, sizes[to]);
                /* These are exact in fp16; bf16 has 8 bits of precision. */
                double loss = fabs((double)dtype_load((enum dtype)to, dst, i) - (double)values[i]);
                assert_true(loss <= fabs((double)values[i]) * 0x1p-8);
                assert_true(loss == 0 || from == DTYPE_BF16 || to == DTYPE_BF16);
            }
            assert_int_equal(((unsigned char *)dst)[N * sizes[to]], 0xa5);
        }
    }
    float same[N];
    memcpy(same, values, sizeof same);
    dtype_convert(DTYPE_FP32, same, DTYPE_FP32, same, N);
    assert_memory_equal(same, values, sizeof same);
    dtype_convert(DTYPE_FP16, same, DTYPE_FP32, NULL, 0);
    assert_memory_equal(same, values, sizeof same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_patterns), cmocka_unit_test(test_fp16_patterns),
        cmocka_unit_test(test_bf16_rounding), cmocka_unit_test(test_fp16_rounding),
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_arrays),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}

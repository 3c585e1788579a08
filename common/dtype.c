/* Conversions on bit patterns: the same result on every machine, in every rounding mode. */
#include "common/dtype.h"

#include <string.h>

#include "common/status.h"

enum {
    FP32_INF = 0x7f800000,
    FP32_HIDDEN = 1 << 23,         /* the leading one of a normal number's significand */
    FP32_FP16_LIMIT = 0x47800000,  /* 2^16: from here on fp16 is infinity */
    FP32_FP16_NORMAL = 0x38800000, /* 2^-14: below it fp16 is subnormal */
    BF16_QUIET = 1 << 6,
    FP16_QUIET = 1 << 9,
    FP16_INF = 0x7c00,
    EXPONENT_SHIFT = 127 - 15, /* between the biases of fp32 and fp16 */
};

static const struct {
    const char *name;
    size_t bytes;
} types[DTYPE_COUNT] = {
    [DTYPE_FP32] = {"fp32", 4},
    [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_FP16] = {"fp16", 2},
};

size_t dtype_bytes(enum dtype t)
{
    ASSERT_CMP(t, <, DTYPE_COUNT);
    return types[t].bytes;
}

const char *dtype_name(enum dtype t)
{
    ASSERT_CMP(t, <, DTYPE_COUNT);
    return types[t].name;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits / 2^shift, to nearest, ties to even. A carry into the exponent is the right next number. */
static uint32_t round_off(uint32_t bits, unsigned shift)
{
    uint32_t half = 1u << (shift - 1), odd = bits >> shift & 1;
    return (bits + half - 1 + odd) >> shift;
}

float dtype_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t dtype_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & INT32_MAX) > FP32_INF)
        return (uint16_t)(bits >> 16 | BF16_QUIET);
    return (uint16_t)round_off(bits, 16);
}

float dtype_from_fp16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude < 1 << 10) /* subnormal: a multiple of 2^-24 */
        return float_of(sign | bits_of((float)magnitude * 0x1p-24f));
    if (magnitude >= FP16_INF)
        return float_of(sign | FP32_INF | magnitude << 13);
    return float_of(sign | ((magnitude << 13) + ((uint32_t)EXPONENT_SHIFT << 23)));
}

/* In units of 2^-24, the step of fp16's subnormal numbers. */
static uint32_t fp16_subnormal(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23, shift = 126 - exponent;
    if (shift > 24) /* below half a step */
        return 0;
    return round_off((magnitude & (FP32_HIDDEN - 1)) | FP32_HIDDEN, shift);
}

uint16_t dtype_to_fp16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & INT32_MAX, out;
    if (magnitude > FP32_INF)
        out = FP16_INF | FP16_QUIET | (magnitude >> 13 & 0x3ff);
    else if (magnitude >= FP32_FP16_LIMIT)
        out = FP16_INF;
    else if (magnitude < FP32_FP16_NORMAL)
        out = fp16_subnormal(magnitude);
    else
        out = round_off(magnitude - ((uint32_t)EXPONENT_SHIFT << 23), 13);
    return (uint16_t)((bits >> 16 & 0x8000) | out);
}

float dtype_load(enum dtype t, const void *array, size_t i)
{
    switch (t) {
    case DTYPE_BF16:
        return dtype_from_bf16(((const uint16_t *)array)[i]);
    case DTYPE_FP16:
        return dtype_from_fp16(((const uint16_t *)array)[i]);
    default:
        ASSERT_CMP(t, ==, DTYPE_FP32);
        return ((const float *)array)[i];
    }
}

void dtype_store(enum dtype t, void *array, size_t i, float value)
{
    switch (t) {
    case DTYPE_BF16:
        ((uint16_t *)array)[i] = dtype_to_bf16(value);
        break;
    case DTYPE_FP16:
        ((uint16_t *)array)[i] = dtype_to_fp16(value);
        break;
    default:
        ASSERT_CMP(t, ==, DTYPE_FP32);
        ((float *)array)[i] = value;
    }
}

/* The loops that move most elements, alone so that they vectorise. */
static void widen_bf16(float *restrict dst, const uint16_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = dtype_from_bf16(src[i]);
}

static void narrow_bf16(uint16_t *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = dtype_to_bf16(src[i]);
}

void dtype_convert(enum dtype to, void *dst, enum dtype from, const void *src, size_t n)
{
    if (to == from) {
        if (dst != src && n > 0)
            memcpy(dst, src, n * dtype_bytes(to));
    } else if (to == DTYPE_FP32 && from == DTYPE_BF16) {
        widen_bf16(dst, src, n);
    } else if (to == DTYPE_BF16 && from == DTYPE_FP32) {
        narrow_bf16(dst, src, n);
    } else {
        for (size_t i = 0; i < n; i++)
            dtype_store(to, dst, i, dtype_load(from, src, i));
    }
}

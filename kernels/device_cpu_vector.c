/* Loops that a compiler vectorises without licence to reorder: branch-free bodies, sums in fixed
 * lanes. */
#include "kernels/device_cpu_vector.h"
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 }; /* independent sums and maxima: the widest vector */

static const float log2_e = 1.44269504f;
/* log(2) in two parts: n * log2_high is exact for |n| < 2^9. */
static const float log2_high = 0.693359375f, log2_low = -2.12194440e-4f;
static const float exp_least = -87.3365f;   /* log(2^-126), rounded up: normal numbers only */
static const float exp_greatest = 88.3762f; /* n stays below 128 */

/* exp(x) = 2^n exp(r), n the integer nearest x / log(2), |r| <= log(2)/2. Taylor's series to r^7
 * leaves 0.35^8/8!, 6e-9. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
static inline float exp_of(float x)
{
    const float round_to_integer = 0x1.8p23f;
    float clamped = x > exp_greatest ? exp_greatest : x;
    clamped = clamped < exp_least ? exp_least : clamped;
    float rounded = clamped * log2_e + round_to_integer, n = rounded - round_to_integer;
    float r = (clamped - n * log2_high) - n * log2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1;
    uint32_t bits;
    float power;
    memcpy(&bits, &rounded, sizeof bits);
    bits = x < exp_least ? 0 : (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

VECTOR_CLONES
float device_cpu_vector_max(size_t n, const float *x)
{
    float largest[LANES], result = -INFINITY;
    size_t i = 0;
    for (size_t lane = 0; lane < LANES; lane++)
        largest[lane] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
    for (; i < n; i++)
        result = x[i] > result ? x[i] : result;
    for (size_t lane = 0; lane < LANES; lane++)
        result = largest[lane] > result ? largest[lane] : result;
    return result;
}

VECTOR_CLONES
float device_cpu_vector_exp(size_t n, float *x, float shift)
{
    float sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            x[i + lane] = exp_of(x[i + lane] - shift);
            sums[lane] += x[i + lane];
        }
    for (; i < n; i++) {
        x[i] = exp_of(x[i] - shift);
        sum += x[i];
    }
    for (size_t lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
VECTOR_CLONES
void device_cpu_vector_gelu(size_t n, float *x)
{
    const float factor = (float)(-2 * M_2_SQRTPI * M_SQRT1_2);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / (1 + exp_of(factor * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

VECTOR_CLONES
void device_cpu_vector_silu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / (1 + exp_of(-x[i]));
}

VECTOR_CLONES
void device_cpu_vector_add(size_t n, float *restrict x, const float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* Element types of weights, activations and messages. Arithmetic, softmax, statistics, the latent and
 * the sampler are fp32 whatever the dtype (docs/measuring.md, "dtype table"). */
#ifndef COMMON_DTYPE_H
#define COMMON_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16, DTYPE_COUNT };

size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t); /* "fp32" */

/* Conversions round to nearest, ties to even; NaN stays NaN; fp16 overflows to infinity. */
float dtype_from_bf16(uint16_t bits);
float dtype_from_fp16(uint16_t bits);
uint16_t dtype_to_bf16(float value);
uint16_t dtype_to_fp16(float value);

/* Element i of an array in host memory. */
float dtype_load(enum dtype t, const void *array, size_t i);
void dtype_store(enum dtype t, void *array, size_t i, float value);
/* n elements; src and dst must not overlap unless the dtypes are equal and they are the same array. */
void dtype_convert(enum dtype to, void *dst, enum dtype from, const void *src, size_t n);

#endif

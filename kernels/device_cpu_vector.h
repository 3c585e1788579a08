/* Exponentials over arrays of fp32, for device `cpu`. Relative error of exp below 2e-7; the
 * compiler makes a version for each vector width it knows and the loader picks one. All of them
 * give the same bits: nothing is fused or reordered by width. */
#ifndef KERNELS_DEVICE_CPU_VECTOR_H
#define KERNELS_DEVICE_CPU_VECTOR_H

#include <stddef.h>

/* -infinity for n = 0. */
float device_cpu_vector_max(size_t n, const float *x);
/* x[i] = exp(x[i] - shift); returns their sum. 0 below 2^-126, 2.4e38 above; NaN stays NaN. */
float device_cpu_vector_exp(size_t n, float *x, float shift);
/* In place. GELU in its tanh form. */
void device_cpu_vector_gelu(size_t n, float *x);
void device_cpu_vector_silu(size_t n, float *x);
/* x[i] += y[i] */
void device_cpu_vector_add(size_t n, float *restrict x, const float *restrict y);

#endif

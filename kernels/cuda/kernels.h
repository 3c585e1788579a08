/* Device `cuda`'s own kernels: what kernels/device.h says of each call, put on a stream. Nothing is
 * waited for; the result says whether the launch was accepted. Called from C. */
#ifndef KERNELS_CUDA_KERNELS_H
#define KERNELS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#define _Noreturn [[noreturn]] /* C11's word in the program's headers */
#endif
#include "kernels/device.h"

/* The end of a linear: y = act(sums + y + bias), y only where call->accumulate is set. sums: f [m, n]
 * contiguous, or NULL for zeros. */
cudaError_t kernel_finish(enum dtype, const struct linear_call *, const float *sums, cudaStream_t);
/* head_dim up to KERNEL_MAX_HEAD_DIM: else cudaErrorInvalidValue. fp32 inside, any lengths and
 * strides; what every other attention is compared with. */
enum { KERNEL_MAX_HEAD_DIM = 256 };
cudaError_t kernel_attention(enum dtype, const struct attention_call *, cudaStream_t);
cudaError_t kernel_merge(enum dtype, const struct merge_call *, cudaStream_t);
/* Width up to KERNEL_MAX_WIDTH: rows are kept in shared memory. */
enum { KERNEL_MAX_WIDTH = 12000 };
cudaError_t kernel_modulate(enum dtype, const struct modulate_call *, cudaStream_t);
cudaError_t kernel_residual(enum dtype, const struct residual_call *, cudaStream_t);
cudaError_t kernel_sum(enum dtype, const struct sum_call *, cudaStream_t);
cudaError_t kernel_copy(enum dtype, const struct copy_call *, cudaStream_t);
cudaError_t kernel_noise(enum dtype, const struct noise_call *, cudaStream_t);
cudaError_t kernel_guide(enum dtype, const struct guide_call *, cudaStream_t);
cudaError_t kernel_ddim(enum dtype, const struct ddim_call *, cudaStream_t);
cudaError_t kernel_add_rows(enum dtype, const struct add_rows_call *, cudaStream_t);
cudaError_t kernel_silu(enum dtype, struct devmem dst, struct devmem src, size_t n, cudaStream_t);
cudaError_t kernel_convert(enum dtype to, struct devmem dst, enum dtype from, struct devmem src,
                           size_t n, cudaStream_t);
/* encode reads x in call->dtype; decode writes y in the given dtype. */
cudaError_t kernel_encode(const struct code_call *, cudaStream_t);
cudaError_t kernel_decode(enum dtype, const struct code_call *, cudaStream_t);
/* dst[i] = sum over p of parts[p * stride + i], fp32 sums in the order of p, rounded once: reductions of
 * transport `local`. */
cudaError_t kernel_add_parts(enum dtype, void *dst, const void *parts, size_t n, int count,
                             size_t stride, cudaStream_t);

#ifdef __cplusplus
#undef _Noreturn
}
#endif
#endif

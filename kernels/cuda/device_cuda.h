/* What the files of device `cuda` share. */
#ifndef KERNELS_CUDA_DEVICE_CUDA_H
#define KERNELS_CUDA_DEVICE_CUDA_H

#include "kernels/cuda/lane_cuda.h"
#include "kernels/device.h"

#include <cublasLt.h>
#include <cublas_v2.h>

struct linear_plan;
struct sdpa_plans;

struct device_cuda {
    struct device base;
    struct cuda_lanes *lanes;
    cublasLtHandle_t lt;
    cublasHandle_t blas;
    size_t lt_bytes; /* workspace of cublasLt: the first bytes of the device's; the sums follow */
    struct linear_plan *linear_plans;
    struct sdpa_plans *sdpa_plans; /* NULL until first used */
};

static inline struct device_cuda *device_cuda(struct device *d)
{
    return (struct device_cuda *)d;
}
static inline void *cuda_pointer(struct devmem m)
{
    return (void *)m.addr; /* NOLINT: CUDA takes addresses as pointers */
}

/* ---- linear_cublas.c ---- */

/* fp32 sums of a linear whose end cuBLAS cannot fuse, in chunks of rows. */
enum { LINEAR_SUMS_BYTES = 4 << 20 };
enum status linear_cublas_open(struct device_cuda *) WARN_UNUSED;
void linear_cublas_close(struct device_cuda *);
enum status linear_cublas(struct device *, const struct linear_call *);

/* ---- attentions, best first ---- */

/* *done: false: not for this call, try the next. */
struct cuda_attention {
    const char *name;
    enum status (*attend)(struct device_cuda *, const struct attention_call *, bool *done);
    /* OPTIONAL */
    void (*close)(struct device_cuda *);
};
extern const struct cuda_attention attention_cudnn;

#endif

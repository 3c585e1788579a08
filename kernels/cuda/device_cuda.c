/* Device `cuda`: what each operation puts on the rank's compute lane. */
#include "kernels/cuda/device_cuda.h"
#include "config.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/range.h"

#include <stdlib.h>
#include <string.h>

/* ---- attention ---- */

static enum status attend_by_tiles(struct device_cuda *d, const struct attention_call *call, bool *done)
{
    if (call->head_dim > KERNEL_MAX_HEAD_DIM)
        return FAIL(ERR_UNSUPPORTED, "cuda: heads of %zu elements; at most %d", call->head_dim,
                    KERNEL_MAX_HEAD_DIM);
    CUDA_TRY(kernel_attention(d->base.dtype, call, d->lanes->compute.stream));
    *done = true;
    return OK;
}

static const struct cuda_attention attention_tiles = {.name = "tiles", .attend = attend_by_tiles};

static const struct cuda_attention *const attentions[] = {
#if HAVE_CUDNN
    &attention_cudnn,
#endif
    &attention_tiles,
};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions };

/* $DITTO_CUDA_ATTENTION names the only one to use, for comparisons. */
static bool is_allowed(const struct cuda_attention *a)
{
    const char *only = getenv("DITTO_CUDA_ATTENTION");
    return only == NULL || a == &attention_tiles || strcmp(only, a->name) == 0;
}

static void note(struct device *d, const char *name)
{
    if (d->attention == NULL)
        d->attention = name;
    else if (d->attention != name)
        d->attention = "cudnn,tiles"; /* by shape */
}

static enum status attention(struct device *device, const struct attention_call *call)
{
    bool done = false;
    for (size_t i = 0; i < ATTENTIONS && !done; i++) {
        if (!is_allowed(attentions[i]))
            continue;
        TRY(attentions[i]->attend(device_cuda(device), call, &done));
        if (done)
            note(device, attentions[i]->name);
    }
    return OK;
}

/* ---- operations of one kernel ---- */

static cudaStream_t stream_of(struct device *d)
{
    return device_cuda(d)->lanes->compute.stream;
}

static enum status merge(struct device *d, const struct merge_call *call)
{
    CUDA_TRY(kernel_merge(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status modulate(struct device *d, const struct modulate_call *call)
{
    if (call->width > KERNEL_MAX_WIDTH)
        return FAIL(ERR_UNSUPPORTED, "cuda: hidden states of %zu elements; at most %d", call->width,
                    KERNEL_MAX_WIDTH);
    CUDA_TRY(kernel_modulate(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status residual(struct device *d, const struct residual_call *call)
{
    CUDA_TRY(kernel_residual(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status sum(struct device *d, const struct sum_call *call)
{
    CUDA_TRY(kernel_sum(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status copy(struct device *d, const struct copy_call *call)
{
    CUDA_TRY(kernel_copy(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status noise(struct device *d, const struct noise_call *call)
{
    CUDA_TRY(kernel_noise(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status guide(struct device *d, const struct guide_call *call)
{
    CUDA_TRY(kernel_guide(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status ddim(struct device *d, const struct ddim_call *call)
{
    CUDA_TRY(kernel_ddim(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status add_rows(struct device *d, const struct add_rows_call *call)
{
    CUDA_TRY(kernel_add_rows(d->dtype, call, stream_of(d)));
    return OK;
}

static enum status silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    CUDA_TRY(kernel_silu(d->dtype, dst, src, n, stream_of(d)));
    return OK;
}

static enum status zero(struct device *d, struct devmem dst, size_t bytes)
{
    CUDA_TRY(cudaMemsetAsync(cuda_pointer(dst), 0, bytes, stream_of(d)));
    return OK;
}

static enum status convert(struct device *d, enum dtype to, struct devmem dst, enum dtype from,
                           struct devmem src, size_t n)
{
    CUDA_TRY(kernel_convert(to, dst, from, src, n, stream_of(d)));
    return OK;
}

static enum status encode(struct device *d, const struct code_call *call)
{
    CUDA_TRY(kernel_encode(call, stream_of(d)));
    return OK;
}

static enum status decode(struct device *d, const struct code_call *call)
{
    CUDA_TRY(kernel_decode(d->dtype, call, stream_of(d)));
    return OK;
}

/* ---- the device ---- */

/* The same for every call, so no smaller call wants more. */
static size_t workspace_bytes(const struct device *d, const struct attention_call *attention,
                              const struct linear_call *linear)
{
    const struct device_cuda *cuda = (const struct device_cuda *)d;
    return attention || linear ? cuda->lt_bytes + LINEAR_SUMS_BYTES : 0;
}

static void device_end(struct device *device)
{
    struct device_cuda *d = device_cuda(device);
    if (d->lanes)
        (void)cudaSetDevice(d->lanes->gpu);
    for (size_t i = 0; i < ATTENTIONS; i++)
        if (attentions[i]->close)
            attentions[i]->close(d);
    linear_cublas_close(d);
    cuda_lanes_close(d->lanes);
    free(d);
}

static enum status device_begin(const struct device_config *config, struct device **out)
{
    int gpus = 0;
    struct device_cuda *d = calloc(1, sizeof *d);
    if (!d)
        return FAIL(ERR_MEMORY, "cuda: no memory for a device");
    cudaError_t error = cudaGetDeviceCount(&gpus);
    enum status status = error == cudaSuccess && gpus > 0
                             ? cuda_lanes_open(config->rank, config->rank % gpus, &d->lanes)
                             : FAIL(ERR_DEVICE, "no CUDA GPU: %s", cudaGetErrorString(error));
    if (status == OK)
        status = linear_cublas_open(d);
    if (status != OK) {
        device_end(&d->base);
        return status;
    }
    d->base.lanes = &d->lanes->base;
    *out = &d->base;
    return OK;
}

const struct device_ops device_ops_cuda = {
    .name = "cuda",
    .summary = "one NVIDIA GPU a rank or shared: cuBLAS, cuDNN attention, own kernels",
    .memory = MEMORY_CUDA,
    .open = device_begin,
    .close = device_end,
    .linear = linear_cublas,
    .attention = attention,
    .merge = merge,
    .modulate = modulate,
    .residual = residual,
    .sum = sum,
    .copy = copy,
    .noise = noise,
    .guide = guide,
    .ddim = ddim,
    .add_rows = add_rows,
    .silu = silu,
    .zero = zero,
    .convert = convert,
    .encode = encode,
    .decode = decode,
    .workspace_bytes = workspace_bytes,
};

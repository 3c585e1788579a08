/* cuDNN's fused attention through its C graph API: one operation, described for one shape, made into an
 * execution plan. Apart from the device, so that support can be checked where there is no GPU. */
#ifndef KERNELS_CUDA_SDPA_GRAPH_H
#define KERNELS_CUDA_SDPA_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

/* o = softmax(q k^T scale) v of `batch` x `heads` softmaxes, in 16-bit elements, fp32 inside; strides in
 * elements. */
struct sdpa_view {
    int64_t batch, head, row;
};
struct sdpa_shape {
    int64_t batch, heads, nq, nk, head_dim;
    struct sdpa_view q, k, v, o;
    int64_t is_fp16; /* else bf16 */
    int64_t has_lse; /* fp32 [batch, heads, nq], batches lse_batch apart */
    int64_t lse_batch;
};

/* What cudnnBackendExecute takes pointers for, by these numbers; the scale is a float on the host. */
enum sdpa_tensor { SDPA_Q = 1, SDPA_K, SDPA_V, SDPA_O, SDPA_LSE, SDPA_SCALE };

struct sdpa_plan {
    cudnnBackendDescriptor_t plan; /* NULL: none */
    int64_t workspace_bytes;
};

/* cuDNN's answer; on success *out is set. handle: of the GPU; or NULL and `device`, a finalised
 * CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: then *configs tells whether an engine takes the shape, whatever
 * becomes of the plan. */
cudnnStatus_t sdpa_plan_make(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                             const struct sdpa_shape *, int64_t *configs, struct sdpa_plan *out);
void sdpa_plan_free(struct sdpa_plan *);
cudnnStatus_t sdpa_plan_run(cudnnHandle_t, const struct sdpa_plan *, bool has_lse, void *q, void *k,
                            void *v, void *o, void *lse, float scale, void *workspace);

#endif

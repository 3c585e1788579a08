/* Linear through cuBLASLt, with bias and GELU fused where that loses no accuracy; an algorithm is looked
 * for once a shape. cuBLAS is column major: y^T [n, m] = w x^T, so w comes first and is transposed. */
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { WIDE_ACCESS = 16, MOST_ALIGNMENT = 256 };

static enum status cublas_failed(cublasStatus_t status, const char *call, const char *file, int line)
{
    enum status code = status == CUBLAS_STATUS_ALLOC_FAILED ? ERR_MEMORY : ERR_DEVICE;
    return status_fail(code, file, line, "%.120s: %s", call, cublasGetStatusString(status));
}
#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t cublas_try_ = (call);                                                       \
        if (cublas_try_ != CUBLAS_STATUS_SUCCESS)                                                  \
            return cublas_failed(cublas_try_, #call, __FILE__, __LINE__);                          \
    } while (0)

static cudaDataType_t type_of(enum dtype t)
{
    static const cudaDataType_t types[DTYPE_COUNT] = {
        [DTYPE_FP32] = CUDA_R_32F, [DTYPE_BF16] = CUDA_R_16BF, [DTYPE_FP16] = CUDA_R_16F};
    return types[t];
}

/* ---- plans ---- */

/* Everything an algorithm depends on. No padding: compared as bytes. */
struct linear_key {
    size_t m, n, k, ldx, ldw, ldy;
    size_t align_x, align_w, align_y;
    size_t epilogue, accumulates;
};

struct linear_plan {
    struct linear_plan *next;
    struct linear_key key;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t x, w, y;
    cublasLtMatmulAlgo_t algorithm;
    bool is_found; /* there is an algorithm */
};

static size_t alignment_of(struct devmem m)
{
    size_t alignment = 1;
    while (alignment < MOST_ALIGNMENT && m.addr % (2 * alignment) == 0)
        alignment *= 2;
    return alignment;
}

static cublasLtEpilogue_t epilogue_of(const struct linear_call *call)
{
    bool has_bias = !devmem_is_none(call->bias);
    if (call->activation == ACTIVATION_GELU)
        return has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static struct linear_key key_of(const struct linear_call *call)
{
    struct linear_key key = {.m = call->m, .n = call->n, .k = call->k, .ldx = call->ldx,
                             .ldw = call->ldw, .ldy = call->ldy};
    key.align_x = alignment_of(call->x);
    key.align_w = alignment_of(call->w);
    key.align_y = alignment_of(call->y);
    key.epilogue = (size_t)epilogue_of(call);
    key.accumulates = call->accumulate;
    return key;
}

static enum status describe(struct linear_plan *plan, enum dtype t)
{
    const struct linear_key *key = &plan->key;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)key->epilogue;
    cudaDataType_t type = type_of(t);
    CUBLAS_TRY(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof transposed));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue));
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&plan->w, type, key->k, key->n, (int64_t)key->ldw));
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&plan->x, type, key->k, key->m, (int64_t)key->ldx));
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&plan->y, type, key->n, key->m, (int64_t)key->ldy));
    return OK;
}

static enum status prefer(cublasLtMatmulPreference_t preference, const struct linear_key *key,
                          size_t workspace)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->align_w},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->align_x},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->align_y},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->align_y}};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i].attribute,
                                                        &alignments[i].bytes,
                                                        sizeof alignments[i].bytes));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    return OK;
}

static enum status choose(struct device_cuda *d, struct linear_plan *plan)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    enum status status = prefer(preference, &plan->key, d->lt_bytes);
    cublasStatus_t asked = CUBLAS_STATUS_SUCCESS;
    if (status == OK)
        asked = cublasLtMatmulAlgoGetHeuristic(d->lt, plan->operation, plan->w, plan->x, plan->y,
                                               plan->y, preference, 1, &best, &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    TRY(status);
    if (asked != CUBLAS_STATUS_NOT_SUPPORTED)
        CUBLAS_TRY(asked);
    plan->is_found = asked == CUBLAS_STATUS_SUCCESS && found > 0;
    if (plan->is_found)
        plan->algorithm = best.algo;
    return OK;
}

static void plan_free(struct linear_plan *plan)
{
    if (plan->operation)
        (void)cublasLtMatmulDescDestroy(plan->operation);
    const cublasLtMatrixLayout_t layouts[] = {plan->x, plan->w, plan->y};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            (void)cublasLtMatrixLayoutDestroy(layouts[i]);
    free(plan);
}

static enum status plan_for(struct device_cuda *d, const struct linear_call *call,
                            struct linear_plan **out)
{
    struct linear_key key = key_of(call);
    for (*out = d->linear_plans; *out; *out = (*out)->next)
        if (memcmp(&(*out)->key, &key, sizeof key) == 0)
            return OK;
    struct linear_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return FAIL(ERR_MEMORY, "cuda: no memory for a matrix product's plan");
    plan->key = key;
    enum status status = describe(plan, d->base.dtype);
    if (status == OK)
        status = choose(d, plan);
    if (status != OK) {
        plan_free(plan);
        return status;
    }
    plan->next = d->linear_plans;
    d->linear_plans = plan;
    *out = plan;
    return OK;
}

/* ---- the two ways ---- */

static enum status fused(struct device_cuda *d, const struct linear_call *call, bool *done)
{
    struct linear_plan *plan;
    *done = false;
    TRY(plan_for(d, call, &plan));
    if (!plan->is_found)
        return OK;
    const float one = 1, beta = call->accumulate ? 1 : 0;
    const void *bias = cuda_pointer(call->bias);
    if (bias)
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(
            plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    CUBLAS_TRY(cublasLtMatmul(d->lt, plan->operation, &one, cuda_pointer(call->w), plan->w,
                              cuda_pointer(call->x), plan->x, &beta, cuda_pointer(call->y), plan->y,
                              cuda_pointer(call->y), plan->y, &plan->algorithm,
                              cuda_pointer(d->base.workspace), d->lt_bytes, d->lanes->compute.stream));
    *done = true;
    return OK;
}

/* Products into fp32 sums, then our own kernel ends the linear with one rounding. */
static enum status in_two_steps(struct device_cuda *d, const struct linear_call *call)
{
    const float one = 1, zero = 0;
    cudaDataType_t type = type_of(d->base.dtype);
    size_t most = LINEAR_SUMS_BYTES / (call->n * sizeof(float)), e = dtype_bytes(d->base.dtype);
    if (most == 0)
        return FAIL(ERR_UNSUPPORTED, "cuda: a linear with %zu outputs", call->n);
    float *sums = cuda_pointer(devmem_at(d->base.workspace, d->lt_bytes));
    for (size_t row = 0; row < call->m; row += most) {
        struct linear_call part = *call;
        part.m = call->m - row < most ? call->m - row : most;
        part.x = devmem_at(call->x, row * call->ldx * e);
        part.y = devmem_at(call->y, row * call->ldy * e);
        CUBLAS_TRY(cublasGemmEx(d->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)call->n, (int)part.m,
                                (int)call->k, &one, cuda_pointer(call->w), type, (int)call->ldw,
                                cuda_pointer(part.x), type, (int)call->ldx, &zero, sums, CUDA_R_32F,
                                (int)call->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        CUDA_TRY(kernel_finish(d->base.dtype, &part, sums, d->lanes->compute.stream));
    }
    return OK;
}

/* In fp32 the activation is a kernel of its own: what cuBLASLt's epilogue makes of tanh is good for 16
 * bits only, and a second access costs no rounding. */
static enum status activate(struct device_cuda *d, const struct linear_call *call)
{
    struct linear_call again = *call;
    again.accumulate = true;
    again.bias = DEVMEM_NONE;
    CUDA_TRY(kernel_finish(d->base.dtype, &again, NULL, d->lanes->compute.stream));
    return OK;
}

enum status linear_cublas(struct device *device, const struct linear_call *call)
{
    struct device_cuda *d = device_cuda(device);
    bool is_fp32 = device->dtype == DTYPE_FP32, done = false;
    struct linear_call product = *call;
    if (call->k == 0) {
        CUDA_TRY(kernel_finish(device->dtype, call, NULL, d->lanes->compute.stream));
        return OK;
    }
    if (is_fp32)
        product.activation = ACTIVATION_NONE;
    if (product.activation != ACTIVATION_SILU && call->bias.addr % WIDE_ACCESS == 0)
        TRY(fused(d, &product, &done));
    if (!done)
        return in_two_steps(d, call);
    return product.activation == call->activation ? OK : activate(d, call);
}

enum status linear_cublas_open(struct device_cuda *d)
{
    int major = 0;
    CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->lanes->gpu));
    d->lt_bytes = major >= 9 ? 32u << 20 : 4u << 20; /* what NVIDIA recommends */
    CUBLAS_TRY(cublasLtCreate(&d->lt));
    CUBLAS_TRY(cublasCreate(&d->blas));
    CUBLAS_TRY(cublasSetStream(d->blas, d->lanes->compute.stream));
    return OK;
}

void linear_cublas_close(struct device_cuda *d)
{
    while (d->linear_plans) {
        struct linear_plan *next = d->linear_plans->next;
        plan_free(d->linear_plans);
        d->linear_plans = next;
    }
    if (d->blas)
        (void)cublasDestroy(d->blas);
    if (d->lt)
        (void)cublasLtDestroy(d->lt);
}

/* The cuBLAS and cuBLASLt calls that device `cuda` makes: plain loops on the stream's thread. Alignments
 * that an algorithm was chosen for are checked against the pointers it is given. */
#include "tests/cuda_emu/emu.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <vector>

/* ---- elements ---- */

static size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}
static float load(const void *array, cudaDataType_t type, size_t i)
{
    if (type == CUDA_R_32F)
        return static_cast<const float *>(array)[i];
    if (type == CUDA_R_16BF)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
    return __half2float(static_cast<const __half *>(array)[i]);
}
static void store(void *array, cudaDataType_t type, size_t i, float value)
{
    if (type == CUDA_R_32F)
        static_cast<float *>(array)[i] = value;
    else if (type == CUDA_R_16BF)
        static_cast<__nv_bfloat16 *>(array)[i] = __float2bfloat16(value);
    else
        static_cast<__half *>(array)[i] = __float2half(value);
}

/* A column-major matrix: columns of `rows` elements, `ld` apart. */
struct Matrix {
    cudaDataType_t type;
    size_t rows, cols, ld;
    void *data;

    std::vector<float> columns() const
    {
        std::vector<float> out(rows * cols);
        for (size_t j = 0; j < cols; j++) {
            emu::reads(static_cast<char *>(data) + j * ld * size_of(type), rows * size_of(type));
            for (size_t i = 0; i < rows; i++)
                out[j * rows + i] = load(data, type, j * ld + i);
        }
        return out;
    }
};

static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

/* c [m, n] = end(a [k, m]^T b [k, n] + beta c + bias) */
struct Product {
    Matrix a, b, c;
    float beta;
    const void *bias;
    bool has_gelu;

    void run() const
    {
        std::vector<float> left = a.columns(), right = b.columns();
        std::vector<float> old = beta != 0 ? c.columns() : std::vector<float>();
        size_t k = a.rows, element = size_of(c.type);
        if (bias)
            emu::reads(bias, c.rows * element);
        for (size_t j = 0; j < c.cols; j++) {
            for (size_t i = 0; i < c.rows; i++) {
                const float *x = &left[i * k], *y = &right[j * k];
                float sum = 0;
                for (size_t l = 0; l < k; l++)
                    sum += x[l] * y[l];
                if (beta != 0)
                    sum += beta * old[j * c.rows + i];
                if (bias)
                    sum += load(bias, c.type, i);
                store(c.data, c.type, j * c.ld + i, has_gelu ? gelu(sum) : sum);
            }
            emu::writes(static_cast<char *>(c.data) + j * c.ld * element, c.rows * element);
        }
    }
};

/* ---- cuBLAS ---- */

struct cublasContext {
    cudaStream_t stream;
};

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    *out = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "emulated cuBLAS error";
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                            int m, int n, int k, const void *alpha, const void *a, cudaDataType_t a_type,
                            int lda, const void *b, cudaDataType_t b_type, int ldb, const void *beta,
                            void *c, cudaDataType_t c_type, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t)
{
    if (transa != CUBLAS_OP_T || transb != CUBLAS_OP_N || *static_cast<const float *>(alpha) != 1.0f)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    auto size = [](int x) { return static_cast<size_t>(x); };
    Product product = {{a_type, size(k), size(m), size(lda), const_cast<void *>(a)},
                       {b_type, size(k), size(n), size(ldb), const_cast<void *>(b)},
                       {c_type, size(m), size(n), size(ldc), c},
                       *static_cast<const float *>(beta), /* read at the call, as cuBLAS does */
                       nullptr,
                       false};
    cudaError_t error = emu::enqueue(handle->stream, [product] { product.run(); });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}

/* ---- cuBLASLt: descriptors are opaque, so ours hide in them ---- */

struct Operation {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    cublasOperation_t transa = CUBLAS_OP_N;
    const void *bias = nullptr;
};
struct Preference {
    uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};
template <class Ours, class Theirs> static Ours *ours(Theirs theirs)
{
    return reinterpret_cast<Ours *>(theirs);
}

template <class T> static void set(T *field, const void *value, size_t bytes)
{
    if (bytes != sizeof *field)
        emu::die("an attribute of cuBLASLt has %zu bytes, not %zu", sizeof *field, bytes);
    memcpy(field, value, bytes);
}

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = ours<cublasLtContext>(new char);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete ours<char>(handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t, cudaDataType_t)
{
    *out = ours<cublasLtMatmulDescOpaque_t>(new Operation());
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete ours<Operation>(operation);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    Operation *o = ours<Operation>(operation);
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
        set(&o->transa, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
        set(&o->epilogue, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        set(&o->bias, value, bytes);
    else
        emu::die("matmul attribute %d is not emulated", (int)attribute);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *out = ours<cublasLtMatrixLayoutOpaque_t>(new Matrix{type, rows, cols, (size_t)ld, nullptr});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete ours<Matrix>(layout);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = ours<cublasLtMatmulPreferenceOpaque_t>(new Preference());
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete ours<Preference>(preference);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    Preference *p = ours<Preference>(preference);
    if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
        set(&p->align_a, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
        set(&p->align_b, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
        set(&p->align_c, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        set(&p->align_d, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
/* Finds none for rows of an odd length in 16 bits, so that the way without is tested too. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    const Matrix *w = ours<Matrix>(a);
    *found = 0;
    if (w->type != CUDA_R_32F && w->ld % 2 == 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    static_assert(sizeof(Preference) <= sizeof results->algo, "hides in the algorithm");
    memcpy(&results->algo, ours<Preference>(preference), sizeof(Preference));
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static void check_alignment(const char *what, const void *pointer, uint32_t alignment)
{
    if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0)
        emu::die("cublasLtMatmul: %s is not aligned to %u bytes as the algorithm expects", what,
                 alignment);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const Operation *o = ours<Operation>(operation);
    Preference chosen;
    memcpy(static_cast<void *>(&chosen), algorithm, sizeof chosen);
    check_alignment("A", a, chosen.align_a);
    check_alignment("B", b, chosen.align_b);
    check_alignment("D", d, chosen.align_d);
    if (o->transa != CUBLAS_OP_T || c != d || *static_cast<const float *>(alpha) != 1.0f)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (workspace_bytes > 0 && !workspace)
        emu::die("cublasLtMatmul: no workspace");
    bool has_bias = o->epilogue == CUBLASLT_EPILOGUE_BIAS || o->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
    Product product = {*ours<Matrix>(a_layout), *ours<Matrix>(b_layout), *ours<Matrix>(d_layout),
                       *static_cast<const float *>(beta), has_bias ? o->bias : nullptr,
                       o->epilogue == CUBLASLT_EPILOGUE_GELU ||
                           o->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS};
    product.a.data = const_cast<void *>(a);
    product.b.data = const_cast<void *>(b);
    product.c.data = d;
    cudaError_t error = emu::enqueue(stream, [product, workspace, workspace_bytes] {
        emu::writes(workspace, workspace_bytes < 64 ? workspace_bytes : 64); /* two at once would race */
        product.run();
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}

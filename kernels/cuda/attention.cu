// Attention without tensor cores: an online softmax over tiles of 32 keys (arXiv:2205.14135), fp32
// inside, in every dtype and for any lengths and strides. And merging partial results by their
// log-sum-exp (arXiv:2310.01889).
#include <initializer_list>

#include "kernels/cuda/kernel.cuh"

constexpr int TILE = WARP; // keys; each lane of a warp scores one

template <class T> struct View {
    T *base;
    size_t group0, group1, head, row;
};

template <class T> static View<T> view_of(const struct attention_view *v)
{
    return {pointer<T>(v->base), v->group0, v->group1, v->head, v->row};
}

// Row 0 of a softmax's group and head.
template <class T>
__device__ static T *head_of(const View<T> &v, size_t group0, size_t group1, size_t head)
{
    return v.base + group0 * v.group0 + group1 * v.group1 + head * v.head;
}

template <class T> struct Attention {
    View<const T> q, k, v;
    View<T> o;
    float *lse; // or null
    size_t n1, heads, nq, nk, head_dim;
    float scale;
};

// Shared memory, in floats: keys, padded so that lanes hit different banks; values; queries; weights.
template <int D> constexpr size_t attention_floats()
{
    return (size_t)TILE * (D + 1) + (size_t)TILE * D + (size_t)WARPS * D + (size_t)WARPS * TILE;
}

// Keys and values first .. first+TILE-1 as fp32; zeros beyond the last key and the last column.
template <class T, int D>
__device__ static void load_tile(const Attention<T> &c, const T *k, const T *v, size_t first, float *keys,
                                 float *values)
{
    for (int i = threadIdx.x; i < TILE * D; i += BLOCK) {
        const int row = i / D, column = i % D;
        const bool is_there = first + row < c.nk && (size_t)column < c.head_dim;
        keys[row * (D + 1) + column] = is_there ? to_float(k[(first + row) * c.k.row + column]) : 0.0f;
        values[i] = is_there ? to_float(v[(first + row) * c.v.row + column]) : 0.0f;
    }
}

// WARPS query rows a block, one a warp. D: head_dim rounded up to whole warps.
template <class T, int D> __global__ void __launch_bounds__(BLOCK) attend(Attention<T> c)
{
    extern __shared__ float smem[];
    float *keys = smem, *values = keys + TILE * (D + 1);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float *query = values + TILE * D + warp * D;
    float *weights = values + TILE * D + WARPS * D + warp * TILE;
    const size_t row_blocks = (c.nq + WARPS - 1) / WARPS;
    const size_t row = blockIdx.x % row_blocks * WARPS + warp;
    const size_t softmax = blockIdx.x / row_blocks, head = softmax % c.heads;
    const size_t group1 = softmax / c.heads % c.n1, group0 = softmax / c.heads / c.n1;
    const T *q = head_of(c.q, group0, group1, head) + row * c.q.row;
    const T *k = head_of(c.k, group0, group1, head), *v = head_of(c.v, group0, group1, head);
    float sums[D / WARP] = {}, largest = -INFINITY, total = 0;
    for (int i = lane; i < D; i += WARP)
        query[i] = row < c.nq && (size_t)i < c.head_dim ? to_float(q[i]) * c.scale : 0.0f;
    for (size_t first = 0; first < c.nk; first += TILE) {
        __syncthreads(); // everybody has used the tile before
        load_tile<T, D>(c, k, v, first, keys, values);
        __syncthreads();
        float score = 0;
        for (int i = 0; i < D; i++)
            score += query[i] * keys[lane * (D + 1) + i];
        if (first + lane >= c.nk)
            score = -INFINITY;
        const float top = fmaxf(largest, warp_max(score));
        const float weight = __expf(score - top), fade = __expf(largest - top);
        total = total * fade + warp_sum(weight);
        largest = top;
        weights[lane] = weight;
        __syncwarp();
        for (int part = 0; part < D / WARP; part++) {
            float sum = sums[part] * fade;
            for (int j = 0; j < TILE; j++)
                sum += weights[j] * values[j * D + part * WARP + lane];
            sums[part] = sum;
        }
        __syncwarp(); // before the weights are overwritten
    }
    if (row >= c.nq)
        return;
    T *o = head_of(c.o, group0, group1, head) + row * c.o.row;
    for (int part = 0; part < D / WARP; part++)
        if ((size_t)(part * WARP + lane) < c.head_dim)
            o[part * WARP + lane] = from_float<T>(c.nk > 0 ? sums[part] / total : 0.0f);
    if (lane == 0 && c.lse)
        c.lse[softmax * c.nq + row] = c.nk > 0 ? largest + logf(total) : -INFINITY;
}

template <class T, int D>
static cudaError_t launch_attend(const Attention<T> &c, size_t softmaxes, cudaStream_t stream)
{
    const size_t bytes = attention_floats<D>() * sizeof(float);
    cudaError_t error = allow_shared_bytes(attend<T, D>, bytes);
    if (error != cudaSuccess)
        return error;
    return launch(attend<T, D>, softmaxes * ((c.nq + WARPS - 1) / WARPS), bytes, stream, c);
}

cudaError_t kernel_attention(enum dtype t, const struct attention_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        const size_t softmaxes = c->n0 * c->n1 * c->heads;
        Attention<T> call = {view_of<const T>(&c->q), view_of<const T>(&c->k), view_of<const T>(&c->v),
                             view_of<T>(&c->o), pointer<float>(c->lse), c->n1, c->heads, c->nq, c->nk,
                             c->head_dim, (float)c->scale};
        if (c->head_dim <= 32)
            return launch_attend<T, 32>(call, softmaxes, stream);
        if (c->head_dim <= 64)
            return launch_attend<T, 64>(call, softmaxes, stream);
        if (c->head_dim <= 96)
            return launch_attend<T, 96>(call, softmaxes, stream);
        if (c->head_dim <= 128)
            return launch_attend<T, 128>(call, softmaxes, stream);
        if (c->head_dim <= KERNEL_MAX_HEAD_DIM)
            return launch_attend<T, KERNEL_MAX_HEAD_DIM>(call, softmaxes, stream);
        return cudaErrorInvalidValue;
    });
}

template <class T> struct Merge {
    float *o_acc, *lse_acc;
    const float *lse_new;
    View<const T> o_new;
    size_t rows, n1, heads, nq, head_dim;
};

// A warp a row. Weights relative to the larger log-sum-exp: neither overflows.
template <class T> __global__ void merge(Merge<T> c)
{
    const size_t lane = threadIdx.x % WARP, row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= c.rows)
        return;
    const size_t softmax = row / c.nq, head = softmax % c.heads, group1 = softmax / c.heads % c.n1;
    const T *o_new = head_of(c.o_new, softmax / c.heads / c.n1, group1, head) + row % c.nq * c.o_new.row;
    float *o_acc = c.o_acc + row * c.head_dim;
    const float old_lse = c.lse_acc[row], new_lse = c.lse_new[row];
    const float top = fmaxf(old_lse, new_lse);
    const bool has_old = old_lse != -INFINITY, has_new = new_lse != -INFINITY;
    const float old_weight = has_old ? expf(old_lse - top) : 0.0f;
    const float new_weight = has_new ? expf(new_lse - top) : 0.0f;
    const float total = old_weight + new_weight;
    __syncwarp(); // all have read lse_acc
    for (size_t i = lane; i < c.head_dim && (has_new || !has_old); i += WARP) {
        float old_part = has_old ? o_acc[i] * (old_weight / total) : 0.0f;
        o_acc[i] = old_part + (has_new ? to_float(o_new[i]) * (new_weight / total) : 0.0f);
    }
    if (lane == 0 && has_new)
        c.lse_acc[row] = top + logf(total);
}

cudaError_t kernel_merge(enum dtype t, const struct merge_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        const size_t rows = c->n0 * c->n1 * c->heads * c->nq;
        Merge<T> call = {pointer<float>(c->o_acc), pointer<float>(c->lse_acc),
                         pointer<const float>(c->lse_new), view_of<const T>(&c->o_new), rows, c->n1,
                         c->heads, c->nq, c->head_dim};
        return launch(merge<T>, (rows + WARPS - 1) / WARPS, 0, stream, call);
    });
}

/* What the .cu files share: launching, element types, 16-byte accesses. No PTX and no <<<>>>: the same
 * files are compiled for the CPU by the emulator of tests/cuda_emu. */
#ifndef KERNELS_CUDA_KERNEL_CUH
#define KERNELS_CUDA_KERNEL_CUH

#include "kernels/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 128, WARP = 32, WARPS = BLOCK / WARP;
/* Blocks of a loop over elements: enough to fill any GPU, few enough to be launched at once. */
constexpr size_t MOST_BLOCKS = 132 * 16;

template <class... P, class... A>
static cudaError_t launch(void (*kernel)(P...), size_t blocks, size_t shared_bytes,
                          cudaStream_t stream, A... arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(BLOCK);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

inline size_t blocks_for(size_t items)
{
    size_t blocks = (items + BLOCK - 1) / BLOCK;
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

__device__ inline float to_float(float x)
{
    return x;
}
__device__ inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ inline float to_float(__half x)
{
    return __half2float(x);
}
template <class T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x)
{
    return x;
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16(x);
}
template <> __device__ inline __half from_float<__half>(float x)
{
    return __float2half(x);
}

/* V elements, read or written by one access. */
template <class T, int V> struct alignas(sizeof(T) * V) Pack {
    T element[V];
};
template <int V, class T> __device__ inline void read(const T *from, float (&out)[V])
{
    Pack<T, V> pack = *reinterpret_cast<const Pack<T, V> *>(from);
    for (int i = 0; i < V; i++)
        out[i] = to_float(pack.element[i]);
}
template <int V, class T> __device__ inline void write(T *to, const float (&values)[V])
{
    Pack<T, V> pack;
    for (int i = 0; i < V; i++)
        pack.element[i] = from_float<T>(values[i]);
    *reinterpret_cast<Pack<T, V> *>(to) = pack;
}

/* The first of a thread's items, and the distance to its next. */
__device__ inline size_t first_item()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline size_t item_stride()
{
    return (size_t)gridDim.x * blockDim.x;
}

__device__ inline float warp_sum(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(~0u, value, offset);
    return value;
}
__device__ inline float warp_max(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

/* ---- host side ---- */

/* More shared memory than every kernel may have must be asked for. */
template <class... P> static cudaError_t allow_shared_bytes(void (*kernel)(P...), size_t bytes)
{
    constexpr size_t EVERY_KERNEL = 48 * 1024;
    if (bytes <= EVERY_KERNEL)
        return cudaSuccess;
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

template <class T> static T *pointer(struct devmem m)
{
    return reinterpret_cast<T *>(m.addr);
}
/* Whether packs of V elements of `size` bytes fit: the address, and the strides in elements. */
inline bool packs_fit(size_t v, size_t size, struct devmem m, std::initializer_list<size_t> strides)
{
    bool fits = m.addr % (v * size) == 0;
    for (size_t stride : strides)
        fits = fits && stride % v == 0;
    return fits;
}
/* f(T()) with the C++ type of the dtype. */
template <class F> static cudaError_t by_type(enum dtype t, F f)
{
    switch (t) {
    case DTYPE_FP32:
        return f(float());
    case DTYPE_BF16:
        return f(__nv_bfloat16());
    default:
        return f(__half());
    }
}

#endif

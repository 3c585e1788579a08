/* The device half of CUDA for a host compiler, over CUDA's own headers: what a .cu file needs to be built
 * as C++ for the CPU. Every CUDA thread is a fiber; a block's fibers run in turn on the thread of its
 * stream. Included before the .cu file, which stays as it is. */
#ifndef TESTS_CUDA_EMU_DEVICE_H
#define TESTS_CUDA_EMU_DEVICE_H

/* nvcc's launcher is a template of this name in CUDA's headers; ours takes its place. */
#define cudaLaunchKernelEx cudaLaunchKernelEx_of_nvcc
#include <cuda_runtime.h>
#undef cudaLaunchKernelEx

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

/* One block at a time runs on a stream's thread. */
#undef __shared__
#define __shared__ thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;

namespace emu {
/* The body of one CUDA thread. */
using Body = std::function<void()>;
cudaError_t launch(const cudaLaunchConfig_t &, Body);
void sync_threads();
void sync_warp(unsigned mask);
/* The value that the lane of number (own xor other) gave; as on a GPU this orders no memory. */
uint64_t shuffle_xor(unsigned mask, uint64_t value, int other);
} // namespace emu

inline void __syncthreads()
{
    emu::sync_threads();
}
inline void __syncwarp(unsigned mask = ~0u)
{
    emu::sync_warp(mask);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int other)
{
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = emu::shuffle_xor(mask, bits, other);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __expf(float x)
{
    return expf(x);
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...a)
{
    std::tuple<P...> arguments(static_cast<P>(a)...);
    return emu::launch(*config, [kernel, arguments] { std::apply(kernel, arguments); });
}

#endif

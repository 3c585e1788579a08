/* The plug-in's side of kernels/device_plugin.h: the program's functions under their own names, and how
 * CUDA's failures become ours. Files of the plug-in include the program's headers as usual. */
#ifndef KERNELS_CUDA_HOST_H
#define KERNELS_CUDA_HOST_H

#include "kernels/device_plugin.h"

#include <cuda_runtime_api.h>

void host_bind(const struct ditto_host *);

/* The failure of a CUDA call; ERR_MEMORY where that was the cause. Use CUDA_TRY. */
enum status host_cuda_failed(cudaError_t, const char *call, const char *file, int line);
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_try_ = (call);                                                            \
        if (cuda_try_ != cudaSuccess)                                                              \
            return host_cuda_failed(cuda_try_, #call, __FILE__, __LINE__);                         \
    } while (0)

#endif

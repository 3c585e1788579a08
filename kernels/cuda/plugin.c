/* The plug-in's one symbol, and what a machine without a usable GPU is told. */
#include "config.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/range.h"

#include <stdlib.h>

extern const struct device_ops device_ops_cuda;
extern const struct comm_ops comm_nccl, comm_local;
extern const struct ditto_plugin ditto_plugin;

static enum status without_driver(int driver)
{
    if (driver == 0)
        return FAIL(ERR_UNSUPPORTED, "no NVIDIA driver on this machine (libcuda.so.1): install it, or "
                                     "use another --device");
    return FAIL(ERR_UNSUPPORTED,
                "the NVIDIA driver is too old: it serves CUDA %d.%d, this program needs %d.%d", driver / 1000,
                driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static enum status start(const struct ditto_host *table)
{
    int gpus = 0, driver = 0;
    host_bind(table);
    if (table->abi != DEVICE_PLUGIN_ABI)
        return FAIL(ERR_UNSUPPORTED, "the CUDA plug-in expects ABI %d", DEVICE_PLUGIN_ABI);
    /* Kernels loaded at their first launch wait for lanes that a waiting NCCL kernel keeps busy. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    range_push("ditto", -1, -1, -1); /* NVTX looks for its tool at the first range: not in two ranks at once */
    range_pop();
    (void)cudaDriverGetVersion(&driver);
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error == cudaErrorInsufficientDriver)
        return without_driver(driver);
    if (error == cudaErrorStubLibrary)
        return FAIL(ERR_UNSUPPORTED, "libcuda.so.1 is the CUDA toolkit's stub, not a driver: take it "
                                     "out of LD_LIBRARY_PATH");
    if (error == cudaErrorNoDevice || (error == cudaSuccess && gpus == 0))
        return FAIL(ERR_UNSUPPORTED, "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES, container "
                                     "flags?)");
    if (error != cudaSuccess)
        return FAIL(ERR_UNSUPPORTED, "CUDA does not start: %s", cudaGetErrorString(error));
    return OK;
}

static const struct comm_ops *const transports[] = {&comm_nccl, &comm_local, NULL};

__attribute__((visibility("default"))) const struct ditto_plugin ditto_plugin = {
    .abi = DEVICE_PLUGIN_ABI,
    .version = DITTO_VERSION,
    .start = start,
    .device = &device_ops_cuda,
    .transports = transports,
};

/* Whether cuDNN's attention takes the shapes of the presets, without a GPU: cuDNN accepts a description of
 * one as JSON, and needs some libcuda.so.1, which the toolkit's stub is (LD_LIBRARY_PATH). Exit 77: this
 * cuDNN knows another description. */
#include "kernels/cuda/sdpa_graph.h"

#include <stdio.h>
#include <string.h>

enum { SKIPPED = 77 };

/* deviceVer 900 is sm_90. Keys found by trial with cuDNN 9.19; all values are integers. */
static const char *const devices[] = {
    "{\"cudnnVersion\": 91900, \"schemaVersion\": 1, \"deviceVer\": 900, \"driverVer\": 13000, "
    "\"cudaDeviceId\": 0, \"deviceName\": \"NVIDIA H200\", \"maxGridSize\": [2147483647, 65535, 65535], "
    "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": 132, "
    "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560, "
    "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, "
    "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
    "\"supportCoopLaunch\": 1, \"totalGlobalMem\": 150000000000}",
    "{\"cudnnVersion\": 91900, \"schemaVersion\": 1, \"deviceVer\": 800, \"driverVer\": 13000, "
    "\"cudaDeviceId\": 0, \"deviceName\": \"NVIDIA A100\", \"maxGridSize\": [2147483647, 65535, 65535], "
    "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": 108, "
    "\"smClockRateKHz\": 1410000, \"memClockRateKHz\": 1593000, \"l2CacheSize\": 41943040, "
    "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 166912, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, "
    "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
    "\"supportCoopLaunch\": 1, \"totalGlobalMem\": 85000000000}",
};
enum { DEVICES = sizeof devices / sizeof *devices };

/* q, k and v side by side in one row, as the model leaves them. */
static struct sdpa_shape packed(int64_t batch, int64_t heads, int64_t nq, int64_t nk, int64_t d)
{
    int64_t row = 3 * batch * heads * d;
    struct sdpa_view in = {3 * heads * d, d, row}, out = {heads * d, d, batch * heads * d};
    struct sdpa_shape shape = {.batch = batch, .heads = heads, .nq = nq, .nk = nk, .head_dim = d,
                               .q = in, .k = in, .v = in, .o = out, .has_lse = 1,
                               .lse_batch = heads * nq};
    return shape;
}

static cudnnStatus_t open_device(const char *json, cudnnBackendDescriptor_t *device)
{
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, device);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(*device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    return status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(*device) : status;
}

/* Engines for the shape on a device. The plan itself fails at loading its kernel: there is no driver. */
static int64_t engines(cudnnBackendDescriptor_t device, const struct sdpa_shape *shape)
{
    int64_t configs = 0;
    struct sdpa_plan plan = {NULL, 0};
    (void)sdpa_plan_make(NULL, device, shape, &configs, &plan);
    sdpa_plan_free(&plan);
    return configs;
}

static int check_shape(cudnnBackendDescriptor_t device, struct sdpa_shape shape, int expected)
{
    int64_t found = engines(device, &shape);
    if ((found > 0) == expected)
        return 0;
    printf("head_dim %ld nq %ld nk %ld batch %ld fp16 %d lse %d: %ld engines\n", (long)shape.head_dim,
           (long)shape.nq, (long)shape.nk, (long)shape.batch, (int)shape.is_fp16, (int)shape.has_lse,
           (long)found);
    return 1;
}

/* Every preset's heads; a rank's queries against all keys; lengths that are no multiple of anything. */
static int check_lengths(cudnnBackendDescriptor_t device, int64_t heads, int64_t head_dim)
{
    static const int64_t lengths[][3] = {{1, 4096, 4096}, {2, 256, 256}, {1, 1024, 4096}, {2, 250, 1000}};
    int failed = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        failed |= check_shape(device, packed(lengths[i][0], heads, lengths[i][1], lengths[i][2], head_dim), 1);
    return failed;
}

static int check_variants(cudnnBackendDescriptor_t device)
{
    int failed = 0;
    for (int variant = 0; variant < 4; variant++) {
        struct sdpa_shape shape = packed(2, 16, 256, 256, 72);
        shape.is_fp16 = variant & 1;
        shape.has_lse = variant >> 1;
        failed |= check_shape(device, shape, 1);
    }
    return failed | check_shape(device, packed(1, 16, 256, 256, 60), 0); /* not a multiple of 8 */
}

static int check_device(cudnnBackendDescriptor_t device)
{
    return check_lengths(device, 16, 64) | check_lengths(device, 16, 72) | check_lengths(device, 8, 128) |
           check_variants(device);
}

int main(void)
{
    int failed = 0;
    for (int i = 0; i < DEVICES; i++) {
        cudnnBackendDescriptor_t device = NULL;
        cudnnStatus_t status = open_device(devices[i], &device);
        struct sdpa_shape usual = packed(1, 16, 4096, 4096, 64);
        if (status != CUDNN_STATUS_SUCCESS || engines(device, &usual) == 0) {
            printf("cuDNN %zu does not take this description of a GPU: %s\n", cudnnGetVersion(),
                   cudnnGetErrorString(status));
            return SKIPPED;
        }
        failed |= check_device(device);
        (void)cudnnBackendDestroyDescriptor(device);
    }
    puts(failed ? "some shapes have no engine" : "every shape has an engine");
    return failed;
}

/* Mistakes that the emulator and the sanitizers must report, each beside the right way, which must pass in
 * silence: the checker is checked. seeded_bugs NAME right|wrong */
#include "tests/cuda_emu/device.h"

#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

constexpr int BLOCK = 64, WARP = 32;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int error_ = (int)(call);                                                                  \
        if (error_ != 0 && error_ != (int)ncclInProgress) {                                        \
            fprintf(stderr, "%s gives %d\n", #call, error_);                                       \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- kernels ---- */

__global__ void sum_of_warps(float *out, bool wrong)
{
    __shared__ float partial[BLOCK / WARP];
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = 1;
    if (!wrong)
        __syncthreads();
    if (threadIdx.x == 0)
        out[0] = partial[0] + partial[1];
}

__global__ void reused_sums(float *out, bool wrong)
{
    __shared__ float partial[BLOCK / WARP];
    for (int round = 0; round < 2; round++) {
        if (threadIdx.x % WARP == 0)
            partial[threadIdx.x / WARP] = round;
        __syncthreads();
        out[threadIdx.x] = partial[0] + partial[1];
        if (!wrong)
            __syncthreads();
    }
}

__global__ void weights_of_a_warp(float *out, bool wrong)
{
    extern __shared__ float smem[];
    smem[threadIdx.x] = 1;
    if (!wrong)
        __syncwarp();
    out[threadIdx.x] = smem[threadIdx.x ^ 1];
}

__global__ void half_a_shuffle(float *out, bool wrong)
{
    if (threadIdx.x < (wrong ? WARP / 2 : WARP))
        out[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);
}

__global__ void end_of_array(float *out, bool wrong)
{
    if (threadIdx.x < BLOCK - 1 || wrong)
        out[threadIdx.x] = 1; /* one element too many */
}

__global__ void end_of_shared(float *out, bool wrong)
{
    extern __shared__ float smem[];
    smem[threadIdx.x] = 1;
    out[threadIdx.x] = smem[wrong ? BLOCK : threadIdx.x];
}

__global__ void wide_access(float *out, bool wrong)
{
    struct alignas(16) Pack {
        float element[4];
    };
    float *from = out + (wrong ? 1 : 0);
    if (threadIdx.x == 0)
        *reinterpret_cast<Pack *>(from) = Pack{};
}

__global__ void fill(float *out, float value)
{
    out[threadIdx.x] = value;
}

/* ---- launching ---- */

static cudaStream_t new_stream()
{
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static float *new_array(size_t n)
{
    void *memory;
    MUST(cudaMalloc(&memory, n * sizeof(float)));
    return static_cast<float *>(memory);
}

template <class... P, class... A>
static void launch(void (*kernel)(P...), int threads, cudaStream_t stream, A... a)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = BLOCK * sizeof(float);
    config.stream = stream;
    MUST(cudaLaunchKernelEx(&config, kernel, static_cast<P>(a)...));
}

static void order(cudaStream_t after, cudaStream_t before)
{
    cudaEvent_t event;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventRecord(event, before));
    MUST(cudaStreamWaitEvent(after, event, 0));
    MUST(cudaEventDestroy(event));
}

static void in_kernel(void (*kernel)(float *, bool), int threads, size_t elements, bool wrong)
{
    cudaStream_t stream = new_stream();
    float *out = new_array(elements);
    launch(kernel, threads, stream, out, wrong);
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaFree(out));
    MUST(cudaStreamDestroy(stream));
}

/* ---- lanes and ranks ---- */

static void copy_before_kernel(bool wrong)
{
    cudaStream_t compute = new_stream(), comm = new_stream();
    float *a = new_array(BLOCK), *b = new_array(BLOCK);
    launch(fill, BLOCK, compute, a, 1.0f);
    if (!wrong)
        order(comm, compute);
    MUST(cudaMemcpyAsync(b, a, BLOCK * sizeof(float), cudaMemcpyDeviceToDevice, comm));
    MUST(cudaStreamSynchronize(comm));
    MUST(cudaStreamSynchronize(compute));
    MUST(cudaFree(a));
    MUST(cudaFree(b));
    MUST(cudaStreamDestroy(compute));
    MUST(cudaStreamDestroy(comm));
}

static void freed_under_way(bool wrong)
{
    cudaStream_t stream = new_stream();
    float *a = new_array(BLOCK);
    launch(fill, BLOCK, stream, a, 1.0f);
    if (!wrong)
        MUST(cudaStreamSynchronize(stream));
    MUST(cudaFree(a));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamDestroy(stream));
}

/* What two ranks do wrong: one of the three. */
struct Mistake {
    bool gather_early, compute_early, reuse_early;
};

static void run_rank(ncclUniqueId id, int rank, Mistake mistake, size_t count)
{
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    MUST(cudaSetDevice(rank));
    MUST(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
    while (state == ncclInProgress)
        MUST(ncclCommGetAsyncError(comm, &state));
    cudaStream_t compute = new_stream(), lane = new_stream();
    float *part = new_array(BLOCK), *all = new_array(2 * BLOCK), *copy = new_array(2 * BLOCK);
    launch(fill, BLOCK, compute, part, (float)rank);
    if (!mistake.gather_early)
        order(lane, compute);
    MUST(ncclAllGather(part, all, count, ncclFloat32, comm, lane));
    if (!mistake.compute_early && !mistake.reuse_early)
        order(compute, lane);
    if (mistake.reuse_early)
        launch(fill, BLOCK, compute, part, 7.0f);
    else
        MUST(cudaMemcpyAsync(copy, all, 2 * BLOCK * sizeof(float), cudaMemcpyDeviceToDevice, compute));
    MUST(cudaStreamSynchronize(compute));
    MUST(cudaStreamSynchronize(lane));
    for (float *array : {part, all, copy})
        MUST(cudaFree(array));
    MUST(cudaStreamDestroy(compute));
    MUST(cudaStreamDestroy(lane));
    MUST(ncclCommDestroy(comm));
}

static void on_two_ranks(Mistake mistake, bool counts_differ)
{
    ncclUniqueId id;
    MUST(ncclGetUniqueId(&id));
    std::thread other([=] { run_rank(id, 1, mistake, counts_differ ? BLOCK - 1 : BLOCK); });
    run_rank(id, 0, mistake, BLOCK);
    other.join();
}

/* ---- choosing ---- */

static const struct {
    const char *name;
    void (*run)(bool wrong);
} bugs[] = {
    {"block-barrier", [](bool w) { in_kernel(sum_of_warps, BLOCK, BLOCK, w); }},
    {"block-barrier-reuse", [](bool w) { in_kernel(reused_sums, BLOCK, BLOCK, w); }},
    {"warp-barrier", [](bool w) { in_kernel(weights_of_a_warp, WARP, WARP, w); }},
    {"half-shuffle", [](bool w) { in_kernel(half_a_shuffle, WARP, WARP, w); }},
    {"array-end", [](bool w) { in_kernel(end_of_array, BLOCK, BLOCK - 1, w); }},
    {"shared-end", [](bool w) { in_kernel(end_of_shared, BLOCK, BLOCK, w); }},
    {"misaligned", [](bool w) { in_kernel(wide_access, WARP, BLOCK, w); }},
    {"copy-before-kernel", copy_before_kernel},
    {"freed-under-way", freed_under_way},
    {"gather-early", [](bool w) { on_two_ranks({w, false, false}, false); }},
    {"compute-early", [](bool w) { on_two_ranks({false, w, false}, false); }},
    {"reuse-early", [](bool w) { on_two_ranks({false, false, w}, false); }},
    {"counts-differ", [](bool w) { on_two_ranks({false, false, false}, w); }},
};

int main(int argc, char **argv)
{
    for (const auto &bug : bugs)
        if (argc == 3 && strcmp(argv[1], bug.name) == 0) {
            bug.run(strcmp(argv[2], "wrong") == 0);
            return 0;
        }
    fprintf(stderr, "usage: seeded_bugs NAME right|wrong\n");
    return 2;
}

/* The CUDA runtime on the CPU: devices, memory that starts as NaN, streams with a thread each, events. A
 * wrong signature is a compile error, because the declarations are CUDA's own. */
#include "tests/cuda_emu/emu.h"

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

using emu::Unseen;
using Lock = std::unique_lock<std::mutex>;

/* ---- devices and errors ---- */

static thread_local int current;
static thread_local cudaError_t last_error;

static int device_count()
{
    const char *given = getenv("DITTO_EMU_GPUS");
    return given ? atoi(given) : 8;
}

int emu::current_device()
{
    return current;
}

cudaError_t emu::fail(cudaError_t error)
{
    return last_error = error;
}

extern "C" {
cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count > 0 ? cudaSuccess : emu::fail(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return emu::fail(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    if (attribute != cudaDevAttrComputeCapabilityMajor)
        emu::die("device attribute %d is not emulated", (int)attribute);
    *value = 8;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", (unsigned)device & 0xff);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : error ? "emulated error" : "no error";
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
}

/* ---- memory ---- */

enum { ALIGNMENT = 256 };
constexpr size_t MEMORY = (size_t)4 << 30; /* of all devices together */
static std::mutex memory_lock;
static std::map<void *, size_t> blocks;
static size_t memory_used;

extern "C" {
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    Unseen unseen;
    Lock lock(memory_lock);
    if (bytes > MEMORY - memory_used)
        return emu::fail(cudaErrorMemoryAllocation);
    void *memory = nullptr;
    /* Exactly so long: AddressSanitizer sees the first byte beyond. */
    if (posix_memalign(&memory, ALIGNMENT, bytes) != 0)
        return emu::fail(cudaErrorMemoryAllocation);
    memset(memory, 0xff, bytes); /* NaN in every type */
    blocks[memory] = bytes;
    memory_used += bytes;
    *out = memory;
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    {
        Unseen unseen;
        Lock lock(memory_lock);
        auto found = blocks.find(memory);
        if (found == blocks.end())
            emu::die("cudaFree of what cudaMalloc did not give");
        memory_used -= found->second;
        blocks.erase(found);
    }
    free(memory); /* seen: a task that still uses it is a race */
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    Unseen unseen;
    Lock lock(memory_lock);
    *unused = MEMORY - memory_used;
    *total = MEMORY;
    return cudaSuccess;
}
}

/* ---- streams ---- */

/* Who polls leaves the cores to those who work. */
static cudaError_t not_ready()
{
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return cudaErrorNotReady;
}

struct Queued {
    emu::Task work;
    char *edge;
};

struct CUstream_st {
    int device;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Queued> queue;
    size_t pushed = 0, done = 0;
    bool ends = false;
    char edge; /* of what is done */
    std::thread thread;

    void push(emu::Task work)
    {
        char *token = new char;
        emu::release(token);
        Unseen unseen;
        Lock held(lock);
        queue.push_back({std::move(work), token});
        pushed++;
        changed.notify_all();
    }
    bool pop(Queued *out)
    {
        Unseen unseen;
        Lock held(lock);
        changed.wait(held, [this] { return ends || !queue.empty(); });
        if (queue.empty())
            return false;
        *out = std::move(queue.front());
        queue.pop_front();
        return true;
    }
    void note_done()
    {
        emu::release(&edge);
        Unseen unseen;
        Lock held(lock);
        done++;
        changed.notify_all();
    }
    void run()
    {
        current = device;
        Queued next;
        while (pop(&next)) {
            emu::acquire(next.edge);
            next.work();
            next.work = nullptr;
            delete next.edge;
            note_done();
        }
        emu::end_thread();
    }
    bool is_idle()
    {
        bool idle;
        {
            Unseen unseen;
            Lock held(lock);
            idle = done == pushed;
        }
        if (idle)
            emu::acquire(&edge);
        return idle;
    }
    void drain()
    {
        {
            Unseen unseen;
            Lock held(lock);
            size_t goal = pushed;
            changed.wait(held, [this, goal] { return done >= goal; });
        }
        emu::acquire(&edge);
    }
};

static CUstream_st *checked(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        emu::die("the default stream is not emulated: name a stream");
    return stream;
}

cudaError_t emu::enqueue(cudaStream_t stream, Task work)
{
    if (checked(stream)->device != current)
        return fail(cudaErrorInvalidResourceHandle);
    stream->push(std::move(work));
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    if (flags != cudaStreamNonBlocking)
        emu::die("only non-blocking streams are emulated");
    CUstream_st *stream = new CUstream_st();
    stream->device = current;
    stream->thread = std::thread([stream] { stream->run(); });
    *out = stream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    checked(stream)->drain();
    {
        Unseen unseen;
        Lock held(stream->lock);
        stream->ends = true;
        stream->changed.notify_all();
    }
    stream->thread.join();
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    checked(stream)->drain();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return checked(stream)->is_idle() ? cudaSuccess : not_ready();
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return emu::enqueue(stream, [=] {
        emu::reads(src, bytes);
        emu::writes(dst, bytes);
        memcpy(dst, src, bytes);
    });
}
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    return emu::enqueue(stream, [=] {
        emu::writes(dst, bytes);
        memset(dst, value, bytes);
    });
}
}

/* ---- events ---- */

/* Outlives the event: tasks may still wait for it. */
struct Passing {
    std::mutex lock;
    std::condition_variable changed;
    size_t recorded = 0, passed = 0;
    double ms = 0;
    char edge;

    size_t number()
    {
        Unseen unseen;
        Lock held(lock);
        return recorded;
    }
    void pass(size_t which)
    {
        emu::release(&edge);
        Unseen unseen;
        Lock held(lock);
        passed = which;
        auto now = std::chrono::steady_clock::now().time_since_epoch();
        ms = std::chrono::duration<double, std::milli>(now).count();
        changed.notify_all();
    }
    void wait(size_t which)
    {
        {
            Unseen unseen;
            Lock held(lock);
            changed.wait(held, [this, which] { return passed >= which; });
        }
        emu::acquire(&edge);
    }
    bool has_passed()
    {
        bool has;
        {
            Unseen unseen;
            Lock held(lock);
            has = passed == recorded;
        }
        if (has)
            emu::acquire(&edge);
        return has;
    }
};

struct CUevent_st {
    int device;
    bool has_time;
    std::shared_ptr<Passing> passing = std::make_shared<Passing>();
};

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = new CUevent_st();
    (*out)->device = current;
    (*out)->has_time = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (event->device != checked(stream)->device)
        return emu::fail(cudaErrorInvalidResourceHandle);
    auto passing = event->passing;
    size_t which;
    {
        Unseen unseen;
        Lock held(passing->lock);
        which = ++passing->recorded;
    }
    return emu::enqueue(stream, [passing, which] { passing->pass(which); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    auto passing = event->passing;
    size_t which = passing->number(); /* the last record before this call */
    return emu::enqueue(stream, [passing, which] { passing->wait(which); });
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return event->passing->has_passed() ? cudaSuccess : not_ready();
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->has_time || !end->has_time || start->device != end->device)
        return emu::fail(cudaErrorInvalidResourceHandle);
    if (start->passing->number() == 0 || end->passing->number() == 0)
        return emu::fail(cudaErrorInvalidResourceHandle);
    if (!start->passing->has_passed() || !end->passing->has_passed())
        return cudaErrorNotReady;
    Unseen unseen;
    *ms = (float)(end->passing->ms - start->passing->ms);
    return cudaSuccess;
}
}

/* What the emulator's parts share: streams as queues with a thread each, and what ThreadSanitizer is
 * told. The emulator itself is built without sanitizers; happens-before edges are stated by hand, and
 * only where CUDA gives them (launches, events, stream order, barriers), so that the queues' own locks
 * hide no missing wait. */
#ifndef TESTS_CUDA_EMU_EMU_H
#define TESTS_CUDA_EMU_EMU_H

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace emu {

using Task = std::function<void()>;

/* Prints what a GPU would have done wrong, or would have hung on, and aborts. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's current device. */
int current_device();
/* Puts a task on a stream. The stream must be of the current device. */
cudaError_t enqueue(cudaStream_t, Task);
/* Gives back what kernels left on this thread. */
void end_thread();
/* Sets the error that cudaGetLastError returns, and returns it. */
cudaError_t fail(cudaError_t);

/* While one lives, the thread's locks and accesses are the emulator's own business. */
struct Unseen {
    Unseen();
    ~Unseen();
    Unseen(const Unseen &) = delete;
    Unseen &operator=(const Unseen &) = delete;
};
void acquire(void *edge);
void release(void *edge);
/* Accesses made by code that is not instrumented. */
void reads(const void *, size_t bytes);
void writes(void *, size_t bytes);
/* Seconds a wait between ranks may take before it is taken for a deadlock. */
enum { DEADLOCK_S = 60 };

} // namespace emu

#endif

/* Kernels: one fiber for every CUDA thread of a block, resumed in turn until each waits or has ended.
 * Blocks of a grid run one after another. */
#include "tests/cuda_emu/device.h"
#include "tests/cuda_emu/emu.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;
/* Every `extern __shared__` array is called smem; 227 KiB, as on sm_90. */
alignas(16) thread_local float smem[227 * 1024 / sizeof(float)];

static thread_local bool is_in_kernel;

void emu::die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "cuda emulator: ");
    vfprintf(stderr, format, args);
    va_end(args);
    if (is_in_kernel)
        fprintf(stderr, " (block %u thread %u)", blockIdx.x, threadIdx.x);
    fprintf(stderr, "\n");
    abort();
}

/* ---- switching ---- */

#if EMU_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_destroy_fiber(void *fiber);
}
enum { NO_HAPPENS_BEFORE = 1 };
static void tsan_to(void *fiber)
{
    __tsan_switch_to_fiber(fiber, NO_HAPPENS_BEFORE);
}
#else
static void *__tsan_get_current_fiber(void)
{
    return nullptr;
}
static void *__tsan_create_fiber(unsigned)
{
    return nullptr;
}
static void __tsan_destroy_fiber(void *)
{
}
static void tsan_to(void *)
{
}
#endif

#if EMU_ASAN
extern "C" {
void __asan_poison_memory_region(void const volatile *, size_t);
void __asan_unpoison_memory_region(void const volatile *, size_t);
}
static void allow_shared(size_t bytes)
{
    __asan_poison_memory_region(smem, sizeof smem);
    __asan_unpoison_memory_region(smem, bytes);
}
#else
static void allow_shared(size_t)
{
}
#endif

#if defined(__x86_64__)
/* Callee-saved registers on the stack, then the other stack. No system call, unlike swapcontext. */
extern "C" void emu_switch(void **save, void *load);
asm(".text\n"
    ".globl emu_switch\n"
    ".type emu_switch, @function\n"
    "emu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n");
enum { SAVED_REGISTERS = 6 };
struct Stack {
    void *top = nullptr;
    void start(char *memory, size_t bytes, void (*entry)())
    {
        void **words = reinterpret_cast<void **>(memory + bytes) - 2; /* aligned as after a call */
        words[0] = reinterpret_cast<void *>(entry);
        top = words - SAVED_REGISTERS;
    }
};
static void switch_stack(Stack &from, Stack &to)
{
    emu_switch(&from.top, to.top);
}
#else
#include <ucontext.h>
struct Stack {
    ucontext_t context;
    void start(char *memory, size_t bytes, void (*entry)())
    {
        getcontext(&context);
        context.uc_stack.ss_sp = memory;
        context.uc_stack.ss_size = bytes;
        makecontext(&context, entry, 0);
    }
};
static void switch_stack(Stack &from, Stack &to)
{
    swapcontext(&from.context, &to.context);
}
#endif

/* ---- a block ---- */

constexpr int WARP_LANES = 32;
constexpr size_t STACK_BYTES = 64 << 10, PAGE = 4096;

/* A meeting of fibers, again and again. `edge` alternates: a late one of the meeting before must not
 * wait for the next. */
struct Barrier {
    unsigned mask = 0, meetings = 0;
    int arrived = 0;
    char edge[2];
    uint64_t values[2][WARP_LANES];
};

struct Fiber {
    Stack stack;
    void *memory;
    void *tsan;
    int index;
    bool is_done;
    Barrier *waits_for;
    unsigned meeting; /* of the barrier it waits for */
};

struct Block {
    std::vector<Fiber *> fibers;
    std::vector<std::vector<Barrier>> warps; /* barriers by mask */
    Barrier all;
    Stack stack; /* of the stream's thread */
    void *tsan;
    Fiber *current;
    int threads, alive;
    const emu::Body *body;
    char begins, ends; /* edges */
};
static thread_local Block *block;

static int lane_of(const Block *b)
{
    return b->current->index % WARP_LANES;
}

static void leave(Block *b)
{
    Fiber *f = b->current;
    tsan_to(b->tsan);
    switch_stack(f->stack, b->stack);
}

static void fiber_main()
{
    for (;;) {
        emu::acquire(&block->begins);
        (*block->body)();
        emu::release(&block->ends);
        block->current->is_done = true;
        leave(block);
    }
}

static void enter(Block *b, Fiber *f)
{
    b->current = f;
    threadIdx = uint3{(unsigned)f->index, 0, 0};
    is_in_kernel = true;
    tsan_to(f->tsan);
    switch_stack(b->stack, f->stack);
    is_in_kernel = false;
}

static void meet(Block *b, Barrier *barrier, int expected, bool orders_memory)
{
    Fiber *f = b->current;
    unsigned meeting = barrier->meetings;
    if (orders_memory)
        emu::release(&barrier->edge[meeting & 1]);
    if (++barrier->arrived >= expected) {
        barrier->arrived = 0;
        barrier->meetings++;
    } else {
        f->waits_for = barrier;
        f->meeting = meeting;
        leave(b);
        f->waits_for = nullptr;
    }
    if (orders_memory)
        emu::acquire(&barrier->edge[meeting & 1]);
}

static Barrier *warp_barrier(Block *b, unsigned mask)
{
    enum { MASKS = 8 };
    auto &barriers = b->warps[b->current->index / WARP_LANES];
    if (!(mask >> lane_of(b) & 1))
        emu::die("a lane calls a warp operation whose mask leaves it out");
    for (auto &barrier : barriers)
        if (barrier.mask == mask)
            return &barrier;
    if (barriers.size() == MASKS)
        emu::die("more than %d warp masks in one block", MASKS);
    barriers.reserve(MASKS); /* others keep pointers */
    barriers.emplace_back();
    barriers.back().mask = mask;
    return &barriers.back();
}

static int lanes_of(const Block *b, unsigned mask)
{
    int left = b->threads - b->current->index / WARP_LANES * WARP_LANES;
    return __builtin_popcount(left < WARP_LANES ? mask & ((1u << left) - 1) : mask);
}

void emu::sync_threads()
{
    Block *b = block;
    meet(b, &b->all, b->alive, true);
}

void emu::sync_warp(unsigned mask)
{
    Block *b = block;
    meet(b, warp_barrier(b, mask), lanes_of(b, mask), true);
}

uint64_t emu::shuffle_xor(unsigned mask, uint64_t value, int other)
{
    Block *b = block;
    Barrier *barrier = warp_barrier(b, mask);
    unsigned side = barrier->meetings & 1;
    int own = lane_of(b);
    barrier->values[side][own] = value;
    meet(b, barrier, lanes_of(b, mask), false);
    return barrier->values[side][own ^ other];
}

static bool can_go_on(const Fiber *f)
{
    return !f->is_done && !(f->waits_for && f->waits_for->meetings == f->meeting);
}

/* Who has ended is not waited for any more. */
static void note_end(Block *b)
{
    if (--b->alive > 0 && b->all.arrived >= b->alive) {
        b->all.arrived = 0;
        b->all.meetings++;
    }
}

static bool run_warp(Block *b, int first)
{
    bool any = false, again = true;
    while (again) {
        again = false;
        for (int i = first; i < first + WARP_LANES && i < b->threads; i++) {
            if (!can_go_on(b->fibers[i]))
                continue;
            enter(b, b->fibers[i]);
            again = any = true;
            if (b->fibers[i]->is_done)
                note_end(b);
        }
    }
    return any;
}

static void report_deadlock(const Block *b)
{
    for (const Fiber *f : b->fibers)
        if (!f->is_done && f->waits_for) {
            threadIdx.x = f->index;
            is_in_kernel = true;
            break;
        }
    emu::die("deadlock: not all threads come to the barrier");
}

static void run_block(Block *b, unsigned index)
{
    blockIdx = uint3{index, 0, 0};
    b->all = Barrier();
    b->alive = b->threads;
    for (auto &barriers : b->warps)
        barriers.clear();
    for (int i = 0; i < b->threads; i++) {
        b->fibers[i]->is_done = false;
        b->fibers[i]->waits_for = nullptr;
    }
    emu::release(&b->begins);
    while (b->alive > 0) {
        bool any = false;
        for (int first = 0; first < b->threads; first += WARP_LANES)
            any = run_warp(b, first) || any;
        if (!any)
            report_deadlock(b);
    }
    emu::acquire(&b->ends);
}

/* ---- a grid ---- */

static Fiber *new_fiber(int index)
{
    Fiber *f = new Fiber();
    void *memory =
        mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0)
        emu::die("no memory for a fiber's stack");
    f->memory = memory;
    f->index = index;
    f->tsan = __tsan_create_fiber(0);
    f->stack.start(static_cast<char *>(memory), STACK_BYTES, fiber_main);
    return f;
}

static void run_grid(const cudaLaunchConfig_t &config, const emu::Body &body)
{
    if (!block)
        block = new Block(); /* for the life of the stream's thread */
    Block *b = block;
    b->tsan = __tsan_get_current_fiber();
    b->threads = (int)config.blockDim.x;
    b->body = &body;
    b->warps.resize((b->threads + WARP_LANES - 1) / WARP_LANES);
    while ((int)b->fibers.size() < b->threads)
        b->fibers.push_back(new_fiber((int)b->fibers.size()));
    blockDim = config.blockDim;
    gridDim = config.gridDim;
    allow_shared(config.dynamicSmemBytes);
    for (unsigned index = 0; index < config.gridDim.x; index++) {
        memset(static_cast<void *>(smem), 0xff, config.dynamicSmemBytes); /* NaN */
        run_block(b, index);
    }
    allow_shared(sizeof smem); /* another thread may get this memory */
}

void emu::end_thread()
{
    if (!block)
        return;
    for (Fiber *f : block->fibers) {
        __tsan_destroy_fiber(f->tsan);
        munmap(f->memory, STACK_BYTES);
        delete f;
    }
    delete block;
    block = nullptr;
}

cudaError_t emu::launch(const cudaLaunchConfig_t &config, Body body)
{
    enum { MOST_THREADS = 1024 };
    const dim3 &b = config.blockDim, &g = config.gridDim;
    if (b.y != 1 || b.z != 1 || g.y != 1 || g.z != 1)
        die("only one-dimensional launches are emulated");
    if (b.x == 0 || b.x > MOST_THREADS || g.x == 0 || g.x > 2147483647u)
        return fail(cudaErrorInvalidConfiguration);
    if (config.dynamicSmemBytes > sizeof smem)
        return fail(cudaErrorInvalidValue);
    return enqueue(config.stream, [config, body = std::move(body)] { run_grid(config, body); });
}

/* Taking turns: a queue of fibers that can run, and stacks that exist once for a whole run. */
#include "common/fiber.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/fiber_switch.h"

/* Address space only: the kernel gives pages as they are touched, and a rank touches about 16 KiB. */
enum { STACK_BYTES = 256 * 1024 };

struct fiber {
    struct fiber_context context;
    fiber_describe *describe; /* blocked: what it waits for */
    const void *what;
    int64_t now_ps;
    int next; /* in the queue; -1: last */
    bool is_blocked;
};

struct fibers {
    const struct fiber_work *work;
    struct fiber_context main;
    struct fiber *fiber;
    char *stacks;
    size_t stack_stride; /* a stack and its guard page */
    int count, running, ended;
    int first, last; /* queue of those that can run; -1: empty */
};

static _Thread_local struct fibers *self;

static struct fiber *running(void)
{
    return &self->fiber[self->running];
}

/* ---- the queue ---- */

static void enqueue(int index)
{
    self->fiber[index].next = -1;
    if (self->first < 0)
        self->first = index;
    else
        self->fiber[self->last].next = index;
    self->last = index;
}

static int dequeue(void)
{
    int index = self->first;
    self->first = self->fiber[index].next;
    return index;
}

void fiber_wake(int index)
{
    struct fiber *f = &self->fiber[index];
    if (!f->is_blocked)
        return;
    f->is_blocked = false;
    enqueue(index);
}

void fiber_wake_all(void)
{
    for (int i = 0; i < self->count; i++)
        fiber_wake(i);
}

/* ---- turns ---- */

/* Gives the turn to the next that can run; the thread's own flow of control has the last one. */
static void next_turn(struct fiber_context *from, bool is_last)
{
    if (self->first < 0 && self->ended < self->count)
        self->work->stuck(self->work->context);
    ASSERT(self->first >= 0 || self->ended == self->count);
    if (self->first < 0) {
        fiber_context_switch(from, &self->main, is_last);
        return;
    }
    int next = dequeue();
    struct fiber_context *to = &self->fiber[next].context;
    self->running = next;
    if (self->work->enter != NULL)
        self->work->enter(next, self->work->context);
    if (to != from)
        fiber_context_switch(from, to, is_last);
}

void fiber_block(fiber_describe *describe, const void *what)
{
    struct fiber *f = running();
    f->describe = describe;
    f->what = what;
    f->is_blocked = true;
    next_turn(&f->context, false);
}

bool fiber_waits(int index, char *out, size_t size)
{
    const struct fiber *f = &self->fiber[index];
    if (f->is_blocked)
        f->describe(f->what, out, size);
    return f->is_blocked;
}

static void fiber_main(void)
{
    fiber_context_entered();
    self->work->run(self->running, self->work->context);
    self->ended++;
    next_turn(&running()->context, true);
}

/* ---- clocks ---- */

int64_t fiber_now(void)
{
    return running()->now_ps;
}

void fiber_advance(int64_t ps)
{
    ASSERT_CMP(ps, >=, 0);
    running()->now_ps += ps;
}

void fiber_align_clocks(void)
{
    int64_t latest = 0;
    for (int i = 0; i < self->count; i++)
        latest = self->fiber[i].now_ps > latest ? self->fiber[i].now_ps : latest;
    for (int i = 0; i < self->count; i++)
        self->fiber[i].now_ps = latest;
}

/* ---- a run ---- */

/* A stack that is too small faults on the page below it instead of corrupting its neighbour. */
static enum status make_stacks(struct fibers *fibers)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    fibers->stack_stride = STACK_BYTES + page;
    size_t bytes = (size_t)fibers->count * fibers->stack_stride;
    void *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the stacks of %d ranks", fibers->count);
    fibers->stacks = stacks;
    for (int i = 0; i < fibers->count; i++) {
        char *guard = fibers->stacks + (size_t)i * fibers->stack_stride;
        if (mprotect(guard, page, PROT_NONE) != 0 ||
            fiber_context_make(&fibers->fiber[i].context, guard + page, STACK_BYTES, fiber_main) != 0)
            return FAIL(ERR_MEMORY, "no memory for the stack of rank %d", i);
    }
    return OK;
}

static enum status make(struct fibers *fibers)
{
    fibers->fiber = calloc((size_t)fibers->count, sizeof *fibers->fiber);
    if (fibers->fiber == NULL || fiber_context_adopt(&fibers->main) != 0)
        return FAIL(ERR_MEMORY, "no memory for %d ranks", fibers->count);
    return make_stacks(fibers);
}

static void unmake(struct fibers *fibers)
{
    for (int i = 0; fibers->fiber != NULL && i < fibers->count; i++)
        fiber_context_free(&fibers->fiber[i].context);
    fiber_context_free(&fibers->main);
    if (fibers->stacks != NULL)
        munmap(fibers->stacks, (size_t)fibers->count * fibers->stack_stride);
    free(fibers->fiber);
}

enum status fibers_run(int count, const struct fiber_work *work)
{
    struct fibers fibers = {.work = work, .count = count, .first = -1}, *former = self;
    enum status status = make(&fibers);
    if (status == OK) {
        self = &fibers;
        for (int i = 0; i < count; i++)
            enqueue(i);
        next_turn(&fibers.main, false);
        self = former;
    }
    unmake(&fibers);
    return status;
}

/* Fibers: many flows of control that take turns in one thread, each with a stack and a clock of its own.
 * The simulator runs a rank in each: a rank runs until it needs something that another has not done yet,
 * then the next one that can runs. Turns are first come, first served, so a program runs the same way
 * every time.
 *
 * Everything here acts on the fibers of the calling thread. */
#ifndef COMMON_FIBER_H
#define COMMON_FIBER_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fiber_work {
    /* Fiber `index` from start to end. */
    void (*run)(int index, void *context);
    /* OPTIONAL. Called before fiber `index` gets its turn: whatever is kept per thread becomes its own. */
    void (*enter)(int index, void *context);
    /* Nothing can run while fibers are blocked. Must wake one (after an abort they end by themselves). */
    void (*stuck)(void *context);
    void *context;
};

/* Runs `count` fibers and returns when all have ended. ERR_MEMORY: no stacks. */
enum status fibers_run(int count, const struct fiber_work *) WARN_UNUSED;

/* What a blocked fiber waits for, in words. */
typedef void fiber_describe(const void *what, char *out, size_t size);
/* The calling fiber gives up its turn until somebody wakes it; it may be woken for nothing, so callers
 * look again. `what` must stay valid while it is blocked. */
void fiber_block(fiber_describe *describe, const void *what);
/* Does nothing unless the fiber is blocked. */
void fiber_wake(int index);
void fiber_wake_all(void);
/* False: the fiber is not blocked. Else writes what it waits for. */
bool fiber_waits(int index, char *out, size_t size);

/* The calling fiber's clock in picoseconds: the time at which its host program is. Starts at 0. */
int64_t fiber_now(void);
/* Never backwards. */
void fiber_advance(int64_t ps);
/* All clocks become the latest of all. */
void fiber_align_clocks(void);

#endif

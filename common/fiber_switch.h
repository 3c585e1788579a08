/* Changing stacks: saves what the caller of a function may rely on, and no more. A few nanoseconds on
 * x86-64 and aarch64; elsewhere swapcontext, whose system call costs a microsecond. Private to fiber.c. */
#ifndef COMMON_FIBER_SWITCH_H
#define COMMON_FIBER_SWITCH_H

#include <stddef.h>

/* A suspended flow of control. */
struct fiber_context {
    void *stack_pointer;
    void *portable;     /* ucontext_t, where there is no own switch */
    void *sanitizer;    /* ThreadSanitizer's fiber, or AddressSanitizer's saved stack */
    void *stack;        /* lowest address */
    size_t stack_bytes; /* 0: the thread's own stack */
};

/* Makes a context that runs entry() on the given stack when it is switched to; entry must not return. 0:
 * done; else no memory. */
int fiber_context_make(struct fiber_context *, void *stack, size_t bytes, void (*entry)(void));
/* The running flow of control, before it first switches. */
int fiber_context_adopt(struct fiber_context *);
void fiber_context_free(struct fiber_context *);
/* Suspends `from`, which must be the running one, and resumes `to`. is_last: `from` never comes back. */
void fiber_context_switch(struct fiber_context *from, struct fiber_context *to, int is_last);
/* The first thing that entry() calls. */
void fiber_context_entered(void);

#endif

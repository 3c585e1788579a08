/* The stack switch for each machine, with the notes that sanitizers need. */
#include "common/fiber_switch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__aarch64__)
#define HAS_OWN_SWITCH 1
#else
#define HAS_OWN_SWITCH 0
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif
#ifndef HAS_TSAN
#define HAS_TSAN 0
#endif

/* ---- the switch itself ---- */

#if HAS_OWN_SWITCH

void fiber_switch_stacks(void **save, void *load);

/* Pushes the registers that a callee must keep, changes stacks, pops them. A new stack holds a frame
 * with entry() as its return address. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl fiber_switch_stacks\n"
        ".type fiber_switch_stacks, @function\n"
        "fiber_switch_stacks:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size fiber_switch_stacks, .-fiber_switch_stacks\n");
/* Six registers, the return address, and a word that keeps entry()'s stack aligned as after a call. */
enum { FRAME_WORDS = 8, FRAME_ENTRY = 6 };
#else
__asm__(".text\n"
        ".globl fiber_switch_stacks\n"
        ".type fiber_switch_stacks, %function\n"
        "fiber_switch_stacks:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size fiber_switch_stacks, .-fiber_switch_stacks\n");
enum { FRAME_WORDS = 20, FRAME_ENTRY = 11 };
#endif
__asm__(".section .note.GNU-stack,\"\",%progbits\n.text\n");

static int make_frame(struct fiber_context *c, void (*entry)(void))
{
    uintptr_t top = ((uintptr_t)c->stack + c->stack_bytes) & ~(uintptr_t)15;
    void **frame = (void **)top - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[FRAME_ENTRY] = (void *)(uintptr_t)entry;
    c->stack_pointer = frame;
    return 0;
}

static void swap(struct fiber_context *from, struct fiber_context *to)
{
    fiber_switch_stacks(&from->stack_pointer, to->stack_pointer);
}

#else

static int make_frame(struct fiber_context *c, void (*entry)(void))
{
    ucontext_t *portable = c->portable;
    if (getcontext(portable) != 0)
        return -1;
    portable->uc_stack.ss_sp = c->stack;
    portable->uc_stack.ss_size = c->stack_bytes;
    portable->uc_link = NULL;
    makecontext(portable, entry, 0);
    return 0;
}

static void swap(struct fiber_context *from, struct fiber_context *to)
{
    swapcontext(from->portable, to->portable);
}

#endif

static int make_portable(struct fiber_context *c)
{
#if HAS_OWN_SWITCH
    (void)c;
    return 0;
#else
    c->portable = calloc(1, sizeof(ucontext_t));
    return c->portable == NULL;
#endif
}

/* ---- what sanitizers want to know ---- */

#if HAS_ASAN
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom_old, size_t *size_old);

static _Thread_local struct fiber_context *left; /* learns the thread's own stack */

static void note_leave(struct fiber_context *from, struct fiber_context *to, int is_last)
{
    left = from;
    __sanitizer_start_switch_fiber(is_last ? NULL : &from->sanitizer, to->stack, to->stack_bytes);
}

static void note_enter(void *save)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(save, &bottom, &bytes);
    if (left->stack_bytes == 0) {
        left->stack = (void *)(uintptr_t)bottom;
        left->stack_bytes = bytes;
    }
}
#elif HAS_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);

static void note_leave(struct fiber_context *from, struct fiber_context *to, int is_last)
{
    (void)from;
    (void)is_last;
    __tsan_switch_to_fiber(to->sanitizer, 0);
}

static void note_enter(void *save)
{
    (void)save;
}
#else
static void note_leave(struct fiber_context *from, struct fiber_context *to, int is_last)
{
    (void)from;
    (void)to;
    (void)is_last;
}

static void note_enter(void *save)
{
    (void)save;
}
#endif

/* ---- contexts ---- */

int fiber_context_make(struct fiber_context *c, void *stack, size_t bytes, void (*entry)(void))
{
    *c = (struct fiber_context){.stack = stack, .stack_bytes = bytes};
    if (make_portable(c) != 0)
        return -1;
#if HAS_TSAN
    c->sanitizer = __tsan_create_fiber(0);
#endif
    return make_frame(c, entry);
}

int fiber_context_adopt(struct fiber_context *c)
{
    *c = (struct fiber_context){0};
#if HAS_TSAN
    c->sanitizer = __tsan_get_current_fiber();
#endif
    return make_portable(c);
}

void fiber_context_free(struct fiber_context *c)
{
#if HAS_TSAN
    if (c->stack_bytes > 0 && c->sanitizer != NULL)
        __tsan_destroy_fiber(c->sanitizer);
#endif
    free(c->portable);
    *c = (struct fiber_context){0};
}

void fiber_context_switch(struct fiber_context *from, struct fiber_context *to, int is_last)
{
    note_leave(from, to, is_last);
    swap(from, to);
    note_enter(from->sanitizer);
}

void fiber_context_entered(void)
{
    note_enter(NULL);
}

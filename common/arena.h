/* A rank's device memory: every allocation has a purpose, is counted, and is freed with its arena.
 *
 * A rank has two arenas: `persistent` holds the weights for as long as the model is loaded, `scratch`
 * holds a strategy's buffers from setup to teardown. Nothing is allocated inside timing: a sealed arena
 * refuses (ERR_INTERNAL). */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H

#include "common/lane.h"
#include <stdbool.h>
#include <stdint.h>

enum memory_purpose {
    MEMORY_WEIGHTS,
    MEMORY_ACTIVATIONS, /* hidden states, q/k/v, the latent, message buffers */
    MEMORY_STALE,       /* what a stale strategy keeps from earlier steps */
    MEMORY_WORKSPACE,   /* tables and temporaries of a device or a model */
    MEMORY_PURPOSES,
};
const char *memory_purpose_name(enum memory_purpose p); /* "weights" ... */

/* Bytes now held and the most ever held at once, per purpose and in all. Shared by a rank's arenas. */
struct memory_ledger {
    uint64_t held[MEMORY_PURPOSES], peak[MEMORY_PURPOSES];
    uint64_t held_total, peak_total;
    uint64_t limit; /* bytes; 0: the device's own limit only. Beyond it: ERR_MEMORY with the figures */
};
/* Counts without allocating: storage that is shared between ranks is held by each, stored once. */
enum status memory_ledger_add(struct memory_ledger *, enum memory_purpose, size_t bytes) WARN_UNUSED;
void memory_ledger_remove(struct memory_ledger *, enum memory_purpose, size_t bytes);

struct arena;
enum status arena_open(struct lane_system *, struct memory_ledger *, struct arena **out) WARN_UNUSED;
/* Frees everything the arena gave out. Accepts NULL. */
void arena_close(struct arena *);
/* 64-byte aligned; contents undefined. bytes 0 gives a valid address that must not be accessed. */
enum status arena_alloc(struct arena *, enum memory_purpose, size_t bytes, struct devmem *out)
    WARN_UNUSED;
/* Takes memory that somebody else allocated: counted here, and given back through release(context) when
 * the arena closes. On failure the caller keeps it. */
enum status arena_adopt(struct arena *, enum memory_purpose, struct devmem, size_t bytes,
                        void (*release)(void *context), void *context) WARN_UNUSED;
void arena_seal(struct arena *, bool sealed);

#endif

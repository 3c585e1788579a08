/* The ledger counts, the arena remembers what to free. */
#include "common/arena.h"

#include <stdlib.h>

enum { ARENA_ALIGNMENT = 64 };

static const char *const purpose_names[MEMORY_PURPOSES] = {
    [MEMORY_WEIGHTS] = "weights",
    [MEMORY_ACTIVATIONS] = "activations",
    [MEMORY_STALE] = "stale",
    [MEMORY_WORKSPACE] = "workspace",
};

struct block {
    struct devmem memory;
    size_t bytes;
    enum memory_purpose purpose;
    void (*release)(void *context); /* NULL: the arena's own allocation */
    void *context;
};

struct arena {
    struct lane_system *system;
    struct memory_ledger *ledger;
    struct block *blocks;
    size_t count, capacity;
    bool is_sealed;
};

const char *memory_purpose_name(enum memory_purpose p)
{
    ASSERT_CMP(p, <, MEMORY_PURPOSES);
    return purpose_names[p];
}

/* ---- ledger ---- */

static enum status check_limit(const struct memory_ledger *ledger, enum memory_purpose purpose,
                               size_t bytes)
{
    uint64_t limit = ledger->limit ? ledger->limit : UINT64_MAX, held = ledger->held_total;
    if (held > limit || bytes > limit - held)
        return FAIL(ERR_MEMORY, "%zu bytes asked for %s with %llu held: the limit is %llu bytes",
                    bytes, memory_purpose_name(purpose), (unsigned long long)held,
                    (unsigned long long)limit);
    return OK;
}

static void raise_to(uint64_t *peak, uint64_t held)
{
    if (*peak < held)
        *peak = held;
}

static void count_in(struct memory_ledger *ledger, enum memory_purpose purpose, size_t bytes)
{
    ledger->held[purpose] += bytes;
    ledger->held_total += bytes;
    raise_to(&ledger->peak[purpose], ledger->held[purpose]);
    raise_to(&ledger->peak_total, ledger->held_total);
}

enum status memory_ledger_add(struct memory_ledger *ledger, enum memory_purpose purpose,
                              size_t bytes)
{
    TRY(check_limit(ledger, purpose, bytes));
    count_in(ledger, purpose, bytes);
    return OK;
}

void memory_ledger_remove(struct memory_ledger *ledger, enum memory_purpose purpose, size_t bytes)
{
    ASSERT_CMP(ledger->held[purpose], >=, bytes);
    ledger->held[purpose] -= bytes;
    ledger->held_total -= bytes;
}

/* ---- arena ---- */

enum status arena_open(struct lane_system *system, struct memory_ledger *ledger, struct arena **out)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return FAIL(ERR_MEMORY, "no memory for an arena");
    arena->system = system;
    arena->ledger = ledger;
    *out = arena;
    return OK;
}

void arena_close(struct arena *arena)
{
    if (!arena)
        return;
    /* Last in, first out: what a device's allocator likes best. */
    for (size_t i = arena->count; i-- > 0;) {
        const struct block *b = &arena->blocks[i];
        if (b->release)
            b->release(b->context);
        else
            lane_free(arena->system, b->memory, b->bytes);
        memory_ledger_remove(arena->ledger, b->purpose, b->bytes);
    }
    free(arena->blocks);
    free(arena);
}

static enum status reserve_block(struct arena *arena)
{
    if (arena->count < arena->capacity)
        return OK;
    size_t capacity = arena->capacity ? 2 * arena->capacity : 64;
    struct block *blocks = realloc(arena->blocks, capacity * sizeof *blocks);
    if (!blocks)
        return FAIL(ERR_MEMORY, "no memory for an arena's list of %zu blocks", capacity);
    arena->blocks = blocks;
    arena->capacity = capacity;
    return OK;
}

/* May another block of so many bytes be added? */
static enum status admit(struct arena *arena, enum memory_purpose purpose, size_t bytes)
{
    if (arena->is_sealed)
        return FAIL(ERR_INTERNAL, "%zu bytes asked for %s from a sealed arena", bytes,
                    memory_purpose_name(purpose));
    TRY(check_limit(arena->ledger, purpose, bytes));
    return reserve_block(arena);
}

/* Counted only once it is there: a peak is of memory that was really held. */
static void add_block(struct arena *arena, struct block block)
{
    count_in(arena->ledger, block.purpose, block.bytes);
    arena->blocks[arena->count++] = block;
}

enum status arena_alloc(struct arena *arena, enum memory_purpose purpose, size_t bytes,
                        struct devmem *out)
{
    struct devmem memory;
    TRY(admit(arena, purpose, bytes));
    TRY(lane_alloc(arena->system, bytes, &memory));
    ASSERT_CMP(memory.addr % ARENA_ALIGNMENT, ==, 0);
    add_block(arena, (struct block){.memory = memory, .bytes = bytes, .purpose = purpose});
    *out = memory;
    return OK;
}

enum status arena_adopt(struct arena *arena, enum memory_purpose purpose, struct devmem memory,
                        size_t bytes, void (*release)(void *context), void *context)
{
    TRY(admit(arena, purpose, bytes));
    add_block(arena, (struct block){.memory = memory, .bytes = bytes, .purpose = purpose,
                                    .release = release, .context = context});
    return OK;
}

void arena_seal(struct arena *arena, bool sealed)
{
    arena->is_sealed = sealed;
}

/* The checked wrappers, and lanes of host memory. */
#include "common/lane.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum { HOST_ALIGNMENT = 64 }; /* a cache line, and the widest vector */

/* ---- host memory ---- */

struct host_system {
    struct lane_system base;
    size_t held; /* bytes */
};

static enum status host_alloc(struct lane_system *system, size_t bytes, struct devmem *out)
{
    struct host_system *host = (struct host_system *)system;
    void *memory = NULL;
    /* Beyond PTRDIFF_MAX no allocator succeeds, and some abort instead of saying so. */
    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, HOST_ALIGNMENT, bytes))
        return FAIL(ERR_MEMORY, "host: cannot allocate %zu bytes (%zu bytes held)", bytes,
                    host->held);
    host->held += bytes;
    *out = (struct devmem){(uintptr_t)memory};
    return OK;
}

static void host_free(struct lane_system *system, struct devmem m, size_t bytes)
{
    struct host_system *host = (struct host_system *)system;
    ASSERT_CMP(host->held, >=, bytes);
    host->held -= bytes;
    free(lane_host_pointer(m));
}

static enum status host_upload(struct lane_system *system, struct devmem dst, const void *src,
                               size_t bytes)
{
    (void)system;
    memcpy(lane_host_pointer(dst), src, bytes);
    return OK;
}

static enum status host_download(struct lane_system *system, void *dst, struct devmem src,
                                 size_t bytes)
{
    (void)system;
    memcpy(dst, lane_host_pointer(src), bytes);
    return OK;
}

/* Work is done when its call returns: every lane is as far as the compute lane, so it is that. */
static enum status host_open_lane(struct lane_system *system, const char *label, struct lane **out)
{
    (void)system;
    (void)label;
    *out = NULL;
    return OK;
}

static void host_close_lane(struct lane_system *system, struct lane *lane)
{
    (void)system;
    (void)lane;
}

static enum status host_order(struct lane_system *system, struct lane *after, struct lane *before)
{
    (void)system;
    (void)after;
    (void)before;
    return OK;
}

static enum status host_mark(struct lane_system *system, struct lane *lane, struct mark *out)
{
    (void)system;
    (void)lane;
    *out = (struct mark){.ps = clock_ps()};
    return OK;
}

static int64_t host_mark_ps(struct lane_system *system, const struct mark *mark)
{
    (void)system;
    return mark->ps;
}

static enum status host_sync(struct lane_system *system)
{
    (void)system;
    return OK;
}

static void host_reset_marks(struct lane_system *system)
{
    (void)system;
}

static const struct lane_ops host_ops = {
    .name = "host",
    .memory = MEMORY_HOST,
    .alloc = host_alloc,
    .free = host_free,
    .upload = host_upload,
    .download = host_download,
    .open_lane = host_open_lane,
    .close_lane = host_close_lane,
    .order = host_order,
    .mark = host_mark,
    .mark_ps = host_mark_ps,
    .sync = host_sync,
    .reset_marks = host_reset_marks,
};

enum status lane_host_open(int rank, struct lane_system **out)
{
    struct host_system *host = calloc(1, sizeof *host);
    if (!host)
        return FAIL(ERR_MEMORY, "host: no memory for a lane system");
    host->base = (struct lane_system){.ops = &host_ops, .rank = rank};
    *out = &host->base;
    return OK;
}

void lane_host_close(struct lane_system *system)
{
    ASSERT(!system || system->ops == &host_ops);
    free(system);
}

/* ---- checked wrappers ---- */

/* Back ends never see 0 bytes: their allocators differ in what they make of it. */
static size_t at_least_one(size_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

enum status lane_alloc(struct lane_system *system, size_t bytes, struct devmem *out)
{
    struct devmem m = DEVMEM_NONE;
    TRY(system->ops->alloc(system, at_least_one(bytes), &m));
    ASSERT(!devmem_is_none(m));
    *out = m;
    return OK;
}

void lane_free(struct lane_system *system, struct devmem m, size_t bytes)
{
    if (!devmem_is_none(m))
        system->ops->free(system, m, at_least_one(bytes));
}

enum status lane_upload(struct lane_system *system, struct devmem dst, const void *src,
                        size_t bytes)
{
    if (bytes == 0)
        return OK;
    if (devmem_is_none(dst) || !src)
        return FAIL(ERR_INTERNAL, "%s: upload of %zu bytes from or to nowhere", system->ops->name,
                    bytes);
    return system->ops->upload(system, dst, src, bytes);
}

enum status lane_download(struct lane_system *system, void *dst, struct devmem src, size_t bytes)
{
    if (bytes == 0)
        return OK;
    if (devmem_is_none(src) || !dst)
        return FAIL(ERR_INTERNAL, "%s: download of %zu bytes from or to nowhere", system->ops->name,
                    bytes);
    return system->ops->download(system, dst, src, bytes);
}

enum status lane_mark(struct lane_system *system, struct lane *lane, struct mark *out)
{
    struct mark mark = {0};
    TRY(system->ops->mark(system, lane, &mark));
    *out = mark;
    return OK;
}

enum status lane_now(struct lane_system *system, struct mark *out)
{
    struct mark mark = {0};
    if (!system->ops->now)
        return lane_mark(system, NULL, out);
    TRY(system->ops->now(system, &mark));
    *out = mark;
    return OK;
}

int64_t lane_mark_ps(struct lane_system *system, const struct mark *mark)
{
    return system->ops->mark_ps(system, mark);
}

enum status lane_sync(struct lane_system *system)
{
    return system->ops->sync(system);
}

void lane_drain(struct lane_system *system)
{
    if (system && system->ops->drain)
        system->ops->drain(system);
}

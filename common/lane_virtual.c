/* A compute clock, the times it stood still, and the times already charged for. */
#include "common/lane_virtual.h"

#include <stdlib.h>
#include <string.h>

#include "common/fiber.h"

struct lane {
    int64_t end_ps;
};

/* Disjoint intervals in order of time. */
struct interval {
    int64_t begin, end;
};
struct intervals {
    struct interval *list;
    size_t count, capacity;
};

struct virtual_system {
    struct lane_system base; /* must be first */
    const struct platform *platform;
    int64_t compute_ps; /* everything put on the compute lane so far has ended */
    size_t held;        /* bytes */
    uintptr_t next_address;
    int pending;              /* transfers under way; none: no interval matters any more */
    struct intervals charged; /* computing that has paid */
    struct intervals idle;    /* the compute lane stood still, or was charged for earlier computing */
};

static struct virtual_system *virtual_system(struct lane_system *system)
{
    return (struct virtual_system *)system;
}

/* ---- memory ---- */

enum { ADDRESS_ALIGNMENT = 64 };

static enum status virtual_alloc(struct lane_system *system, size_t bytes, struct devmem *out)
{
    struct virtual_system *v = virtual_system(system);
    uint64_t limit = v->platform->gpu.memory_bytes;
    if (bytes > PTRDIFF_MAX || (limit > 0 && (uint64_t)v->held + bytes > limit))
        return FAIL(ERR_MEMORY, "%s: %zu bytes do not fit beside %zu bytes held, of %llu",
                    v->platform->name, bytes, v->held, (unsigned long long)limit);
    v->held += bytes;
    *out = (struct devmem){v->next_address};
    v->next_address += (bytes + ADDRESS_ALIGNMENT - 1) / ADDRESS_ALIGNMENT * ADDRESS_ALIGNMENT;
    return OK;
}

static void virtual_free(struct lane_system *system, struct devmem m, size_t bytes)
{
    struct virtual_system *v = virtual_system(system);
    (void)m;
    ASSERT_CMP(v->held, >=, bytes);
    v->held -= bytes;
}

static enum status virtual_upload(struct lane_system *system, struct devmem dst, const void *src,
                                  size_t bytes)
{
    (void)system;
    (void)dst;
    (void)src;
    (void)bytes;
    return OK;
}

static enum status virtual_download(struct lane_system *system, void *dst, struct devmem src,
                                    size_t bytes)
{
    (void)system;
    (void)src;
    memset(dst, 0, bytes);
    return OK;
}

/* ---- lanes ---- */

static enum status virtual_open_lane(struct lane_system *system, const char *label, struct lane **out)
{
    (void)system;
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return FAIL(ERR_MEMORY, "virtual: no memory for lane %s", label);
    *out = lane;
    return OK;
}

static void virtual_close_lane(struct lane_system *system, struct lane *lane)
{
    (void)system;
    free(lane);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The end of everything on a lane, as an event put there now would see it. */
static int64_t *lane_end(struct virtual_system *v, struct lane *lane)
{
    int64_t *end = lane == NULL ? &v->compute_ps : &lane->end_ps;
    *end = later(*end, fiber_now());
    return end;
}

static enum status virtual_order(struct lane_system *system, struct lane *after, struct lane *before)
{
    struct virtual_system *v = virtual_system(system);
    int64_t end = *lane_end(v, before), *later_end = lane_end(v, after);
    *later_end = later(*later_end, end);
    return OK;
}

static enum status virtual_mark(struct lane_system *system, struct lane *lane, struct mark *out)
{
    *out = (struct mark){.ps = *lane_end(virtual_system(system), lane)};
    return OK;
}

static int64_t virtual_mark_ps(struct lane_system *system, const struct mark *mark)
{
    (void)system;
    return mark->ps;
}

static enum status virtual_sync(struct lane_system *system)
{
    fiber_advance(*lane_end(virtual_system(system), NULL) - fiber_now());
    return OK;
}

static void virtual_reset_marks(struct lane_system *system)
{
    (void)system;
}

static const struct lane_ops virtual_ops = {
    .name = "virtual",
    .memory = MEMORY_VIRTUAL,
    .alloc = virtual_alloc,
    .free = virtual_free,
    .upload = virtual_upload,
    .download = virtual_download,
    .open_lane = virtual_open_lane,
    .close_lane = virtual_close_lane,
    .order = virtual_order,
    .mark = virtual_mark,
    .mark_ps = virtual_mark_ps,
    .sync = virtual_sync,
    .reset_marks = virtual_reset_marks,
};

enum status lane_virtual_open(int rank, const struct platform *platform, struct lane_system **out)
{
    struct virtual_system *v = calloc(1, sizeof *v);
    if (v == NULL)
        return FAIL(ERR_MEMORY, "virtual: no memory for a lane system");
    v->base = (struct lane_system){.ops = &virtual_ops, .rank = rank};
    v->platform = platform;
    v->next_address = ADDRESS_ALIGNMENT;
    *out = &v->base;
    return OK;
}

void lane_virtual_close(struct lane_system *system)
{
    if (system == NULL)
        return;
    ASSERT(system->ops == &virtual_ops);
    free(virtual_system(system)->charged.list);
    free(virtual_system(system)->idle.list);
    free(system);
}

const struct platform *lane_virtual_platform(const struct lane_system *system)
{
    ASSERT(system->ops == &virtual_ops);
    return ((const struct virtual_system *)system)->platform;
}

/* ---- intervals ---- */

/* The first interval that ends after t. */
static size_t find_after(const struct intervals *s, int64_t t)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->list[middle].end > t)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void grow(struct intervals *s)
{
    if (s->count < s->capacity)
        return;
    s->capacity = s->capacity == 0 ? 8 : 2 * s->capacity;
    struct interval *list = realloc(s->list, s->capacity * sizeof *list);
    ASSERT(list != NULL); /* a few kilobytes: without them nothing else would work either */
    s->list = list;
}

/* Unites [begin, end) with the set. */
static void add(struct intervals *s, int64_t begin, int64_t end)
{
    if (begin >= end)
        return;
    size_t first = find_after(s, begin - 1), last = first;
    while (last < s->count && s->list[last].begin <= end) {
        begin = begin < s->list[last].begin ? begin : s->list[last].begin;
        end = later(end, s->list[last].end);
        last++;
    }
    if (first == last)
        grow(s);
    size_t after = s->count - last;
    memmove(s->list + first + 1, s->list + last, after * sizeof *s->list);
    s->list[first] = (struct interval){begin, end};
    s->count = first + 1 + after;
}

/* ---- clocks ---- */

/* The compute lane does nothing for the computing's sake from now until `until`. */
static void stand_still(struct virtual_system *v, int64_t until)
{
    if (v->pending > 0)
        add(&v->idle, v->compute_ps, until);
    v->compute_ps = later(v->compute_ps, until);
}

static void issue(struct virtual_system *v, double host_ops)
{
    fiber_advance(platform_ps(host_ops * v->platform->gpu.host_op_s));
    stand_still(v, fiber_now());
}

void lane_virtual_compute(struct lane_system *system, int64_t ps, double host_ops)
{
    struct virtual_system *v = virtual_system(system);
    ASSERT_CMP(ps, >=, 0);
    issue(v, host_ops);
    v->compute_ps += ps;
}

int64_t lane_virtual_post(struct lane_system *system, double host_ops)
{
    struct virtual_system *v = virtual_system(system);
    issue(v, host_ops);
    v->pending++;
    return v->compute_ps;
}

/* Computing in [begin, end) that has not paid yet; it has afterwards. */
static int64_t charge(struct virtual_system *v, int64_t begin, int64_t end)
{
    int64_t busy = 0, at = begin;
    size_t c = find_after(&v->charged, begin), i = find_after(&v->idle, begin);
    while (at < end) {
        const struct interval *charged = c < v->charged.count ? &v->charged.list[c] : NULL;
        const struct interval *idle = i < v->idle.count ? &v->idle.list[i] : NULL;
        bool is_charged = charged != NULL && (idle == NULL || charged->begin <= idle->begin);
        const struct interval *next = is_charged ? charged : idle;
        int64_t until = next != NULL && next->begin < end ? next->begin : end;
        busy += until > at ? until - at : 0;
        at = later(at, next != NULL && next->begin < end ? next->end : end);
        c += is_charged;
        i += !is_charged;
    }
    add(&v->charged, begin, end);
    return busy;
}

int64_t lane_virtual_await(struct lane_system *system, int64_t begin_ps, int64_t end_ps)
{
    struct virtual_system *v = virtual_system(system);
    double cost = v->platform->gpu.overlap_cost;
    int64_t now = v->compute_ps, until = end_ps < now ? end_ps : now, busy = 0;
    ASSERT_CMP(begin_ps, <=, end_ps);
    if (begin_ps < until && cost > 0)
        busy = charge(v, begin_ps, until);
    int64_t price = (int64_t)((double)busy * cost + 0.5);
    stand_still(v, end_ps);
    stand_still(v, v->compute_ps + price);
    if (--v->pending == 0)
        v->charged.count = v->idle.count = 0;
    return price;
}

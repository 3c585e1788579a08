/* Each figure is the best of several timings of one operation of a DiT's usual size. */
#include "bench/calibrate.h"

#include "bench/launch.h"
#include "common/arena.h"
#include "common/clock.h"
#include "common/comm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 15, SHORT = 256, LEAST = 4 }; /* elements of what is all latency */
/* Arrays of sums: larger than the caches that messages and activations pass. */
enum { HOST_STATES = 4, GPU_STATES = 16 };

struct bench {
    const struct calibration *sizes;
    struct device *device;
    struct arena *arena;
    struct devmem x, w, y;
    int batch; /* operations between two looks at the clock: a GPU starts them while it computes */
};

static size_t state_elements(const struct calibration *c)
{
    return c->tokens * c->hidden;
}

static size_t long_elements(const struct calibration *c)
{
    return state_elements(c) * (c->device->memory == MEMORY_HOST ? HOST_STATES : GPU_STATES);
}

void calibrate_sizes(struct calibration *c)
{
    bool is_host = c->device->memory == MEMORY_HOST;
    c->tokens = is_host ? 512 : 4096;
    c->hidden = is_host ? 512 : 1152;
}

typedef enum status measured(struct bench *);

static struct linear_call product_call(const struct bench *b)
{
    size_t hidden = b->sizes->hidden, mlp = 4 * hidden;
    return (struct linear_call){.m = b->sizes->tokens, .n = mlp, .k = hidden, .ldx = hidden, .ldw = hidden,
                                .ldy = mlp, .x = b->x, .w = b->w, .y = b->y};
}

static enum status product(struct bench *b)
{
    struct linear_call call = product_call(b);
    return device_linear(b->device, &call);
}

static struct attention_call attention_call(const struct bench *b)
{
    size_t tokens = b->sizes->tokens, hidden = b->sizes->hidden, head_dim = hidden / CALIBRATE_HEADS;
    struct attention_view view = {.base = b->x, .head = head_dim, .row = hidden};
    struct attention_call call = {.n0 = 1, .n1 = 1, .heads = CALIBRATE_HEADS, .nq = tokens, .nk = tokens,
                                  .head_dim = head_dim, .scale = 0.125, .q = view, .k = view, .v = view,
                                  .o = view};
    call.o.base = b->y;
    return call;
}

static enum status attention(struct bench *b)
{
    struct attention_call call = attention_call(b);
    return device_attention(b->device, &call);
}

static enum status add(struct bench *b, size_t n)
{
    struct sum_call call = {.n = n, .count = 2, .coefficient = {1, 1}, .src = {b->x, b->w}, .dst = b->y};
    return device_sum(b->device, &call);
}

static enum status add_long(struct bench *b)
{
    return add(b, long_elements(b->sizes));
}

static enum status add_short(struct bench *b)
{
    return add(b, SHORT);
}

static enum status best_seconds(struct bench *b, measured *operation, double *out)
{
    *out = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = clock_ns();
        for (int k = 0; k < b->batch; k++)
            TRY(operation(b));
        TRY(lane_sync(b->device->lanes));
        *out = fmin(*out, (double)(clock_ns() - start) * 1e-9 / b->batch);
    }
    return OK;
}

static enum status prepare(struct bench *b)
{
    struct attention_call largest = attention_call(b);
    struct linear_call widest = product_call(b);
    struct devmem *arrays[] = {&b->x, &b->w, &b->y};
    size_t hidden = b->sizes->hidden, weights = 4 * hidden * hidden, most = long_elements(b->sizes);
    size_t bytes = (weights > most ? weights : most) * dtype_bytes(b->sizes->dtype);
    for (int i = 0; i < 3; i++) {
        TRY(arena_alloc(b->arena, MEMORY_ACTIVATIONS, bytes, arrays[i]));
        TRY(device_zero(b->device, *arrays[i], bytes));
    }
    return device_reserve(b->device, b->arena, &largest, &widest);
}

static enum status measure_device(struct bench *b, struct platform *p)
{
    double product_s, attention_s, long_s, short_s;
    double tokens = (double)b->sizes->tokens, hidden = (double)b->sizes->hidden;
    TRY(prepare(b));
    TRY(best_seconds(b, product, &product_s));
    TRY(best_seconds(b, attention, &attention_s));
    TRY(best_seconds(b, add_long, &long_s));
    TRY(best_seconds(b, add_short, &short_s));
    double product_rate = 8.0 * tokens * hidden * hidden / product_s;
    double attention_rate = 4.0 * tokens * tokens * hidden / attention_s;
    double peak = fmax(product_rate, attention_rate);
    p->gpu.peak_flops[b->sizes->dtype] = peak;
    p->gpu.gemm_ceiling = product_rate / peak;
    p->gpu.attention_ceiling = attention_rate / peak;
    p->gpu.memory_bandwidth = 3.0 * (double)(long_elements(b->sizes) * dtype_bytes(b->sizes->dtype)) / long_s;
    p->gpu.gemm_memory_ceiling = p->gpu.memory_ceiling = 1;
    p->gpu.launch_s = short_s;
    return OK;
}

static enum status open_device(const struct calibration *c, int rank, int nranks, struct device **out)
{
    struct device_config config = {.rank = rank, .nranks = nranks, .threads = 1, .dtype = c->dtype};
    return device_open(c->device, &config, out);
}

static enum status on_device(const struct calibration *c, struct platform *p)
{
    struct memory_ledger ledger = {.limit = 0};
    struct bench b = {.sizes = c, .batch = c->device->memory == MEMORY_HOST ? 1 : 8};
    TRY(open_device(c, 0, 1, &b.device));
    enum status status = arena_open(b.device->lanes, &ledger, &b.arena);
    if (status == OK)
        status = measure_device(&b, p);
    arena_close(b.arena);
    device_close(b.device);
    return status;
}

/* ---- the transport ---- */

struct link {
    const struct calibration *sizes;
    double short_s, long_s; /* best all-gather of two ranks */
};

struct end {
    struct team *team;
    struct device *device;
    struct comm *comm;
    struct devmem buffer;
    enum dtype dtype;
};

static enum status time_gather(const struct end *e, size_t count, double *best)
{
    *best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        TRY(team_barrier(e->team));
        int64_t start = clock_ns();
        size_t own = (size_t)comm_rank(e->comm) * count * dtype_bytes(e->dtype);
        TRY(comm_all_gather(e->comm, TRAFFIC_KV, e->dtype, devmem_at(e->buffer, own), e->buffer, count, NULL));
        TRY(lane_sync(e->device->lanes));
        *best = fmin(*best, (double)(clock_ns() - start) * 1e-9);
    }
    return OK;
}

static enum status measure_gathers(struct end *e, struct link *link)
{
    size_t bytes = 2 * state_elements(link->sizes) * dtype_bytes(e->dtype);
    double short_s = 0, long_s = 0;
    enum status status = lane_alloc(e->device->lanes, bytes, &e->buffer);
    if (status == OK)
        status = device_zero(e->device, e->buffer, bytes);
    status = team_agree(e->team, status);
    if (status == OK)
        status = time_gather(e, LEAST, &short_s);
    if (status == OK)
        status = time_gather(e, state_elements(link->sizes), &long_s);
    status = team_agree(e->team, status);
    if (status == OK && e->team->rank == 0) {
        link->short_s = short_s;
        link->long_s = long_s;
    }
    lane_free(e->device->lanes, e->buffer, bytes);
    return status;
}

static enum status link_rank(struct team *team, void *context)
{
    struct link *link = context;
    struct end e = {.team = team, .buffer = DEVMEM_NONE, .dtype = link->sizes->dtype};
    TRY(open_device(link->sizes, team->rank, team->nranks, &e.device));
    e.device->team = team;
    enum status status = comm_open(link->sizes->transport, team, e.device->lanes, NULL, &e.comm);
    if (status == OK)
        status = measure_gathers(&e, link);
    comm_close(e.comm);
    device_close(e.device);
    return status;
}

enum status calibrate(const struct calibration *c, struct platform *out)
{
    bool is_host = c->device->memory == MEMORY_HOST;
    struct platform p = {.protocol = PROTOCOL_ALPHA_BETA, .link = LINK_PCIE, .port_ranks = 1};
    struct link link = {.sizes = c};
    snprintf(p.name, sizeof p.name, "host-%.40s", c->device->name);
    snprintf(p.summary, sizeof p.summary,
             "the machine that bench calibrate ran on, device %.20s, transport %.20s, one thread a rank",
             c->device->name, c->transport->name);
    TRY(on_device(c, &p));
    TRY(launch(c->transport->name, 2, 60, link_rank, &link));
    p.node.latency_s = link.short_s;
    p.node.bus = p.node.all_to_all =
        (double)(state_elements(c) * dtype_bytes(c->dtype)) / fmax(link.long_s - link.short_s, 1e-9);
    /* On a host whoever waits copies: nothing moves while a rank computes. */
    p.gpu.overlap_cost = is_host ? 1 : 0.4;
    *out = p;
    return OK;
}

/* Each figure is the best of several timings of one operation of a DiT's usual size. */
#include "bench/calibrate_host.h"

#include "bench/launch.h"
#include "common/arena.h"
#include "common/clock.h"
#include "common/comm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 15, ROWS = 512, WIDTH = 512, MLP = 2048, HEADS = 8, HEAD_DIM = 64 };
enum { LONG = 1 << 20, SHORT = 256, MESSAGE = 1 << 18 }; /* elements: about a hidden state */

struct bench {
    struct device *device;
    struct arena *arena;
    struct devmem x, w, y;
};

typedef enum status measured(struct bench *);

static enum status product(struct bench *b)
{
    struct linear_call call = {.m = ROWS, .n = MLP, .k = WIDTH, .ldx = WIDTH, .ldw = WIDTH, .ldy = MLP,
                               .x = b->x, .w = b->w, .y = b->y};
    return device_linear(b->device, &call);
}

static struct attention_call attention_call(const struct bench *b)
{
    size_t width = (size_t)HEADS * HEAD_DIM;
    struct attention_view view = {.base = b->x, .head = HEAD_DIM, .row = width};
    struct attention_call call = {.n0 = 1, .n1 = 1, .heads = HEADS, .nq = ROWS, .nk = ROWS,
                                  .head_dim = HEAD_DIM, .scale = 0.125, .q = view, .k = view, .v = view,
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
    return add(b, LONG);
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
        TRY(operation(b));
        TRY(lane_sync(b->device->lanes));
        *out = fmin(*out, (double)(clock_ns() - start) * 1e-9);
    }
    return OK;
}

static enum status prepare(struct bench *b)
{
    struct attention_call largest = {.n0 = 1, .n1 = 1, .heads = HEADS, .nq = ROWS, .nk = ROWS,
                                     .head_dim = HEAD_DIM};
    struct linear_call widest = {.m = ROWS, .n = MLP, .k = WIDTH};
    struct devmem *arrays[] = {&b->x, &b->w, &b->y};
    for (int i = 0; i < 3; i++) {
        TRY(arena_alloc(b->arena, MEMORY_ACTIVATIONS, LONG * sizeof(float), arrays[i]));
        TRY(device_zero(b->device, *arrays[i], LONG * sizeof(float)));
    }
    return device_reserve(b->device, b->arena, &largest, &widest);
}

static enum status measure_device(struct bench *b, struct platform *p)
{
    double product_s, attention_s, long_s, short_s;
    TRY(prepare(b));
    TRY(best_seconds(b, product, &product_s));
    TRY(best_seconds(b, attention, &attention_s));
    TRY(best_seconds(b, add_long, &long_s));
    TRY(best_seconds(b, add_short, &short_s));
    double product_rate = 2.0 * ROWS * MLP * WIDTH / product_s;
    double attention_rate = 4.0 * ROWS * ROWS * HEADS * HEAD_DIM / attention_s;
    double peak = fmax(product_rate, attention_rate);
    p->gpu.peak_flops[DTYPE_FP32] = peak;
    p->gpu.gemm_ceiling = product_rate / peak;
    p->gpu.attention_ceiling = attention_rate / peak;
    p->gpu.memory_bandwidth = 3.0 * LONG * sizeof(float) / long_s;
    p->gpu.gemm_memory_ceiling = p->gpu.memory_ceiling = 1;
    p->gpu.launch_s = short_s;
    return OK;
}

static enum status on_device(const struct device_ops *ops, struct platform *p)
{
    struct device_config config = {.nranks = 1, .threads = 1, .dtype = DTYPE_FP32};
    struct memory_ledger ledger = {.limit = 0};
    struct bench b = {.device = NULL};
    TRY(device_open(ops, &config, &b.device));
    enum status status = arena_open(b.device->lanes, &ledger, &b.arena);
    if (status == OK)
        status = measure_device(&b, p);
    arena_close(b.arena);
    device_close(b.device);
    return status;
}

/* ---- the transport ---- */

struct link {
    double short_s, long_s; /* best all-gather of two ranks */
};

static enum status time_gather(struct team *team, struct comm *comm, struct devmem buffer, size_t count,
                               double *best)
{
    *best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        TRY(team_barrier(team));
        int64_t start = clock_ns();
        TRY(comm_all_gather(comm, TRAFFIC_KV, DTYPE_FP32,
                            devmem_at(buffer, (size_t)comm_rank(comm) * count * sizeof(float)), buffer,
                            count, NULL));
        *best = fmin(*best, (double)(clock_ns() - start) * 1e-9);
    }
    return OK;
}

static enum status measure_gathers(struct team *team, struct lane_system *lanes, struct link *link)
{
    struct comm *comm = NULL;
    struct devmem buffer = DEVMEM_NONE;
    struct link mine = {0, 0};
    size_t bytes = 2 * MESSAGE * sizeof(float);
    TRY(comm_open(comm_find("threads"), team, lanes, NULL, &comm));
    enum status status = lane_alloc(lanes, bytes, &buffer);
    if (status == OK)
        memset(lane_host_pointer(buffer), 0, bytes);
    status = team_agree(team, status);
    if (status == OK)
        status = time_gather(team, comm, buffer, SHORT / 64, &mine.short_s);
    if (status == OK)
        status = time_gather(team, comm, buffer, MESSAGE, &mine.long_s);
    status = team_agree(team, status);
    if (status == OK && team->rank == 0)
        *link = mine;
    lane_free(lanes, buffer, bytes);
    comm_close(comm);
    return status;
}

static enum status link_rank(struct team *team, void *context)
{
    struct lane_system *lanes;
    TRY(lane_host_open(team->rank, &lanes));
    enum status status = measure_gathers(team, lanes, context);
    lane_host_close(lanes);
    return status;
}

enum status calibrate_host(const struct device_ops *ops, struct platform *out)
{
    struct platform p = {.protocol = PROTOCOL_ALPHA_BETA, .link = LINK_PCIE, .port_ranks = 1};
    struct link link = {0, 0};
    snprintf(p.name, sizeof p.name, "host-%.40s", ops->name);
    snprintf(p.summary, sizeof p.summary, "the machine that bench calibrate ran on, device %.40s, one "
                                          "thread a rank", ops->name);
    TRY(on_device(ops, &p));
    TRY(launch("threads", 2, 60, link_rank, &link));
    p.node.latency_s = link.short_s;
    p.node.bus = p.node.all_to_all = MESSAGE * sizeof(float) / fmax(link.long_s - link.short_s, 1e-9);
    p.gpu.overlap_cost = 1; /* whoever waits copies: nothing moves while a rank computes */
    *out = p;
    return OK;
}

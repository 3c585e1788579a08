/* Streams, events, memory; waiting by polling, so that a peer's failure ends every wait. */
#include "kernels/cuda/lane_cuda.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"

enum status cuda_lanes_enter(const struct cuda_lanes *l)
{
    CUDA_TRY(cudaSetDevice(l->gpu));
    return OK;
}

static struct lane *lane_or_compute(struct cuda_lanes *l, struct lane *lane)
{
    return lane ? lane : &l->compute;
}

/* ---- waiting ---- */

/* Whether more of the rank's marks have passed than at the last look. */
static bool has_progressed(struct cuda_lanes *l)
{
    size_t before = l->events_seen;
    while (l->events_seen < l->events_used &&
           cudaEventQuery(l->events[l->events_seen]->cuda) == cudaSuccess)
        l->events_seen++;
    return l->events_seen > before;
}

static enum status ask_watches(struct cuda_lanes *l)
{
    for (struct lane_watch *w = l->watches; w; w = w->next)
        if (w->check)
            TRY(w->check(w->context));
    return OK;
}

enum status cuda_lanes_look(struct cuda_lanes *l, struct lane_waiting *w, const char *what)
{
    enum { LOOKS_PER_CHECK = 64 };
    static const struct timespec pause = {.tv_nsec = 20000};
    if (l->team && l->team->is_oversubscribed)
        nanosleep(&pause, NULL);
    else
        sched_yield();
    if (!l->team || w->looks++ % LOOKS_PER_CHECK != 0)
        return OK;
    if (!w->is_started)
        w->deadline = team_deadline_start(l->team);
    w->is_started = true;
    if (team_status(l->team) != OK)
        return team_peer_failed(l->team);
    TRY(ask_watches(l));
    if (has_progressed(l))
        team_heartbeat(l->team);
    if (team_deadline_passed(l->team, &w->deadline))
        return FAIL(ERR_TIMEOUT, "cuda: %s for %g s without any rank's progress", what,
                    l->team->timeout_s);
    return OK;
}

static enum status wait_lane(struct cuda_lanes *l, const struct lane *lane)
{
    struct lane_waiting waiting = {0};
    for (;;) {
        cudaError_t state = cudaStreamQuery(lane->stream);
        if (state == cudaSuccess)
            return OK;
        if (state != cudaErrorNotReady)
            CUDA_TRY(state);
        TRY(cuda_lanes_look(l, &waiting, "a lane is busy"));
    }
}

static enum status cuda_sync(struct lane_system *system)
{
    struct cuda_lanes *l = cuda_lanes(system);
    TRY(cuda_lanes_enter(l));
    TRY(wait_lane(l, &l->compute));
    for (struct lane *lane = l->lanes; lane; lane = lane->next)
        TRY(wait_lane(l, lane));
    return ask_watches(l);
}

static void cuda_drain(struct lane_system *system)
{
    struct cuda_lanes *l = cuda_lanes(system);
    if (cuda_lanes_enter(l) != OK)
        return;
    for (struct lane_watch *w = l->watches; w; w = w->next)
        if (w->abort)
            w->abort(w->context);
    (void)cudaStreamSynchronize(l->compute.stream);
    for (struct lane *lane = l->lanes; lane; lane = lane->next)
        (void)cudaStreamSynchronize(lane->stream);
}

void cuda_lanes_watch(struct cuda_lanes *l, struct lane_watch *watch)
{
    watch->next = l->watches;
    l->watches = watch;
}

void cuda_lanes_unwatch(struct cuda_lanes *l, struct lane_watch *watch)
{
    struct lane_watch **at = &l->watches;
    while (*at && *at != watch)
        at = &(*at)->next;
    if (*at)
        *at = watch->next;
}

/* ---- memory ---- */

static enum status cuda_alloc(struct lane_system *system, size_t bytes, struct devmem *out)
{
    struct cuda_lanes *l = cuda_lanes(system);
    void *memory = NULL;
    size_t unused = 0, total = 0;
    TRY(cuda_lanes_enter(l));
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        CUDA_TRY(cudaMemGetInfo(&unused, &total));
        return FAIL(ERR_MEMORY,
                    "GPU %d: cannot allocate %zu bytes (%zu bytes held, %zu of %zu unused)", l->gpu,
                    bytes, l->held, unused, total);
    }
    CUDA_TRY(error);
    l->held += bytes;
    *out = (struct devmem){(uintptr_t)memory};
    return OK;
}

static void *pointer(struct devmem m)
{
    return (void *)m.addr; /* NOLINT: CUDA takes addresses as pointers */
}

static void cuda_free(struct lane_system *system, struct devmem m, size_t bytes)
{
    struct cuda_lanes *l = cuda_lanes(system);
    if (cuda_lanes_enter(l) == OK)
        (void)cudaFree(pointer(m));
    l->held -= bytes;
}

static enum status cuda_upload(struct lane_system *system, struct devmem dst, const void *src,
                               size_t bytes)
{
    struct cuda_lanes *l = cuda_lanes(system);
    TRY(cuda_lanes_enter(l));
    CUDA_TRY(cudaMemcpyAsync(pointer(dst), src, bytes, cudaMemcpyHostToDevice, l->compute.stream));
    return wait_lane(l, &l->compute);
}

/* The lane is waited for first: a copy to pageable memory blocks the host without a deadline. */
static enum status cuda_download(struct lane_system *system, void *dst, struct devmem src,
                                 size_t bytes)
{
    struct cuda_lanes *l = cuda_lanes(system);
    TRY(cuda_lanes_enter(l));
    TRY(wait_lane(l, &l->compute));
    CUDA_TRY(cudaMemcpyAsync(dst, pointer(src), bytes, cudaMemcpyDeviceToHost, l->compute.stream));
    return wait_lane(l, &l->compute);
}

/* ---- lanes ---- */

static enum status lane_init(struct lane *lane)
{
    CUDA_TRY(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&lane->reached, cudaEventDisableTiming));
    return OK;
}

static void lane_end(struct lane *lane)
{
    if (lane->reached)
        (void)cudaEventDestroy(lane->reached);
    if (lane->stream)
        (void)cudaStreamDestroy(lane->stream);
}

static enum status cuda_open_lane(struct lane_system *system, const char *label, struct lane **out)
{
    struct cuda_lanes *l = cuda_lanes(system);
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return FAIL(ERR_MEMORY, "cuda: no memory for lane %s", label);
    enum status status = cuda_lanes_enter(l);
    if (status == OK)
        status = lane_init(lane);
    if (status != OK) {
        lane_end(lane);
        free(lane);
        return status;
    }
    lane->next = l->lanes;
    l->lanes = lane;
    *out = lane;
    return OK;
}

static void cuda_close_lane(struct lane_system *system, struct lane *lane)
{
    struct cuda_lanes *l = cuda_lanes(system);
    struct lane **at = &l->lanes;
    while (*at && *at != lane)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = lane->next;
    if (cuda_lanes_enter(l) == OK)
        lane_end(lane);
    free(lane);
}

static enum status cuda_order(struct lane_system *system, struct lane *after, struct lane *before)
{
    struct cuda_lanes *l = cuda_lanes(system);
    struct lane *first = lane_or_compute(l, before);
    TRY(cuda_lanes_enter(l));
    CUDA_TRY(cudaEventRecord(first->reached, first->stream));
    CUDA_TRY(cudaStreamWaitEvent(lane_or_compute(l, after)->stream, first->reached, 0));
    return OK;
}

/* ---- marks ---- */

static enum status make_event(struct cuda_lanes *l)
{
    struct event **events = realloc(l->events, (l->events_made + 1) * sizeof(struct event *));
    if (!events)
        return FAIL(ERR_MEMORY, "cuda: no memory for %zu events", l->events_made + 1);
    l->events = events;
    struct event *event = calloc(1, sizeof *event);
    if (!event)
        return FAIL(ERR_MEMORY, "cuda: no memory for an event");
    cudaError_t error = cudaEventCreate(&event->cuda);
    if (error != cudaSuccess) {
        free(event);
        CUDA_TRY(error);
    }
    l->events[l->events_made++] = event;
    return OK;
}

enum status cuda_lanes_event(struct cuda_lanes *l, struct event **out)
{
    TRY(cuda_lanes_enter(l));
    if (l->events_used == l->events_made)
        TRY(make_event(l));
    *out = l->events[l->events_used++];
    return OK;
}

static enum status cuda_mark(struct lane_system *system, struct lane *lane, struct mark *out)
{
    struct cuda_lanes *l = cuda_lanes(system);
    struct event *event;
    TRY(cuda_lanes_event(l, &event));
    CUDA_TRY(cudaEventRecord(event->cuda, lane_or_compute(l, lane)->stream));
    *out = (struct mark){.event = event};
    return OK;
}

/* Pairs an event with the host's clock: off by what the host takes to see the event pass. */
static enum status take_base(struct cuda_lanes *l)
{
    CUDA_TRY(cudaEventRecord(l->base_event, l->compute.stream));
    TRY(wait_lane(l, &l->compute));
    l->base_ps = clock_ps();
    l->has_base = true;
    return OK;
}

static enum status cuda_now(struct lane_system *system, struct mark *out)
{
    struct cuda_lanes *l = cuda_lanes(system);
    TRY(cuda_lanes_enter(l));
    if (!l->has_base)
        TRY(take_base(l));
    *out = (struct mark){.ps = clock_ps()};
    return OK;
}

static int64_t cuda_mark_ps(struct lane_system *system, const struct mark *mark)
{
    struct cuda_lanes *l = cuda_lanes(system);
    float ms = 0;
    if (!mark->event)
        return mark->ps;
    if (!l->has_base || cuda_lanes_enter(l) != OK ||
        cudaEventElapsedTime(&ms, l->base_event, mark->event->cuda) != cudaSuccess)
        return l->base_ps;
    return l->base_ps + (int64_t)((double)ms * 1e9);
}

static void cuda_reset_marks(struct lane_system *system)
{
    struct cuda_lanes *l = cuda_lanes(system);
    l->events_used = l->events_seen = 0;
    l->has_base = false;
}

/* ---- the system ---- */

static const struct lane_ops lane_ops_cuda = {
    .name = "cuda",
    .memory = MEMORY_CUDA,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .open_lane = cuda_open_lane,
    .close_lane = cuda_close_lane,
    .order = cuda_order,
    .mark = cuda_mark,
    .now = cuda_now,
    .mark_ps = cuda_mark_ps,
    .sync = cuda_sync,
    .reset_marks = cuda_reset_marks,
    .drain = cuda_drain,
};

static enum status open_system(struct cuda_lanes *l)
{
    TRY(cuda_lanes_enter(l));
    TRY(lane_init(&l->compute));
    CUDA_TRY(cudaEventCreate(&l->base_event));
    return OK;
}

enum status cuda_lanes_open(int rank, int gpu, struct cuda_lanes **out)
{
    struct cuda_lanes *l = calloc(1, sizeof *l);
    if (!l)
        return FAIL(ERR_MEMORY, "cuda: no memory for a lane system");
    l->base = (struct lane_system){.ops = &lane_ops_cuda, .rank = rank};
    l->gpu = gpu;
    enum status status = open_system(l);
    if (status != OK) {
        cuda_lanes_close(l);
        return status;
    }
    *out = l;
    return OK;
}

void cuda_lanes_close(struct cuda_lanes *l)
{
    if (!l)
        return;
    (void)cudaSetDevice(l->gpu);
    while (l->lanes)
        cuda_close_lane(&l->base, l->lanes);
    for (size_t i = 0; i < l->events_made; i++) {
        (void)cudaEventDestroy(l->events[i]->cuda);
        free(l->events[i]);
    }
    if (l->base_event)
        (void)cudaEventDestroy(l->base_event);
    lane_end(&l->compute);
    free(l->events);
    free(l);
}

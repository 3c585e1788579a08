/* Forwards to the program's table. */
#include "kernels/cuda/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"

static const struct ditto_host *host;

void host_bind(const struct ditto_host *table)
{
    host = table;
}

enum status host_cuda_failed(cudaError_t error, const char *call, const char *file, int line)
{
    (void)cudaGetLastError(); /* it would be reported once more by the next launch */
    enum status code = error == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    return status_fail(code, file, line, "%.120s: %s", call, cudaGetErrorString(error));
}

enum status status_fail(enum status code, const char *file, int line, const char *format, ...)
{
    char text[sizeof((struct failure *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host->status_fail(code, file, line, "%s", text);
}

_Noreturn void status_assert_failed(const char *file, int line, const char *text, long long a,
                                    long long b)
{
    host->status_assert_failed(file, line, text, a, b);
    abort();
}

const struct failure *status_first(void)
{
    return host->status_first();
}

void log_info(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->log_info("%s", text);
}

int64_t clock_ps(void)
{
    return host->clock_ps();
}

enum status team_gather(struct team *t, int root, const void *send, size_t bytes, void *recv)
{
    return host->team_gather(t, root, send, bytes, recv);
}

enum status team_broadcast(struct team *t, int root, void *data, size_t bytes)
{
    return host->team_broadcast(t, root, data, bytes);
}

enum status team_barrier(struct team *t)
{
    return host->team_barrier(t);
}

void team_abort(struct team *t, enum status why)
{
    host->team_abort(t, why);
}

enum status team_status(struct team *t)
{
    return host->team_status(t);
}

enum status team_peer_failed(struct team *t)
{
    return host->team_peer_failed(t);
}

void team_heartbeat(struct team *t)
{
    host->team_heartbeat(t);
}

struct team_deadline team_deadline_start(struct team *t)
{
    return host->team_deadline_start(t);
}

bool team_deadline_passed(struct team *t, struct team_deadline *deadline)
{
    return host->team_deadline_passed(t, deadline);
}

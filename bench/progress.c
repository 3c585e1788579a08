/* Counts points and estimates the time left from the time so far. */
#include "bench/progress.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void progress_open(struct progress *p, size_t total, size_t skipped)
{
    *p = (struct progress){.total = total, .skipped = skipped, .done = skipped,
                           .start_ns = clock_ns(), .is_terminal = isatty(STDERR_FILENO) == 1};
    if (skipped > 0)
        fprintf(stderr, "%zu of %zu points are in the file already\n", skipped, total);
}

/* "1:23 left" */
static void time_left(const struct progress *p, char *out, size_t size)
{
    size_t measured = p->done - p->skipped;
    out[0] = '\0';
    if (measured == 0)
        return;
    double each = (double)(clock_ns() - p->start_ns) / 1e9 / (double)measured;
    long seconds = (long)(each * (double)(p->total - p->done) + 0.5);
    snprintf(out, size, "%ld:%02ld left", seconds / 60, seconds % 60);
}

void progress_begin(struct progress *p, const char *label)
{
    p->label = label;
    p->point_ns = clock_ns();
    progress_tick(p);
}

void progress_tick(void *progress)
{
    struct progress *p = progress;
    char left[40];
    if (!p->is_terminal)
        return;
    time_left(p, left, sizeof left);
    fprintf(stderr, "\r\033[K[%zu/%zu] %s  %s", p->done + 1, p->total, p->label, left);
    fflush(stderr);
}

void progress_end(struct progress *p, const char *status, const char *reason)
{
    char left[40];
    double seconds = (double)(clock_ns() - p->point_ns) / 1e9;
    bool is_ok = strcmp(status, "ok") == 0;
    p->done++;
    time_left(p, left, sizeof left);
    if (p->is_terminal)
        fprintf(stderr, "\r\033[K");
    if (!p->is_terminal || !is_ok)
        fprintf(stderr, "[%zu/%zu] %-11s %6.1f s  %s%s%s  %s\n", p->done, p->total, status, seconds,
                p->label, reason ? ": " : "", reason ? reason : "", left);
}

/* The monotonic clock, and the calendar as text. */
#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { NS_PER_S = 1000000000, PS_PER_NS = 1000 };

static int64_t process_epoch_ns;

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void start_epoch(void)
{
    process_epoch_ns = clock_ns();
}

int64_t clock_ps(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_epoch);
    return (clock_ns() - process_epoch_ns) * PS_PER_NS;
}

void clock_sleep_ns(int64_t ns)
{
    if (ns <= 0)
        return;
    int64_t end = clock_ns() + ns;
    struct timespec until = {.tv_sec = (time_t)(end / NS_PER_S), .tv_nsec = (long)(end % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

void clock_utc(char out[21])
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

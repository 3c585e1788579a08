/* Warnings about latencies. */
#include "bench/advice.h"

#include "bench/launch.h"
#include "bench/stats.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

enum { INTERVAL_FROM = 6 };
static const double wide = 0.1; /* interval over median */

static void advise_on_spread(const struct measurement *m)
{
    size_t n = (size_t)m->repeat;
    double *sorted = calloc(n, sizeof *sorted);
    bool *is_outlier = calloc(n, sizeof *is_outlier);
    ASSERT(sorted != NULL && is_outlier != NULL);
    memcpy(sorted, m->latency_us, n * sizeof *sorted);
    stats_sort(sorted, n);
    struct stats stats;
    stats_summarise(sorted, n, &stats);
    size_t outliers = stats_outliers(m->latency_us, n, is_outlier);
    double spread = (stats.ci_high - stats.ci_low) / stats.median;
    if (stats.has_ci && spread > wide)
        log_warn("noisy machine: the 95%% interval of the latency spans %.0f%% of its median; close other "
                 "programs, or --repeat %zu", 100.0 * spread, 4 * n);
    if (outliers > 0)
        log_warn("%zu of %zu latencies are outliers; they are kept and named in latency_us.outliers; "
                 "--warmup-runs 3 if they are the first", outliers, n);
    free(sorted);
    free(is_outlier);
}

void advice_print(const struct point *point, const struct measurement *m)
{
    if (m->repeat == 0 || point->device->memory == MEMORY_VIRTUAL)
        return;
    if (m->is_oversubscribed) {
        log_warn("%d ranks share %d cores: the latency says nothing about the strategy; at most --gpus %d, "
                 "or --repeat 0 for the error alone", m->nranks, launch_usable_cores(),
                 launch_usable_cores());
        return;
    }
    if (m->repeat < INTERVAL_FROM)
        log_warn("%d samples are too few for an interval of the latency; --repeat 7", m->repeat);
    else
        advise_on_spread(m);
}

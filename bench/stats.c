/* Order statistics of a handful of samples. */
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *samples, size_t n)
{
    if (n > 1)
        qsort(samples, n, sizeof *samples, compare_doubles);
}

double stats_median(const double *sorted, size_t n)
{
    if (n == 0)
        return NAN;
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

double stats_percentile(const double *sorted, size_t n, double percent)
{
    if (n == 0)
        return NAN;
    /* The subtraction keeps 0.95 * 20 from rounding up to rank 20. */
    double rank = ceil(percent / 100.0 * (double)n - 1e-9);
    size_t index = rank < 1.0 ? 0 : (size_t)rank - 1;
    return sorted[index < n ? index : n - 1];
}

size_t stats_median_rank95(size_t n)
{
    /* Binomial(n, 1/2) by logarithms: 2^-n underflows for large n. */
    double below = 0.0;
    size_t k = 0;
    for (; k < n / 2; k++) {
        double log_p = lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) -
                       (double)n * log(2.0);
        below += exp(log_p);
        if (below > 0.025)
            break;
    }
    return k;
}

void stats_summarise(const double *sorted, size_t n, struct stats *out)
{
    *out = (struct stats){.count = n, .median = stats_median(sorted, n)};
    out->min = n ? sorted[0] : NAN;
    out->max = n ? sorted[n - 1] : NAN;
    out->p95 = stats_percentile(sorted, n, 95.0);
    size_t k = stats_median_rank95(n);
    out->has_ci = k > 0;
    out->ci_low = k ? sorted[k - 1] : NAN;
    out->ci_high = k ? sorted[n - k] : NAN;
}

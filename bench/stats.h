/* Summaries of samples; pure functions of a sorted array. Nothing is ever dropped as an outlier. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct stats {
    size_t count;
    double median, min, p95, max; /* NAN when count is 0 */
    bool has_ci;                  /* from 6 samples */
    double ci_low, ci_high;       /* 95% confidence interval of the median */
};

/* Ascending, in place. Samples are finite. */
void stats_sort(double *samples, size_t n);
/* The middle one, or the mean of the two in the middle. NAN for n = 0. */
double stats_median(const double *sorted, size_t n);
/* Nearest rank: the smallest sample with at least `percent` of all at or below it. NAN for n = 0. */
double stats_percentile(const double *sorted, size_t n, double percent);
/* Interval by order statistics, without an assumption on the distribution: [x_(k), x_(n+1-k)] with the
 * largest k for which P(Binomial(n, 1/2) < k) <= 2.5%. Returns k, counted from 1; 0: too few samples. */
size_t stats_median_rank95(size_t n);
void stats_summarise(const double *sorted, size_t n, struct stats *out);

#endif

/* Summaries and tests of samples; pure functions of sorted arrays. Nothing is ever dropped as an outlier. */
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

/* Outliers by the modified z-score (Iglewicz and Hoaglin, 1993): 0.6745 |x - median| / MAD > 3.5, where
 * MAD is the median of |x - median|. Sets a flag for each sample, in any order, and returns how many; 0
 * when more than half of the samples are equal (MAD 0) or there are fewer than 5. */
size_t stats_outliers(const double *samples, size_t n, bool *is_outlier);

/* Two-sided p of Mann and Whitney's U test (1947) that neither of two sorted, independent sets tends to
 * be larger. Exact without ties up to 50 samples in all, else the normal approximation with corrections
 * for ties and continuity. NAN when a set is empty. */
double stats_rank_sum(const double *a, size_t n, const double *b, size_t m);
/* Holm's step-down correction (1979) of many p, in place: what is below 0.05 afterwards is wrong at most
 * once in 20 whole sets. NAN stays and does not count. */
void stats_holm(double *p, size_t n);

struct stats_ratio {
    double ratio;     /* the median of all b/a; NAN when a set is empty */
    bool has_ci;      /* from 4 samples on both sides */
    double low, high; /* 95% interval that belongs to the U test; NAN without */
};
/* By what factor b is larger than a: Hodges and Lehmann's estimate (1963) on a logarithmic scale.
 * Samples are positive and sorted. */
void stats_compare(const double *a, size_t n, const double *b, size_t m, struct stats_ratio *out);

#endif

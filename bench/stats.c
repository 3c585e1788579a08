/* Order statistics and rank tests of a handful of samples. */
#include "bench/stats.h"

#include "common/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_MOST = 50, OUTLIER_LEAST = 5 };

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

/* ---- outliers ---- */

static double *allocate(size_t n)
{
    double *values = calloc(n + 1, sizeof *values);
    ASSERT(values != NULL);
    return values;
}

size_t stats_outliers(const double *samples, size_t n, bool *is_outlier)
{
    memset(is_outlier, 0, n * sizeof *is_outlier);
    if (n < OUTLIER_LEAST)
        return 0;
    double *sorted = allocate(n);
    memcpy(sorted, samples, n * sizeof *sorted);
    stats_sort(sorted, n);
    double median = stats_median(sorted, n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = fabs(samples[i] - median);
    stats_sort(sorted, n);
    double deviation = stats_median(sorted, n);
    free(sorted);
    size_t count = 0;
    for (size_t i = 0; i < n && deviation > 0.0; i++) {
        is_outlier[i] = 0.6745 * fabs(samples[i] - median) / deviation > 3.5;
        count += is_outlier[i];
    }
    return count;
}

/* ---- two sets ---- */

/* P(U <= u) of two sets without ties. The numbers of arrangements by U are the coefficients of the
 * Gaussian binomial, the product of (1 - x^(m+i)) / (1 - x^i) for i = 1..n: integers below 2^53. */
static double exact_tail(size_t n, size_t m, size_t u)
{
    double *ways = allocate(n * m + 1), below = 0.0, total = 0.0;
    ways[0] = 1.0;
    for (size_t i = 1; i <= n; i++) {
        for (size_t k = n * m; k >= m + i; k--)
            ways[k] -= ways[k - m - i];
        for (size_t k = i; k <= n * m; k++)
            ways[k] += ways[k - i];
    }
    for (size_t k = 0; k <= n * m; k++) {
        total += ways[k];
        below += k <= u ? ways[k] : 0.0;
    }
    free(ways);
    return below / total;
}

/* U of a (pairs in which a is larger, ties half), and the sum of t^3 - t over groups of t ties. */
static double count_pairs(const double *a, size_t n, const double *b, size_t m, double *ties)
{
    double larger = 0.0;
    *ties = 0.0;
    for (size_t i = 0, j = 0; i < n || j < m;) {
        double value = j == m || (i < n && a[i] <= b[j]) ? a[i] : b[j];
        size_t in_a = 0, in_b = 0;
        for (; i < n && a[i] == value; i++)
            in_a++;
        for (; j < m && b[j] == value; j++)
            in_b++;
        double t = (double)(in_a + in_b);
        *ties += t * t * t - t;
        larger += (double)in_a * ((double)(j - in_b) + 0.5 * (double)in_b);
    }
    return larger;
}

static double deviation_of_u(size_t n, size_t m, double ties)
{
    double all = (double)(n + m);
    return sqrt((double)(n * m) / 12.0 * (all + 1.0 - ties / (all * (all - 1.0))));
}

double stats_rank_sum(const double *a, size_t n, const double *b, size_t m)
{
    if (n == 0 || m == 0)
        return NAN;
    double ties, u = count_pairs(a, n, b, m, &ties), pairs = (double)(n * m);
    double smaller = fmin(u, pairs - u);
    if (ties == 0.0 && n + m <= EXACT_MOST)
        return fmin(1.0, 2.0 * exact_tail(n, m, (size_t)smaller));
    double deviation = deviation_of_u(n, m, ties);
    if (!(deviation > 0.0))
        return 1.0; /* all equal */
    return erfc(fmax(0.0, pairs / 2.0 - smaller - 0.5) / deviation / sqrt(2.0));
}

void stats_holm(double *p, size_t n)
{
    double *sorted = allocate(n);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(p[i]))
            sorted[count++] = p[i];
    stats_sort(sorted, count);
    /* Equal p share the largest of their corrections: the first, as the factor falls. */
    for (size_t i = 0; i < n; i++) {
        double corrected = p[i];
        for (size_t k = 0; k < count && sorted[k] <= p[i]; k++)
            corrected = fmax(corrected, sorted[k] * (double)(count - k));
        p[i] = isnan(p[i]) ? p[i] : fmin(1.0, corrected);
    }
    free(sorted);
}

/* The largest k with P(U < k) <= 2.5%; 0: none. */
static size_t interval_rank(size_t n, size_t m)
{
    if (n + m > EXACT_MOST) {
        double k = (double)(n * m) / 2.0 - 1.959964 * deviation_of_u(n, m, 0.0);
        return k > 0.0 ? (size_t)k : 0;
    }
    size_t k = 0;
    while (k < n * m / 2 && exact_tail(n, m, k) <= 0.025)
        k++;
    return k;
}

void stats_compare(const double *a, size_t n, const double *b, size_t m, struct stats_ratio *out)
{
    *out = (struct stats_ratio){.ratio = NAN, .low = NAN, .high = NAN};
    if (n == 0 || m == 0)
        return;
    double *ratios = allocate(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            ratios[i * m + j] = b[j] / a[i];
    stats_sort(ratios, n * m);
    size_t k = interval_rank(n, m);
    out->ratio = stats_median(ratios, n * m);
    out->has_ci = k > 0;
    out->low = k ? ratios[k - 1] : NAN;
    out->high = k ? ratios[n * m - k] : NAN;
    free(ratios);
}

/* Error metrics of a latent against its reference. */
#include "bench/error.h"

#include <math.h>

double error_rel_l2(const float *result, const float *reference, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)result[i] - (double)reference[i];
        difference += d * d;
        norm += (double)reference[i] * (double)reference[i];
    }
    return difference == 0.0 ? 0.0 : sqrt(difference / norm);
}

static double cosine(const float *a, const float *b, size_t n)
{
    double dot = 0.0, aa = 0.0, bb = 0.0;
    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0.0 && bb > 0.0 ? dot / (sqrt(aa) * sqrt(bb)) : NAN;
}

/* One-dimensional Gaussian of sigma 1.5 with sum 1; the window is its outer product. */
static void gaussian(double weight[ERROR_SSIM_WINDOW])
{
    const int centre = ERROR_SSIM_WINDOW / 2;
    double sum = 0.0;
    for (int i = 0; i < ERROR_SSIM_WINDOW; i++) {
        weight[i] = exp(-(double)((i - centre) * (i - centre)) / (2.0 * 1.5 * 1.5));
        sum += weight[i];
    }
    for (int i = 0; i < ERROR_SSIM_WINDOW; i++)
        weight[i] /= sum;
}

/* SSIM of the window whose upper left value is a[0], b[0]. */
static double ssim_window(const float *a, const float *b, size_t width, const double *weight,
                          double range)
{
    double ma = 0.0, mb = 0.0, aa = 0.0, bb = 0.0, ab = 0.0;
    for (size_t r = 0; r < ERROR_SSIM_WINDOW; r++) {
        for (size_t c = 0; c < ERROR_SSIM_WINDOW; c++) {
            double w = weight[r] * weight[c];
            double x = a[r * width + c], y = b[r * width + c];
            ma += w * x;
            mb += w * y;
            aa += w * x * x;
            bb += w * y * y;
            ab += w * x * y;
        }
    }
    const double c1 = 0.01 * 0.01 * range * range, c2 = 0.03 * 0.03 * range * range;
    double va = aa - ma * ma, vb = bb - mb * mb, vab = ab - ma * mb;
    return (2.0 * ma * mb + c1) * (2.0 * vab + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2));
}

static double ssim(const float *a, const float *b, size_t planes, size_t height, size_t width,
                   double range)
{
    if (height < ERROR_SSIM_WINDOW || width < ERROR_SSIM_WINDOW || range <= 0.0 || planes == 0)
        return NAN;
    double weight[ERROR_SSIM_WINDOW], sum = 0.0;
    gaussian(weight);
    const size_t rows = height - ERROR_SSIM_WINDOW + 1, columns = width - ERROR_SSIM_WINDOW + 1;
    for (size_t p = 0; p < planes; p++)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++) {
                size_t at = (p * height + r) * width + c;
                sum += ssim_window(a + at, b + at, width, weight, range);
            }
    return sum / (double)(planes * rows * columns);
}

static size_t count_non_finite(const float *values, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !isfinite(values[i]);
    return count;
}

void error_measure(const float *result, const float *reference, size_t planes, size_t height,
                   size_t width, struct error_metrics *out)
{
    const size_t n = planes * height * width;
    *out = (struct error_metrics){NAN, NAN, NAN, NAN, NAN, NAN, count_non_finite(result, n)};
    if (n == 0 || out->non_finite > 0)
        return;
    double low = reference[0], high = reference[0], largest = 0.0, squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)result[i] - (double)reference[i]);
        low = fmin(low, reference[i]);
        high = fmax(high, reference[i]);
        largest = fmax(largest, d);
        squares += d * d;
    }
    out->rel_l2 = error_rel_l2(result, reference, n);
    out->max_abs = largest;
    out->psnr_range = high - low;
    out->psnr_db = out->psnr_range > 0.0
                       ? 20.0 * log10(out->psnr_range) - 10.0 * log10(squares / (double)n)
                       : NAN;
    out->ssim = ssim(result, reference, planes, height, width, out->psnr_range);
    out->cosine = cosine(result, reference, n);
}

/* How far a result is from the reference. Arrays are latents: planes (frames x channels) of height x
 * width values, row major. All sums are taken in double. How each number is defined:
 * docs/measuring.md. */
#ifndef BENCH_ERROR_H
#define BENCH_ERROR_H

#include <stddef.h>

enum { ERROR_SSIM_WINDOW = 11 };

/* A number that is not defined is NAN, as said for each. */
struct error_metrics {
    double rel_l2;      /* |a - b| / |b|; 0 when both are zero, INFINITY when only b is */
    double max_abs;     /* largest |a - b| */
    double psnr_db;     /* 20 log10(range) - 10 log10(mean squared error); INFINITY when equal */
    double psnr_range;  /* the reference's largest value minus its smallest */
    double ssim;        /* mean over windows and planes (Wang et al., 2004): 11 x 11 Gaussian, sigma 1.5,
                           K1 .01, K2 .03, range as above; NAN below 11 pixels or with range 0 */
    double cosine;      /* a.b / (|a| |b|); NAN when one is zero */
    size_t non_finite;  /* values of the result that are NaN or infinite; > 0: all of the above NAN */
};

double error_rel_l2(const float *result, const float *reference, size_t n);
void error_measure(const float *result, const float *reference, size_t planes, size_t height,
                   size_t width, struct error_metrics *out);

#endif

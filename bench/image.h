/* What an error looks like: reference, result and amplified difference side by side, as PNG. */
#ifndef BENCH_IMAGE_H
#define BENCH_IMAGE_H

#include "bench/measure.h"

/* The latent's first three channels as red, green, blue, or the first as grey; -1..1 becomes black to
 * white, clamped. Frames of a video stand below each other. The difference is grey where equal and is
 * scaled so that the largest one is black or white; the factor is in the file's comment. Small latents
 * are enlarged without smoothing. reference NULL: the result alone. */
enum status image_write(const char *path, const struct point *, const float *result,
                        const float *reference) WARN_UNUSED;

#endif

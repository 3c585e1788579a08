/* Sums over ranks, block by block. */
#include "common/reduce.h"

/* Elements summed at a time: the fp32 sums of a block stay in the first-level cache. */
enum { BLOCK = 1024 };

static void add_block(enum dtype dtype, float *restrict sums, const char *from, size_t n)
{
    float converted[BLOCK];
    const float *values = (const float *)(const void *)from;
    if (dtype != DTYPE_FP32) {
        dtype_convert(DTYPE_FP32, converted, dtype, from, n);
        values = converted;
    }
    for (size_t i = 0; i < n; i++)
        sums[i] += values[i];
}

/* A block is read everywhere before it is written anywhere, so a target may be a source. */
void reduce_arrays(enum dtype dtype, const char *const *from, int sources, char *const *to, int targets,
                   size_t count)
{
    float sums[BLOCK];
    size_t e = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        dtype_convert(DTYPE_FP32, sums, dtype, from[0] + i * e, n);
        for (int s = 1; s < sources; s++)
            add_block(dtype, sums, from[s] + i * e, n);
        for (int t = 0; t < targets; t++)
            dtype_convert(dtype, to[t] + i * e, DTYPE_FP32, sums, n);
    }
}

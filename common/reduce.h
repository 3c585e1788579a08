/* Sums over ranks, the same arithmetic for every transport that adds in host memory: fp32 sums in the
 * order of the sources, rounded once to the dtype, so that all of them give the same bits. */
#ifndef COMMON_REDUCE_H
#define COMMON_REDUCE_H

#include "common/dtype.h"
#include <stddef.h>

/* to[t][i] = from[0][i] + from[1][i] + ... for every target and i < count. A target may be one of the
 * sources. sources and targets are at least 1. */
void reduce_arrays(enum dtype dtype, const char *const *from, int sources, char *const *to, int targets,
                   size_t count);

#endif

/* NVTX ranges around what the host puts on lanes: for Nsight and other tools. Names say where in the
 * model one is, which costs a formatting; without a tool the plain name does. */
#ifndef KERNELS_CUDA_RANGE_H
#define KERNELS_CUDA_RANGE_H

#include <stdbool.h>

void range_push(const char *name, int step, int layer, int patch); /* -1: none */
void range_pop(void);

#endif

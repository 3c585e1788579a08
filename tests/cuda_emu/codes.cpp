/* The .cu file as it is. */
#include "tests/cuda_emu/device.h"

#include "kernels/cuda/codes.cu"

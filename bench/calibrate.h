/* Measuring this machine for a platform file: products, attention, memory, a transport between two ranks. */
#ifndef BENCH_CALIBRATE_H
#define BENCH_CALIBRATE_H

#include "common/comm.h"
#include "common/platform.h"
#include "kernels/device.h"

/* What is timed: products [tokens, hidden] x [hidden, 4 hidden], attention of tokens, sums and messages of
 * about a hidden state. */
struct calibration {
    const struct device_ops *device;
    const struct comm_ops *transport; /* reaches the device's memory */
    enum dtype dtype;
    size_t tokens, hidden; /* hidden: a multiple of CALIBRATE_HEADS */
};
enum { CALIBRATE_HEADS = 8 };

/* Sizes that fill the device: 512 x 512 in host memory, 4096 x 1152 on a GPU. */
void calibrate_sizes(struct calibration *);
/* Fills in every figure of a platform for this dtype with one thread a rank. Takes seconds; the best of
 * several runs counts, so a loaded machine comes out slower than it is but not faster. */
enum status calibrate(const struct calibration *, struct platform *out) WARN_UNUSED;

#endif

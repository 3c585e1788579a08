/* Measuring this machine for a platform file: products, attention, memory, a transport between two ranks. */
#ifndef BENCH_CALIBRATE_HOST_H
#define BENCH_CALIBRATE_HOST_H

#include "common/platform.h"
#include "kernels/device.h"

/* Fills in every figure of a platform for fp32 on this device with one thread a rank. Takes seconds; the
 * best of several runs counts, so a loaded machine comes out slower than it is but not faster. */
enum status calibrate_host(const struct device_ops *, struct platform *out) WARN_UNUSED;

#endif

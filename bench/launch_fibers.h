/* Ranks as fibers in virtual time: what launch() does for transport `virtual`. */
#ifndef BENCH_LAUNCH_FIBERS_H
#define BENCH_LAUNCH_FIBERS_H

#include "bench/launch.h"

/* timeout_s has no use: a rank that waits for ever is found at once. */
enum status launch_fibers(int nranks, double timeout_s, launch_fn *work, void *context) WARN_UNUSED;

#endif

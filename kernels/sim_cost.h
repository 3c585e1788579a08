/* The time that arithmetic takes on a platform: a roofline with the launch of a kernel and the waves of
 * thread blocks (docs/simulator.md, "Cost of computing"). Pure functions; picoseconds. */
#ifndef KERNELS_SIM_COST_H
#define KERNELS_SIM_COST_H

#include "common/platform.h"
#include "kernels/device.h"

int64_t sim_cost_linear(const struct platform *, enum dtype, const struct linear_call *);
int64_t sim_cost_attention(const struct platform *, enum dtype, const struct attention_call *);
/* Elementwise work: bytes read plus written. */
int64_t sim_cost_bytes(const struct platform *, double bytes);
/* Share of the SMs that `blocks` equal thread blocks keep busy, one at a time on each. */
double sim_cost_waves(const struct platform *, double blocks);

#endif

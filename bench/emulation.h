/* What the code behind the published figures does besides: copies and eager framework operations. Only for
 * comparing with those figures; docs/simulator.md, "Emulation", derives every number. */
#ifndef BENCH_EMULATION_H
#define BENCH_EMULATION_H

#include "common/platform.h"

/* Adds the copies and the host's work of the published PyTorch code for this strategy. */
void emulation_legacy_pytorch(struct platform *, const char *strategy);

#endif

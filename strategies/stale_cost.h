/* The claim of tp-stale (struct strategy, cost). */
#ifndef STRATEGIES_STALE_COST_H
#define STRATEGIES_STALE_COST_H

#include "strategies/stale_rules.h"

void stale_cost(const struct problem *, const struct layout *, int rank, struct cost *out);

#endif

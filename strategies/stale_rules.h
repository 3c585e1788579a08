/* What the options of tp-stale mean, as pure functions of the problem: which halves and steps use
 * old values, how far those are carried forward, which exchanges somebody reads
 * (docs/strategies.md). */
#ifndef STRATEGIES_STALE_RULES_H
#define STRATEGIES_STALE_RULES_H

#include "strategies/strategy.h"

enum stale_mode { STALE_ALL, STALE_PEERS, STALE_CODED };

struct stale_rules {
    const struct problem *problem;
    enum stale_mode mode;
    int staleness;
    int repair;    /* halves after which the fresh sum replaces an old one; 0: never */
    int code_bits; /* mode coded */
    bool gathers;  /* peers: every rank's partial sum is sent instead of a reduction */
    double extrapolate;
    double own_change; /* peers: g */
    int slots;         /* exchanges kept per half of a block; 0 in mode coded */
};

extern const struct option stale_opt_repair, stale_opt_extrapolate_in, stale_opt_code_bits,
    stale_opt_own_change;

struct stale_rules stale_rules_of(const struct problem *);
/* Refuses what contradicts itself. */
enum status stale_rules_check(const struct problem *, struct reason *) WARN_UNUSED;
/* Does step i exist and use old values? */
bool stale_rules_step_is_stale(const struct stale_rules *, int64_t step);
/* May this half of this block use old values at all? With repair the model's last half may not:
 * nothing follows that could hide its exchange. */
bool stale_rules_may(const struct stale_rules *, int block, enum dit_half);
/* Will a later half or step read the exchange of step i? */
bool stale_rules_is_read(const struct stale_rules *, int step);
/* w of the value that a stale step i uses, V(i-s) + w (V(i-s) - V(i-s-1)); 0 when step i-s-1 does
 * not exist. */
double stale_rules_share(const struct stale_rules *, int step);

#endif

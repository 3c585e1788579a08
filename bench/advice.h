/* What a person should know about a measurement before believing it. */
#ifndef BENCH_ADVICE_H
#define BENCH_ADVICE_H

#include "bench/measure.h"

/* Warns, each time with the option that helps: more ranks than cores, too few samples for an interval, an
 * interval that spans more than a tenth of the median, outliers. Silent about simulated time. */
void advice_print(const struct point *, const struct measurement *);

#endif

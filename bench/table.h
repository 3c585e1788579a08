/* The table at the end of a sweep: what a person understands at once. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include "bench/results.h"
#include <stdio.h>

/* One block per resolution, a row per strategy (with its mode and staleness) and number of gpus. Rows
 * that differ in seed or class only are one: the median, and the range of the error. */
enum status table_print(FILE *out, const struct results *) WARN_UNUSED;

#endif

/* The table at the end of a sweep: what a person understands at once. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include "bench/results.h"
#include <stdio.h>

/* One block per resolution, a row per strategy (with its mode and staleness) and number of gpus. Rows
 * that differ in seed or class only are one: the median, and the range of the error. */
enum status table_print(FILE *out, const struct results *) WARN_UNUSED;
/* A strategy with what sets it apart from its variants: "tp-stale peers s=2". Options named in `without`
 * (as in config, separated by spaces; NULL: none) are left out. */
void table_variant(const cJSON *record, const char *without, char *out, size_t size);

#endif

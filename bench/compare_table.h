/* A comparison for people. */
#ifndef BENCH_COMPARE_TABLE_H
#define BENCH_COMPARE_TABLE_H

#include "bench/compare.h"
#include <stdio.h>

/* A row a point that is on both sides, what is on one side only, what was not judged and why, and the
 * sum. base, now: what the sides are called ("BASE", "NEW"). */
void compare_table_print(FILE *, const struct comparison *, const char *base, const char *now);

#endif

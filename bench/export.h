/* Records in the formats of other programs. */
#ifndef BENCH_EXPORT_H
#define BENCH_EXPORT_H

#include "bench/results.h"
#include <stdio.h>

/* RFC 4180, a record a line, after a line of names: dotted paths, as "latency_us.median", of everything
 * that is one value in any record, in the order of the record. Lists are left out, but for the interval:
 * "latency_us.ci95.0" and ".1". null and what is absent are empty. */
enum status export_csv(FILE *, const struct results *) WARN_UNUSED;
/* One list of whole records, which are then only good for printing. */
enum status export_json(FILE *, const struct results *) WARN_UNUSED;
/* A table for \usepackage{booktabs}: the rows of the table that ends a sweep. */
enum status export_latex(FILE *, const struct results *) WARN_UNUSED;

#endif

/* Which points a sweep has: comma lists on the command line and a JSON file, multiplied.
 *
 * The file: {"base": {option: value}, "axes": {option: [values]}, "exclude": [{option: value or
 * [values]}]}. Names as on the command line, "-" or "_" alike. An option given on the command line
 * replaces the file's. Two combinations that differ only in options that their strategy has no use for
 * are one point. */
#ifndef BENCH_SWEEP_PLAN_H
#define BENCH_SWEEP_PLAN_H

#include "bench/cli.h"

enum { SWEEP_LABEL = 256 };

/* An option and the values it takes, in canonical form. */
struct sweep_axis {
    const struct option *option;
    char **values;
    size_t count;
};

/* A point is left out when it matches all axes of one exclusion. */
struct sweep_exclusion {
    struct sweep_axis *axes;
    size_t count;
};

struct sweep_plan {
    struct sweep_axis *axes; /* the first varies slowest */
    size_t axis_count;
    struct sweep_exclusion *exclusions;
    size_t exclusion_count;
    struct option_set *points;
    size_t count;
};

/* ERR_USAGE: an unknown option, a bad value, more than 100,000 points, or none. ERR_IO, ERR_FORMAT: the
 * file. Free with sweep_plan_free in every case. */
enum status sweep_plan_build(const struct cli *, struct sweep_plan *out) WARN_UNUSED;
void sweep_plan_free(struct sweep_plan *);
/* What tells the point from the others: "strategy tp gpus 4". */
void sweep_plan_label(const struct sweep_plan *, const struct option_set *point, char out[SWEEP_LABEL]);

#endif

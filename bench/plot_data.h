/* What figures show: records turned into series of points, and written for gnuplot. */
#ifndef BENCH_PLOT_DATA_H
#define BENCH_PLOT_DATA_H

#include "bench/results.h"
#include <stdbool.h>
#include <stdio.h>

enum { PLOT_TEXT = 96 };

/* One point of a series in a panel; low..high is the range that is drawn (equal to y: none). */
struct plot_point {
    char panel[PLOT_TEXT], series[PLOT_TEXT], strategy[PLOT_TEXT];
    double panel_order, x, y, low, high;
};

/* The points of a figure and how many records it leaves out, and why. */
struct plot_data {
    struct plot_point *points;
    size_t count, failed, oversubscribed, exact;
};

struct figure {
    const char *name;    /* also of its template, plots/NAME.gp */
    const char *summary;
    /* REQUIRED. Adds the record's points; most_gpus is the largest number in the file. */
    enum status (*add)(const cJSON *record, double most_gpus, struct plot_data *);
};

/* The one list; ends with a NULL name. */
extern const struct figure plot_figures[];

/* Points of all records, sorted by panel, series and x; those that differ in seed or class only are one:
 * the median, with their range. Free with plot_data_free in every case. */
enum status plot_data_collect(const struct figure *, const struct results *, struct plot_data *out)
    WARN_UNUSED;
void plot_data_free(struct plot_data *);
/* Blocks of "x y low high", a series each, separated by two empty lines, the series' name first. */
void plot_data_write(FILE *, const struct plot_data *);
/* The same structure as gnuplot variables: panels, their titles, first and last block; strategy, dash and
 * point type of each block; note. */
void plot_data_write_variables(FILE *, const struct plot_data *);

#endif

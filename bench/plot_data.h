/* What figures show: records turned into series of points, and written for gnuplot. */
#ifndef BENCH_PLOT_DATA_H
#define BENCH_PLOT_DATA_H

#include "bench/results.h"
#include <stdbool.h>
#include <stdio.h>

enum plot_fact { PLOT_STEPS, PLOT_CFG_SCALE, PLOT_FRAMES, PLOT_FACTS };
enum { PLOT_TEXT = 96 };

/* One point of a series in a panel. Points with the same panel, series, key and tag become one: the
 * median of x and y, and the range of y. */
struct plot_point {
    char panel[PLOT_TEXT], series[PLOT_TEXT], strategy[PLOT_TEXT];
    char tag[PLOT_TEXT];              /* of bars: the category, else what is written beside the point */
    char mark[PLOT_TEXT];             /* "", or why there is no value here; see plot_left_out.h */
    double panel_order, key, x, y;
    double low, high;                 /* the range that is drawn; equal to y: none */
    double left, right;               /* of bars */
    bool is_simulated, is_exact;      /* is_exact: its error is rounding (figures that show errors) */
};

/* The points of a figure, and how many records it leaves out for which reason. */
struct plot_data {
    struct plot_point *points;
    size_t count, failed, oversubscribed, exact, lonely, unknown, unmatched;
    double exact_at;           /* y at which exact points are drawn; 0: at their own */
    char errors_of[PLOT_TEXT]; /* whose errors simulated points have; "": nobody's */
};

/* What a figure may look at besides the record. */
struct plot_context {
    const struct results *results;
    const struct results *errors; /* of real runs, for simulated points; NULL: none */
    double most_gpus; /* of the records that are ok */
    bool has_many_models;
    bool varies[PLOT_FACTS]; /* steps, cfg scale, frames: then they stand above the panels */
};

struct figure {
    const char *name;    /* also of its template, plots/NAME.gp */
    const char *summary;
    /* REQUIRED. Adds the points of an ok record. */
    enum status (*add)(const cJSON *record, const struct plot_context *, struct plot_data *);
    /* OPTIONAL: shows that a record is not ok. Default: it is counted as failed. */
    enum status (*mark)(const cJSON *record, const struct plot_context *, struct plot_data *);
    /* OPTIONAL: places the merged points, sorted by panel, series, key. Default: as they are. */
    enum status (*finish)(struct plot_data *);
    bool is_over_frames; /* frames are its x: they do not make panels */
    bool has_categories; /* its points are bars with finish'd places: tics are their tags */
};

/* The one list; ends with a NULL name. */
extern const struct figure plot_figures[];

/* Adds a point of the record with x as its key and no range, and returns it to be changed; NULL: x or y
 * is not finite. */
enum status plot_data_add(struct plot_data *, const cJSON *record, const struct plot_context *,
                          const char *series, double x, double y, struct plot_point **out) WARN_UNUSED;
/* Points of all records; see struct plot_point for how they are merged (marks are not). errors: of real runs,
 * for figures that show one; or NULL. Free with plot_data_free in every case. */
enum status plot_data_collect(const struct figure *, const struct results *, const struct results *errors,
                              struct plot_data *out) WARN_UNUSED;
void plot_data_free(struct plot_data *);
/* Whether there is more than marks. */
bool plot_data_has_values(const struct plot_data *);
/* Ascending by panel, series, key, tag; then marks after values, by place and text; then y. */
void plot_data_sort(struct plot_data *);
/* Places bars: categories (tags, ascending by key, then tag) at 0, 1, ...; series of a category beside
 * each other or, stacked, on top of each other (low: bottom, high: top). */
void plot_data_place_bars(struct plot_data *, bool is_stacked);

/* Blocks of "x y low high left right tag" (or mark), a series each, separated by two empty lines, the series' name
 * first. */
void plot_data_write(FILE *, const struct plot_data *);
/* The same structure as gnuplot variables: panels, their titles, first and last block, tics of bars;
 * strategy, variant and whether it is simulated of each block; what is left out. */
void plot_data_write_variables(FILE *, const struct plot_data *, bool has_categories);

#endif

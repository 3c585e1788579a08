/* One figure as files: data, script, and the formats gnuplot draws from them. */
#ifndef BENCH_PLOT_FIGURE_H
#define BENCH_PLOT_FIGURE_H

#include "bench/plot_data.h"

struct plot_request {
    const char *folder;  /* exists */
    const char *formats; /* "svg,pdf" */
    const char *page;    /* "auto", "single", "double": see plots/style.gp */
    const struct results *errors; /* of real runs, for simulated points; NULL: none */
    bool is_silent;      /* does not print the paths of the figures */
};

/* Writes NAME.dat and NAME.gp into the folder and draws NAME.FORMAT. ERR_IO: gnuplot is missing or
 * failed; no half-written figure stays. */
enum status plot_figure_write(const char *name, const struct plot_data *, bool has_categories,
                              const struct plot_request *) WARN_UNUSED;
/* The same from records; *drawn is false, and nothing is written, when they have no points for it. */
enum status plot_figure_make(const struct figure *, const struct results *, const struct plot_request *,
                             bool *drawn) WARN_UNUSED;
/* "timeline": a row a lane of every rank, from a file of `bench run --trace`. */
enum status plot_timeline_make(const char *trace, const struct plot_request *) WARN_UNUSED;

#endif

/* Running gnuplot on a script in a folder. */
#ifndef BENCH_PLOT_GNUPLOT_H
#define BENCH_PLOT_GNUPLOT_H

#include "bench/files.h"

/* "folder/name.ending"; ERR_USAGE: too long. */
enum status plot_gnuplot_place(const char *folder, const char *name, const char *ending,
                               char out[FILES_PATH]) WARN_UNUSED;
/* Copies the shipped template plots/NAME.gp to the end of a script. */
enum status plot_gnuplot_append(FILE *out, const char *name) WARN_UNUSED;
/* Runs folder/name.gp, which draws folder/name.FORMAT whole or not at all. ERR_IO:
 * gnuplot is missing, or what it said. */
enum status plot_gnuplot_draw(const char *folder, const char *name, const char *format) WARN_UNUSED;

#endif

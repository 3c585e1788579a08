/* What a figure does not show as a value: a marker where the value would stand, or a line beneath the panels.
 * Nothing is left out silently. */
#ifndef BENCH_PLOT_LEFT_OUT_H
#define BENCH_PLOT_LEFT_OUT_H

#include "bench/plot_data.h"

/* Adds a mark over the number of ranks for a record that is not ok, in the series it would be in. Where not
 * even the panel is known it is counted as failed. */
enum status plot_left_out_mark(const cJSON *record, const struct plot_context *, struct plot_data *)
    WARN_UNUSED;
/* Makes the marks of a panel one series, of strategy "mark", and those at one place one mark: "tp refused",
 * "2 refused, 1 timeout". Call it when bars have their places. */
void plot_left_out_settle(struct plot_data *);
/* Whether a value is unknown; then it is counted. */
bool plot_left_out_unknown(struct plot_data *, double value);
/* gnuplot's variables note, a line a reason, and note_lines. */
void plot_left_out_write(FILE *, const struct plot_data *);

#endif

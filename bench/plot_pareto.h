/* Figure "pareto": latency against error, and the points that no other point beats in both.
 *
 * A simulated record has no output and so no error. With errors of real runs given (plot_context.errors) it
 * takes the median error of those with the same strategy, options, steps and ranks, whatever their model,
 * resolution and dtype: the figure then says whose errors they are. */
#ifndef BENCH_PLOT_PARETO_H
#define BENCH_PLOT_PARETO_H

#include "bench/plot_data.h"

enum status plot_pareto_add(const cJSON *record, const struct plot_context *, struct plot_data *) WARN_UNUSED;
/* Draws what is exact at one height, a factor 10 below the least error, and adds the front, a series of its
 * own. Where all is exact, points keep the rounding that was found. */
enum status plot_pareto_finish(struct plot_data *) WARN_UNUSED;

#endif

/* Calibrating a platform on published rows: ceilings of products and attention on its serial and tp rows,
 * bandwidth on its tp rows at 2048 px and up; nothing else, and never on a row that is predicted. */
#ifndef BENCH_FIT_H
#define BENCH_FIT_H

#include "bench/published.h"

enum { FIT_FROM_RESOLUTION = 2048 };
#define FIT_BUS_SPREAD 1.6 /* single rows further apart than this say that it is not bandwidth */

struct fit_report {
    int rows;            /* used for the ceilings */
    int bus_rows;        /* tp rows at 2048 px and up */
    double least_bus, most_bus; /* what single rows imply, bytes/s; 0: none */
    bool is_bus_fitted;  /* else the platform's own figure stays */
};

/* A row that takes part in the fit of `platform`. */
bool fit_uses(const struct published_row *, const char *platform);
/* Changes the platform's ceilings and bus; without usable rows it stays as it is; without a serial row it
 * warns. */
enum status fit_platform(struct platform *, bool emulates, const struct published *,
                         struct fit_report *out) WARN_UNUSED;

#endif

/* A page that a researcher sends to a colleague: table, figures, images, in one file. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/results.h"
#include <stdio.h>

struct report_request {
    const char *title;
    const char *source;  /* a result file: images are also looked for beside it */
    const char *figures; /* an empty folder for figures on their way */
};

/* ERR_IO: gnuplot is missing or failed. An image that is gone is named in the page instead. */
enum status report_write(FILE *, const struct results *, const struct report_request *) WARN_UNUSED;

#endif

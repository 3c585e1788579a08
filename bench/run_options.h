/* Options of `bench run` that sweeps pass to the children they start. */
#ifndef BENCH_RUN_OPTIONS_H
#define BENCH_RUN_OPTIONS_H

#include "common/option.h"

extern const struct option run_opt_output, run_opt_dump, run_opt_image, run_opt_trace,
    run_opt_reference_cache, run_opt_reference_only;

#endif

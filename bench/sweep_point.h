/* One planned point of a sweep: resolved once for its identity, then run in a child. */
#ifndef BENCH_SWEEP_POINT_H
#define BENCH_SWEEP_POINT_H

#include "bench/results.h"
#include "common/option.h"
#include <stdbool.h>

struct sweep_point {
    const struct option_set *options;
    char label[256];
    char case_id[33], reference_id[33]; /* reference_id "": needs none */
    char model_sha256[65];              /* "": the model cannot be read */
    char reason[512];                   /* why it cannot be run at all; "" when it can */
    bool is_done;                       /* a record of it is in the file already */
};

/* The model file that was read last, so that planning hashes it once and not once a point. Starts as {0}. */
struct sweep_known_model {
    const char *name; /* as the options say it; they own it */
    char sha256[65];
};
/* ERR_USAGE: options that contradict each other, with the point's label. What the strategy, the device or
 * the model refuses, and a model that cannot be read, is noted and becomes a record later. */
enum status sweep_point_plan(const struct option_set *, const char *label, struct sweep_known_model *,
                             struct sweep_point *out) WARN_UNUSED;
/* Is this a record of the point, measured the way it is asked for now? */
bool sweep_point_matches(const struct sweep_point *, const cJSON *record);
/* A record for a point that gave none itself; for one that cannot be run, with why. Free with
 * cJSON_Delete. */
cJSON *sweep_point_record(const struct sweep_point *, enum status status, const char *reason, int argc,
                          char *const *argv, const char *start);
/* "run --strategy=tp ...": what was given and is used, after `program`. NULL-terminated, room for
 * `extra` more entries. Free with sweep_point_free_argv. */
enum status sweep_point_argv(const struct sweep_point *, const char *program, size_t extra, char ***out,
                             size_t *count) WARN_UNUSED;
void sweep_point_free_argv(char **argv);

#endif

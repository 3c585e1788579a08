/* The record of a point: what was asked for, what was measured, where. One JSON object on one line,
 * described field by field in docs/record.md and by the schema in results/schema.json. */
#ifndef BENCH_RECORD_H
#define BENCH_RECORD_H

#include "bench/json.h"
#include "bench/measure.h"
#include "bench/reference.h"

#define RECORD_SCHEMA "ditto.result/1"
enum { RECORD_CASE_ID = 33 };

struct record_facts {
    const struct point *point;             /* resolved as far as it goes */
    const struct measurement *measurement; /* NULL: nothing was measured */
    const struct error_report *error;      /* NULL: error_reason says why */
    const char *error_reason;
    enum status status;
    const char *reason; /* of a status other than OK; else NULL */
    int argc;
    char *const *argv;
    const char *start, *end; /* as clock_utc writes it */
};

/* Free with cJSON_Delete. */
cJSON *record_build(const struct record_facts *);
/* What records call a status: ok, unsupported, timeout, oom, interrupted, or error for all others. */
const char *record_status(enum status status);
/* Identifies a case across builds and versions: hex of a SHA-256 over the identity options that the
 * point uses and that differ from their defaults, in order of name, and the SHA-256 of the model and of
 * the init file. `options` may differ from the point's own (a reference's). */
void record_case_id(const struct point *, const struct option_set *options, char out[RECORD_CASE_ID]);
/* The value of an option as it was resolved (device and transport: never ""; platform: its name). */
const char *record_option_text(const struct point *, const struct option_setting *);
/* stale-mode -> stale_mode; out has room for 64. */
void record_option_key(const struct option *, char out[64]);

#endif

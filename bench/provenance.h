/* Where and how a record came about: host, build, command line, times, and the environment variables
 * that matter, by allow-list only (an environment may hold secrets). */
#ifndef BENCH_PROVENANCE_H
#define BENCH_PROVENANCE_H

#include "bench/json.h"

/* Adds object "provenance" to the record. start, end: UTC as clock_utc writes it. */
void provenance_add(cJSON *record, int argc, char *const *argv, const char *start, const char *end);
/* Adds "mpi" to "provenance": library, hosts with their ranks, cores and binding of each of the first
 * nranks ranks. After launch_begin. */
void provenance_add_mpi(cJSON *record, int nranks);

#endif

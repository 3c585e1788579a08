/* Monotonic wall time. Nothing that is measured uses the calendar clock. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void); /* CLOCK_MONOTONIC */
/* The same clock in picoseconds since the process's first call (from boot, int64 would hold only 106
 * days): what marks of host lanes say, so those of all ranks of a process compare. */
int64_t clock_ps(void);
void clock_sleep_ns(int64_t ns);
/* UTC as 2026-01-31T12:00:00Z, for provenance only. out holds 21 bytes. */
void clock_utc(char out[21]);

#endif

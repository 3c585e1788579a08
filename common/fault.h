/* Test hooks, off unless an environment variable of the same name is set; read once, at start.
 *
 *   DITTO_TEST_FAIL=RANK:CALL       the rank's CALL-th comm call (from 0, starts only) fails
 *   DITTO_TEST_DELAY_MS=D           every message on `threads` arrives D ms after it was posted
 *   DITTO_TEST_STALL=RANK:CALL:MS   the rank sleeps before its CALL-th comm call
 *   DITTO_TEST_SLOW=RANK:PERCENT    the rank's arithmetic takes that much more time of its core
 *   DITTO_TEST_MPI_PIECE=BYTES      messages on `mpi` are sent in pieces of at most that many bytes
 *
 * A malformed value is an error at start (ERR_USAGE): a hook that silently did nothing would make a
 * test pass for nothing. */
#ifndef COMMON_FAULT_H
#define COMMON_FAULT_H

#include "common/status.h"
#include <stdint.h>

enum status fault_read_environment(void) WARN_UNUSED;
/* Before comm call number `call` of `rank`: may sleep, may fail with ERR_INTERNAL. */
enum status fault_at_call(int rank, uint64_t call) WARN_UNUSED;
int64_t fault_delay_ns(void);
int fault_slow_percent(int rank);
int64_t fault_piece_bytes(void); /* 0: no limit of the test's */
/* For tests that run ranks in their own process: set what the variables would; NULL: off. */
enum status fault_set(const char *fail, const char *delay_ms, const char *stall, const char *slow)
    WARN_UNUSED;

#endif

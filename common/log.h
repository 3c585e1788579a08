/* Messages for people, on stderr only: `ditto: [rank 3/8] ring: ...`. stdout is what a user pipes.
 * Outside ranks the bracket is absent; warnings and errors say so: `ditto: warning: ...`. A warning
 * ends with what to do. Nothing is logged inside timing. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "common/status.h"

/* Names the calling thread (or fiber) in messages and failures; nranks 0: no rank. */
void log_set_rank(int rank, int nranks);
int log_rank(void); /* -1: no rank */

void log_info(const char *format, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *format, ...) PRINTF_LIKE(1, 2);
void log_error(const char *format, ...) PRINTF_LIKE(1, 2);
/* Drops log_info; warnings and errors always appear. */
void log_quiet(int quiet);

#endif

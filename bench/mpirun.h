/* Points of a sweep whose ranks are MPI processes: the command that starts them, and what it says when
 * they end without a record. */
#ifndef BENCH_MPIRUN_H
#define BENCH_MPIRUN_H

#include "common/option.h"
#include <stdbool.h>
#include <stddef.h>

extern const struct option mpirun_opt_launcher;

/* Does the point need a launcher: transport mpi, and none has started this program? */
bool mpirun_is_needed(const struct option_set *point);
/* The launcher's words with {n} replaced by `ranks`, this program, then `argv` after its first word.
 * NULL-terminated; free with sweep_point_free_argv. `launcher` "": the default, which lets root run it.
 * ERR_USAGE: no {n} in it. */
enum status mpirun_argv(const char *launcher, int ranks, char *const *argv, char ***out) WARN_UNUSED;
/* What the messages of a job say of its end: the first error that a rank of ours printed, with its status,
 * or the launcher's line on the rank that died. False: nothing. */
bool mpirun_explain(const char *messages, enum status *status, char *out, size_t size);

#endif

/* Result files: JSON Lines, one record a line, only ever appended to.
 *
 * A line is written by one write, with O_APPEND, and synced: nothing finished is lost. One writer at a
 * time (flock). A last line without its newline was torn by a crash: opening for writing drops it,
 * reading skips it with a warning. */
#ifndef BENCH_RESULTS_H
#define BENCH_RESULTS_H

#include "bench/json.h"

struct results_file {
    int fd;           /* -1: closed */
    const char *path; /* the caller's */
    int is_regular;
};

/* Creates the file (not its folder) when it does not exist. path NULL: standard output. ERR_USAGE: it
 * cannot be written, or another program is writing to it. */
enum status results_open(const char *path, struct results_file *out) WARN_UNUSED;
/* ERR_IO leaves a regular file as it was before. */
enum status results_append(struct results_file *, const cJSON *record) WARN_UNUSED;
void results_close(struct results_file *);

struct results {
    cJSON **records;
    size_t count;
};
/* All records of a file. ERR_FORMAT names the line: not JSON, or another schema. An absent file is
 * ERR_IO. Free with results_free in every case. */
enum status results_read(const char *path, struct results *out) WARN_UNUSED;
/* Those of several files together, without superseded ones; `where` ("strategy=tp,resolution=32", or "")
 * keeps those whose config has these values. ERR_USAGE: not option=value, or nothing is left. */
enum status results_read_all(const char *const *paths, size_t count, const char *where,
                             struct results *out) WARN_UNUSED;
void results_free(struct results *);
/* Drops records of points that failed or were interrupted and have a later record of the same case. */
void results_drop_superseded(struct results *);

#endif

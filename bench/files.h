/* Files that appear whole or not at all, and the data that ships with the program. */
#ifndef BENCH_FILES_H
#define BENCH_FILES_H

#include "common/status.h"
#include <stddef.h>
#include <stdio.h>

enum { FILES_PATH = 4096 };

/* A file under way: written beside its place, renamed to it at the end. A device or a pipe is written
 * directly. */
struct files_output {
    FILE *stream;
    char path[FILES_PATH], partial[FILES_PATH];
};
enum status files_create(const char *path, struct files_output *out) WARN_UNUSED;
/* Syncs and renames. ERR_IO: could not; nothing is left behind. */
enum status files_commit(struct files_output *) WARN_UNUSED;
void files_discard(struct files_output *); /* accepts a zeroed struct and a committed file */

/* The folder a path is in is made, with its parents. */
enum status files_make_parent(const char *path) WARN_UNUSED;
/* Finds "plots/style.gp" in the source tree or where it was installed. */
enum status files_find_data(const char *name, char out[FILES_PATH]) WARN_UNUSED;
/* What a user means by a relative path: the file if there is one, else the shipped data of that name
 * ("models/dit-fashion.safetensors" works from every folder). Returns name or out. */
const char *files_locate(const char *name, char out[FILES_PATH]);

#endif

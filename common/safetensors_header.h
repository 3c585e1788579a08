/* The header of one safetensors file: every rule of the format that concerns one file. Private to
 * safetensors.c. */
#ifndef COMMON_SAFETENSORS_HEADER_H
#define COMMON_SAFETENSORS_HEADER_H

#include "common/safetensors.h"

struct safetensors_pair {
    const char *key, *value;
};

struct safetensors_header {
    struct safetensors_tensor *tensors; /* in the order of the header */
    size_t count;
    struct safetensors_pair *metadata; /* sorted by key */
    size_t metadata_count;
    char *text; /* all names and strings */
};

/* file: the whole file of `size` bytes; path and file must outlive the header. ERR_FORMAT,
 * ERR_MEMORY. */
enum status safetensors_header_read(const char *path, const void *file, uint64_t size,
                                    struct safetensors_header *out) WARN_UNUSED;
void safetensors_header_free(struct safetensors_header *); /* accepts a zeroed struct */

/* Sorts by name. Returns a tensor whose name another one has, or NULL. */
const struct safetensors_tensor *safetensors_sort_names(const struct safetensors_tensor **tensors,
                                                        size_t count);

/* What a file that is no safetensors file is (by its first bytes), and what to do; or NULL. */
const char *safetensors_foreign(const void *file, uint64_t size);

#endif

/* "*.safetensors.index.json": which shard holds which tensor of a model in several files. Private
 * to safetensors.c. */
#ifndef COMMON_SAFETENSORS_INDEX_H
#define COMMON_SAFETENSORS_INDEX_H

#include "common/json_scan.h"

struct safetensors_index_entry {
    const char *tensor, *shard; /* shard: a file name beside the index, never a path */
};

struct safetensors_index {
    struct json_file file;
    struct safetensors_index_entry *entries; /* sorted by shard, then tensor */
    size_t count;
};

bool safetensors_is_index(const char *path);
/* path must outlive the index. ERR_IO, ERR_FORMAT, ERR_MEMORY. */
enum status safetensors_index_read(const char *path, struct safetensors_index *out) WARN_UNUSED;
void safetensors_index_free(struct safetensors_index *); /* accepts a zeroed struct */
/* A shard's path, beside the index. NULL: out of memory. Owner: the caller (free). */
char *safetensors_index_shard(const char *index_path, const char *shard);

#endif

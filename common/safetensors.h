/* safetensors files: a strict reader (every rule refuses with the file, the tensor and the rule)
 * and a writer. The format: 8 bytes little-endian header length, a JSON header, then the data.
 * https://huggingface.co/docs/safetensors */
#ifndef COMMON_SAFETENSORS_H
#define COMMON_SAFETENSORS_H

#include "common/status.h"
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_DIMS = 8 };

struct safetensors_tensor {
    const char *name;
    const char *file;  /* path of the file or shard that holds it */
    const char *dtype; /* as in the file: "F32", "BF16", "I64" ... */
    int dims;          /* 0: a scalar */
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t elements, bytes;
    const void *data; /* in the file's read-only mapping; may be unaligned */
};

struct safetensors;

/* Maps the file, or every shard of a "*.safetensors.index.json". ERR_IO, ERR_FORMAT; recognises
 * Git-LFS pointers, HTML pages, zip and pickle checkpoints (.pt, .bin) and says what to do. */
enum status safetensors_open(const char *path, struct safetensors **out) WARN_UNUSED;
void safetensors_close(struct safetensors *); /* accepts NULL */
size_t safetensors_count(const struct safetensors *);
const struct safetensors_tensor *safetensors_at(const struct safetensors *, size_t i);
const struct safetensors_tensor *safetensors_find(const struct safetensors *, const char *name);
/* A value of __metadata__, or NULL. */
const char *safetensors_metadata(const struct safetensors *, const char *key);
const char *safetensors_path(const struct safetensors *);

/* Elements first .. first+n-1 as float. ERR_FORMAT: a dtype other than F32, F16, BF16. */
enum status safetensors_read_floats(const struct safetensors *, const struct safetensors_tensor *,
                                    uint64_t first, size_t n, float *out) WARN_UNUSED;
/* The tensor's pages leave this process's memory until it is read again: the mapping is a window, not a
 * copy. Thread-safe. */
void safetensors_forget(const struct safetensors_tensor *);
/* Lower-case hex SHA-256 of the file (of all shards in order of name); out holds 65 bytes. */
enum status safetensors_sha256(const char *path, char out[65]) WARN_UNUSED;

/* One F32 tensor to write. */
struct safetensors_output {
    const char *name;
    int dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    const float *data;
};
/* Writes to a temporary file beside `path`, syncs, renames: an existing file is replaced whole or
 * left. metadata: NULL-terminated key, value, key, value ... or NULL. */
enum status safetensors_write(const char *path, const struct safetensors_output *tensors,
                              size_t count, const char *const *metadata) WARN_UNUSED;

#endif

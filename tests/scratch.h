/* A folder for the files that a test makes, and what is expected of a failure. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stddef.h>

#include "common/status.h"

/* Setup and teardown of a cmocka group: the folder exists in between. */
int scratch_make(void **state);
int scratch_remove(void **state);
/* A path in the folder; the last eight stay valid. */
const char *scratch_path(const char *name);
/* Writes a file into it and returns its path. */
const char *scratch_write(const char *name, const void *bytes, size_t count);
/* The same, of a safetensors file: length, JSON, `data_bytes` bytes counting up from 0. */
const char *scratch_safetensors(const char *name, const char *json, size_t data_bytes);
#define F32_ENTRY(shape, begin, end)                                                               \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
int scratch_mkdir(const char *name);
/* How many files the folder holds. */
size_t scratch_count(void);
/* A path below the source root. */
const char *source_path(const char *name);
/* Asserts that `got` is `code` and that the recorded text holds every string up to NULL; clears it.
 */
void expect_failure(enum status got, enum status code, const char *const *parts);
/* safetensors_open must fail so. */
void expect_refused(const char *path, enum status code, const char *const *parts);

#endif

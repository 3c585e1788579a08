/* Platform files: JSON (bench/platforms/schema.json) to struct platform and back. */
#ifndef BENCH_PLATFORM_FILE_H
#define BENCH_PLATFORM_FILE_H

#include "bench/json.h"
#include "common/platform.h"

#define PLATFORM_SCHEMA "ditto.platform/1"

/* NULL-terminated names of the platforms that ship with the program. */
const char *const *platform_names(void);
/* `name`: one of those, or a file. ERR_USAGE: neither; ERR_FORMAT: the field and the rule. */
enum status platform_load(const char *name, struct platform *out) WARN_UNUSED;
/* From a parsed file; `what` names it in errors, `text` is hashed. */
enum status platform_read(const char *what, const cJSON *, const char *text, size_t bytes,
                          struct platform *out) WARN_UNUSED;
/* Free with cJSON_Delete. `how`: where the figures come from, NULL: not said. */
cJSON *platform_json(const struct platform *, const char *how);
/* Writes the file whole or not at all. */
enum status platform_write(const char *path, const struct platform *, const char *how) WARN_UNUSED;

#endif

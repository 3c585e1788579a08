/* JSON on top of cJSON: strict reading, exact integers, no NaN, safe text.
 *
 * cJSON accepts duplicate keys, invalid UTF-8 and numbers out of range, and rounds integers above 2^53
 * when it prints; all of that is checked or avoided here. Out of memory while building ends the
 * program: a record with silently missing fields would be worse. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include "common/status.h"
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* Parses exactly one JSON value from `bytes` bytes, which a NUL follows. ERR_FORMAT names `what` (a file, "line 3 of FILE") and the rule. Free
 * with cJSON_Delete. */
enum status json_parse(const char *what, const char *text, size_t bytes, cJSON **out) WARN_UNUSED;
/* The whole file, a NUL after its bytes; ERR_IO. Free with free(). */
enum status json_read_file(const char *path, char **text, size_t *bytes) WARN_UNUSED;

/* Building. A NULL key appends to an array. */
cJSON *json_add_object(cJSON *parent, const char *key);
cJSON *json_add_array(cJSON *parent, const char *key);
void json_add_text(cJSON *parent, const char *key, const char *text); /* NULL: null; invalid UTF-8: \xHH */
void json_add_u64(cJSON *parent, const char *key, uint64_t value);
void json_add_i64(cJSON *parent, const char *key, int64_t value);
void json_add_bool(cJSON *parent, const char *key, int value);
/* A value that is not finite becomes null, and in an object KEY_reason says why. */
void json_add_number(cJSON *parent, const char *key, double value, const char *why);
/* The fewest digits that read back as the same value, with a decimal point in every locale. */
enum { JSON_NUMBER = 32 };
void json_number_text(double value, char out[JSON_NUMBER]);
/* Numbers that were read will be printed so too (cJSON's own printing loses a last bit). Afterwards the
 * value is only good for printing. */
void json_make_exact(cJSON *value);
/* One line without a newline; free with free(). */
char *json_print(const cJSON *value);

/* Reading by dotted path: "latency_us.median". Absent or of another type: NULL, NAN. */
const cJSON *json_at(const cJSON *root, const char *path);
double json_number(const cJSON *root, const char *path);
const char *json_text(const cJSON *root, const char *path);

#endif

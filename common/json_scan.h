/* A strict JSON scanner for files that nobody vouches for (safetensors headers and indexes,
 * config.json): exactly RFC 8259, UTF-8 checked, integers with all their 64 bits, no recursion,
 * linear time.
 *
 * The caller walks the document in order:
 *     struct json_list object;
 *     bool more;
 *     TRY(json_enter(s, '{', &object));
 *     for (TRY(json_next(s, &object, &more)); more; ...) { json_key(); then one value }
 * Every refusal is ERR_FORMAT with the path, the subject, the rule and the byte. */
#ifndef COMMON_JSON_SCAN_H
#define COMMON_JSON_SCAN_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_MAX_DEPTH = 64, JSON_QUOTED = 128 };

struct json_scan {
    const char *path;    /* of the file, for messages */
    const char *subject; /* what is being read, for messages: `tensor "x": ` or "" */
    size_t offset;       /* of `begin` in the file */
    const char *begin, *at, *end;
    char *text; /* decoded strings go here, one after another; room for end - begin bytes in all */
};

/* An object or array being walked. */
struct json_list {
    char close;
    bool started;
};

#define JSON_FAIL(s, rule)                                                                         \
    FAIL(ERR_FORMAT, "%s: %s%s (at byte %zu)", (s)->path, (s)->subject, rule,                      \
         (s)->offset + (size_t)((s)->at - (s)->begin))

/* The next character that is not white space, unconsumed; 0 at the end. */
char json_peek(struct json_scan *s);
/* Consumes `open`, '{' or '['. */
enum status json_enter(struct json_scan *s, char open, struct json_list *out) WARN_UNUSED;
/* Before every member: consumes a comma, or the closing bracket (then *more is false). */
enum status json_next(struct json_scan *s, struct json_list *list, bool *more) WARN_UNUSED;
/* A member's name and its colon. */
enum status json_key(struct json_scan *s, const char **out) WARN_UNUSED;
/* A string, decoded to UTF-8 into s->text. U+0000 is refused: C strings cannot hold it. */
enum status json_string(struct json_scan *s, const char **out) WARN_UNUSED;
/* A whole number, 0 .. 2^64-1, without sign, fraction or exponent. */
enum status json_unsigned(struct json_scan *s, uint64_t *out) WARN_UNUSED;
/* Any value, at most JSON_MAX_DEPTH deep. */
enum status json_skip(struct json_scan *s) WARN_UNUSED;
/* Nothing but white space is left. */
enum status json_end(struct json_scan *s) WARN_UNUSED;

/* "text" for a message: quoted, cut to fit, control characters as '?'. Returns out. */
const char *json_quote(char out[JSON_QUOTED], const char *text);

/* A whole file, ready to be scanned; strings found in it live until json_file_free. */
struct json_file {
    struct json_scan scan;
    char *bytes, *text;
};
/* path must outlive the file. ERR_IO; ERR_FORMAT above max_bytes. */
enum status json_file_read(const char *path, size_t max_bytes, struct json_file *out) WARN_UNUSED;
void json_file_free(struct json_file *); /* accepts a zeroed struct */

#endif

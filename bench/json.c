/* Strict JSON reading and exact writing. */
#include "bench/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- UTF-8 ---- */

/* Bytes of the valid sequence that starts at p (RFC 3629: no surrogates, no overlong forms), or 0. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, bytes;
    } form[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        if (p[0] < form[i].first_low || p[0] > form[i].first_high)
            continue;
        size_t n = form[i].bytes;
        if (n > left || (n > 1 && (p[1] < form[i].second_low || p[1] > form[i].second_high)))
            return 0;
        for (size_t k = 2; k < n; k++)
            if (p[k] < 0x80 || p[k] > 0xbf)
                return 0;
        return n;
    }
    return 0;
}

static enum status check_utf8(const char *what, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        size_t n = text[i] ? utf8_length((const unsigned char *)text + i, bytes - i) : 0;
        if (n == 0)
            return FAIL(ERR_FORMAT, "%s: byte %zu is not valid UTF-8 text", what, i);
        i += n;
    }
    return OK;
}

/* ---- reading ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status check_object_keys(const char *what, const cJSON *object)
{
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    const char **keys = malloc((n + 1) * sizeof *keys);
    if (!keys)
        return FAIL(ERR_MEMORY, "%s: out of memory", what);
    for (const cJSON *item = object->child; item; item = item->next)
        keys[i++] = item->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    enum status status = OK;
    for (i = 1; i < n && status == OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            status = FAIL(ERR_FORMAT, "%s: key \"%.100s\" stands twice in one object", what, keys[i]);
    free(keys);
    return status;
}

/* cJSON bounds the depth of what it parses, and with it this recursion. */
static enum status check_values(const char *what, const cJSON *value)
{
    if (cJSON_IsNumber(value) && !isfinite(value->valuedouble))
        return FAIL(ERR_FORMAT, "%s: a number is out of range", what);
    if (cJSON_IsObject(value))
        TRY(check_object_keys(what, value));
    for (const cJSON *item = value->child; item; item = item->next)
        TRY(check_values(what, item));
    return OK;
}

/* cJSON lets \u0000 end a string early, hiding what follows. */
static enum status check_escapes(const char *what, const char *text)
{
    for (const char *p = strstr(text, "\\u0000"); p; p = strstr(p + 1, "\\u0000")) {
        size_t slashes = 1;
        while (p - slashes >= text && p[-(ptrdiff_t)slashes] == '\\')
            slashes++;
        if (slashes % 2 == 1)
            return FAIL(ERR_FORMAT, "%s: text holds \\u0000", what);
    }
    return OK;
}

enum status json_parse(const char *what, const char *text, size_t bytes, cJSON **out)
{
    TRY(check_utf8(what, text, bytes));
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
    if (!value)
        return FAIL(ERR_FORMAT, "%s: not valid JSON at byte %zu", what, (size_t)(end - text));
    while (end < text + bytes && strchr(" \t\r\n", *end))
        end++;
    enum status status = OK;
    if (end != text + bytes)
        status = FAIL(ERR_FORMAT, "%s: text follows the JSON value at byte %zu", what,
                      (size_t)(end - text));
    if (status == OK)
        status = check_escapes(what, text);
    if (status == OK)
        status = check_values(what, value);
    if (status == OK)
        *out = value;
    else
        cJSON_Delete(value);
    return status;
}

static enum status read_all(int fd, const char *path, size_t capacity, char **text, size_t *bytes)
{
    char *buffer = malloc(capacity + 1);
    if (!buffer)
        return FAIL(ERR_MEMORY, "%s: %zu bytes do not fit into memory", path, capacity);
    size_t used = 0;
    while (used < capacity) {
        ssize_t n = read(fd, buffer + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int why = errno;
            free(buffer);
            return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(why));
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    buffer[used] = '\0';
    *text = buffer;
    *bytes = used;
    return OK;
}

enum status json_read_file(const char *path, char **text, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    enum status status;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = FAIL(ERR_IO, "%s: not a regular file", path);
    else
        status = read_all(fd, path, (size_t)info.st_size, text, bytes);
    close(fd);
    return status;
}

const cJSON *json_at(const cJSON *root, const char *path)
{
    char key[64];
    while (root && *path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        root = cJSON_GetObjectItemCaseSensitive(root, key);
        path += n + (path[n] == '.');
    }
    return root;
}

double json_number(const cJSON *root, const char *path)
{
    const cJSON *value = json_at(root, path);
    return cJSON_IsNumber(value) ? value->valuedouble : NAN;
}

const char *json_text(const cJSON *root, const char *path)
{
    const cJSON *value = json_at(root, path);
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* ---- building ---- */

static cJSON *add(cJSON *parent, const char *key, cJSON *item)
{
    ASSERT(item != NULL);
    ASSERT(key ? cJSON_AddItemToObject(parent, key, item) : cJSON_AddItemToArray(parent, item));
    return item;
}

cJSON *json_add_object(cJSON *parent, const char *key)
{
    return add(parent, key, cJSON_CreateObject());
}

cJSON *json_add_array(cJSON *parent, const char *key)
{
    return add(parent, key, cJSON_CreateArray());
}

void json_add_text(cJSON *parent, const char *key, const char *text)
{
    if (!text) {
        add(parent, key, cJSON_CreateNull());
        return;
    }
    size_t bytes = strlen(text), used = 0;
    char *safe = malloc(4 * bytes + 1);
    ASSERT(safe != NULL);
    for (size_t i = 0; i < bytes;) {
        size_t n = utf8_length((const unsigned char *)text + i, bytes - i);
        if (n > 0) {
            memcpy(safe + used, text + i, n);
            used += n;
            i += n;
        } else {
            used += (size_t)sprintf(safe + used, "\\x%02x", (unsigned char)text[i++]);
        }
    }
    safe[used] = '\0';
    add(parent, key, cJSON_CreateString(safe));
    free(safe);
}

void json_add_u64(cJSON *parent, const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    add(parent, key, cJSON_CreateRaw(digits));
}

void json_add_i64(cJSON *parent, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    add(parent, key, cJSON_CreateRaw(digits));
}

void json_add_bool(cJSON *parent, const char *key, int value)
{
    add(parent, key, cJSON_CreateBool(value != 0));
}

/* The shortest of 15 to 17 digits that reads back as the same number; cJSON is content with one that is
 * merely close. A locale's decimal comma becomes a point. */
void json_number_text(double value, char out[JSON_NUMBER])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, JSON_NUMBER, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    char *comma = strchr(out, ',');
    if (comma)
        *comma = '.';
}

void json_add_number(cJSON *parent, const char *key, double value, const char *why)
{
    if (isfinite(value)) {
        char digits[JSON_NUMBER];
        json_number_text(value, digits);
        add(parent, key, cJSON_CreateRaw(digits));
        return;
    }
    add(parent, key, cJSON_CreateNull());
    if (key) {
        char reason_key[80];
        snprintf(reason_key, sizeof reason_key, "%s_reason", key);
        json_add_text(parent, reason_key, why);
    }
}

void json_make_exact(cJSON *value)
{
    for (cJSON *item = value->child; item; item = item->next)
        json_make_exact(item);
    if (!cJSON_IsNumber(value))
        return;
    char digits[JSON_NUMBER];
    json_number_text(value->valuedouble, digits);
    value->valuestring = cJSON_malloc(strlen(digits) + 1);
    ASSERT(value->valuestring != NULL);
    memcpy(value->valuestring, digits, strlen(digits) + 1);
    value->type = (value->type & ~0xFF) | cJSON_Raw;
}

char *json_print(const cJSON *value)
{
    char *line = cJSON_PrintUnformatted(value);
    ASSERT(line != NULL);
    return line;
}

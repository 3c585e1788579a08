/* A strict JSON scanner. */
#include "common/json_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char json_peek(struct json_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
    return s->at < s->end ? *s->at : 0;
}

enum status json_enter(struct json_scan *s, char open, struct json_list *out)
{
    if (json_peek(s) != open || s->at == s->end)
        return JSON_FAIL(s, open == '{' ? "an object is expected" : "a list is expected");
    s->at++;
    *out = (struct json_list){.close = open == '{' ? '}' : ']'};
    return OK;
}

enum status json_next(struct json_scan *s, struct json_list *list, bool *more)
{
    char c = json_peek(s);
    if (c == list->close) {
        s->at++;
        *more = false;
        return OK;
    }
    if (list->started) {
        if (c != ',')
            return JSON_FAIL(s, "bad JSON: a comma or a closing bracket is expected");
        s->at++;
    }
    list->started = true;
    *more = true;
    return OK;
}

enum status json_key(struct json_scan *s, const char **out)
{
    TRY(json_string(s, out));
    if (json_peek(s) != ':')
        return JSON_FAIL(s, "bad JSON: a colon is expected");
    s->at++;
    return OK;
}

/* One character of two to four bytes: lengths, ranges of the second byte as in RFC 3629, so that
 * overlong forms, surrogates and values above U+10FFFF are refused. */
static enum status scan_utf8(struct json_scan *s)
{
    unsigned char lead = (unsigned char)*s->at;
    int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0xC2 || lead > 0xF4 || s->end - s->at <= more)
        return JSON_FAIL(s, "bad UTF-8");
    for (int i = 1; i <= more; i++) {
        unsigned char c = (unsigned char)s->at[i];
        if (c < low || c > high)
            return JSON_FAIL(s, "bad UTF-8");
        low = 0x80;
        high = 0xBF;
    }
    memcpy(s->text, s->at, (size_t)more + 1);
    s->text += more + 1;
    s->at += more + 1;
    return OK;
}

/* The four digits of \uXXXX; s->at is at the u. */
static enum status scan_hex4(struct json_scan *s, uint32_t *out)
{
    *out = 0;
    if (s->end - s->at < 5)
        return JSON_FAIL(s, "bad JSON: an escape is cut short");
    for (int i = 1; i <= 4; i++) {
        char c = s->at[i];
        if (is_digit(c))
            *out = *out * 16 + (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            *out = *out * 16 + (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return JSON_FAIL(s, "bad JSON: \\u takes four hexadecimal digits");
    }
    s->at += 5;
    return OK;
}

static void put_utf8(struct json_scan *s, uint32_t code)
{
    if (code < 0x80) {
        *s->text++ = (char)code;
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *s->text++ = (char)((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | (code >> (6 * more)));
    while (more-- > 0)
        *s->text++ = (char)(0x80 | ((code >> (6 * more)) & 0x3F));
}

static enum status scan_unicode_escape(struct json_scan *s)
{
    uint32_t code, low;
    TRY(scan_hex4(s, &code));
    if (code == 0)
        return JSON_FAIL(s, "U+0000 in a string");
    if (code >= 0xD800 && code <= 0xDFFF) {
        if (code >= 0xDC00 || s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
            return JSON_FAIL(s, "bad JSON: a lone surrogate");
        s->at++;
        TRY(scan_hex4(s, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return JSON_FAIL(s, "bad JSON: a lone surrogate");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    put_utf8(s, code);
    return OK;
}

static enum status scan_escape(struct json_scan *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    s->at++;
    if (s->at == s->end)
        return JSON_FAIL(s, "bad JSON: an escape is cut short");
    if (*s->at == 'u')
        return scan_unicode_escape(s);
    const char *known = *s->at ? strchr(from, *s->at) : NULL;
    if (!known)
        return JSON_FAIL(s, "bad JSON: an unknown escape");
    *s->text++ = to[known - from];
    s->at++;
    return OK;
}

enum status json_string(struct json_scan *s, const char **out)
{
    if (json_peek(s) != '"')
        return JSON_FAIL(s, "a string is expected");
    s->at++;
    const char *start = s->text;
    while (s->at < s->end && *s->at != '"') {
        unsigned char c = (unsigned char)*s->at;
        if (c < 0x20)
            return JSON_FAIL(s, "bad JSON: a control character in a string");
        if (c == '\\')
            TRY(scan_escape(s));
        else if (c >= 0x80)
            TRY(scan_utf8(s));
        else
            *s->text++ = *s->at++;
    }
    if (s->at == s->end)
        return JSON_FAIL(s, "bad JSON: a string without an end");
    s->at++;
    *s->text++ = 0;
    *out = start;
    return OK;
}

enum status json_unsigned(struct json_scan *s, uint64_t *out)
{
    char c = json_peek(s);
    uint64_t value = 0;
    if (c == '-')
        return JSON_FAIL(s, "a negative number where a size is expected");
    if (!is_digit(c))
        return JSON_FAIL(s, "a whole number is expected");
    if (c == '0' && s->end - s->at > 1 && is_digit(s->at[1]))
        return JSON_FAIL(s, "bad JSON: a number with a leading zero");
    for (; s->at < s->end && is_digit(*s->at); s->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s->at - '0'), &value))
            return JSON_FAIL(s, "a number that overflows 64 bits");
    if (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E'))
        return JSON_FAIL(s, "a fractional number where a whole one is expected");
    *out = value;
    return OK;
}

static bool skip_digits(struct json_scan *s)
{
    const char *start = s->at;
    while (s->at < s->end && is_digit(*s->at))
        s->at++;
    return s->at > start;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static enum status skip_number(struct json_scan *s)
{
    s->at += *s->at == '-';
    bool good = true;
    if (s->at < s->end && *s->at == '0')
        s->at++;
    else
        good = skip_digits(s);
    if (good && s->at < s->end && *s->at == '.') {
        s->at++;
        good = skip_digits(s);
    }
    if (good && s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        s->at += s->at < s->end && (*s->at == '+' || *s->at == '-');
        good = skip_digits(s);
    }
    return good ? OK : JSON_FAIL(s, "bad JSON: a malformed number");
}

static enum status skip_scalar(struct json_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    const char *unused;
    char c = json_peek(s);
    if (c == '"')
        return json_string(s, &unused);
    if (c == '-' || is_digit(c))
        return skip_number(s);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->at) >= n && memcmp(s->at, words[i], n) == 0) {
            s->at += n;
            return OK;
        }
    }
    return JSON_FAIL(s, "bad JSON: a value is expected");
}

enum status json_skip(struct json_scan *s)
{
    struct json_list lists[JSON_MAX_DEPTH];
    int depth = 0;
    do {
        char c = json_peek(s);
        if (c == '{' || c == '[') {
            if (depth == JSON_MAX_DEPTH)
                return JSON_FAIL(s, "nested too deeply");
            TRY(json_enter(s, c, &lists[depth++]));
        } else {
            TRY(skip_scalar(s));
        }
        /* on to the next value, out of every list that ends here */
        for (bool more = false; depth > 0 && !more; depth -= !more) {
            const char *unused;
            TRY(json_next(s, &lists[depth - 1], &more));
            if (more && lists[depth - 1].close == '}')
                TRY(json_key(s, &unused));
        }
    } while (depth > 0);
    return OK;
}

enum status json_end(struct json_scan *s)
{
    json_peek(s);
    return s->at == s->end ? OK : JSON_FAIL(s, "bad JSON: text after its end");
}

const char *json_quote(char out[JSON_QUOTED], const char *text)
{
    size_t room = JSON_QUOTED - sizeof "\"...\"", n = strlen(text), kept = n < room ? n : room;
    while (kept < n && kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80)
        kept--; /* not in the middle of a character */
    out[0] = '"';
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i + 1] = c < 0x20 || c == 0x7F ? '?' : text[i];
    }
    strcpy(out + 1 + kept, kept < n ? "...\"" : "\"");
    return out;
}

static enum status read_whole(const char *path, int fd, size_t max_bytes, struct json_file *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return FAIL(ERR_IO, "%s: not a regular file", path);
    if ((uint64_t)info.st_size > max_bytes)
        return FAIL(ERR_FORMAT, "%s: larger than the limit of %zu bytes", path, max_bytes);
    size_t size = (size_t)info.st_size, have = 0;
    out->bytes = malloc(size + 1);
    out->text = malloc(size + 1);
    if (!out->bytes || !out->text)
        return FAIL(ERR_MEMORY, "%s: no memory for %zu bytes", path, size);
    while (have < size) {
        ssize_t got = read(fd, out->bytes + have, size - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return FAIL(ERR_IO, "%s: cannot be read: %s", path,
                        got < 0 ? strerror(errno) : "it became shorter");
        have += (size_t)got;
    }
    out->scan = (struct json_scan){.path = path,
                                   .subject = "",
                                   .begin = out->bytes,
                                   .at = out->bytes,
                                   .end = out->bytes + size,
                                   .text = out->text};
    return OK;
}

enum status json_file_read(const char *path, size_t max_bytes, struct json_file *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    struct json_file file = {0};
    enum status status = read_whole(path, fd, max_bytes, &file);
    close(fd);
    if (status == OK)
        *out = file;
    else
        json_file_free(&file);
    return status;
}

void json_file_free(struct json_file *file)
{
    free(file->bytes);
    free(file->text);
    *file = (struct json_file){0};
}

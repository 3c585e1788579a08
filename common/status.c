/* Where failures are recorded: a place per thread, or the one that a rank has bound. */
#include "common/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

#define STATUS_NAME(code, name, text) [code] = name,
#define STATUS_TEXT(code, name, text) [code] = text,
static const char *const names[STATUS_COUNT] = {STATUS_LIST(STATUS_NAME)};
static const char *const texts[STATUS_COUNT] = {STATUS_LIST(STATUS_TEXT)};

static _Thread_local struct failure default_place = {.rank = -1};
static _Thread_local struct failure *bound_place; /* NULL: default_place */

/* Helper threads of a rank may be bound to the rank's place. */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

static struct failure *place(void)
{
    return bound_place ? bound_place : &default_place;
}

struct failure *status_bind(struct failure *f)
{
    struct failure *former = bound_place;
    bound_place = f;
    return former;
}

/* folder/file.c: the rest of __FILE__ depends on where the build folder is. */
static const char *short_path(const char *file)
{
    int slashes = 0;
    const char *p = file + strlen(file);
    for (; p > file; p--)
        if (p[-1] == '/' && ++slashes == 2)
            break;
    return p;
}

/* Ends a text that was cut with "...", without leaving half a UTF-8 character before it. */
static void mark_cut(char *text, size_t size)
{
    size_t end = size - sizeof "...";
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", sizeof "...");
}

static void format_text(char *text, size_t size, const char *format, va_list args)
{
    int length = vsnprintf(text, size, format, args);
    if (length < 0)
        length = snprintf(text, size, "(unprintable) %s", format);
    if ((size_t)length >= size)
        mark_cut(text, size);
}

enum status status_fail(enum status code, const char *file, int line, const char *format, ...)
{
    /* A failure without a code would read as success. */
    if (code <= OK || code >= STATUS_COUNT)
        code = ERR_INTERNAL;
    /* Formatted aside: the arguments may lie in the place that is written to. */
    struct failure fresh = {
        .code = code, .rank = log_rank(), .line = line, .file = short_path(file)};
    va_list args;
    va_start(args, format);
    format_text(fresh.text, sizeof fresh.text, format, args);
    va_end(args);

    struct failure *f = place();
    pthread_mutex_lock(&recording);
    if (f->code == OK)
        *f = fresh;
    pthread_mutex_unlock(&recording);
    return code;
}

const struct failure *status_first(void)
{
    return place();
}

void status_clear(void)
{
    struct failure *f = place();
    pthread_mutex_lock(&recording);
    *f = (struct failure){.rank = -1};
    pthread_mutex_unlock(&recording);
}

static bool is_known(enum status code)
{
    return (int)code >= 0 && code < STATUS_COUNT;
}

const char *status_name(enum status code)
{
    return is_known(code) ? names[code] : "unknown";
}

const char *status_text(enum status code)
{
    return is_known(code) ? texts[code] : "an unknown status code";
}

_Noreturn void status_assert_failed(const char *file, int line, const char *text, long long a,
                                    long long b)
{
    fprintf(stderr, "ditto: assertion failed: %s:%d: %s (operands %lld, %lld)\n", short_path(file),
            line, text, a, b);
    abort();
}

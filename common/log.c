/* One line a message, written at once so that lines of several ranks do not mix. */
#include "common/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Thread_local int own_rank = -1, own_nranks;
static atomic_bool is_quiet;

void log_set_rank(int rank, int nranks)
{
    own_rank = nranks > 0 ? rank : -1;
    own_nranks = nranks;
}

int log_rank(void)
{
    return own_rank;
}

void log_quiet(int quiet)
{
    atomic_store(&is_quiet, quiet != 0);
}

static void print_line(const char *kind, const char *format, va_list args)
{
    char rank[48] = "", text[2048];
    if (own_nranks > 0)
        snprintf(rank, sizeof rank, "[rank %d/%d] ", own_rank, own_nranks);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        snprintf(text, sizeof text, "(unprintable) %s", format);
    fprintf(stderr, "ditto: %s%s%s\n", rank, kind, text);
}

void log_info(const char *format, ...)
{
    if (atomic_load(&is_quiet))
        return;
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("warning: ", format, args);
    va_end(args);
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("error: ", format, args);
    va_end(args);
}

/* Status codes and the first failure of a rank.
 *
 * Everything fallible returns enum status and is warn-unused; results leave through pointers and are
 * set only on OK. A fresh failure is `return FAIL(ERR_IO, "%s: cannot open: %s", path, why);`, which
 * records the text together with file, line and rank; TRY(f()) passes a failure up. The first failure
 * of a rank wins: later ones do not overwrite it until status_clear(). */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

/* Code, its name in records and tests, what it says about the cause. Ordered: in team_agree the worst
 * of several codes is the one with the largest value, so the root cause outranks ERR_PEER. */
#define STATUS_LIST(X)                                                                             \
    X(OK, "ok", "no failure")                                                                      \
    X(ERR_PEER, "peer", "another rank failed first")                                               \
    X(ERR_UNSUPPORTED, "unsupported", "a combination that this strategy, model or device refuses") \
    X(ERR_INTERRUPTED, "interrupted", "stopped by a signal")                                       \
    X(ERR_TIMEOUT, "timeout", "no rank made progress within the deadline")                         \
    X(ERR_USAGE, "usage", "an option or a sweep file is wrong")                                    \
    X(ERR_IO, "io", "a file could not be read or written")                                         \
    X(ERR_FORMAT, "format", "a file's contents break a rule")                                      \
    X(ERR_MISMATCH, "mismatch", "ranks disagree about an operation")                               \
    X(ERR_DEVICE, "device", "a device or a library reported an error")                             \
    X(ERR_MEMORY, "memory", "out of memory")                                                       \
    X(ERR_INTERNAL, "internal", "a mistake in ditto itself")

#define STATUS_ENUM(code, name, text) code,
enum status { STATUS_LIST(STATUS_ENUM) STATUS_COUNT };
#undef STATUS_ENUM

#define WARN_UNUSED __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* What went wrong first. rank is -1 outside ranks. */
struct failure {
    enum status code;
    int rank, line;
    const char *file;
    char text[512];
};

/* Makes `f` the place where FAIL records on this thread (or fiber) and returns the former place. NULL
 * restores the thread's own default. Owner: the caller; `f` must outlive the binding. */
struct failure *status_bind(struct failure *f);

/* Records the failure unless one is recorded already, and returns `code` (ERR_INTERNAL if that is OK or
 * no code). A long text is cut and ends with "...". Threads may share a place. Use FAIL. */
enum status status_fail(enum status code, const char *file, int line, const char *format, ...)
    PRINTF_LIKE(4, 5);
#define FAIL(code, ...) status_fail(code, __FILE__, __LINE__, __VA_ARGS__)

#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum status try_status_ = (expression);                                                    \
        if (try_status_ != OK)                                                                     \
            return try_status_;                                                                    \
    } while (0)

/* The failure recorded on this thread; code is OK when there is none. Never NULL. */
const struct failure *status_first(void);
void status_clear(void);

const char *status_name(enum status code); /* "timeout": what records say */
const char *status_text(enum status code); /* "no rank made progress within the deadline" */

/* Assertions for our own mistakes: always on, print the operands and abort. */
_Noreturn void status_assert_failed(const char *file, int line, const char *text, long long a,
                                    long long b);
#define ASSERT(condition)                                                                          \
    ((condition) ? (void)0 : status_assert_failed(__FILE__, __LINE__, #condition, 0, 0))
#define ASSERT_CMP(a, op, b)                                                                       \
    (((a)op(b)) ? (void)0                                                                          \
                : status_assert_failed(__FILE__, __LINE__, #a " " #op " " #b, (long long)(a),      \
                                       (long long)(b)))

#endif

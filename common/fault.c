/* Faults on demand: parsed whole or refused, then read without locks. */
#include "common/fault.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/clock.h"

enum { NOBODY = INT_MIN, MAX_MS = 3600000, MAX_PERCENT = 100000, NS_PER_MS = 1000000 };

/* Set before ranks start, only read while they run. */
struct faults {
    int fail_rank, stall_rank, slow_rank;
    uint64_t fail_call, stall_call;
    int64_t stall_ms, delay_ms;
    int slow_percent;
};
static const struct faults no_faults = {
    .fail_rank = NOBODY, .stall_rank = NOBODY, .slow_rank = NOBODY};
static int64_t piece_bytes;
static struct faults faults = {.fail_rank = NOBODY, .stall_rank = NOBODY, .slow_rank = NOBODY};

/* n numbers separated by colons, and nothing else. */
static bool read_numbers(const char *text, const int64_t max[], int64_t out[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (*text < '0' || *text > '9')
            return false;
        char *end;
        errno = 0;
        out[i] = strtoll(text, &end, 10);
        if (errno || out[i] > max[i] || *end != (i + 1 < n ? ':' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

enum status fault_set(const char *fail, const char *delay_ms, const char *stall, const char *slow)
{
    struct faults f = no_faults;
    int64_t v[3];
    if (fail) {
        if (!read_numbers(fail, (const int64_t[]){INT_MAX, INT64_MAX}, v, 2))
            return FAIL(ERR_USAGE, "DITTO_TEST_FAIL: \"%.80s\" is not RANK:CALL", fail);
        f.fail_rank = (int)v[0];
        f.fail_call = (uint64_t)v[1];
    }
    if (delay_ms) {
        if (!read_numbers(delay_ms, (const int64_t[]){MAX_MS}, v, 1))
            return FAIL(ERR_USAGE, "DITTO_TEST_DELAY_MS: \"%.80s\" is not a number from 0 to %d",
                        delay_ms, MAX_MS);
        f.delay_ms = v[0];
    }
    if (stall) {
        if (!read_numbers(stall, (const int64_t[]){INT_MAX, INT64_MAX, MAX_MS}, v, 3))
            return FAIL(ERR_USAGE, "DITTO_TEST_STALL: \"%.80s\" is not RANK:CALL:MS, MS up to %d",
                        stall, MAX_MS);
        f.stall_rank = (int)v[0];
        f.stall_call = (uint64_t)v[1];
        f.stall_ms = v[2];
    }
    if (slow) {
        if (!read_numbers(slow, (const int64_t[]){INT_MAX, MAX_PERCENT}, v, 2))
            return FAIL(ERR_USAGE, "DITTO_TEST_SLOW: \"%.80s\" is not RANK:PERCENT, up to %d", slow,
                        MAX_PERCENT);
        f.slow_rank = (int)v[0];
        f.slow_percent = (int)v[1];
    }
    faults = f;
    return OK;
}

static enum status read_piece(const char *text)
{
    piece_bytes = 0;
    if (text && !read_numbers(text, (const int64_t[]){INT_MAX}, &piece_bytes, 1))
        return FAIL(ERR_USAGE, "DITTO_TEST_MPI_PIECE: \"%.80s\" is not a number of bytes", text);
    return OK;
}

enum status fault_read_environment(void)
{
    TRY(read_piece(getenv("DITTO_TEST_MPI_PIECE")));
    return fault_set(getenv("DITTO_TEST_FAIL"), getenv("DITTO_TEST_DELAY_MS"),
                     getenv("DITTO_TEST_STALL"), getenv("DITTO_TEST_SLOW"));
}

enum status fault_at_call(int rank, uint64_t call)
{
    if (rank == faults.stall_rank && call == faults.stall_call)
        clock_sleep_ns(faults.stall_ms * NS_PER_MS);
    if (rank == faults.fail_rank && call == faults.fail_call)
        return FAIL(ERR_INTERNAL, "comm call %llu of rank %d fails as DITTO_TEST_FAIL asks",
                    (unsigned long long)call, rank);
    return OK;
}

int64_t fault_delay_ns(void)
{
    return faults.delay_ms * NS_PER_MS;
}

int fault_slow_percent(int rank)
{
    return rank == faults.slow_rank ? faults.slow_percent : 0;
}

int64_t fault_piece_bytes(void)
{
    return piece_bytes;
}

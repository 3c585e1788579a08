/* Failures: the first one wins, none is lost, texts are cut whole; and the lines of the log. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/status.h"

static int clear(void **state)
{
    (void)state;
    status_bind(NULL);
    status_clear();
    log_set_rank(0, 0);
    log_quiet(0);
    return 0;
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(status_name(OK), "ok");
    assert_string_equal(status_name(ERR_TIMEOUT), "timeout");
    assert_string_equal(status_text(ERR_MEMORY), "out of memory");
    for (int a = 0; a < STATUS_COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(status_name((enum status)a), status_name((enum status)b));
    assert_string_equal(status_name(STATUS_COUNT), "unknown");
}

static void test_first_wins(void **state)
{
    (void)state;
    assert_int_equal(status_first()->code, OK);
    assert_int_equal(status_first()->rank, -1);
    log_set_rank(3, 8);
    int line = __LINE__ + 1;
    assert_int_equal(FAIL(ERR_IO, "%s: cannot open", "a.bin"), ERR_IO);
    log_set_rank(4, 8);
    assert_int_equal(FAIL(ERR_PEER, "later"), ERR_PEER);
    const struct failure *f = status_first();
    assert_int_equal(f->code, ERR_IO);
    assert_int_equal(f->rank, 3);
    assert_int_equal(f->line, line);
    assert_string_equal(f->file, "tests/test_status.c");
    assert_string_equal(f->text, "a.bin: cannot open");

    status_clear();
    assert_int_equal(status_first()->code, OK);
    assert_int_equal(FAIL(ERR_PEER, "later"), ERR_PEER);
    assert_int_equal(status_first()->rank, 4);
    assert_string_equal(status_first()->text, "later");
}

static void test_file_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"../../src/common/x.c", "common/x.c"},
                                           {"/src/common/x.c", "common/x.c"},
                                           {"common/x.c", "common/x.c"},
                                           {"x.c", "x.c"},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        status_clear();
        assert_int_equal(status_fail(ERR_IO, names[i][0], 1, "x"), ERR_IO);
        assert_string_equal(status_first()->file, names[i][1]);
    }
}

static void test_never_ok(void **state)
{
    (void)state;
    assert_int_equal(FAIL(OK, "a failure without a code"), ERR_INTERNAL);
    assert_int_equal(status_first()->code, ERR_INTERNAL);
    status_clear();
    assert_int_equal(FAIL(STATUS_COUNT, "no such code"), ERR_INTERNAL);
    assert_string_equal(status_first()->text, "no such code");
}

static void test_long_text(void **state)
{
    (void)state;
    enum { SIZE = sizeof status_first()->text };
    char text[2 * SIZE];
    for (size_t shift = 0; shift < 3; shift++) {
        /* Three-byte characters, so that the cut falls on each of their bytes in turn. */
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        status_clear();
        assert_int_equal(FAIL(ERR_FORMAT, "%s", text), ERR_FORMAT);
        const char *kept = status_first()->text;
        size_t length = strlen(kept);
        assert_in_range(length, SIZE - 4, SIZE - 1);
        assert_string_equal(kept + length - 3, "...");
        assert_memory_equal(kept, text, length - 3);
        assert_int_equal((length - 3 - shift) % 3, 0);
    }
    char exact[SIZE];
    memset(exact, 'b', SIZE - 1);
    exact[SIZE - 1] = 0;
    status_clear();
    assert_int_equal(FAIL(ERR_FORMAT, "%s", exact), ERR_FORMAT);
    assert_string_equal(status_first()->text, exact);
}

static void test_bind(void **state)
{
    (void)state;
    struct failure a = {.rank = -1}, b = {.rank = -1};
    assert_null(status_bind(&a));
    assert_int_equal(FAIL(ERR_IO, "in a"), ERR_IO);
    assert_ptr_equal(status_bind(&b), &a);
    assert_int_equal(status_first()->code, OK);
    assert_int_equal(FAIL(ERR_DEVICE, "in b"), ERR_DEVICE);
    assert_ptr_equal(status_bind(NULL), &b);
    assert_int_equal(status_first()->code, OK);
    assert_string_equal(a.text, "in a");
    assert_string_equal(b.text, "in b");

    /* Rewording: the text of the failure is an argument of the next one. */
    status_bind(&a);
    a.code = OK;
    assert_int_equal(FAIL(ERR_IO, "again %s", a.text), ERR_IO);
    assert_string_equal(a.text, "again in a");
}

enum { THREADS = 8, ROUNDS = 200 };

struct shared_place {
    struct failure place;
    pthread_barrier_t start;
};
struct failing_thread {
    struct shared_place *shared;
    int rank;
    int own_rank; /* what the thread's own place says after all threads have failed */
};

static void *fail_together(void *argument)
{
    struct failing_thread *t = argument;
    log_set_rank(t->rank, THREADS);
    FAIL(ERR_IO, "without a bound place");
    pthread_barrier_wait(&t->shared->start);
    t->own_rank = status_first()->rank;
    for (int round = 0; round < ROUNDS; round++) {
        struct failure own = {.rank = -1};
        status_bind(&own);
        FAIL(ERR_IO, "rank %d alone", t->rank);
        status_bind(&t->shared->place);
        pthread_barrier_wait(&t->shared->start);
        FAIL(ERR_DEVICE, "rank %d of all", t->rank);
        status_bind(NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct shared_place shared = {.place = {.rank = -1}};
    struct failing_thread threads[THREADS];
    pthread_t ids[THREADS];
    assert_int_equal(pthread_barrier_init(&shared.start, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct failing_thread){&shared, i, -1};
        assert_int_equal(pthread_create(&ids[i], NULL, fail_together, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&shared.start);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(threads[i].own_rank, i);

    char expected[64];
    snprintf(expected, sizeof expected, "rank %d of all", shared.place.rank);
    assert_int_equal(shared.place.code, ERR_DEVICE);
    assert_string_equal(shared.place.text, expected);
    assert_int_equal(status_first()->code, OK);
}

/* What log_* write on stderr. */
static void say(char *out, size_t size, void (*speak)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int former = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    speak();
    fflush(stderr);
    dup2(former, STDERR_FILENO);
    close(former);
    rewind(file);
    out[fread(out, 1, size - 1, file)] = 0;
    fclose(file);
}

static void speak_three(void)
{
    log_info("ring: %d", 1);
    log_warn("slow; use %s", "cpu");
    log_error("%s", "lost");
}

static void test_log(void **state)
{
    (void)state;
    char out[512];
    say(out, sizeof out, speak_three);
    assert_string_equal(out, "ditto: ring: 1\nditto: warning: slow; use cpu\nditto: error: lost\n");
    log_set_rank(3, 8);
    assert_int_equal(log_rank(), 3);
    log_quiet(1);
    say(out, sizeof out, speak_three);
    assert_string_equal(out, "ditto: [rank 3/8] warning: slow; use cpu\n"
                             "ditto: [rank 3/8] error: lost\n");
    log_quiet(0);
    say(out, sizeof out, speak_three);
    assert_memory_equal(out, "ditto: [rank 3/8] ring: 1\n", 26);
    log_set_rank(0, 0);
    assert_int_equal(log_rank(), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_names, clear),
        cmocka_unit_test_setup(test_first_wins, clear),
        cmocka_unit_test_setup(test_file_names, clear),
        cmocka_unit_test_setup(test_never_ok, clear),
        cmocka_unit_test_setup(test_long_text, clear),
        cmocka_unit_test_setup(test_bind, clear),
        cmocka_unit_test_setup(test_threads, clear),
        cmocka_unit_test_setup(test_log, clear),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}

/* Host lanes, the ledger's counts and limit, arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/arena.h"
#include "common/clock.h"

static struct lane_system *host;

static int open_host(void **state)
{
    (void)state;
    status_clear();
    return lane_host_open(0, &host) == OK ? 0 : -1;
}

static int close_host(void **state)
{
    (void)state;
    lane_host_close(host);
    return 0;
}

static void test_lane_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct devmem m;
        assert_int_equal(lane_alloc(host, sizes[i], &m), OK);
        assert_false(devmem_is_none(m));
        assert_int_equal(m.addr % 64, 0);
        memset(lane_host_pointer(m), 1, sizes[i]);
        lane_free(host, m, sizes[i]);
    }
    lane_free(host, DEVMEM_NONE, 10);

    struct devmem m, refused = {77};
    char out[4] = "";
    assert_int_equal(lane_alloc(host, 100, &m), OK);
    assert_int_equal(lane_upload(host, devmem_at(m, 5), "abc", 4), OK);
    assert_int_equal(lane_download(host, out, devmem_at(m, 5), 4), OK);
    assert_string_equal(out, "abc");
    assert_int_equal(lane_upload(host, DEVMEM_NONE, NULL, 0), OK);
    assert_int_equal(lane_download(host, NULL, DEVMEM_NONE, 0), OK);
    assert_int_equal(lane_upload(host, DEVMEM_NONE, "abc", 4), ERR_INTERNAL);
    assert_int_equal(lane_download(host, out, DEVMEM_NONE, 4), ERR_INTERNAL);

    status_clear();
    assert_int_equal(lane_alloc(host, SIZE_MAX, &refused), ERR_MEMORY);
    assert_int_equal(refused.addr, 77);
    assert_non_null(strstr(status_first()->text, "18446744073709551615"));
    assert_non_null(strstr(status_first()->text, "100 bytes held"));
    lane_free(host, m, 100);
}

static void test_lane_time(void **state)
{
    (void)state;
    struct lane *lane;
    struct mark before, after;
    assert_int_equal(host->ops->open_lane(host, "link", &lane), OK);
    assert_int_equal(lane_mark(host, NULL, &before), OK);
    clock_sleep_ns(2000000);
    assert_int_equal(host->ops->order(host, lane, NULL), OK);
    assert_int_equal(lane_mark(host, lane, &after), OK);
    assert_int_equal(lane_sync(host), OK);
    assert_true(lane_mark_ps(host, &after) - lane_mark_ps(host, &before) >= 2000000000);
    assert_true(lane_mark_ps(host, &before) >= 0);
    host->ops->reset_marks(host);
    host->ops->close_lane(host, lane);

    /* Marks of another rank's system are on the same clock. */
    struct lane_system *other;
    struct mark later;
    assert_int_equal(lane_host_open(1, &other), OK);
    assert_int_equal(other->rank, 1);
    assert_int_equal(lane_mark(other, NULL, &later), OK);
    assert_true(lane_mark_ps(other, &later) >= lane_mark_ps(host, &after));
    lane_host_close(other);
}

static void test_ledger(void **state)
{
    (void)state;
    struct memory_ledger ledger = {.limit = 1000};
    assert_string_equal(memory_purpose_name(MEMORY_STALE), "stale");
    assert_int_equal(memory_ledger_add(&ledger, MEMORY_WEIGHTS, 600), OK);
    assert_int_equal(memory_ledger_add(&ledger, MEMORY_STALE, 400), OK);
    assert_int_equal(memory_ledger_add(&ledger, MEMORY_STALE, 0), OK);
    memory_ledger_remove(&ledger, MEMORY_WEIGHTS, 500);
    assert_int_equal(memory_ledger_add(&ledger, MEMORY_STALE, 300), OK);
    assert_int_equal(ledger.held[MEMORY_WEIGHTS], 100);
    assert_int_equal(ledger.held[MEMORY_STALE], 700);
    assert_int_equal(ledger.held_total, 800);
    assert_int_equal(ledger.peak[MEMORY_WEIGHTS], 600);
    assert_int_equal(ledger.peak[MEMORY_STALE], 700);
    assert_int_equal(ledger.peak_total, 1000); /* held at once: not the sum of the peaks */

    static const size_t too_much[] = {201, SIZE_MAX, SIZE_MAX - 799};
    for (size_t i = 0; i < sizeof too_much / sizeof too_much[0]; i++) {
        char asked[64];
        status_clear();
        assert_int_equal(memory_ledger_add(&ledger, MEMORY_WORKSPACE, too_much[i]), ERR_MEMORY);
        snprintf(asked, sizeof asked, "%zu bytes asked for workspace", too_much[i]);
        assert_non_null(strstr(status_first()->text, asked));
        assert_non_null(strstr(status_first()->text, "800 held"));
        assert_non_null(strstr(status_first()->text, "1000 bytes"));
        assert_int_equal(ledger.held_total, 800);
        assert_int_equal(ledger.peak[MEMORY_WORKSPACE], 0);
    }
    assert_int_equal(memory_ledger_add(&ledger, MEMORY_WORKSPACE, 200), OK);
}

static void test_arena_counts(void **state)
{
    (void)state;
    struct memory_ledger ledger = {0};
    struct arena *persistent, *scratch;
    struct devmem blocks[200], m;
    assert_int_equal(arena_open(host, &ledger, &persistent), OK);
    assert_int_equal(arena_open(host, &ledger, &scratch), OK);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(arena_alloc(persistent, MEMORY_WEIGHTS, i, &blocks[i]), OK);
        assert_int_equal(blocks[i].addr % 64, 0);
        memset(lane_host_pointer(blocks[i]), (int)i, i);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_equal(((unsigned char *)lane_host_pointer(blocks[i]))[j], i);
    assert_int_equal(ledger.held[MEMORY_WEIGHTS], 199 * 100);
    assert_int_equal(arena_alloc(scratch, MEMORY_STALE, 100, &m), OK);
    assert_int_equal(ledger.held_total, 20000);
    arena_close(scratch);
    assert_int_equal(ledger.held[MEMORY_STALE], 0);
    assert_int_equal(ledger.held_total, 19900);
    arena_close(persistent);
    arena_close(NULL);
    assert_int_equal(ledger.held_total, 0);
    assert_int_equal(ledger.peak_total, 20000);
    assert_int_equal(ledger.peak[MEMORY_STALE], 100);
}

static void test_arena_refuses(void **state)
{
    (void)state;
    struct memory_ledger ledger = {.limit = 1000};
    struct arena *arena;
    struct devmem m, refused = {77};
    assert_int_equal(arena_open(host, &ledger, &arena), OK);
    assert_int_equal(arena_alloc(arena, MEMORY_ACTIVATIONS, 900, &m), OK);
    assert_int_equal(arena_alloc(arena, MEMORY_ACTIVATIONS, 101, &refused), ERR_MEMORY);
    assert_non_null(strstr(status_first()->text, "101 bytes asked for activations with 900 held"));

    /* What the device itself refuses is not counted either, nor its peak. */
    ledger.limit = 0;
    status_clear();
    assert_int_equal(arena_alloc(arena, MEMORY_ACTIVATIONS, SIZE_MAX - 1000, &refused), ERR_MEMORY);
    assert_int_equal(ledger.held_total, 900);
    assert_int_equal(ledger.peak_total, 900);

    arena_seal(arena, true);
    status_clear();
    assert_int_equal(arena_alloc(arena, MEMORY_WORKSPACE, 1, &refused), ERR_INTERNAL);
    assert_non_null(strstr(status_first()->text, "sealed"));
    assert_int_equal(refused.addr, 77);
    arena_seal(arena, false);
    assert_int_equal(arena_alloc(arena, MEMORY_WORKSPACE, 1, &m), OK);
    assert_int_equal(ledger.held_total, 901);
    arena_close(arena);
    assert_int_equal(ledger.held_total, 0);
}

static void test_utc(void **state)
{
    (void)state;
    char text[21];
    int year, month, day, hour, minute, second, end = 0;
    clock_utc(text);
    assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &year, &month, &day, &hour, &minute,
                            &second, &end),
                     6);
    assert_int_equal(end, 20);
    assert_int_equal(text[20], 0);
    assert_in_range(year, 2020, 9999);
    assert_in_range(month, 1, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lane_memory, open_host, close_host),
        cmocka_unit_test_setup_teardown(test_lane_time, open_host, close_host),
        cmocka_unit_test_setup_teardown(test_ledger, open_host, close_host),
        cmocka_unit_test_setup_teardown(test_arena_counts, open_host, close_host),
        cmocka_unit_test_setup_teardown(test_arena_refuses, open_host, close_host),
        cmocka_unit_test(test_utc),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}

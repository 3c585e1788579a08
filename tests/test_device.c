/* The checked wrappers, over a device that only remembers what it was asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fault.h"
#include "kernels/device.h"

enum { MOST_CALLS = 4 };

struct fake {
    struct device base;
    int calls, silus, sums, closed;
    struct linear_call linear[MOST_CALLS];
    enum status answer;
    int64_t busy_ns; /* core time that silu takes */
};

static struct fake fake;
static size_t wanted_bytes;
static int beats;

static bool fake_has_dtype(enum dtype t)
{
    return t == DTYPE_BF16;
}

static enum status fake_open(const struct device_config *config, struct device **out)
{
    fake = (struct fake){.answer = OK};
    TRY(lane_host_open(config->rank, &fake.base.lanes));
    *out = &fake.base;
    return OK;
}

static void fake_close(struct device *d)
{
    fake.closed++;
    lane_host_close(d->lanes);
}

static enum status fake_linear(struct device *d, const struct linear_call *call)
{
    (void)d;
    fake.linear[fake.calls++] = *call;
    return fake.answer;
}

/* Core time, as arithmetic takes it: what DITTO_TEST_SLOW lengthens. */
static void spend(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const int64_t end = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + ns;
    while ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec < end)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
}

static enum status fake_silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    (void)d;
    (void)dst;
    (void)src;
    (void)n;
    fake.silus++;
    spend(fake.busy_ns);
    return OK;
}

static enum status fake_sum(struct device *d, const struct sum_call *call)
{
    (void)d;
    (void)call;
    fake.sums++;
    return OK;
}

static size_t fake_workspace(const struct device *d, const struct attention_call *attention,
                             const struct linear_call *linear)
{
    (void)d;
    (void)attention;
    (void)linear;
    return wanted_bytes;
}

static const struct device_ops fake_ops = {
    .name = "fake",
    .memory = MEMORY_HOST,
    .has_dtype = fake_has_dtype,
    .open = fake_open,
    .close = fake_close,
    .linear = fake_linear,
    .silu = fake_silu,
    .sum = fake_sum,
    .workspace_bytes = fake_workspace,
};

static const struct devmem somewhere = {4096}, elsewhere = {8192}, third = {1 << 20};

static struct linear_call some_linear(size_t k)
{
    return (struct linear_call){.m = 2,
                                .n = 3,
                                .k = k,
                                .ldx = 10,
                                .ldw = 11,
                                .ldy = 12,
                                .x = somewhere,
                                .w = elsewhere,
                                .y = third,
                                .bias = third,
                                .activation = ACTIVATION_GELU};
}

static int set_up(void **state)
{
    struct device_config config = {.rank = 1, .nranks = 2, .threads = 1, .dtype = DTYPE_BF16};
    struct device *d;
    wanted_bytes = 0;
    if (device_open(&fake_ops, &config, &d) != OK)
        return -1;
    *state = d;
    return 0;
}

static int tear_down(void **state)
{
    device_close(*state);
    device_close(NULL);
    status_clear();
    return fake.closed == 1 ? 0 : -1;
}

static void listed_devices(void **state)
{
    (void)state;
    assert_non_null(device_find("ref"));
    assert_string_equal(device_find("ref")->name, "ref");
    assert_null(device_find("re"));
    for (const struct device_ops *const *ops = device_list(); *ops != NULL; ops++)
        assert_ptr_equal(device_find((*ops)->name), *ops);
}

static void dtype_is_refused(void **state)
{
    (void)state;
    struct device_config config = {.nranks = 1, .threads = 1, .dtype = DTYPE_FP16};
    struct device *d = NULL;
    assert_int_equal(device_open(&fake_ops, &config, &d), ERR_UNSUPPORTED);
    assert_null(d);
    assert_non_null(strstr(status_first()->text, "fake"));
    assert_non_null(strstr(status_first()->text, "fp16"));
}

static void open_fills_the_device(void **state)
{
    struct device *d = *state;
    assert_ptr_equal(d->ops, &fake_ops);
    assert_int_equal(d->dtype, DTYPE_BF16);
    assert_true(d->meter == NULL && d->team == NULL && !d->splits_inner);
}

static void linear_splits_its_inner_dimension(void **state)
{
    struct device *d = *state;
    struct linear_call call = some_linear(7);
    d->splits_inner = true;
    assert_int_equal(device_linear(d, &call), OK);
    assert_int_equal(fake.calls, 2);
    const struct linear_call *first = &fake.linear[0], *second = &fake.linear[1];
    assert_int_equal(first->k, 3);
    assert_int_equal(second->k, 4);
    assert_int_equal(first->x.addr, somewhere.addr);
    assert_int_equal(second->x.addr, somewhere.addr + 3 * 2);
    assert_int_equal(second->w.addr, elsewhere.addr + 3 * 2);
    assert_true(!first->accumulate && second->accumulate);
    assert_true(devmem_is_none(first->bias) && !devmem_is_none(second->bias));
    assert_int_equal(first->activation, ACTIVATION_NONE);
    assert_int_equal(second->activation, ACTIVATION_GELU);
    assert_true(first->ldx == 10 && first->ldw == 11 && second->ldx == 10 && second->ldw == 11);
    fake.calls = 0;
    call = some_linear(1); /* nothing to split */
    assert_int_equal(device_linear(d, &call), OK);
    assert_int_equal(fake.calls, 1);
    fake.calls = 0;
    call = some_linear(4);
    call.accumulate = true;
    assert_int_equal(device_linear(d, &call), OK);
    assert_true(fake.linear[0].accumulate);
}

static void failures_pass_up(void **state)
{
    struct device *d = *state;
    struct linear_call call = some_linear(7);
    d->splits_inner = true;
    fake.answer = ERR_DEVICE;
    assert_int_equal(device_linear(d, &call), ERR_DEVICE);
    assert_int_equal(fake.calls, 1);
}

static void nothing_is_done_for_nothing(void **state)
{
    struct device *d = *state;
    struct linear_call linear = {.m = 0, .n = 3};
    struct attention_call attention = {.n0 = 1, .n1 = 1, .heads = 0, .nq = 1, .head_dim = 1};
    struct merge_call merge = {.n0 = 1, .n1 = 1, .heads = 1, .nq = 0, .head_dim = 1};
    struct sum_call sum = {.n = 0};
    struct copy_call copy = {.n0 = 1, .n1 = 0, .n2 = 1, .width = 1};
    struct modulate_call modulate = {.rows = 0, .width = 1};
    struct residual_call residual = {.rows = 1, .width = 0};
    assert_int_equal(device_linear(d, &linear), OK);
    assert_int_equal(device_attention(d, &attention), OK);
    assert_int_equal(device_merge(d, &merge), OK);
    assert_int_equal(device_sum(d, &sum), OK);
    assert_int_equal(device_copy(d, &copy), OK);
    assert_int_equal(device_modulate(d, &modulate), OK);
    assert_int_equal(device_residual(d, &residual), OK);
    assert_int_equal(device_silu(d, DEVMEM_NONE, DEVMEM_NONE, 0), OK);
    assert_int_equal(device_zero(d, DEVMEM_NONE, 0), OK);
    assert_int_equal(fake.calls + fake.silus + fake.sums, 0);
}

static void arithmetic_is_skipped_and_traced(void **state)
{
    struct device *d = *state;
    struct meter meter;
    struct linear_call call = some_linear(7);
    assert_int_equal(meter_open(&meter, d->lanes, 1, 4, 4), OK);
    d->meter = &meter;
    meter.mode = RUN_COMM;
    assert_int_equal(device_linear(d, &call), OK);
    assert_int_equal(device_silu(d, somewhere, somewhere, 4), OK);
    assert_int_equal(fake.calls + fake.silus, 0);
    meter.mode = RUN_COMPUTE;
    meter.is_tracing = true;
    assert_int_equal(device_linear(d, &call), OK);
    assert_int_equal(device_silu(d, somewhere, somewhere, 4), OK);
    assert_int_equal(fake.calls + fake.silus, 2);
    assert_int_equal(meter.event_count, 2);
    assert_string_equal(meter.events[0].name, "linear");
    assert_string_equal(meter.events[1].name, "silu");
    d->meter = NULL;
    meter_close(&meter);
}

static void count_beat(struct team *team)
{
    (void)team;
    beats++;
}

static void operations_are_heartbeats(void **state)
{
    struct device *d = *state;
    const struct team_ops ops = {.name = "fake", .heartbeat = count_beat};
    struct team team = {.ops = &ops, .rank = 1, .nranks = 2};
    d->team = &team;
    beats = 0;
    assert_int_equal(device_silu(d, somewhere, somewhere, 4), OK);
    assert_int_equal(device_silu(d, somewhere, somewhere, 0), OK);
    assert_int_equal(beats, 1);
    d->team = NULL;
}

static int64_t silu_ns(struct device *d)
{
    int64_t begin = clock_ns();
    assert_int_equal(device_silu(d, somewhere, somewhere, 4), OK);
    return clock_ns() - begin;
}

/* Only the rank that is named, and at least by as much as is said. */
static void slow_rank_takes_longer(void **state)
{
    struct device *d = *state;
    fake.busy_ns = 2000000;
    assert_int_equal(fault_set(NULL, NULL, NULL, "1:400"), OK);
    assert_true(silu_ns(d) >= 5 * fake.busy_ns);
    assert_int_equal(fault_set(NULL, NULL, NULL, "0:100000"), OK);
    assert_true(silu_ns(d) < 1000 * fake.busy_ns);
    assert_int_equal(fault_set(NULL, NULL, NULL, NULL), OK);
}

static void workspace_is_taken_from_the_arena(void **state)
{
    struct device *d = *state;
    struct memory_ledger ledger = {0};
    struct arena *arena;
    struct linear_call call = some_linear(7);
    assert_int_equal(arena_open(d->lanes, &ledger, &arena), OK);
    assert_int_equal(device_reserve(d, arena, NULL, &call), OK);
    assert_true(devmem_is_none(d->workspace) && ledger.held[MEMORY_WORKSPACE] == 0);
    wanted_bytes = 1000;
    assert_int_equal(device_reserve(d, arena, NULL, &call), OK);
    assert_int_equal(d->workspace_bytes, 1000);
    assert_true(ledger.held[MEMORY_WORKSPACE] >= 1000);
    memset(lane_host_pointer(d->workspace), 0, 1000);
    assert_int_equal(device_linear(d, &call), OK);
    arena_close(arena);
}

#define DEVICE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_devices),
        DEVICE_TEST(dtype_is_refused),
        DEVICE_TEST(open_fills_the_device),
        DEVICE_TEST(linear_splits_its_inner_dimension),
        DEVICE_TEST(failures_pass_up),
        DEVICE_TEST(nothing_is_done_for_nothing),
        DEVICE_TEST(arithmetic_is_skipped_and_traced),
        DEVICE_TEST(operations_are_heartbeats),
        DEVICE_TEST(slow_rank_takes_longer),
        DEVICE_TEST(workspace_is_taken_from_the_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

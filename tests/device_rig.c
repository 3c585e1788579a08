#include "tests/device_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "kernels/device_plugin.h"

enum { GUARD = 64, CANARY = 0xa5 }; /* bytes on each side of an array */

double rig_unit(enum dtype t)
{
    static const double units[DTYPE_COUNT] = {
        [DTYPE_FP32] = 0x1p-24, [DTYPE_BF16] = 0x1p-8, [DTYPE_FP16] = 0x1p-11};
    return units[t];
}

/* ---- random cases ---- */

size_t rig_below(struct rig *rig, size_t n)
{
    uint32_t counter[4] = {(uint32_t)rig->drawn++, 0, 0, 1}, words[4];
    uint32_t key[2] = {(uint32_t)rig->seed, (uint32_t)(rig->seed >> 32)};
    rng_philox4x32_10(counter, key, words);
    return words[0] % n;
}

size_t rig_size(struct rig *rig, size_t n)
{
    return 1 + rig_below(rig, rig_below(rig, 4) == 0 && n > 3 ? 3 : n);
}

bool rig_coin(struct rig *rig)
{
    return rig_below(rig, 2) == 1;
}

void rig_shape(struct rig *rig, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(rig->shape, sizeof rig->shape, format, args);
    va_end(args);
}

void rig_fail(struct rig *rig, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("%s %s, %d threads, seed %llu, %s: %s", rig->ops->name, dtype_name(rig->dtype),
             rig->threads, (unsigned long long)rig->seed, rig->shape, text);
}

void rig_ok(struct rig *rig, enum status status)
{
    if (status != OK)
        rig_fail(rig, "%s: %s", status_name(status), status_first()->text);
}

/* ---- arrays ---- */

struct buffer *rig_buffer(struct rig *rig, const char *name, enum dtype t, size_t n, double scale)
{
    assert_in_range(rig->count, 0, RIG_BUFFERS - 1);
    struct buffer *b = &rig->buffers[rig->count++];
    size_t size = dtype_bytes(t), offset = GUARD + rig_below(rig, 4) * size;
    *b =
        (struct buffer){.name = name, .dtype = t, .n = n, .whole_bytes = offset + n * size + GUARD};
    b->value = calloc(n + 1, sizeof *b->value);
    b->slack = calloc(n + 1, sizeof *b->slack);
    float *normals = calloc(n + 1, sizeof *normals);
    unsigned char *canaries = malloc(b->whole_bytes);
    assert_true(b->value != NULL && b->slack != NULL && normals != NULL && canaries != NULL);
    memset(canaries, CANARY, b->whole_bytes);
    rig_ok(rig, arena_alloc(rig->arena, MEMORY_ACTIVATIONS, b->whole_bytes, &b->whole));
    rig_ok(rig, lane_upload(rig->device->lanes, b->whole, canaries, b->whole_bytes));
    b->mem = devmem_at(b->whole, offset);
    rng_normals(rig->seed, name, 0, n, normals);
    for (size_t i = 0; i < n; i++)
        b->value[i] = scale * normals[i];
    free(canaries);
    free(normals);
    rig_upload(rig, b);
    return b;
}

/* What the dtype makes of the values is what is expected. */
void rig_upload(struct rig *rig, const struct buffer *b)
{
    void *stored = calloc(b->n + 1, dtype_bytes(b->dtype));
    assert_non_null(stored);
    for (size_t i = 0; i < b->n; i++) {
        dtype_store(b->dtype, stored, i, (float)b->value[i]);
        b->value[i] = dtype_load(b->dtype, stored, i);
    }
    rig_ok(rig, lane_upload(rig->device->lanes, b->mem, stored, b->n * dtype_bytes(b->dtype)));
    free(stored);
}

void rig_download(struct rig *rig, const struct buffer *b, float *out)
{
    void *stored = calloc(b->n + 1, dtype_bytes(b->dtype));
    assert_non_null(stored);
    size_t bytes = b->n * dtype_bytes(b->dtype);
    rig_ok(rig, lane_download(rig->device->lanes, stored, b->mem, bytes));
    dtype_convert(DTYPE_FP32, out, b->dtype, stored, b->n);
    free(stored);
}

void rig_expect(struct buffer *b, size_t i, double value, double error)
{
    const double least = b->dtype == DTYPE_FP16 ? 0x1p-25 : 0x1p-126; /* subnormal numbers */
    b->value[i] = value;
    b->slack[i] = isfinite(value) ? error + rig_unit(b->dtype) * (fabs(value) + error) + least : 0;
}

static void check_canaries(struct rig *rig, const struct buffer *b, const unsigned char *bytes)
{
    size_t first = b->mem.addr - b->whole.addr, last = first + b->n * dtype_bytes(b->dtype);
    for (size_t i = 0; i < b->whole_bytes; i++)
        if ((i < first || i >= last) && bytes[i] != CANARY)
            rig_fail(rig, "%s: written outside, at byte %td", b->name,
                     (ptrdiff_t)i - (ptrdiff_t)first);
}

static void check_buffer(struct rig *rig, const struct buffer *b)
{
    unsigned char *bytes = malloc(b->whole_bytes);
    float *got = calloc(b->n + 1, sizeof *got);
    assert_true(bytes != NULL && got != NULL);
    rig_ok(rig, lane_download(rig->device->lanes, bytes, b->whole, b->whole_bytes));
    check_canaries(rig, b, bytes);
    rig_download(rig, b, got);
    for (size_t i = 0; i < b->n; i++)
        if (!(got[i] == b->value[i] || fabs(got[i] - b->value[i]) <= b->slack[i]))
            rig_fail(rig, "%s[%zu] is %.9g, not %.9g +- %.3g", b->name, i, got[i], b->value[i],
                     b->slack[i]);
    free(bytes);
    free(got);
}

void rig_check(struct rig *rig)
{
    rig_ok(rig, lane_sync(rig->device->lanes));
    for (int i = 0; i < rig->count; i++)
        check_buffer(rig, &rig->buffers[i]);
}

void rig_reserve(struct rig *rig, const struct attention_call *attention,
                 const struct linear_call *linear)
{
    rig_ok(rig, device_reserve(rig->device, rig->arena, attention, linear));
}

/* ---- every device ---- */

static void run_round(struct rig *rig, void (*test)(struct rig *))
{
    rig_shape(rig, "set-up");
    rig->count = 0;
    rig->drawn = 0;
    rig_ok(rig, arena_open(rig->device->lanes, &rig->ledger, &rig->arena));
    test(rig);
    arena_close(rig->arena);
    rig->device->workspace = DEVMEM_NONE;
    rig->device->workspace_bytes = 0;
    for (int i = 0; i < rig->count; i++) {
        free(rig->buffers[i].value);
        free(rig->buffers[i].slack);
    }
}

static void run_device(const struct device_ops *ops, enum dtype t, int threads,
                       void (*test)(struct rig *), int rounds)
{
    struct rig rig = {.ops = ops, .dtype = t, .threads = threads};
    struct device_config config = {.nranks = 1, .threads = threads, .dtype = t};
    status_clear();
    rig_ok(&rig, device_open(ops, &config, &rig.device));
    for (int i = 0; i < rounds; i++) {
        rig.seed = (uint64_t)i;
        run_round(&rig, test);
    }
    device_close(rig.device);
}

void rig_one_device(const char *name, enum dtype t, void (*test)(struct rig *), int rounds)
{
    run_device(device_find(name), t, 1, test, rounds);
}

bool rig_wants(const struct device_ops *ops)
{
    const char *only = getenv("DITTO_TEST_DEVICE");
    return ops->memory != MEMORY_VIRTUAL && (only == NULL || strcmp(only, ops->name) == 0);
}

/* Brings in the one wanted device where it is a plug-in's. */
static void load_wanted(void)
{
    const char *only = getenv("DITTO_TEST_DEVICE");
    if (only != NULL && device_plugin_brings(only) && device_plugin_load() != OK)
        fail_msg("%s", status_first()->text);
    if (only != NULL)
        assert_non_null(device_find(only));
}

void rig_every_device(void (*test)(struct rig *), int rounds)
{
    load_wanted();
    for (const struct device_ops *const *ops = device_list(); *ops != NULL; ops++)
        for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
            if (!rig_wants(*ops))
                continue;
            if ((*ops)->has_dtype != NULL && !(*ops)->has_dtype(t))
                continue;
            run_device(*ops, t, 1, test, rounds);
            run_device(*ops, t, 2, test, 1 + rounds / 10);
        }
}

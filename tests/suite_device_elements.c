/* Every device against loops in double precision written here: operations element by element. A
 * result may be off by one rounding to the dtype, and 2^-24 per fp32 operation on the magnitudes in
 * it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/device_rig.h"

static const double fp32_unit = 0x1p-24;

static void check_sum(struct rig *rig)
{
    static const double factors[] = {1, -1, 0.5, 2.75};
    struct sum_call call = {.n = rig_size(rig, 2000), .count = 1 + (int)rig_below(rig, 4)};
    struct buffer *src[DEVICE_MAX_TERMS];
    static const char *const names[] = {"src0", "src1", "src2", "src3"};
    for (int i = 0; i < call.count; i++) {
        src[i] = rig_buffer(rig, names[i], rig->dtype, call.n, 1);
        call.src[i] = src[i]->mem;
        call.coefficient[i] = factors[rig_below(rig, 4)];
    }
    size_t onto = rig_below(rig, (size_t)call.count + 1);
    struct buffer *dst =
        onto < (size_t)call.count ? src[onto] : rig_buffer(rig, "dst", rig->dtype, call.n, 1);
    call.dst = dst->mem;
    rig_shape(rig, "sum of %d, n %zu, onto %zu", call.count, call.n, onto);
    rig_ok(rig, device_sum(rig->device, &call));
    for (size_t i = 0; i < call.n; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < call.count; k++) {
            sum += call.coefficient[k] * src[k]->value[i];
            size += fabs(call.coefficient[k] * src[k]->value[i]);
        }
        rig_expect(dst, i, sum, 2 * (call.count - 1) * fp32_unit * size);
    }
    rig_check(rig);
}

/* A transpose of the two outer axes into rows that are padded apart. */
static void check_copy(struct rig *rig)
{
    size_t n0 = rig_size(rig, 5), n1 = rig_size(rig, 6), n2 = rig_size(rig, 7);
    size_t width = rig_size(rig, 40), ld = width + rig_below(rig, 4);
    rig_shape(rig, "copy %zu %zu %zu width %zu row %zu", n0, n1, n2, width, ld);
    struct buffer *src = rig_buffer(rig, "src", rig->dtype, n0 * n1 * n2 * width, 1);
    struct buffer *dst = rig_buffer(rig, "dst", rig->dtype, n0 * n1 * n2 * ld, 1);
    struct copy_call call = {.n0 = n0,
                             .n1 = n1,
                             .n2 = n2,
                             .width = width,
                             .src = src->mem,
                             .src0 = n1 * n2 * width,
                             .src1 = n2 * width,
                             .src2 = width,
                             .dst = dst->mem,
                             .dst0 = n2 * ld,
                             .dst1 = n0 * n2 * ld,
                             .dst2 = ld};
    rig_ok(rig, device_copy(rig->device, &call));
    for (size_t i0 = 0; i0 < n0; i0++)
        for (size_t i1 = 0; i1 < n1; i1++)
            for (size_t i = 0; i < n2 * width; i++)
                dst->value[(i1 * n0 + i0) * n2 * ld + i / width * ld + i % width] =
                    src->value[(i0 * n1 + i1) * n2 * width + i];
    rig_check(rig);
}

static void check_noise(struct rig *rig)
{
    struct noise_call call = {.rows = rig_size(rig, 30),
                              .batch = 1 + rig_below(rig, 2),
                              .patch = 1 + rig_below(rig, 3),
                              .channels = 1 + rig_below(rig, 4),
                              .cfg_scale = 4.0};
    call.out_channels = call.channels * (1 + rig_below(rig, 2));
    rig_shape(rig, "noise rows %zu batch %zu patch %zu channels %zu of %zu", call.rows, call.batch,
              call.patch, call.channels, call.out_channels);
    size_t area = call.patch * call.patch, width = area * call.out_channels;
    struct buffer *out = rig_buffer(rig, "out", rig->dtype, call.rows * call.batch * width, 1);
    struct buffer *noise =
        rig_buffer(rig, "noise", rig->dtype, call.rows * area * call.channels, 1);
    call.out = out->mem;
    call.noise = noise->mem;
    rig_ok(rig, device_noise(rig->device, &call));
    for (size_t i = 0; i < noise->n; i++) {
        size_t row = i / (area * call.channels), channel = i / area % call.channels;
        size_t from = row * call.batch * width + i % area * call.out_channels + channel;
        double cond = out->value[from];
        double uncond = call.batch == 2 ? out->value[from + width] : cond;
        double size = call.batch == 2 ? 5 * fabs(cond) + 5 * fabs(uncond) : 0;
        rig_expect(noise, i, uncond + call.cfg_scale * (cond - uncond), 3 * fp32_unit * size);
    }
    rig_check(rig);
}

static void check_guide(struct rig *rig)
{
    struct guide_call call = {.n = rig_size(rig, 2000), .cfg_scale = 1.5};
    struct buffer *cond = rig_buffer(rig, "cond", rig->dtype, call.n, 1);
    struct buffer *uncond = rig_buffer(rig, "uncond", rig->dtype, call.n, 1);
    struct buffer *noise = rig_coin(rig) ? cond : rig_coin(rig) ? uncond : NULL;
    if (noise == NULL)
        noise = rig_buffer(rig, "noise", rig->dtype, call.n, 1);
    call.cond = cond->mem;
    call.uncond = uncond->mem;
    call.noise = noise->mem;
    rig_shape(rig, "guide n %zu onto %s", call.n, noise->name);
    rig_ok(rig, device_guide(rig->device, &call));
    for (size_t i = 0; i < call.n; i++) {
        double u = uncond->value[i], c = cond->value[i];
        rig_expect(noise, i, u + 1.5 * (c - u), 3 * fp32_unit * 3 * (fabs(u) + fabs(c)));
    }
    rig_check(rig);
}

static void check_ddim(struct rig *rig)
{
    static const double alphas[] = {4.036e-5, 1e-3, 0.25, 0.98, 1.0};
    struct ddim_call call = {.n = rig_size(rig, 2000)};
    size_t which = rig_below(rig, 4);
    call.alpha = alphas[which];
    call.alpha_next = alphas[which + 1];
    rig_shape(rig, "ddim n %zu alpha %g to %g", call.n, call.alpha, call.alpha_next);
    struct buffer *latent = rig_buffer(rig, "latent", DTYPE_FP32, call.n, 1);
    struct buffer *noise = rig_buffer(rig, "noise", rig->dtype, call.n, 1);
    call.latent = latent->mem;
    call.noise = noise->mem;
    rig_ok(rig, device_ddim(rig->device, &call));
    double growth = sqrt(call.alpha_next / call.alpha);
    for (size_t i = 0; i < call.n; i++) {
        double x = latent->value[i], e = noise->value[i];
        double x0 = (x - sqrt(1 - call.alpha) * e) / sqrt(call.alpha);
        rig_expect(latent, i, sqrt(call.alpha_next) * x0 + sqrt(1 - call.alpha_next) * e,
                   4 * fp32_unit * (growth * (fabs(x) + fabs(e)) + fabs(e)));
    }
    rig_check(rig);
}

/* Over the range where exp neither overflows nor vanishes: relative error of a few roundings. */
static void check_silu(struct rig *rig)
{
    size_t n = rig_size(rig, 3000);
    struct buffer *src = rig_buffer(rig, "src", rig->dtype, n, rig_coin(rig) ? 30 : 1);
    struct buffer *dst = rig_coin(rig) ? src : rig_buffer(rig, "dst", rig->dtype, n, 1);
    rig_shape(rig, "silu n %zu onto %s", n, dst->name);
    for (size_t i = 0; i < n; i++)
        src->value[i] = fmax(src->value[i], -80);
    rig_upload(rig, src);
    rig_ok(rig, device_silu(rig->device, dst->mem, src->mem, n));
    for (size_t i = 0; i < n; i++) {
        double y = src->value[i] / (1 + exp(-src->value[i]));
        rig_expect(dst, i, y, 6 * fp32_unit * fabs(y));
    }
    rig_check(rig);
}

static void check_zero(struct rig *rig)
{
    size_t n = rig_size(rig, 500), kept = rig_below(rig, n);
    struct buffer *dst = rig_buffer(rig, "dst", rig->dtype, n, 1);
    rig_shape(rig, "zero after %zu of %zu", kept, n);
    size_t size = dtype_bytes(rig->dtype);
    rig_ok(rig, device_zero(rig->device, devmem_at(dst->mem, kept * size), (n - kept) * size));
    for (size_t i = kept; i < n; i++)
        dst->value[i] = 0;
    rig_check(rig);
}

static void check_convert(struct rig *rig)
{
    enum dtype from = (enum dtype)rig_below(rig, DTYPE_COUNT);
    enum dtype to = (enum dtype)rig_below(rig, DTYPE_COUNT);
    size_t n = rig_size(rig, 1000);
    rig_shape(rig, "convert %s to %s, n %zu", dtype_name(from), dtype_name(to), n);
    struct buffer *src = rig_buffer(rig, "src", from, n, 1);
    struct buffer *dst = rig_buffer(rig, "dst", to, n, 1);
    rig_ok(rig, device_convert(rig->device, to, dst->mem, from, src->mem, n));
    for (size_t i = 0; i < n; i++) {
        float stored;
        dtype_store(to, &stored, 0, (float)src->value[i]);
        dst->value[i] = dtype_load(to, &stored, 0);
    }
    rig_check(rig);
}

static void sum_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_sum, 20);
}

static void copy_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_copy, 20);
}

static void noise_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_noise, 20);
}

static void guide_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_guide, 20);
}

static void ddim_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_ddim, 20);
}

static void silu_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_silu, 20);
}

static void zero_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_zero, 20);
}

static void convert_matches_double(void **state)
{
    (void)state;
    rig_every_device(check_convert, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_matches_double),   cmocka_unit_test(copy_matches_double),
        cmocka_unit_test(noise_matches_double), cmocka_unit_test(guide_matches_double),
        cmocka_unit_test(ddim_matches_double),  cmocka_unit_test(silu_matches_double),
        cmocka_unit_test(zero_matches_double),  cmocka_unit_test(convert_matches_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Elementwise and row operations of devices in host memory. */
#include "kernels/device_host.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 8
}; /* independent sums, so that a row's statistics vectorise; the order stays fixed */

void device_host_read(enum dtype t, struct devmem array, size_t first, size_t n, float *out)
{
    const void *src = lane_host_pointer(devmem_at(array, first * dtype_bytes(t)));
    dtype_convert(DTYPE_FP32, out, t, src, n);
}

void device_host_write(enum dtype t, struct devmem array, size_t first, size_t n,
                       const float *values)
{
    void *dst = lane_host_pointer(devmem_at(array, first * dtype_bytes(t)));
    dtype_convert(t, dst, DTYPE_FP32, values, n);
}

/* ---- merge of partial attention ---- */

/* What each side of a merge weighs, and log(exp(acc) + exp(new)). An empty side weighs nothing. */
struct merge_weights {
    float acc, new, lse;
};

static struct merge_weights merge_weights(float acc, float new)
{
    double largest = fmax(acc, new);
    if (isinf(largest) && largest < 0)
        return (struct merge_weights){0, 0, -INFINITY};
    double lse = largest + log(exp(acc - largest) + exp(new - largest));
    return (struct merge_weights){(float)exp(acc - lse), (float)exp(new - lse), (float)lse};
}

/* acc = acc * weights.acc + new * weights.new; what weighs nothing may hold anything, even NaN. */
static void merge_run(struct merge_weights weights, size_t n, float *restrict acc,
                      const float *restrict new)
{
    if (weights.acc == 0)
        for (size_t i = 0; i < n; i++)
            acc[i] = weights.new == 0 ? 0 : new[i] * weights.new;
    else if (weights.new != 0)
        for (size_t i = 0; i < n; i++)
            acc[i] = acc[i] * weights.acc + new[i] * weights.new;
    else
        for (size_t i = 0; i < n; i++)
            acc[i] *= weights.acc;
}

static void merge_row(const struct device *d, const struct merge_call *call, size_t row,
                      size_t new_first)
{
    float *lse_acc = lane_host_pointer(call->lse_acc), run[DEVICE_HOST_RUN];
    const float *lse_new = lane_host_pointer(call->lse_new);
    float *o_acc = (float *)lane_host_pointer(call->o_acc) + row * call->head_dim;
    struct merge_weights weights = merge_weights(lse_acc[row], lse_new[row]);
    for (size_t i = 0, n; i < call->head_dim; i += n) {
        n = device_host_run(i, call->head_dim);
        device_host_read(d->dtype, call->o_new.base, new_first + i, n, run);
        merge_run(weights, n, o_acc + i, run);
    }
    lse_acc[row] = weights.lse;
}

enum status device_host_merge(struct device *d, const struct merge_call *call)
{
    size_t row = 0;
    for (size_t g0 = 0; g0 < call->n0; g0++)
        for (size_t g1 = 0; g1 < call->n1; g1++)
            for (size_t h = 0; h < call->heads; h++)
                for (size_t q = 0; q < call->nq; q++, row++)
                    merge_row(d, call, row,
                              device_host_head(&call->o_new, g0, g1, h) + q * call->o_new.row);
    return OK;
}

/* ---- LayerNorm ---- */

/* sums[lane] += (x - center), or its square, of lanes 0 .. count-1. */
static inline void add_lanes(double *restrict sums, const float *restrict x, size_t count,
                             double center, bool squares)
{
    for (size_t lane = 0; lane < count; lane++) {
        double away = x[lane] - center;
        sums[lane] += squares ? away * away : away;
    }
}

/* Sum of x[i] - center, or of its square. Element i always goes to lane i % LANES. */
static double row_sum(enum dtype t, struct devmem x, size_t first, size_t width, double center,
                      bool squares)
{
    double sums[LANES] = {0}, total = 0;
    float run[DEVICE_HOST_RUN];
    for (size_t i = 0, n; i < width; i += n) {
        n = device_host_run(i, width);
        device_host_read(t, x, first + i, n, run);
        size_t j = 0;
        for (; j + LANES <= n; j += LANES)
            add_lanes(sums, run + j, LANES, center, squares);
        add_lanes(sums, run + j, n - j, center, squares);
    }
    for (size_t lane = 0; lane < LANES; lane++)
        total += sums[lane];
    return total;
}

static void modulate_row(const struct device *d, const struct modulate_call *call, size_t row)
{
    size_t first = row * call->width, mod = row % call->batch * call->mod_stride;
    double mean = row_sum(d->dtype, call->x, first, call->width, 0, false) / (double)call->width;
    double variance =
        row_sum(d->dtype, call->x, first, call->width, mean, true) / (double)call->width;
    double inverse = 1 / sqrt(variance + call->eps);
    float x[DEVICE_HOST_RUN], shift[DEVICE_HOST_RUN], scale[DEVICE_HOST_RUN];
    for (size_t i = 0, n; i < call->width; i += n) {
        n = device_host_run(i, call->width);
        device_host_read(d->dtype, call->x, first + i, n, x);
        device_host_read(d->dtype, call->shift, mod + i, n, shift);
        device_host_read(d->dtype, call->scale, mod + i, n, scale);
        for (size_t j = 0; j < n; j++)
            x[j] = (float)((x[j] - mean) * inverse * (1 + (double)scale[j]) + shift[j]);
        device_host_write(d->dtype, call->y, first + i, n, x);
    }
}

enum status device_host_modulate(struct device *d, const struct modulate_call *call)
{
    for (size_t row = 0; row < call->rows; row++)
        modulate_row(d, call, row);
    return OK;
}

/* ---- elementwise ---- */

static void residual_run(const struct device *d, const struct residual_call *call, size_t row,
                         size_t i, size_t n)
{
    float x[DEVICE_HOST_RUN], y[DEVICE_HOST_RUN], operand[DEVICE_HOST_RUN];
    device_host_read(d->dtype, call->x, row * call->width + i, n, x);
    device_host_read(d->dtype, call->y, row * call->width + i, n, y);
    if (!devmem_is_none(call->bias)) {
        device_host_read(d->dtype, call->bias, i, n, operand);
        for (size_t j = 0; j < n; j++)
            y[j] += operand[j];
    }
    if (!devmem_is_none(call->gate)) {
        device_host_read(d->dtype, call->gate, row % call->batch * call->mod_stride + i, n,
                         operand);
        for (size_t j = 0; j < n; j++)
            y[j] *= operand[j];
    }
    for (size_t j = 0; j < n; j++)
        x[j] += y[j];
    device_host_write(d->dtype, call->x, row * call->width + i, n, x);
}

enum status device_host_residual(struct device *d, const struct residual_call *call)
{
    for (size_t row = 0; row < call->rows; row++)
        for (size_t i = 0, n; i < call->width; i += n) {
            n = device_host_run(i, call->width);
            residual_run(d, call, row, i, n);
        }
    return OK;
}

enum status device_host_sum(struct device *d, const struct sum_call *call)
{
    float sum[DEVICE_HOST_RUN], term[DEVICE_HOST_RUN];
    for (size_t i = 0, n; i < call->n; i += n) {
        n = device_host_run(i, call->n);
        for (int k = 0; k < call->count; k++) {
            float coefficient = (float)call->coefficient[k];
            device_host_read(d->dtype, call->src[k], i, n, term);
            for (size_t j = 0; j < n; j++)
                sum[j] = coefficient * term[j] + (k > 0 ? sum[j] : 0);
        }
        device_host_write(d->dtype, call->dst, i, n, sum);
    }
    return OK;
}

enum status device_host_copy(struct device *d, const struct copy_call *call)
{
    size_t size = dtype_bytes(d->dtype);
    for (size_t i0 = 0; i0 < call->n0; i0++)
        for (size_t i1 = 0; i1 < call->n1; i1++)
            for (size_t i2 = 0; i2 < call->n2; i2++) {
                size_t src = i0 * call->src0 + i1 * call->src1 + i2 * call->src2;
                size_t dst = i0 * call->dst0 + i1 * call->dst1 + i2 * call->dst2;
                memcpy(lane_host_pointer(devmem_at(call->dst, dst * size)),
                       lane_host_pointer(devmem_at(call->src, src * size)), call->width * size);
            }
    return OK;
}

enum status device_host_noise(struct device *d, const struct noise_call *call)
{
    size_t area = call->patch * call->patch, width = area * call->out_channels;
    float scale = (float)call->cfg_scale;
    const void *out = lane_host_pointer(call->out);
    void *noise = lane_host_pointer(call->noise);
    for (size_t row = 0; row < call->rows; row++)
        for (size_t c = 0; c < call->channels; c++)
            for (size_t place = 0; place < area; place++) {
                size_t from = row * call->batch * width + place * call->out_channels + c;
                float value = dtype_load(d->dtype, out, from);
                if (call->batch == 2) {
                    float uncond = dtype_load(d->dtype, out, from + width);
                    value = uncond + scale * (value - uncond);
                }
                dtype_store(d->dtype, noise, (row * call->channels + c) * area + place, value);
            }
    return OK;
}

enum status device_host_guide(struct device *d, const struct guide_call *call)
{
    float cond[DEVICE_HOST_RUN], uncond[DEVICE_HOST_RUN], scale = (float)call->cfg_scale;
    for (size_t i = 0, n; i < call->n; i += n) {
        n = device_host_run(i, call->n);
        device_host_read(d->dtype, call->cond, i, n, cond);
        device_host_read(d->dtype, call->uncond, i, n, uncond);
        for (size_t j = 0; j < n; j++)
            cond[j] = uncond[j] + scale * (cond[j] - uncond[j]);
        device_host_write(d->dtype, call->noise, i, n, cond);
    }
    return OK;
}

/* In double: the first steps divide by sqrt(a), about 1/100, which magnifies a rounding of x0. */
enum status device_host_ddim(struct device *d, const struct ddim_call *call)
{
    float *latent = lane_host_pointer(call->latent), noise[DEVICE_HOST_RUN];
    double signal = sqrt(call->alpha), spread = sqrt(1 - call->alpha);
    double next_signal = sqrt(call->alpha_next), next_spread = sqrt(1 - call->alpha_next);
    for (size_t i = 0, n; i < call->n; i += n) {
        n = device_host_run(i, call->n);
        device_host_read(d->dtype, call->noise, i, n, noise);
        for (size_t j = 0; j < n; j++) {
            double x0 = (latent[i + j] - spread * noise[j]) / signal;
            latent[i + j] = (float)(next_signal * x0 + next_spread * noise[j]);
        }
    }
    return OK;
}

enum status device_host_add_rows(struct device *d, const struct add_rows_call *call)
{
    float x[DEVICE_HOST_RUN], table[DEVICE_HOST_RUN];
    for (size_t row = 0; row < call->rows; row++) {
        size_t place = call->first + row / call->batch / call->inner % call->period;
        for (size_t i = 0, n; i < call->width; i += n) {
            n = device_host_run(i, call->width);
            device_host_read(d->dtype, call->src, row * call->width + i, n, x);
            device_host_read(d->dtype, call->table, place * call->width + i, n, table);
            for (size_t j = 0; j < n; j++)
                x[j] += table[j];
            device_host_write(d->dtype, call->dst, row * call->width + i, n, x);
        }
    }
    return OK;
}

enum status device_host_zero(struct device *d, struct devmem dst, size_t bytes)
{
    (void)d;
    memset(lane_host_pointer(dst), 0, bytes);
    return OK;
}

enum status device_host_convert(struct device *d, enum dtype to, struct devmem dst, enum dtype from,
                                struct devmem src, size_t n)
{
    (void)d;
    dtype_convert(to, lane_host_pointer(dst), from, lane_host_pointer(src), n);
    return OK;
}

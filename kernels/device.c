/* The list of devices and the checked wrappers around their operations: sizes of zero end here, our
 * own mistakes abort here, and time, heartbeats and the arithmetic's test hook are seen to once,
 * here. */
#include "kernels/device.h"
#include "config.h"

#include <string.h>
#include <time.h>

#include "common/fault.h"

extern const struct device_ops device_cpu, device_ref, device_sim;

enum { DEVICES_MAX = 8 };

static const struct device_ops *devices[DEVICES_MAX + 1] = {
#if HAVE_DNNL
    &device_cpu,
#endif
    &device_ref,
    &device_sim,
};

const struct device_ops *const *device_list(void)
{
    return devices;
}

enum status device_register(const struct device_ops *ops)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (devices[i] == NULL) {
            devices[i] = ops;
            return OK;
        }
    return FAIL(ERR_INTERNAL, "no room for device %s", ops->name);
}

const struct device_ops *device_find(const char *name)
{
    for (size_t i = 0; devices[i] != NULL; i++)
        if (strcmp(devices[i]->name, name) == 0)
            return devices[i];
    return NULL;
}

enum status device_open(const struct device_ops *ops, const struct device_config *config,
                        struct device **out)
{
    ASSERT_CMP(config->threads, >=, 1);
    if (ops->has_dtype != NULL && !ops->has_dtype(config->dtype))
        return FAIL(ERR_UNSUPPORTED, "device %s does not compute in %s", ops->name,
                    dtype_name(config->dtype));
    struct device *d;
    TRY(ops->open(config, &d));
    ASSERT(d->lanes != NULL);
    d->ops = ops;
    d->dtype = config->dtype;
    *out = d;
    return OK;
}

void device_close(struct device *d)
{
    if (d != NULL)
        d->ops->close(d);
}

enum status device_reserve(struct device *d, struct arena *arena,
                           const struct attention_call *largest, const struct linear_call *widest)
{
    size_t bytes = d->ops->workspace_bytes(d, largest, widest);
    struct devmem workspace = DEVMEM_NONE;
    if (bytes > 0)
        TRY(arena_alloc(arena, MEMORY_WORKSPACE, bytes, &workspace));
    d->workspace = workspace;
    d->workspace_bytes = bytes;
    return OK;
}

/* One operation being timed. */
struct span {
    int event;
    int64_t begin_ns;
};

static bool is_skipped(const struct device *d)
{
    return d->meter != NULL && d->meter->mode == RUN_COMM;
}

/* Time that the calling thread has computed. */
static int64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum status span_begin(struct device *d, const char *name, struct span *out)
{
    *out = (struct span){.event = -1};
    if (d->meter != NULL)
        TRY(meter_begin(d->meter, name, &out->event));
    if (fault_slow_percent(d->lanes->rank) != 0)
        out->begin_ns = thread_ns();
    return OK;
}

/* What DITTO_TEST_SLOW asks for, spent and not slept: on a machine where ranks wait for cores anyway,
 * sleep would cost nothing. */
static void spend_in_proportion(int64_t busy_ns, int percent)
{
    const int64_t end = thread_ns() + busy_ns * percent / 100;
    while (thread_ns() < end)
        continue;
}

static enum status span_end(struct device *d, const struct span *span)
{
    int slow = fault_slow_percent(d->lanes->rank);
    if (slow != 0)
        spend_in_proportion(thread_ns() - span->begin_ns, slow);
    if (d->meter != NULL)
        TRY(meter_end(d->meter, span->event));
    if (d->team != NULL)
        team_heartbeat(d->team);
    return OK;
}

static bool is_given(struct devmem m)
{
    return !devmem_is_none(m);
}

/* For the noise floor: the inner dimension in two halves, the second accumulated on the first. */
static enum status linear_in_halves(struct device *d, const struct linear_call *call)
{
    size_t half = call->k / 2, bytes = half * dtype_bytes(d->dtype);
    struct linear_call first = *call, second = *call;
    first.k = half;
    first.bias = DEVMEM_NONE;
    first.activation = ACTIVATION_NONE;
    second.k = call->k - half;
    second.x = devmem_at(call->x, bytes);
    second.w = devmem_at(call->w, bytes);
    second.accumulate = true;
    TRY(d->ops->linear(d, &first));
    return d->ops->linear(d, &second);
}

enum status device_linear(struct device *d, const struct linear_call *call)
{
    if (call->m == 0 || call->n == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->x) && is_given(call->w) && is_given(call->y));
    ASSERT_CMP(call->ldx, >=, call->k);
    ASSERT_CMP(call->ldw, >=, call->k);
    ASSERT_CMP(call->ldy, >=, call->n);
    ASSERT_CMP(call->y.addr, !=, call->x.addr);
    ASSERT_CMP(d->workspace_bytes, >=, d->ops->workspace_bytes(d, NULL, call));
    struct span span;
    TRY(span_begin(d, "linear", &span));
    if (d->splits_inner && call->k >= 2)
        TRY(linear_in_halves(d, call));
    else
        TRY(d->ops->linear(d, call));
    return span_end(d, &span);
}

enum status device_attention(struct device *d, const struct attention_call *call)
{
    if (call->n0 == 0 || call->n1 == 0 || call->heads == 0 || call->nq == 0 ||
        call->head_dim == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->q.base) && is_given(call->o.base));
    ASSERT(call->nk == 0 || (is_given(call->k.base) && is_given(call->v.base)));
    ASSERT(call->nq == 1 || call->q.row >= call->head_dim);
    ASSERT(call->nq == 1 || call->o.row >= call->head_dim);
    ASSERT(call->nk <= 1 || (call->k.row >= call->head_dim && call->v.row >= call->head_dim));
    ASSERT_CMP(d->workspace_bytes, >=, d->ops->workspace_bytes(d, call, NULL));
    struct span span;
    TRY(span_begin(d, "attention", &span));
    TRY(d->ops->attention(d, call));
    return span_end(d, &span);
}

enum status device_merge(struct device *d, const struct merge_call *call)
{
    if (call->n0 == 0 || call->n1 == 0 || call->heads == 0 || call->nq == 0 ||
        call->head_dim == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->o_acc) && is_given(call->lse_acc));
    ASSERT(is_given(call->o_new.base) && is_given(call->lse_new));
    ASSERT(call->nq == 1 || call->o_new.row >= call->head_dim);
    struct span span;
    TRY(span_begin(d, "merge", &span));
    TRY(d->ops->merge(d, call));
    return span_end(d, &span);
}

enum status device_modulate(struct device *d, const struct modulate_call *call)
{
    if (call->rows == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->x) && is_given(call->y));
    ASSERT(is_given(call->shift) && is_given(call->scale));
    ASSERT_CMP(call->batch, >=, 1);
    ASSERT(call->batch == 1 || call->mod_stride >= call->width);
    ASSERT(call->eps > 0);
    struct span span;
    TRY(span_begin(d, "modulate", &span));
    TRY(d->ops->modulate(d, call));
    return span_end(d, &span);
}

enum status device_residual(struct device *d, const struct residual_call *call)
{
    if (call->rows == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->x) && is_given(call->y));
    ASSERT_CMP(call->x.addr, !=, call->y.addr);
    ASSERT_CMP(call->batch, >=, 1);
    ASSERT(call->batch == 1 || devmem_is_none(call->gate) || call->mod_stride >= call->width);
    struct span span;
    TRY(span_begin(d, "residual", &span));
    TRY(d->ops->residual(d, call));
    return span_end(d, &span);
}

enum status device_sum(struct device *d, const struct sum_call *call)
{
    if (call->n == 0 || is_skipped(d))
        return OK;
    ASSERT(call->count >= 1 && call->count <= DEVICE_MAX_TERMS);
    ASSERT(is_given(call->dst));
    for (int i = 0; i < call->count; i++)
        ASSERT(is_given(call->src[i]));
    struct span span;
    TRY(span_begin(d, "sum", &span));
    TRY(d->ops->sum(d, call));
    return span_end(d, &span);
}

enum status device_copy(struct device *d, const struct copy_call *call)
{
    if (call->n0 == 0 || call->n1 == 0 || call->n2 == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->src) && is_given(call->dst));
    ASSERT_CMP(call->src.addr, !=, call->dst.addr);
    struct span span;
    TRY(span_begin(d, "copy", &span));
    TRY(d->ops->copy(d, call));
    return span_end(d, &span);
}

enum status device_noise(struct device *d, const struct noise_call *call)
{
    if (call->rows == 0 || call->patch == 0 || call->channels == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->out) && is_given(call->noise));
    ASSERT(call->batch == 1 || call->batch == 2);
    ASSERT_CMP(call->out_channels, >=, call->channels);
    ASSERT_CMP(call->out.addr, !=, call->noise.addr);
    struct span span;
    TRY(span_begin(d, "noise", &span));
    TRY(d->ops->noise(d, call));
    return span_end(d, &span);
}

enum status device_guide(struct device *d, const struct guide_call *call)
{
    if (call->n == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->cond) && is_given(call->uncond) && is_given(call->noise));
    struct span span;
    TRY(span_begin(d, "guide", &span));
    TRY(d->ops->guide(d, call));
    return span_end(d, &span);
}

enum status device_ddim(struct device *d, const struct ddim_call *call)
{
    if (call->n == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->latent) && is_given(call->noise));
    ASSERT(call->alpha > 0 && call->alpha <= 1);
    ASSERT(call->alpha_next > 0 && call->alpha_next <= 1);
    struct span span;
    TRY(span_begin(d, "ddim", &span));
    TRY(d->ops->ddim(d, call));
    return span_end(d, &span);
}

enum status device_add_rows(struct device *d, const struct add_rows_call *call)
{
    if (call->rows == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->src) && is_given(call->dst) && is_given(call->table));
    ASSERT(call->batch >= 1 && call->inner >= 1 && call->period >= 1);
    struct span span;
    TRY(span_begin(d, "add_rows", &span));
    TRY(d->ops->add_rows(d, call));
    return span_end(d, &span);
}

static void check_code(const struct code_call *call)
{
    ASSERT(is_given(call->base) && is_given(call->codes));
    ASSERT(call->bits >= 2 && call->bits <= 8);
}

enum status device_encode(struct device *d, const struct code_call *call)
{
    if (call->rows == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(call->x));
    check_code(call);
    struct span span;
    TRY(span_begin(d, "encode", &span));
    TRY(d->ops->encode(d, call));
    return span_end(d, &span);
}

enum status device_decode(struct device *d, const struct code_call *call)
{
    if (call->rows == 0 || call->width == 0 || is_skipped(d))
        return OK;
    ASSERT_CMP(call->parts, >=, 1);
    check_code(call);
    struct span span;
    TRY(span_begin(d, "decode", &span));
    TRY(d->ops->decode(d, call));
    return span_end(d, &span);
}

enum status device_silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    if (n == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(dst) && is_given(src));
    struct span span;
    TRY(span_begin(d, "silu", &span));
    TRY(d->ops->silu(d, dst, src, n));
    return span_end(d, &span);
}

enum status device_zero(struct device *d, struct devmem dst, size_t bytes)
{
    if (bytes == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(dst));
    struct span span;
    TRY(span_begin(d, "zero", &span));
    TRY(d->ops->zero(d, dst, bytes));
    return span_end(d, &span);
}

enum status device_convert(struct device *d, enum dtype to, struct devmem dst, enum dtype from,
                           struct devmem src, size_t n)
{
    if (n == 0 || is_skipped(d))
        return OK;
    ASSERT(is_given(dst) && is_given(src));
    ASSERT(dst.addr != src.addr || to == from);
    struct span span;
    TRY(span_begin(d, "convert", &span));
    TRY(d->ops->convert(d, to, dst, from, src, n));
    return span_end(d, &span);
}

/* Device `sim`: computes nothing, and advances the compute lane by what the operation would take on the
 * platform (sim_cost.h). Memory is counted by its lanes, not given. */
#include "kernels/device.h"

#include <stdlib.h>

#include "common/lane_virtual.h"
#include "kernels/sim_cost.h"

extern const struct device_ops device_sim, device_ref;

static const struct platform *platform_of(const struct device *d)
{
    return lane_virtual_platform(d->lanes);
}

static enum status sim_open(const struct device_config *config, struct device **out)
{
    const struct platform *p = config->platform;
    if (p == NULL)
        return FAIL(ERR_USAGE, "device sim needs a platform");
    if (p->gpu.peak_flops[config->dtype] <= 0)
        return FAIL(ERR_UNSUPPORTED, "platform %s has no peak for %s; name another --dtype", p->name,
                    dtype_name(config->dtype));
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return FAIL(ERR_MEMORY, "sim: cannot allocate %zu bytes", sizeof *d);
    enum status status = lane_virtual_open(config->rank, p, &d->lanes);
    if (status == OK)
        *out = d;
    else
        free(d);
    return status;
}

static void sim_close(struct device *d)
{
    lane_virtual_close(d->lanes);
    free(d);
}

/* ---- costs ---- */

/* Emulated code launches a kernel for every framework operation. */
static enum status spend_as(struct device *d, int64_t ps, double host_ops)
{
    if (host_ops > 1)
        ps += platform_ps((host_ops - 1) * platform_of(d)->gpu.launch_s);
    lane_virtual_compute(d->lanes, ps, host_ops > 1 ? host_ops : 1);
    return OK;
}

static enum status spend(struct device *d, int64_t ps)
{
    return spend_as(d, ps, platform_of(d)->emulation.host_ops);
}

/* Reads and writes `tensors` arrays of n elements of the device's dtype. */
static enum status move(struct device *d, double tensors, double n)
{
    return spend(d, sim_cost_bytes(platform_of(d), tensors * n * (double)dtype_bytes(d->dtype)));
}

static enum status sim_linear(struct device *d, const struct linear_call *call)
{
    return spend(d, sim_cost_linear(platform_of(d), d->dtype, call));
}

static enum status sim_attention(struct device *d, const struct attention_call *call)
{
    return spend(d, sim_cost_attention(platform_of(d), d->dtype, call));
}

static double attention_rows(size_t n0, size_t n1, size_t heads, size_t nq)
{
    return (double)n0 * (double)n1 * (double)heads * (double)nq;
}

/* The accumulator in fp32, read and written, with its log-sum-exp; the new part, read. */
static enum status sim_merge(struct device *d, const struct merge_call *call)
{
    double rows = attention_rows(call->n0, call->n1, call->heads, call->nq);
    double n = rows * (double)call->head_dim, f = sizeof(float), e = (double)dtype_bytes(d->dtype);
    double total = platform_of(d)->emulation.merge_total;
    double bytes = total > 0 ? total * n * e : (2 * f + e) * n + 3 * f * rows;
    return spend_as(d, sim_cost_bytes(platform_of(d), bytes), platform_of(d)->emulation.host_merge);
}

static enum status sim_modulate(struct device *d, const struct modulate_call *call)
{
    double n = (double)call->rows * (double)call->width;
    return move(d, 2 + platform_of(d)->emulation.modulate, n);
}

static enum status sim_residual(struct device *d, const struct residual_call *call)
{
    double n = (double)call->rows * (double)call->width;
    double extra = devmem_is_none(call->gate) ? 0 : platform_of(d)->emulation.residual;
    return move(d, 3 + extra, n);
}

static enum status sim_sum(struct device *d, const struct sum_call *call)
{
    return move(d, call->count + 1, (double)call->n);
}

static enum status sim_copy(struct device *d, const struct copy_call *call)
{
    return move(d, 2, (double)call->n0 * (double)call->n1 * (double)call->n2 * (double)call->width);
}

static enum status sim_noise(struct device *d, const struct noise_call *call)
{
    double values = (double)call->rows * (double)(call->patch * call->patch);
    return move(d, 1, values * (double)(call->batch * call->out_channels + call->channels));
}

static enum status sim_guide(struct device *d, const struct guide_call *call)
{
    return move(d, 3, (double)call->n);
}

static enum status sim_ddim(struct device *d, const struct ddim_call *call)
{
    double each = 2 * sizeof(float) + (double)dtype_bytes(d->dtype);
    return spend(d, sim_cost_bytes(platform_of(d), each * (double)call->n));
}

static enum status sim_add_rows(struct device *d, const struct add_rows_call *call)
{
    return move(d, 3, (double)call->rows * (double)call->width);
}

static double code_bytes(const struct code_call *call)
{
    return sizeof(uint32_t) * (double)call->rows *
           (double)device_code_words(call->width, call->bits);
}

static enum status sim_encode(struct device *d, const struct code_call *call)
{
    double each = sizeof(float) + (double)dtype_bytes(call->dtype);
    double n = (double)call->rows * (double)call->width;
    return spend(d, sim_cost_bytes(platform_of(d), each * n + code_bytes(call)));
}

static enum status sim_decode(struct device *d, const struct code_call *call)
{
    double each = 2 * sizeof(float) + (devmem_is_none(call->y) ? 0 : (double)dtype_bytes(d->dtype));
    double n = (double)call->rows * (double)call->width;
    return spend(d, sim_cost_bytes(platform_of(d), each * n + (double)call->parts * code_bytes(call)));
}

static enum status sim_silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    (void)dst;
    (void)src;
    return move(d, 2, (double)n);
}

static enum status sim_zero(struct device *d, struct devmem dst, size_t bytes)
{
    (void)dst;
    return spend(d, sim_cost_bytes(platform_of(d), (double)bytes));
}

static enum status sim_convert(struct device *d, enum dtype to, struct devmem dst, enum dtype from,
                               struct devmem src, size_t n)
{
    (void)dst;
    (void)src;
    double each = (double)(dtype_bytes(to) + dtype_bytes(from));
    return spend(d, sim_cost_bytes(platform_of(d), each * (double)n));
}

/* The reference device's, so that a rank's peaks equal those of a run on `ref` to the byte. */
static size_t sim_workspace_bytes(const struct device *d, const struct attention_call *largest,
                                  const struct linear_call *widest)
{
    return device_ref.workspace_bytes(d, largest, widest);
}

const struct device_ops device_sim = {
    .name = "sim",
    .summary = "no arithmetic: shapes, memory and a cost model of a platform, in virtual time",
    .memory = MEMORY_VIRTUAL,
    .open = sim_open,
    .close = sim_close,
    .linear = sim_linear,
    .attention = sim_attention,
    .merge = sim_merge,
    .modulate = sim_modulate,
    .residual = sim_residual,
    .sum = sim_sum,
    .copy = sim_copy,
    .noise = sim_noise,
    .guide = sim_guide,
    .ddim = sim_ddim,
    .add_rows = sim_add_rows,
    .encode = sim_encode,
    .decode = sim_decode,
    .silu = sim_silu,
    .zero = sim_zero,
    .convert = sim_convert,
    .workspace_bytes = sim_workspace_bytes,
};

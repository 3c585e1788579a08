/* The point on a machine that never refuses. */
#include "bench/sweep_estimate.h"

#include "bench/measure.h"

/* Times do not matter here; no limit of memory, every dtype. */
static void any_machine(struct platform *out)
{
    *out = (struct platform){.name = "any", .protocol = PROTOCOL_ALPHA_BETA, .port_ranks = 1, .nics = 1};
    out->gpu = (struct platform_gpu){.memory_bandwidth = 1e12, .gemm_ceiling = 1, .attention_ceiling = 1,
                                     .gemm_memory_ceiling = 1, .memory_ceiling = 1};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        out->gpu.peak_flops[dtype] = 1e14;
    out->node = out->network = (struct platform_level){.bus = 1e11, .all_to_all = 1e11, .latency_s = 1e-6};
}

static enum status set_options(struct option_set *options)
{
    TRY(option_assign(options, point_opt_device.name, "sim"));
    TRY(option_assign(options, point_opt_transport.name, "virtual"));
    TRY(option_assign(options, point_opt_platform.name, ""));
    TRY(option_assign(options, point_opt_mode.name, "full"));
    TRY(option_assign(options, point_opt_warmup_runs.name, "0"));
    return option_assign(options, point_opt_repeat.name, "1");
}

static enum status measure(const struct point *point, uint64_t *out)
{
    struct measurement m;
    const struct measure_request request = {0};
    enum status status = measure_point(point, &request, &m);
    *out = 0;
    for (int r = 0; status == OK && r < m.nranks; r++)
        if (m.ranks[r].memory.peak_total > *out)
            *out = m.ranks[r].memory.peak_total;
    measure_free(&m);
    return status;
}

enum status sweep_estimate_memory(const struct sweep_point *planned, uint64_t *out)
{
    struct option_set options = {0};
    struct platform platform;
    struct point point;
    any_machine(&platform);
    enum status status = option_set_copy(&options, planned->options);
    if (status == OK)
        status = set_options(&options);
    if (status == OK) {
        const char *sha256 = *planned->model_sha256 ? planned->model_sha256 : NULL;
        status = point_resolve_on(&options, &platform, sha256, &point);
        if (status == OK)
            status = measure(&point, out);
        point_close(&point);
    }
    option_set_free(&options);
    return status;
}

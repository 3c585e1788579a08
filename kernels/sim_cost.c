/* Rooflines. */
#include "kernels/sim_cost.h"

#include <math.h>

enum { ATTENTION_ROWS = 128 }; /* queries of one thread block */

static double most(double a, double b)
{
    return a > b ? a : b;
}

double sim_cost_waves(const struct platform *p, double blocks)
{
    if (p->gpu.sms == 0 || blocks <= 0)
        return 1;
    return blocks / (ceil(blocks / p->gpu.sms) * p->gpu.sms);
}

/* The best of the tile shapes that libraries offer: small ones fill the SMs, large ones run better. */
static double gemm_efficiency(const struct platform *p, size_t m, size_t n)
{
    static const struct {
        double rows, columns, ceiling;
    } tile[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, .95}, {128, 64, .8}, {64, 64, .6}};
    double best = 0;
    for (size_t i = 0; i < sizeof tile / sizeof *tile; i++) {
        double tiles = ceil((double)m / tile[i].rows) * ceil((double)n / tile[i].columns);
        best = most(best, tile[i].ceiling * sim_cost_waves(p, tiles));
    }
    return best;
}

int64_t sim_cost_linear(const struct platform *p, enum dtype dtype, const struct linear_call *c)
{
    const struct platform_gpu *gpu = &p->gpu;
    double m = (double)c->m, n = (double)c->n, k = (double)c->k;
    double flops = 2 * m * n * k;
    double bytes = (m * k + n * k + m * n * (c->accumulate ? 2 : 1)) * (double)dtype_bytes(dtype);
    double rate = gpu->peak_flops[dtype] * gpu->gemm_ceiling * gemm_efficiency(p, c->m, c->n);
    double seconds = most(flops / rate, bytes / (gpu->memory_bandwidth * gpu->gemm_memory_ceiling));
    if (c->activation == ACTIVATION_GELU && p->emulation.gelu > 0)
        seconds += m * n * (double)dtype_bytes(dtype) * p->emulation.gelu /
                   (gpu->memory_bandwidth * gpu->memory_ceiling);
    return platform_ps(seconds + gpu->launch_s);
}

int64_t sim_cost_attention(const struct platform *p, enum dtype dtype, const struct attention_call *c)
{
    const struct platform_gpu *gpu = &p->gpu;
    double groups = (double)c->n0 * (double)c->n1 * (double)c->heads, d = (double)c->head_dim;
    double nq = (double)c->nq, nk = (double)c->nk;
    double blocks = groups * ceil(nq / ATTENTION_ROWS);
    double rate = gpu->peak_flops[dtype] * gpu->attention_ceiling * sim_cost_waves(p, blocks);
    double tensor = groups * nq * d * (double)dtype_bytes(dtype);
    double bytes = 2 * tensor + 2 * groups * nk * d * (double)dtype_bytes(dtype);
    double seconds = most(4 * groups * nq * nk * d / rate,
                          bytes / (gpu->memory_bandwidth * gpu->gemm_memory_ceiling));
    seconds += tensor * p->emulation.attention / (gpu->memory_bandwidth * gpu->memory_ceiling);
    return platform_ps(seconds + gpu->launch_s);
}

int64_t sim_cost_bytes(const struct platform *p, double bytes)
{
    return platform_ps(bytes / (p->gpu.memory_bandwidth * p->gpu.memory_ceiling) + p->gpu.launch_s);
}

/* Attention by cuDNN: 16-bit dtypes, heads of a multiple of 8 elements, rows aligned to 16 bytes. A plan
 * is made once a shape; shapes that cuDNN does not take are left to the tiles. */
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/sdpa_graph.h"

#include <stdlib.h>
#include <string.h>

enum { PACK = 8, ALIGNMENT = 16 }; /* elements; bytes */

struct cached_plan {
    struct cached_plan *next;
    struct sdpa_shape shape;
    struct sdpa_plan plan; /* plan.plan NULL: not supported */
};

struct sdpa_plans {
    cudnnHandle_t handle; /* NULL: cuDNN does not start */
    struct cached_plan *first;
};

/* cuDNN knows one group axis: the other one is a loop. */
struct groups {
    size_t batch, rounds; /* of one call; calls */
    bool loops_over_first;
};

static struct groups groups_of(const struct attention_call *c)
{
    if (c->n0 > c->n1)
        return (struct groups){.batch = c->n0, .rounds = c->n1};
    return (struct groups){.batch = c->n1, .rounds = c->n0, .loops_over_first = true};
}

static struct sdpa_view view_of(const struct attention_view *v, const struct groups *g)
{
    size_t batch = g->loops_over_first ? v->group1 : v->group0;
    return (struct sdpa_view){(int64_t)(g->batch > 1 ? batch : v->row), (int64_t)v->head,
                              (int64_t)v->row};
}

static struct sdpa_shape shape_of(const struct device_cuda *d, const struct attention_call *c,
                                  const struct groups *g)
{
    size_t softmaxes = c->heads * c->nq;
    struct sdpa_shape shape = {.batch = (int64_t)g->batch, .heads = (int64_t)c->heads,
                               .nq = (int64_t)c->nq, .nk = (int64_t)c->nk,
                               .head_dim = (int64_t)c->head_dim};
    shape.q = view_of(&c->q, g);
    shape.k = view_of(&c->k, g);
    shape.v = view_of(&c->v, g);
    shape.o = view_of(&c->o, g);
    shape.is_fp16 = d->base.dtype == DTYPE_FP16;
    shape.has_lse = !devmem_is_none(c->lse);
    shape.lse_batch = (int64_t)(g->loops_over_first ? softmaxes : softmaxes * c->n1);
    return shape;
}

static bool is_packed(const struct attention_view *v)
{
    return v->base.addr % ALIGNMENT == 0 && v->group0 % PACK == 0 && v->group1 % PACK == 0 &&
           v->head % PACK == 0 && v->row % PACK == 0;
}

static bool may_take(const struct device_cuda *d, const struct attention_call *c)
{
    return d->base.dtype != DTYPE_FP32 && c->nk > 0 && c->head_dim % PACK == 0 && is_packed(&c->q) &&
           is_packed(&c->k) && is_packed(&c->v) && is_packed(&c->o);
}

static enum status open_plans(struct device_cuda *d)
{
    if (d->sdpa_plans)
        return OK;
    d->sdpa_plans = calloc(1, sizeof *d->sdpa_plans);
    if (!d->sdpa_plans)
        return FAIL(ERR_MEMORY, "cuda: no memory for attention plans");
    cudnnHandle_t handle = NULL;
    if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS ||
        cudnnSetStream(handle, d->lanes->compute.stream) != CUDNN_STATUS_SUCCESS)
        return OK;
    d->sdpa_plans->handle = handle;
    return OK;
}

static enum status plan_for(struct device_cuda *d, const struct sdpa_shape *shape,
                            const struct cached_plan **out)
{
    struct sdpa_plans *plans = d->sdpa_plans;
    int64_t configs;
    for (struct cached_plan *p = plans->first; p; p = p->next)
        if (memcmp(&p->shape, shape, sizeof *shape) == 0) {
            *out = p;
            return OK;
        }
    struct cached_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return FAIL(ERR_MEMORY, "cuda: no memory for an attention plan");
    plan->shape = *shape;
    (void)sdpa_plan_make(plans->handle, NULL, shape, &configs, &plan->plan); /* no plan: the tiles do it */
    if (plan->plan.plan && (size_t)plan->plan.workspace_bytes > d->base.workspace_bytes)
        sdpa_plan_free(&plan->plan);
    plan->next = plans->first;
    plans->first = plan;
    *out = plan;
    return OK;
}

/* Element g of the axis that is a loop. */
static void *round_at(const struct device_cuda *d, const struct attention_view *v, const struct groups *g,
                      size_t round)
{
    size_t stride = g->loops_over_first ? v->group0 : v->group1;
    return cuda_pointer(devmem_at(v->base, round * stride * dtype_bytes(d->base.dtype)));
}

static enum status run(struct device_cuda *d, const struct attention_call *c, const struct groups *g,
                       const struct cached_plan *plan, size_t round)
{
    size_t softmaxes = c->heads * c->nq * (g->loops_over_first ? c->n1 : 1);
    void *lse = plan->shape.has_lse
                    ? cuda_pointer(devmem_at(c->lse, round * softmaxes * sizeof(float)))
                    : NULL;
    cudnnStatus_t status = sdpa_plan_run(
        d->sdpa_plans->handle, &plan->plan, plan->shape.has_lse, round_at(d, &c->q, g, round),
        round_at(d, &c->k, g, round), round_at(d, &c->v, g, round), round_at(d, &c->o, g, round), lse,
        (float)c->scale, cuda_pointer(d->base.workspace));
    return status == CUDNN_STATUS_SUCCESS
               ? OK
               : FAIL(ERR_DEVICE, "cuDNN attention: %s", cudnnGetErrorString(status));
}

static enum status attend(struct device_cuda *d, const struct attention_call *c, bool *done)
{
    *done = false;
    if (!may_take(d, c))
        return OK;
    const struct groups groups = groups_of(c);
    const struct sdpa_shape shape = shape_of(d, c, &groups);
    const struct cached_plan *plan = NULL;
    TRY(open_plans(d));
    if (!d->sdpa_plans->handle)
        return OK;
    TRY(plan_for(d, &shape, &plan));
    if (!plan->plan.plan)
        return OK;
    for (size_t round = 0; round < groups.rounds; round++)
        TRY(run(d, c, &groups, plan, round));
    *done = true;
    return OK;
}

static void close_plans(struct device_cuda *d)
{
    struct sdpa_plans *plans = d->sdpa_plans;
    if (!plans)
        return;
    for (struct cached_plan *p = plans->first, *next; p; p = next) {
        next = p->next;
        sdpa_plan_free(&p->plan);
        free(p);
    }
    if (plans->handle)
        (void)cudnnDestroy(plans->handle);
    free(plans);
    d->sdpa_plans = NULL;
}

const struct cuda_attention attention_cudnn = {.name = "cudnn", .attend = attend, .close = close_plans};

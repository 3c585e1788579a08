/* Descriptors of cuDNN's backend API; see sdpa_graph.h. */
#include "kernels/cuda/sdpa_graph.h"

enum { DIMS = 4, ALIGNMENT = 16 };

#define CUDNN_PASS(call)                                                                           \
    do {                                                                                           \
        cudnnStatus_t cudnn_pass_ = (call);                                                        \
        if (cudnn_pass_ != CUDNN_STATUS_SUCCESS)                                                   \
            return cudnn_pass_;                                                                    \
    } while (0)

static void destroy(cudnnBackendDescriptor_t *d)
{
    if (*d)
        (void)cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

static cudnnStatus_t set_integers(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t n,
                                  const int64_t *values)
{
    return cudnnBackendSetAttribute(d, name, CUDNN_TYPE_INT64, n, values);
}

static cudnnStatus_t set_descriptor(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                    const cudnnBackendDescriptor_t *value)
{
    return cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, value);
}

/* ---- tensors ---- */

struct tensor {
    enum sdpa_tensor id;
    cudnnDataType_t type;
    int64_t extent[DIMS], stride[DIMS];
    bool is_by_value;
};

static cudnnStatus_t describe_tensor(const struct tensor *t, cudnnBackendDescriptor_t d)
{
    const int64_t id = t->id, alignment = ALIGNMENT;
    CUDNN_PASS(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type));
    CUDNN_PASS(set_integers(d, CUDNN_ATTR_TENSOR_DIMENSIONS, DIMS, t->extent));
    CUDNN_PASS(set_integers(d, CUDNN_ATTR_TENSOR_STRIDES, DIMS, t->stride));
    CUDNN_PASS(set_integers(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id));
    CUDNN_PASS(set_integers(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment));
    if (t->is_by_value)
        CUDNN_PASS(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                                            &t->is_by_value));
    return cudnnBackendFinalize(d);
}

static struct tensor tensor_of(enum sdpa_tensor id, const struct sdpa_shape *s, int64_t rows,
                               const struct sdpa_view *v)
{
    return (struct tensor){.id = id,
                           .type = s->is_fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
                           .extent = {s->batch, s->heads, rows, s->head_dim},
                           .stride = {v->batch, v->head, v->row, 1}};
}

/* Sets attribute `name` of the operation to the tensor, which the operation keeps. */
static cudnnStatus_t add_tensor(cudnnBackendDescriptor_t operation, cudnnBackendAttributeName_t name,
                                struct tensor tensor)
{
    cudnnBackendDescriptor_t d = NULL;
    CUDNN_PASS(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d));
    cudnnStatus_t status = describe_tensor(&tensor, d);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_descriptor(operation, name, &d);
    destroy(&d);
    return status;
}

/* ---- the operation, the graph, the plan ---- */

static cudnnStatus_t describe_operation(const struct sdpa_shape *s, cudnnBackendDescriptor_t op)
{
    struct tensor scale = {.id = SDPA_SCALE, .type = CUDNN_DATA_FLOAT, .extent = {1, 1, 1, 1},
                           .stride = {1, 1, 1, 1}, .is_by_value = true};
    struct tensor lse = {.id = SDPA_LSE, .type = CUDNN_DATA_FLOAT,
                         .extent = {s->batch, s->heads, s->nq, 1},
                         .stride = {s->lse_batch, s->nq, 1, 1}};
    CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, tensor_of(SDPA_Q, s, s->nq, &s->q)));
    CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, tensor_of(SDPA_K, s, s->nk, &s->k)));
    CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, tensor_of(SDPA_V, s, s->nk, &s->v)));
    CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, tensor_of(SDPA_O, s, s->nq, &s->o)));
    if (s->has_lse)
        CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, lse));
    CUDNN_PASS(add_tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale));
    return cudnnBackendFinalize(op);
}

static cudnnStatus_t describe_graph(cudnnHandle_t handle, const struct sdpa_shape *s,
                                    cudnnBackendDescriptor_t op, cudnnBackendDescriptor_t graph)
{
    CUDNN_PASS(describe_operation(s, op));
    if (handle)
        CUDNN_PASS(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                            &handle));
    CUDNN_PASS(set_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &op));
    return cudnnBackendFinalize(graph);
}

/* The best engine's configuration. */
static cudnnStatus_t choose(cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
                            cudnnBackendDescriptor_t heuristic, int64_t *found,
                            cudnnBackendDescriptor_t *config)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    CUDNN_PASS(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &graph));
    CUDNN_PASS(cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                        &mode));
    if (device)
        CUDNN_PASS(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &device));
    CUDNN_PASS(cudnnBackendFinalize(heuristic));
    return cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, found, config);
}

static cudnnStatus_t finish_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                                 const cudnnBackendDescriptor_t *config, struct sdpa_plan *out)
{
    int64_t count = 0;
    if (handle)
        CUDNN_PASS(cudnnBackendSetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                            CUDNN_TYPE_HANDLE, 1, &handle));
    if (device)
        CUDNN_PASS(set_descriptor(out->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &device));
    CUDNN_PASS(set_descriptor(out->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    CUDNN_PASS(cudnnBackendFinalize(out->plan));
    return cudnnBackendGetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                    1, &count, &out->workspace_bytes);
}

/* The descriptors on the way to a plan. */
struct way {
    cudnnBackendDescriptor_t operation, graph, heuristic, config;
};

static cudnnStatus_t make(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                          const struct sdpa_shape *s, struct way *way, int64_t *configs,
                          struct sdpa_plan *out)
{
    const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendDescriptor_t *descriptor;
    } all[] = {{CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, &way->operation},
               {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &way->graph},
               {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &way->heuristic},
               {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &way->config},
               {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &out->plan}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDNN_PASS(cudnnBackendCreateDescriptor(all[i].type, all[i].descriptor));
    CUDNN_PASS(describe_graph(handle, s, way->operation, way->graph));
    CUDNN_PASS(choose(way->graph, device, way->heuristic, configs, &way->config));
    if (*configs == 0)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return finish_plan(handle, device, &way->config, out);
}

cudnnStatus_t sdpa_plan_make(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                             const struct sdpa_shape *shape, int64_t *configs, struct sdpa_plan *out)
{
    struct way way = {NULL, NULL, NULL, NULL};
    struct sdpa_plan plan = {NULL, 0};
    *configs = 0;
    cudnnStatus_t status = make(handle, device, shape, &way, configs, &plan);
    destroy(&way.config);
    destroy(&way.heuristic);
    destroy(&way.graph);
    destroy(&way.operation);
    if (status == CUDNN_STATUS_SUCCESS)
        *out = plan;
    else
        sdpa_plan_free(&plan);
    return status;
}

void sdpa_plan_free(struct sdpa_plan *plan)
{
    destroy(&plan->plan);
}

static cudnnStatus_t fill_pack(cudnnBackendDescriptor_t pack, bool has_lse, void *const *pointers,
                               void *workspace)
{
    static const int64_t with_lse[] = {SDPA_Q, SDPA_K, SDPA_V, SDPA_O, SDPA_SCALE, SDPA_LSE};
    const int64_t count = has_lse ? 6 : 5;
    CUDNN_PASS(set_integers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, count, with_lse));
    CUDNN_PASS(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, count, pointers));
    CUDNN_PASS(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                        &workspace));
    return cudnnBackendFinalize(pack);
}

cudnnStatus_t sdpa_plan_run(cudnnHandle_t handle, const struct sdpa_plan *plan, bool has_lse, void *q,
                            void *k, void *v, void *o, void *lse, float scale, void *workspace)
{
    cudnnBackendDescriptor_t pack = NULL;
    void *const pointers[] = {q, k, v, o, &scale, lse};
    CUDNN_PASS(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    cudnnStatus_t status = fill_pack(pack, has_lse, pointers, workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(handle, plan->plan, pack);
    destroy(&pack);
    return status;
}

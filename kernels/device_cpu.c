/* Device `cpu`: products by oneDNN, exponentials by vectorised loops, the rest as on `ref`.
 *
 * dnnl_sgemm rather than matmul primitives: on DiT shapes they are equally fast (docs/perf-log.md),
 * and it has neither a scratchpad that two threads could share nor a shape to prepare for. It
 * allocates its packing buffers on every call; nothing else here allocates. Without bf16 arithmetic
 * on most machines, bf16 operands are widened to fp32 tile by tile: the products are then exact, as
 * on `ref`. */
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device_cpu_vector.h"
#include "kernels/device_host.h"

/* Tiles of a reduced-precision linear (2 MiB in all) and the queries of an attention tile. */
enum { TILE_ROWS = 256, TILE_COLS = 512, TILE_INNER = 512, TILE_QUERIES = 128 };

struct cpu {
    struct device base;
    int threads;
};

static bool cpu_has_dtype(enum dtype t)
{
    return t != DTYPE_FP16;
}

static enum status cpu_open(const struct device_config *config, struct device **out)
{
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL)
        return FAIL(ERR_MEMORY, "cpu: cannot allocate %zu bytes", sizeof *cpu);
    cpu->threads = config->threads;
    enum status status = lane_host_open(config->rank, &cpu->base.lanes);
    if (status == OK)
        *out = &cpu->base;
    else
        free(cpu);
    return status;
}

static void cpu_close(struct device *d)
{
    lane_host_close(d->lanes);
    free(d);
}

static size_t at_most(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

/* A matrix of fp32, its rows `stride` apart. */
struct matrix {
    float *data;
    size_t stride;
};

/* c[m, n] = alpha * a[m, k] b + beta * c; b is [k, n], or [n, k] where `transposed`. */
static enum status multiply(size_t m, size_t n, size_t k, float alpha, struct matrix a,
                            struct matrix b, bool transposed, float beta, struct matrix c)
{
    dnnl_status_t status = dnnl_sgemm('N', transposed ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n,
                                      (dnnl_dim_t)k, alpha, a.data, (dnnl_dim_t)a.stride, b.data,
                                      (dnnl_dim_t)b.stride, beta, c.data, (dnnl_dim_t)c.stride);
    if (status != dnnl_success)
        return FAIL(status == dnnl_out_of_memory ? ERR_MEMORY : ERR_DEVICE,
                    "cpu: dnnl_sgemm of %zu x %zu x %zu: status %d", m, n, k, (int)status);
    return OK;
}

static struct matrix matrix_at(struct devmem base, size_t first, size_t stride)
{
    return (struct matrix){(float *)lane_host_pointer(base) + first, stride};
}

/* Rows of T, `stride` apart from element `first` on, widened to rows of fp32. */
static void widen(const struct device *d, struct devmem from, size_t first, size_t stride,
                  size_t rows, size_t width, struct matrix to)
{
    for (size_t r = 0; r < rows; r++)
        device_host_read(d->dtype, from, first + r * stride, width, to.data + r * to.stride);
}

static void narrow(const struct device *d, struct matrix from, size_t rows, size_t width,
                   struct devmem to, size_t first, size_t stride)
{
    for (size_t r = 0; r < rows; r++)
        device_host_write(d->dtype, to, first + r * stride, width, from.data + r * from.stride);
}

/* ---- linear ---- */

/* Adds the bias, which starts at column `col`, and applies the activation. */
static void finish_rows(const struct cpu *cpu, const struct linear_call *call, size_t rows,
                        size_t col, size_t cols, struct matrix y)
{
    if (devmem_is_none(call->bias) && call->activation == ACTIVATION_NONE)
        return;
#pragma omp parallel for num_threads(cpu->threads) if (cpu->threads > 1)
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0, n; c < cols; c += n) {
            float bias[DEVICE_HOST_RUN], *run = y.data + r * y.stride + c;
            n = device_host_run(c, cols);
            if (!devmem_is_none(call->bias)) {
                device_host_read(cpu->base.dtype, call->bias, col + c, n, bias);
                device_cpu_vector_add(n, run, bias);
            }
            if (call->activation == ACTIVATION_GELU)
                device_cpu_vector_gelu(n, run);
            else if (call->activation == ACTIVATION_SILU)
                device_cpu_vector_silu(n, run);
        }
}

/* Where fp32 operands of a tile stand in the workspace. */
struct linear_tile {
    size_t row, rows, col, cols;
    struct matrix x, w, y;
};

static struct linear_tile tile_place(const struct device *d)
{
    struct linear_tile tile = {.x = matrix_at(d->workspace, 0, TILE_INNER)};
    tile.w = (struct matrix){tile.x.data + TILE_ROWS * TILE_INNER, TILE_INNER};
    tile.y = (struct matrix){tile.w.data + TILE_COLS * TILE_INNER, TILE_COLS};
    return tile;
}

static enum status linear_tile(struct device *d, const struct linear_call *call, bool accumulate,
                               const struct linear_tile *tile)
{
    size_t y_first = tile->row * call->ldy + tile->col;
    if (accumulate)
        widen(d, call->y, y_first, call->ldy, tile->rows, tile->cols, tile->y);
    for (size_t k = 0; k < call->k; k += TILE_INNER) {
        size_t inner = at_most(call->k - k, TILE_INNER);
        widen(d, call->x, tile->row * call->ldx + k, call->ldx, tile->rows, inner, tile->x);
        widen(d, call->w, tile->col * call->ldw + k, call->ldw, tile->cols, inner, tile->w);
        TRY(multiply(tile->rows, tile->cols, inner, 1, tile->x, tile->w, true,
                     k > 0 || accumulate ? 1 : 0, tile->y));
    }
    finish_rows((struct cpu *)d, call, tile->rows, tile->col, tile->cols, tile->y);
    narrow(d, tile->y, tile->rows, tile->cols, call->y, y_first, call->ldy);
    return OK;
}

static enum status linear_reduced(struct device *d, const struct linear_call *call, bool accumulate)
{
    struct linear_tile tile = tile_place(d);
    for (tile.col = 0; tile.col < call->n; tile.col += TILE_COLS)
        for (tile.row = 0; tile.row < call->m; tile.row += TILE_ROWS) {
            tile.cols = at_most(call->n - tile.col, TILE_COLS);
            tile.rows = at_most(call->m - tile.row, TILE_ROWS);
            TRY(linear_tile(d, call, accumulate, &tile));
        }
    return OK;
}

/* An empty inner dimension: what is accumulated on is zero, and oneDNN has nothing to do. */
static void zero_rows(const struct device *d, const struct linear_call *call)
{
    size_t size = dtype_bytes(d->dtype);
    for (size_t r = 0; r < call->m; r++)
        memset(lane_host_pointer(devmem_at(call->y, r * call->ldy * size)), 0, call->n * size);
}

static enum status cpu_linear(struct device *d, const struct linear_call *call)
{
    struct cpu *cpu = (struct cpu *)d;
    omp_set_num_threads(cpu->threads); /* counts for the calling thread only */
    bool accumulate = call->accumulate || call->k == 0;
    if (call->k == 0 && !call->accumulate)
        zero_rows(d, call);
    if (d->dtype != DTYPE_FP32)
        return linear_reduced(d, call, accumulate);
    struct matrix y = matrix_at(call->y, 0, call->ldy);
    if (call->k > 0)
        TRY(multiply(call->m, call->n, call->k, 1, matrix_at(call->x, 0, call->ldx),
                     matrix_at(call->w, 0, call->ldw), true, accumulate ? 1 : 0, y));
    finish_rows(cpu, call, call->m, 0, call->n, y);
    return OK;
}

/* ---- attention ---- */

/* One thread's share of the workspace, and the operands of the head it works on. */
struct head {
    struct matrix scores;           /* [TILE_QUERIES, nk] */
    struct matrix queries, results; /* reduced precision only: [TILE_QUERIES, head_dim] */
    struct matrix keys, values;     /* [nk, head_dim] */
};

static size_t head_floats(enum dtype t, const struct attention_call *call)
{
    size_t scores = TILE_QUERIES * call->nk;
    return t == DTYPE_FP32 ? scores : scores + 2 * (TILE_QUERIES + call->nk) * call->head_dim;
}

static struct head head_open(const struct device *d, const struct attention_call *call, size_t g0,
                             size_t g1, size_t h)
{
    struct head head = {
        .scores = matrix_at(d->workspace,
                            (size_t)omp_get_thread_num() * head_floats(d->dtype, call), call->nk)};
    size_t k_first = device_host_head(&call->k, g0, g1, h);
    size_t v_first = device_host_head(&call->v, g0, g1, h);
    if (d->dtype == DTYPE_FP32) {
        head.keys = matrix_at(call->k.base, k_first, call->k.row);
        head.values = matrix_at(call->v.base, v_first, call->v.row);
        return head;
    }
    size_t width = call->head_dim;
    head.queries = (struct matrix){head.scores.data + TILE_QUERIES * call->nk, width};
    head.results = (struct matrix){head.queries.data + TILE_QUERIES * width, width};
    head.keys = (struct matrix){head.results.data + TILE_QUERIES * width, width};
    head.values = (struct matrix){head.keys.data + call->nk * width, width};
    widen(d, call->k.base, k_first, call->k.row, call->nk, width, head.keys);
    widen(d, call->v.base, v_first, call->v.row, call->nk, width, head.values);
    return head;
}

/* results = softmax(queries keys^T * scale) values for `rows` queries. The results are divided by
 * the sum of exponentials at the end, which takes head_dim products a row rather than nk. lse: or
 * NULL. */
static enum status attend(const struct attention_call *call, size_t rows, const struct head *head,
                          float *lse)
{
    float sums[TILE_QUERIES];
    TRY(multiply(rows, call->nk, call->head_dim, (float)call->scale, head->queries, head->keys,
                 true, 0, head->scores));
    for (size_t r = 0; r < rows; r++) {
        float *scores = head->scores.data + r * head->scores.stride;
        float largest = device_cpu_vector_max(call->nk, scores);
        sums[r] = device_cpu_vector_exp(call->nk, scores, largest);
        if (lse != NULL)
            lse[r] = (float)(largest + log(sums[r]));
    }
    TRY(multiply(rows, call->head_dim, call->nk, 1, head->scores, head->values, false, 0,
                 head->results));
    for (size_t r = 0; r < rows; r++) {
        float *result = head->results.data + r * head->results.stride;
        for (size_t c = 0; c < call->head_dim; c++)
            result[c] /= sums[r];
    }
    return OK;
}

/* One group and head, numbered `index`. */
static enum status attention_head(struct device *d, const struct attention_call *call, size_t index)
{
    size_t h = index % call->heads, g1 = index / call->heads % call->n1;
    size_t g0 = index / call->heads / call->n1;
    struct head head = head_open(d, call, g0, g1, h);
    for (size_t i = 0; i < call->nq; i += TILE_QUERIES) {
        size_t rows = at_most(call->nq - i, TILE_QUERIES);
        size_t q = device_host_head(&call->q, g0, g1, h) + i * call->q.row;
        size_t o = device_host_head(&call->o, g0, g1, h) + i * call->o.row;
        float *lse = lane_host_pointer(call->lse);
        if (d->dtype == DTYPE_FP32) {
            head.queries = matrix_at(call->q.base, q, call->q.row);
            head.results = matrix_at(call->o.base, o, call->o.row);
        } else {
            widen(d, call->q.base, q, call->q.row, rows, call->head_dim, head.queries);
        }
        TRY(attend(call, rows, &head, lse == NULL ? NULL : lse + index * call->nq + i));
        if (d->dtype != DTYPE_FP32)
            narrow(d, head.results, rows, call->head_dim, call->o.base, o, call->o.row);
    }
    return OK;
}

/* What no key at all gives: o = 0, lse = -infinity. */
static void attention_empty(struct device *d, const struct attention_call *call, size_t index)
{
    size_t h = index % call->heads, g1 = index / call->heads % call->n1;
    size_t o = device_host_head(&call->o, index / call->heads / call->n1, g1, h);
    size_t size = dtype_bytes(d->dtype);
    float *lse = lane_host_pointer(call->lse);
    for (size_t i = 0; i < call->nq; i++) {
        memset(lane_host_pointer(devmem_at(call->o.base, (o + i * call->o.row) * size)), 0,
               call->head_dim * size);
        if (lse != NULL)
            lse[index * call->nq + i] = -INFINITY;
    }
}

/* Heads are shared out among the rank's threads; inside, each product runs on one. */
static enum status cpu_attention(struct device *d, const struct attention_call *call)
{
    struct cpu *cpu = (struct cpu *)d;
    size_t count = call->n0 * call->n1 * call->heads;
    int worst = OK;
    omp_set_num_threads(cpu->threads);
#pragma omp parallel for num_threads(cpu->threads) if (cpu->threads > 1) reduction(max : worst)
    for (size_t index = 0; index < count; index++) {
        enum status status = OK;
        if (call->nk == 0)
            attention_empty(d, call, index);
        else
            status = attention_head(d, call, index);
        worst = (int)status > worst ? (int)status : worst;
    }
    if (worst != OK) /* a helper thread has recorded the cause where nobody looks */
        return FAIL((enum status)worst, "cpu: attention of %zu heads failed on a thread", count);
    return OK;
}

/* ---- the rest ---- */

static enum status cpu_silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    float values[DEVICE_HOST_RUN];
    for (size_t i = 0, run; i < n; i += run) {
        run = device_host_run(i, n);
        device_host_read(d->dtype, src, i, run, values);
        device_cpu_vector_silu(run, values);
        device_host_write(d->dtype, dst, i, run, values);
    }
    return OK;
}

static size_t cpu_workspace_bytes(const struct device *d, const struct attention_call *largest,
                                  const struct linear_call *widest)
{
    size_t threads = (size_t)((const struct cpu *)d)->threads, attention = 0, linear = 0;
    if (largest != NULL)
        attention = threads * head_floats(d->dtype, largest);
    if (widest != NULL && d->dtype != DTYPE_FP32)
        linear = TILE_ROWS * TILE_INNER + TILE_COLS * TILE_INNER + TILE_ROWS * TILE_COLS;
    return (attention > linear ? attention : linear) * sizeof(float);
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .summary = "oneDNN's products and vectorised loops",
    .memory = MEMORY_HOST,
    .has_dtype = cpu_has_dtype,
    .open = cpu_open,
    .close = cpu_close,
    .linear = cpu_linear,
    .attention = cpu_attention,
    .merge = device_host_merge,
    .modulate = device_host_modulate,
    .residual = device_host_residual,
    .sum = device_host_sum,
    .copy = device_host_copy,
    .noise = device_host_noise,
    .guide = device_host_guide,
    .ddim = device_host_ddim,
    .add_rows = device_host_add_rows,
    .encode = device_host_encode,
    .decode = device_host_decode,
    .silu = cpu_silu,
    .zero = device_host_zero,
    .convert = device_host_convert,
    .workspace_bytes = cpu_workspace_bytes,
};

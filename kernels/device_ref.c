/* Device `ref`: naive loops in host memory, the definition of right. Products accumulate in fp32 in
 * the order of the inner index, whatever the number of rows or columns of the call, so a row's bits
 * depend on the row alone. The loops are arranged so that a compiler vectorises over columns or
 * keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device_host.h"

/* A tile of the product: accumulators and a slice of each operand stay in the nearest caches. */
enum { TILE_ROWS = 32, TILE_COLS = 32, TILE_INNER = 128 };

static enum status ref_open(const struct device_config *config, struct device **out)
{
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return FAIL(ERR_MEMORY, "ref: cannot allocate %zu bytes", sizeof *d);
    enum status status = lane_host_open(config->rank, &d->lanes);
    if (status == OK)
        *out = d;
    else
        free(d);
    return status;
}

static void ref_close(struct device *d)
{
    lane_host_close(d->lanes);
    free(d);
}

/* ---- linear ---- */

struct tile {
    size_t row, rows, col, cols;
    float sum[TILE_ROWS][TILE_COLS];
};

static size_t at_most(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

/* sum[c] += sum over k of x[k] * w[k][c], one term after the other. */
static void add_products(size_t inner, const float *restrict x,
                         const float (*restrict w)[TILE_COLS], float *restrict sum)
{
    for (size_t k = 0; k < inner; k++)
        for (size_t c = 0; c < TILE_COLS; c++)
            sum[c] += x[k] * w[k][c];
}

/* Adds the products of inner elements first .. first+inner-1. */
static void tile_add(const struct device *d, const struct linear_call *call, struct tile *tile,
                     size_t first, size_t inner)
{
    float w[TILE_INNER][TILE_COLS] = {{0}}, line[TILE_INNER];
    for (size_t c = 0; c < tile->cols; c++) {
        device_host_read(d->dtype, call->w, (tile->col + c) * call->ldw + first, inner, line);
        for (size_t k = 0; k < inner; k++)
            w[k][c] = line[k];
    }
    for (size_t r = 0; r < tile->rows; r++) {
        device_host_read(d->dtype, call->x, (tile->row + r) * call->ldx + first, inner, line);
        add_products(inner, line, (const float(*)[TILE_COLS])w, tile->sum[r]);
    }
}

static float activate(enum activation activation, float x)
{
    switch (activation) {
    case ACTIVATION_GELU:
        return (float)(0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x))));
    case ACTIVATION_SILU:
        return (float)(x / (1 + exp(-(double)x)));
    default:
        return x;
    }
}

static void tile_store(const struct device *d, const struct linear_call *call, struct tile *tile)
{
    float bias[TILE_COLS] = {0}, y[TILE_COLS] = {0};
    if (!devmem_is_none(call->bias))
        device_host_read(d->dtype, call->bias, tile->col, tile->cols, bias);
    for (size_t r = 0; r < tile->rows; r++) {
        size_t first = (tile->row + r) * call->ldy + tile->col;
        if (call->accumulate)
            device_host_read(d->dtype, call->y, first, tile->cols, y);
        for (size_t c = 0; c < tile->cols; c++)
            y[c] = activate(call->activation, tile->sum[r][c] + y[c] + bias[c]);
        device_host_write(d->dtype, call->y, first, tile->cols, y);
        memset(y, 0, sizeof y);
    }
}

static enum status ref_linear(struct device *d, const struct linear_call *call)
{
    for (size_t col = 0; col < call->n; col += TILE_COLS)
        for (size_t row = 0; row < call->m; row += TILE_ROWS) {
            struct tile tile = {.row = row,
                                .rows = at_most(call->m - row, TILE_ROWS),
                                .col = col,
                                .cols = at_most(call->n - col, TILE_COLS)};
            for (size_t k = 0; k < call->k; k += TILE_INNER)
                tile_add(d, call, &tile, k, at_most(call->k - k, TILE_INNER));
            tile_store(d, call, &tile);
        }
    return OK;
}

/* ---- attention ---- */

/* One head in fp32, in the workspace. */
struct head {
    size_t nk, head_dim;
    float *keys;   /* [head_dim, nk]: transposed */
    float *values; /* [nk, head_dim] */
    float *scores; /* [nk] */
    float *row;    /* [head_dim]: a query, then its result */
};

static size_t head_floats(const struct attention_call *call)
{
    return 2 * call->nk * call->head_dim + call->nk + call->head_dim;
}

static struct head head_place(const struct device *d, const struct attention_call *call)
{
    struct head head = {.nk = call->nk, .head_dim = call->head_dim};
    head.keys = lane_host_pointer(d->workspace);
    head.values = head.keys + call->nk * call->head_dim;
    head.scores = head.values + call->nk * call->head_dim;
    head.row = head.scores + call->nk;
    return head;
}

static void head_load(const struct device *d, const struct attention_call *call, size_t k_first,
                      size_t v_first, struct head *head)
{
    for (size_t j = 0; j < head->nk; j++) {
        device_host_read(d->dtype, call->k.base, k_first + j * call->k.row, head->head_dim,
                         head->row);
        for (size_t c = 0; c < head->head_dim; c++)
            head->keys[c * head->nk + j] = head->row[c];
        device_host_read(d->dtype, call->v.base, v_first + j * call->v.row, head->head_dim,
                         head->values + j * head->head_dim);
    }
}

/* to[i] += factor * from[i] */
static void add_scaled(size_t n, float factor, const float *restrict from, float *restrict to)
{
    for (size_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

/* Scores become exp(score - largest); their sum and the largest give the log-sum-exp. */
static double head_exponentials(struct head *head, float scale, float *largest)
{
    double sum = 0;
    *largest = -INFINITY;
    for (size_t j = 0; j < head->nk; j++) {
        head->scores[j] *= scale;
        *largest = fmaxf(*largest, head->scores[j]);
    }
    for (size_t j = 0; j < head->nk; j++) {
        head->scores[j] = expf(head->scores[j] - *largest);
        sum += head->scores[j];
    }
    return sum;
}

/* Replaces the query in head->row by its result; returns its log-sum-exp. */
static float head_attend(struct head *head, double scale)
{
    memset(head->scores, 0, head->nk * sizeof *head->scores);
    for (size_t c = 0; c < head->head_dim; c++)
        add_scaled(head->nk, head->row[c], head->keys + c * head->nk, head->scores);
    float largest;
    double sum = head_exponentials(head, (float)scale, &largest);
    memset(head->row, 0, head->head_dim * sizeof *head->row);
    if (head->nk == 0)
        return -INFINITY;
    for (size_t j = 0; j < head->nk; j++)
        add_scaled(head->head_dim, head->scores[j], head->values + j * head->head_dim, head->row);
    for (size_t c = 0; c < head->head_dim; c++)
        head->row[c] = (float)(head->row[c] / sum);
    return (float)(largest + log(sum));
}

/* One group and head; `index` counts them. */
static void attend(struct device *d, const struct attention_call *call, size_t g0, size_t g1,
                   size_t h, size_t index)
{
    struct head head = head_place(d, call);
    head_load(d, call, device_host_head(&call->k, g0, g1, h), device_host_head(&call->v, g0, g1, h),
              &head);
    for (size_t i = 0; i < call->nq; i++) {
        size_t q = device_host_head(&call->q, g0, g1, h) + i * call->q.row;
        size_t o = device_host_head(&call->o, g0, g1, h) + i * call->o.row;
        device_host_read(d->dtype, call->q.base, q, call->head_dim, head.row);
        float lse = head_attend(&head, call->scale);
        device_host_write(d->dtype, call->o.base, o, call->head_dim, head.row);
        if (!devmem_is_none(call->lse))
            ((float *)lane_host_pointer(call->lse))[index * call->nq + i] = lse;
    }
}

static enum status ref_attention(struct device *d, const struct attention_call *call)
{
    size_t index = 0;
    for (size_t g0 = 0; g0 < call->n0; g0++)
        for (size_t g1 = 0; g1 < call->n1; g1++)
            for (size_t h = 0; h < call->heads; h++, index++)
                attend(d, call, g0, g1, h, index);
    return OK;
}

static size_t ref_workspace_bytes(const struct device *d, const struct attention_call *largest,
                                  const struct linear_call *widest)
{
    (void)d;
    (void)widest;
    return largest == NULL ? 0 : head_floats(largest) * sizeof(float);
}

/* ---- the rest ---- */

static enum status ref_silu(struct device *d, struct devmem dst, struct devmem src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = dtype_load(d->dtype, lane_host_pointer(src), i);
        dtype_store(d->dtype, lane_host_pointer(dst), i, activate(ACTIVATION_SILU, x));
    }
    return OK;
}

const struct device_ops device_ref = {
    .name = "ref",
    .summary = "naive loops, the definition of right",
    .memory = MEMORY_HOST,
    .open = ref_open,
    .close = ref_close,
    .linear = ref_linear,
    .attention = ref_attention,
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
    .silu = ref_silu,
    .zero = device_host_zero,
    .convert = device_host_convert,
    .workspace_bytes = ref_workspace_bytes,
};

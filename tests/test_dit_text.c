/* The block of PixArt-alpha (cross-attention, adaLN-single) against loops in double precision: one whole
 * step of the sampler from the model's own weights, and every way of sharing it between ranks. */
#include "tests/run_point.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_POINT "model=bench-text resolution=8 class=3 cfg-scale=2.5 "

enum { D = 128, HEADS = 8, HEAD = D / HEADS, F = 4 * D, TEXT = 12, CHANNELS = 4, PATCH = 4, NULL_CLASS = 10 };
enum { GRID = 4, TOKENS = GRID * GRID, VALUES = CHANNELS * PATCH };

static const struct model *model;

/* ---- weights as doubles ---- */

static double *tensor(const char *name, size_t row0, size_t rows, size_t cols)
{
    float *values = malloc(rows * cols * sizeof *values);
    double *out = malloc(rows * cols * sizeof *out);
    assert_non_null(values);
    assert_non_null(out);
    if (model_read(model, name, row0, rows, 0, cols, DTYPE_FP32, values) != OK)
        fail_msg("%s", status_first()->text);
    for (size_t i = 0; i < rows * cols; i++)
        out[i] = values[i];
    free(values);
    return out;
}

/* y[m, n] = x[m, k] W^T + b of the named layer. */
static void linear(const char *name, size_t m, size_t k, size_t n, const double *x, double *y)
{
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    double *w = tensor(full, 0, n, k);
    snprintf(full, sizeof full, "%s.bias", name);
    double *b = tensor(full, 0, n, 1);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = b[j];
            for (size_t c = 0; c < k; c++)
                sum += x[i * k + c] * w[j * k + c];
            y[i * n + j] = sum;
        }
    free(w);
    free(b);
}

static void block_linear(int block, const char *layer, size_t m, size_t k, size_t n, const double *x,
                         double *y)
{
    char name[96];
    snprintf(name, sizeof name, "blocks.%d.%s", block, layer);
    linear(name, m, k, n, x, y);
}

/* ---- pieces ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void modulate(const double *x, const double *shift, const double *scale, double *y)
{
    for (size_t t = 0; t < TOKENS; t++) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < D; i++)
            mean += x[t * D + i] / D;
        for (size_t i = 0; i < D; i++)
            variance += (x[t * D + i] - mean) * (x[t * D + i] - mean) / D;
        for (size_t i = 0; i < D; i++)
            y[t * D + i] = (x[t * D + i] - mean) / sqrt(variance + 1e-6) * (1 + scale[i]) + shift[i];
    }
}

/* q rows are q_width apart, k and v rows kv_width. */
static void attend(size_t nk, const double *q, size_t q_width, const double *k, const double *v,
                   size_t kv_width, double *out)
{
    for (size_t h = 0; h < HEADS; h++)
        for (size_t i = 0; i < TOKENS; i++) {
            double weight[TOKENS + TEXT], sum = 0;
            for (size_t j = 0; j < nk; j++) {
                double dot = 0;
                for (size_t c = 0; c < HEAD; c++)
                    dot += q[i * q_width + h * HEAD + c] * k[j * kv_width + h * HEAD + c];
                sum += weight[j] = exp(dot / sqrt(HEAD));
            }
            for (size_t c = 0; c < HEAD; c++) {
                double value = 0;
                for (size_t j = 0; j < nk; j++)
                    value += weight[j] / sum * v[j * kv_width + h * HEAD + c];
                out[i * D + h * HEAD + c] = value;
            }
        }
}

static void add_gated(double *x, const double *gate, const double *y)
{
    for (size_t i = 0; i < (size_t)TOKENS * D; i++)
        x[i] += (gate ? gate[i % D] : 1) * y[i];
}

/* ---- the network ---- */

static void run_block(int block, const double *single, const double *text, double *x)
{
    static double m[TOKENS * D], qkv[TOKENS * 3 * D], o[TOKENS * D], y[TOKENS * D], mid[TOKENS * F];
    static double kv[TEXT * 2 * D];
    double mod[6 * D];
    char name[96];
    snprintf(name, sizeof name, "blocks.%d.scale_shift_table.weight", block);
    double *table = tensor(name, 0, 6, D);
    for (size_t i = 0; i < 6 * D; i++)
        mod[i] = table[i] + single[i];
    free(table);
    modulate(x, mod, mod + D, m);
    block_linear(block, "attn.qkv", TOKENS, D, 3 * D, m, qkv);
    attend(TOKENS, qkv, 3 * D, qkv + D, qkv + 2 * D, 3 * D, o);
    block_linear(block, "attn.proj", TOKENS, D, D, o, y);
    add_gated(x, mod + 2 * D, y);
    block_linear(block, "cross_attn.q_linear", TOKENS, D, D, x, m);
    block_linear(block, "cross_attn.kv_linear", TEXT, D, 2 * D, text, kv);
    attend(TEXT, m, D, kv, kv + D, 2 * D, o);
    block_linear(block, "cross_attn.proj", TOKENS, D, D, o, y);
    add_gated(x, NULL, y);
    modulate(x, mod + 3 * D, mod + 4 * D, m);
    block_linear(block, "mlp.fc1", TOKENS, D, F, m, mid);
    for (size_t i = 0; i < (size_t)TOKENS * F; i++)
        mid[i] = gelu(mid[i]);
    block_linear(block, "mlp.fc2", TOKENS, F, D, mid, y);
    add_gated(x, mod + 5 * D, y);
}

static void embed_time(double t, double *out)
{
    double waves[256], hidden[D];
    for (size_t j = 0; j < 128; j++) {
        double angle = t * exp(-log(10000.0) * (double)j / 128);
        waves[j] = cos(angle);
        waves[128 + j] = sin(angle);
    }
    linear("t_embedder.mlp.0", 1, 256, D, waves, hidden);
    for (size_t i = 0; i < D; i++)
        hidden[i] = silu(hidden[i]);
    linear("t_embedder.mlp.2", 1, D, D, hidden, out);
}

static void embed_tokens(const double *latent, double *x)
{
    linear("x_embedder.proj", TOKENS, VALUES, D, latent, x);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t j = 0; j < D / 4; j++) {
            double rate = pow(10000, -(double)j / (D / 4));
            double column = (double)(t % GRID) * rate, row = (double)(t / GRID) * rate;
            x[t * D + j] += sin(column);
            x[t * D + D / 4 + j] += cos(column);
            x[t * D + D / 2 + j] += sin(row);
            x[t * D + 3 * D / 4 + j] += cos(row);
        }
}

/* noise: [tokens, channel, pixel of the patch], as the latent. */
static void predict(const double *latent, double t, size_t text_class, double *noise)
{
    static double x[TOKENS * D], m[TOKENS * D], network[TOKENS * VALUES];
    double time[D], active[D], single[6 * D], shift[D], scale[D];
    double *text = tensor("y_embedder.y_embedding.weight", text_class * TEXT, TEXT, D);
    double *final_table = tensor("final_layer.scale_shift_table.weight", 0, 2, D);
    embed_time(t, time);
    for (size_t i = 0; i < D; i++)
        active[i] = silu(time[i]);
    linear("t_block.1", 1, D, 6 * D, active, single);
    embed_tokens(latent, x);
    for (int block = 0; block < 12; block++)
        run_block(block, single, text, x);
    for (size_t i = 0; i < D; i++) {
        shift[i] = final_table[i] + time[i];
        scale[i] = final_table[D + i] + time[i];
    }
    modulate(x, shift, scale, m);
    linear("final_layer.linear", TOKENS, D, VALUES, m, network);
    for (size_t i = 0; i < (size_t)TOKENS * VALUES; i++) {
        size_t channel = i % VALUES / PATCH, pixel = i % PATCH;
        noise[i] = network[i / VALUES * VALUES + pixel * CHANNELS + channel];
    }
    free(text);
    free(final_table);
}

/* One step of one: x0 from x_T, under guidance; in the order of tokens. */
static void sample(const double *latent, double *x0)
{
    static double with[TOKENS * VALUES], without[TOKENS * VALUES];
    double t = model_timestep(0, 1), a = model_alpha((int)t);
    predict(latent, t, 3, with);
    predict(latent, t, NULL_CLASS, without);
    for (size_t i = 0; i < (size_t)TOKENS * VALUES; i++) {
        double noise = without[i] + 2.5 * (with[i] - without[i]);
        x0[i] = (latent[i] - sqrt(1 - a) * noise) / sqrt(a);
    }
}

/* Element i of the order of tokens, in an image [channel, y, x]. */
static size_t image_index(size_t i)
{
    size_t token = i / VALUES, channel = i % VALUES / PATCH, pixel = i % PATCH;
    size_t y = token / GRID * 2 + pixel / 2, x = token % GRID * 2 + pixel % 2;
    return (channel * 2 * GRID + y) * 2 * GRID + x;
}

static void check_against_double(const char *device)
{
    static double latent[TOKENS * VALUES], x0[TOKENS * VALUES];
    struct run_point run;
    run_point_well(&run, TEXT_POINT "steps=1 device=%s", device);
    model = run.point.model;
    for (size_t i = 0; i < (size_t)TOKENS * VALUES; i++)
        latent[i] = run.point.problem.noise[i];
    sample(latent, x0);
    double off = 0, norm = 0;
    for (size_t i = 0; i < (size_t)TOKENS * VALUES; i++) {
        double difference = run.measured.x0[image_index(i)] - x0[i];
        off += difference * difference;
        norm += x0[i] * x0[i];
    }
    if (!(sqrt(off / norm) <= 5e-6))
        fail_msg("%s: relative L2 %g of the double result", device, sqrt(off / norm));
    run_point_free(&run);
}

static void equals_double(void **state)
{
    (void)state;
    check_against_double("ref");
    check_against_double(device_list()[0]->name);
}

/* Exact strategies give one rank's result, with cross-attention whole or sharded. */
static void ranks_share_it(void **state)
{
    (void)state;
    static const char *const ways[] = {"strategy=tp gpus=2",
                                       "strategy=tp gpus=3 cross-attention=sharded",
                                       "strategy=tp gpus=4 cross-attention=sharded",
                                       "strategy=tp-sp gpus=3",
                                       "strategy=ulysses gpus=2",
                                       "strategy=ring gpus=3",
                                       "strategy=usp gpus=4",
                                       "strategy=tsp gpus=3",
                                       "strategy=pipefusion gpus=3 warmup-steps=2",
                                       "strategy=distrifusion gpus=2 warmup-steps=2",
                                       "strategy=tp gpus=4 cfg-degree=2"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char line[256];
        snprintf(line, sizeof line, TEXT_POINT "steps=2 device=ref %s", ways[i]);
        run_point_expect_equal(line, TEXT_POINT "steps=2 device=ref strategy=serial", 5e-6);
    }
}

/* Two all-reduces a block, or three when cross-attention is sharded. */
static void sharding_costs_a_third(void **state)
{
    (void)state;
    uint64_t sent[2];
    for (int sharded = 0; sharded < 2; sharded++) {
        struct run_point run;
        run_point_well(&run, TEXT_POINT "steps=1 device=ref strategy=tp gpus=2 cross-attention=%s",
                       sharded ? "sharded" : "replicated");
        sent[sharded] = run_point_sent(&run, 0, COMM_ALL_REDUCE, TRAFFIC_HIDDEN);
        run_point_free(&run);
    }
    assert_int_equal(sent[1] * 2, sent[0] * 3);
    assert_int_equal(sent[0], 12 * 2 * 2 * TOKENS * D * sizeof(float)); /* blocks, halves, batch */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_double),
        cmocka_unit_test(ranks_share_it),
        cmocka_unit_test(sharding_costs_a_third),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

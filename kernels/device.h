/* Arithmetic of one rank. Knows nothing of ranks, models or strategies.
 *
 * Callers use the checked wrappers device_*; back ends fill struct device_ops. Work is put on the rank's
 * compute lane and is ordered there; only device_open, device_close and lane_* transfers block.
 *
 * Arrays are row major in device memory. "T" below is the device's dtype (weights, activations,
 * messages); "f" is fp32. Accumulation, softmax, statistics, the latent and the sampler are fp32 in
 * every dtype; a result is rounded once, when it is stored. `ref` is the definition of right: naive
 * loops whose result for a row does not depend on how many rows a call has.
 *
 * Sizes may be zero: then nothing is done. Inputs and outputs must not overlap except where said. */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include "common/arena.h"
#include "common/dtype.h"
#include "common/lane.h"
#include "common/meter.h"
#include "common/platform.h"
#include "common/team.h"
#include <stdbool.h>

enum activation { ACTIVATION_NONE, ACTIVATION_GELU, ACTIVATION_SILU };

/* y[m, n] = act(x[m, k] w[n, k]^T + bias[n])              (accumulate: ... + y)
 * GELU is the tanh form; act and bias come after the accumulation.
 * k = 0 is an empty sum. x: T, rows ldx apart; w: T, rows ldw apart; bias: T or NONE; y: T, rows ldy
 * apart. */
struct linear_call {
    size_t m, n, k, ldx, ldw, ldy; /* elements */
    struct devmem x, w, bias, y;
    enum activation activation;
    bool accumulate;
};

/* Where element (group0, group1, head, row, column) of q, k, v or o stands: at
 * base + g0*group0 + g1*group1 + head*head + row*row_stride + column, all in elements. */
struct attention_view {
    struct devmem base;
    size_t group0, group1, head, row;
};

/* For every group and head: o = softmax(q k^T * scale) v, no mask.
 * q, o: [n0, n1, heads, nq, head_dim] T   k, v: [n0, n1, heads, nk, head_dim] T, through their views.
 * lse: NONE, or f [n0, n1, heads, nq] contiguous: log sum_j exp(s_ij * scale), natural log, needed to
 * merge partial results (arXiv:2310.01889). nk = 0: o = 0 and lse = -infinity. */
struct attention_call {
    size_t n0, n1, heads, nq, nk, head_dim;
    double scale;
    struct attention_view q, k, v, o;
    struct devmem lse;
};

/* Merges a partial attention result into an accumulator, both of [n0, n1, heads, nq] softmaxes:
 *   l = log(exp(l_acc) + exp(l_new)),  o_acc = o_acc exp(l_acc - l) + o_new exp(l_new - l),  l_acc = l
 * without overflow; -infinity means "empty": that side's o is not used, whatever it holds. o_acc: f,
 * contiguous [n0, n1, heads, nq, head_dim]; lse_acc: f [n0, n1, heads, nq]; o_new: T through its view;
 * lse_new: f, contiguous. Both sides empty: o_acc = 0. */
struct merge_call {
    size_t n0, n1, heads, nq, head_dim;
    struct devmem o_acc, lse_acc, lse_new;
    struct attention_view o_new;
};

/* y[r] = LN(x[r]) * (1 + scale[r % batch]) + shift[r % batch]; LN without affine, biased variance.
 * x, y: T [rows, width] contiguous (y == x allowed); shift, scale: T, batch vectors `mod_stride` apart. */
struct modulate_call {
    size_t rows, width, batch, mod_stride;
    double eps;
    struct devmem x, y, shift, scale;
};

/* x[r] += gate[r % batch] * (y[r] + bias). x, y: T [rows, width]; gate: T, batch vectors mod_stride
 * apart, NONE: 1; bias: T [width] or NONE. */
struct residual_call {
    size_t rows, width, batch, mod_stride;
    struct devmem x, y, bias, gate;
};

/* dst = sum_i coefficient_i * src_i, in the order given, elementwise over n; all T. dst may be one of
 * the sources. count <= DEVICE_MAX_TERMS. */
enum { DEVICE_MAX_TERMS = 6 };
struct sum_call {
    size_t n;
    int count;
    double coefficient[DEVICE_MAX_TERMS];
    struct devmem src[DEVICE_MAX_TERMS], dst;
};

/* Strided copy of [n0, n1, n2] rows of `width` elements of T: packs, unpacks, transposes, pads. */
struct copy_call {
    size_t n0, n1, n2, width;
    struct devmem src, dst;
    size_t src0, src1, src2, dst0, dst1, dst2; /* strides in elements */
};

/* The network's output to predicted noise in the latent's order.
 *   out: T [rows, batch, patch*patch*out_channels], each ordered [row in patch, column, channel]
 *   noise: T [rows, channels*patch*patch], ordered [channel, row in patch, column]
 * batch 1: noise = the first `channels` channels of out. batch 2 (guidance; conditional half first):
 * noise = u + scale * (c - u). */
struct noise_call {
    size_t rows, batch, patch, channels, out_channels;
    double cfg_scale;
    struct devmem out, noise;
};

/* noise = uncond + scale * (cond - uncond), elementwise over n; all T; noise may be one of the two. */
struct guide_call {
    size_t n;
    double cfg_scale;
    struct devmem cond, uncond, noise;
};

/* DDIM, eta 0 (arXiv:2010.02502), elementwise in place: x0 = (x - sqrt(1-a) eps) / sqrt(a);
 * x = sqrt(a') x0 + sqrt(1-a') eps.   latent: f [n]; noise: T [n]. */
struct ddim_call {
    size_t n;
    double alpha, alpha_next; /* cumulative products a, a' */
    struct devmem latent, noise;
};

/* Changes as small codes, in groups of DEVICE_CODE_GROUP elements of a row (the last group of a row may be
 * shorter): `bits` (2 to 8) a code, one fp32 step a group. A group's message is its step followed by
 * floor(32 / bits) codes a word, the first in the lowest bits, and level = code - q with
 * q = 2^(bits-1) - 1.
 *   encode: step = max |x - base| / q, level = x - base over step, rounded to nearest even and at
 *           most q in size; writes codes, leaves base. A step of 0 has levels of 0.
 *   decode: base += level * step of each of `parts` arrays of codes, one after the other; then y = base
 *           where y is given.
 * Equal codes change equal bases by equal bits, so encoder and peers keep the same base when all of them
 * decode, and what rounding left out is part of the next change (error feedback). x: `dtype` [rows, width],
 * encode's only. base: f [rows, width]. y: T [rows, width] or NONE, decode's only. codes: 32-bit words
 * [parts, rows, device_code_words]; encode writes one part. */
enum { DEVICE_CODE_GROUP = 128 };
struct code_call {
    size_t rows, width, parts;
    int bits;
    enum dtype dtype;
    struct devmem x, base, y, codes;
};

/* Words of one row's codes. */
static inline size_t device_code_words(size_t width, int bits)
{
    size_t per_word = 32 / (size_t)bits, rest = width % DEVICE_CODE_GROUP;
    return width / DEVICE_CODE_GROUP * (1 + (DEVICE_CODE_GROUP + per_word - 1) / per_word) +
           (rest > 0 ? 1 + (rest + per_word - 1) / per_word : 0);
}

/* dst[r] = src[r] + table[first + (r / batch / inner) % period]. src, dst: T [rows, width], dst == src
 * allowed; table: T [first + period, width] or more. Adds position embeddings: inner 1, period S
 * (space); inner S (time). */
struct add_rows_call {
    size_t rows, width, batch, inner, period, first;
    struct devmem src, dst, table;
};

struct device;

struct device_config {
    int rank, nranks, threads;
    enum dtype dtype;
    const struct platform *platform; /* sim: what it simulates, outlives the device; else NULL */
};

struct device_ops {
    const char *name, *summary;
    enum memory_kind memory;
    /* OPTIONAL: NULL means every dtype. */
    bool (*has_dtype)(enum dtype);
    /* REQUIRED. Makes a zeroed struct device with the rank's lanes, and whatever the library needs;
     * the wrapper sets ops and dtype. `threads`: per rank. */
    enum status (*open)(const struct device_config *, struct device **);
    void (*close)(struct device *);
    /* REQUIRED, as documented above. */
    enum status (*linear)(struct device *, const struct linear_call *);
    enum status (*attention)(struct device *, const struct attention_call *);
    enum status (*merge)(struct device *, const struct merge_call *);
    enum status (*modulate)(struct device *, const struct modulate_call *);
    enum status (*residual)(struct device *, const struct residual_call *);
    enum status (*sum)(struct device *, const struct sum_call *);
    enum status (*copy)(struct device *, const struct copy_call *);
    enum status (*noise)(struct device *, const struct noise_call *);
    enum status (*guide)(struct device *, const struct guide_call *);
    enum status (*ddim)(struct device *, const struct ddim_call *);
    enum status (*add_rows)(struct device *, const struct add_rows_call *);
    enum status (*encode)(struct device *, const struct code_call *);
    enum status (*decode)(struct device *, const struct code_call *);
    /* dst = silu(src), T [n]; dst == src allowed. */
    enum status (*silu)(struct device *, struct devmem dst, struct devmem src, size_t n);
    /* Sets bytes to zero. */
    enum status (*zero)(struct device *, struct devmem dst, size_t bytes);
    /* dst (dtype `to`) = src (dtype `from`), n elements. */
    enum status (*convert)(struct device *, enum dtype to, struct devmem dst, enum dtype from,
                           struct devmem src, size_t n);
    /* REQUIRED. Bytes of temporaries the device wants for calls up to these sizes; taken from the
     * rank's arena as workspace before timing (0: none). Either call may be NULL: none of that kind. A
     * call that is smaller in every size wants no more. */
    size_t (*workspace_bytes)(const struct device *, const struct attention_call *largest,
                              const struct linear_call *widest);
};

/* Back ends embed it as their first member. */
struct device {
    const struct device_ops *ops;
    struct lane_system *lanes;
    struct meter *meter;     /* set by the owner; NULL in device tests */
    struct team *team;       /* for heartbeats; NULL in device tests */
    enum dtype dtype;
    const char *attention;   /* OPTIONAL, static: what its attention calls were done by so far, where that
                                depends on the machine; NULL: nothing to tell */
    bool splits_inner;       /* noise floor: every linear's k is split in two and accumulated */
    struct devmem workspace; /* device_reserve */
    size_t workspace_bytes;
};

/* NULL-terminated; the built-in devices, best first, then those registered. */
const struct device_ops *const *device_list(void);
/* Adds what a plug-in brings, which lives for the rest of the process. Before ranks start. */
enum status device_register(const struct device_ops *) WARN_UNUSED;
const struct device_ops *device_find(const char *name);

enum status device_open(const struct device_ops *, const struct device_config *, struct device **)
    WARN_UNUSED;
void device_close(struct device *); /* accepts NULL */
/* Takes the workspace for the largest calls to come from `arena`. */
enum status device_reserve(struct device *, struct arena *, const struct attention_call *,
                           const struct linear_call *) WARN_UNUSED;

enum status device_linear(struct device *, const struct linear_call *) WARN_UNUSED;
enum status device_attention(struct device *, const struct attention_call *) WARN_UNUSED;
enum status device_merge(struct device *, const struct merge_call *) WARN_UNUSED;
enum status device_modulate(struct device *, const struct modulate_call *) WARN_UNUSED;
enum status device_residual(struct device *, const struct residual_call *) WARN_UNUSED;
enum status device_sum(struct device *, const struct sum_call *) WARN_UNUSED;
enum status device_copy(struct device *, const struct copy_call *) WARN_UNUSED;
enum status device_noise(struct device *, const struct noise_call *) WARN_UNUSED;
enum status device_guide(struct device *, const struct guide_call *) WARN_UNUSED;
enum status device_ddim(struct device *, const struct ddim_call *) WARN_UNUSED;
enum status device_add_rows(struct device *, const struct add_rows_call *) WARN_UNUSED;
enum status device_encode(struct device *, const struct code_call *) WARN_UNUSED;
enum status device_decode(struct device *, const struct code_call *) WARN_UNUSED;
enum status device_silu(struct device *, struct devmem dst, struct devmem src, size_t n) WARN_UNUSED;
enum status device_zero(struct device *, struct devmem dst, size_t bytes) WARN_UNUSED;
enum status device_convert(struct device *, enum dtype to, struct devmem dst, enum dtype from,
                           struct devmem src, size_t n) WARN_UNUSED;

#endif

// Elementwise operations and operations on rows: one pass over memory, 16 bytes an access where
// addresses and strides allow it.
#include <initializer_list>

#include "kernels/cuda/kernel.cuh"

// ---- rows ----

template <class T> struct Modulate {
    const T *x, *shift, *scale;
    T *y;
    size_t rows, width, batch, mod_stride;
    float eps;
};

// A warp a row, so nothing waits for other warps. The row stays in shared memory, where each lane reads
// only what it put there: memory is read once.
template <class T, int V> __global__ void modulate(Modulate<T> call)
{
    extern __shared__ float smem[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t row = (size_t)blockIdx.x * WARPS + warp, mod = row % call.batch * call.mod_stride;
    if (row >= call.rows)
        return;
    const T *x = call.x + row * call.width;
    T *y = call.y + row * call.width;
    float *kept = smem + warp * call.width, value[V], shift[V], scale[V], sum = 0, squares = 0;
    for (size_t i = lane * V; i < call.width; i += WARP * V) {
        read<V>(x + i, value);
        for (int k = 0; k < V; k++) {
            kept[i + k] = value[k];
            sum += value[k];
        }
    }
    const float mean = warp_sum(sum) / (float)call.width;
    for (size_t i = lane * V; i < call.width; i += WARP * V)
        for (int k = 0; k < V; k++)
            squares += (kept[i + k] - mean) * (kept[i + k] - mean);
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)call.width + call.eps);
    for (size_t i = lane * V; i < call.width; i += WARP * V) {
        read<V>(call.shift + mod + i, shift);
        read<V>(call.scale + mod + i, scale);
        for (int k = 0; k < V; k++)
            value[k] = (kept[i + k] - mean) * inverse * (1.0f + scale[k]) + shift[k];
        write<V>(y + i, value);
    }
}

template <class T, int V> static cudaError_t launch_modulate(const Modulate<T> &call, cudaStream_t stream)
{
    const size_t bytes = WARPS * call.width * sizeof(float);
    cudaError_t error = allow_shared_bytes(modulate<T, V>, bytes);
    if (error != cudaSuccess)
        return error;
    return launch(modulate<T, V>, (call.rows + WARPS - 1) / WARPS, bytes, stream, call);
}

cudaError_t kernel_modulate(enum dtype t, const struct modulate_call *c, cudaStream_t stream)
{
    if (c->width > KERNEL_MAX_WIDTH)
        return cudaErrorInvalidValue;
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        Modulate<T> call = {pointer<T>(c->x), pointer<T>(c->shift), pointer<T>(c->scale),
                            pointer<T>(c->y), c->rows, c->width, c->batch, c->mod_stride,
                            (float)c->eps};
        bool fits = packs_fit(V, sizeof(T), c->x, {c->width, c->mod_stride}) &&
                    packs_fit(V, sizeof(T), c->y, {}) && packs_fit(V, sizeof(T), c->shift, {}) &&
                    packs_fit(V, sizeof(T), c->scale, {});
        return fits ? launch_modulate<T, V>(call, stream) : launch_modulate<T, 1>(call, stream);
    });
}

template <class T> struct Residual {
    T *x;
    const T *y, *bias, *gate; // bias, gate: or null
    size_t packs, width, batch, mod_stride;
};

template <class T, int V> __global__ void residual(Residual<T> call)
{
    for (size_t pack = first_item(); pack < call.packs; pack += item_stride()) {
        const size_t i = pack * V, row = i / call.width, column = i % call.width;
        float x[V], y[V], bias[V] = {}, gate[V];
        read<V>(call.x + i, x);
        read<V>(call.y + i, y);
        if (call.bias)
            read<V>(call.bias + column, bias);
        for (int k = 0; k < V; k++)
            gate[k] = 1.0f;
        if (call.gate)
            read<V>(call.gate + row % call.batch * call.mod_stride + column, gate);
        for (int k = 0; k < V; k++)
            x[k] += gate[k] * (y[k] + bias[k]);
        write<V>(call.x + i, x);
    }
}

cudaError_t kernel_residual(enum dtype t, const struct residual_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), c->x, {c->width}) && packs_fit(V, sizeof(T), c->y, {}) &&
                    packs_fit(V, sizeof(T), c->bias, {}) &&
                    packs_fit(V, sizeof(T), c->gate, {c->gate.addr ? c->mod_stride : 0});
        Residual<T> call = {pointer<T>(c->x), pointer<T>(c->y), pointer<T>(c->bias),
                            pointer<T>(c->gate), c->rows * c->width / (fits ? V : 1), c->width,
                            c->batch, c->mod_stride};
        return launch(fits ? residual<T, V> : residual<T, 1>, blocks_for(call.packs), 0, stream, call);
    });
}

template <class T> struct AddRows {
    const T *src, *table;
    T *dst;
    size_t packs, width, batch, inner, period, first;
};

template <class T, int V> __global__ void add_rows(AddRows<T> call)
{
    for (size_t pack = first_item(); pack < call.packs; pack += item_stride()) {
        const size_t i = pack * V, row = i / call.width, column = i % call.width;
        const size_t place = call.first + row / call.batch / call.inner % call.period;
        float value[V], add[V];
        read<V>(call.src + i, value);
        read<V>(call.table + place * call.width + column, add);
        for (int k = 0; k < V; k++)
            value[k] += add[k];
        write<V>(call.dst + i, value);
    }
}

cudaError_t kernel_add_rows(enum dtype t, const struct add_rows_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), c->src, {c->width}) &&
                    packs_fit(V, sizeof(T), c->dst, {}) && packs_fit(V, sizeof(T), c->table, {});
        AddRows<T> call = {pointer<T>(c->src), pointer<T>(c->table), pointer<T>(c->dst),
                           c->rows * c->width / (fits ? V : 1), c->width, c->batch, c->inner,
                           c->period, c->first};
        return launch(fits ? add_rows<T, V> : add_rows<T, 1>, blocks_for(call.packs), 0, stream, call);
    });
}

struct CopyShape {
    size_t packs, n1, n2, width, src0, src1, src2, dst0, dst1, dst2;
};

template <class T, int V> __global__ void copy_rows(const T *src, T *dst, CopyShape c)
{
    for (size_t pack = first_item(); pack < c.packs; pack += item_stride()) {
        const size_t i = pack * V, column = i % c.width, row = i / c.width;
        const size_t i2 = row % c.n2, i1 = row / c.n2 % c.n1, i0 = row / c.n2 / c.n1;
        *reinterpret_cast<Pack<T, V> *>(dst + i0 * c.dst0 + i1 * c.dst1 + i2 * c.dst2 + column) =
            *reinterpret_cast<const Pack<T, V> *>(src + i0 * c.src0 + i1 * c.src1 + i2 * c.src2 +
                                                  column);
    }
}

// The stride of an axis of one element is never used: it must not forbid wide accesses.
static size_t stride_that_counts(size_t n, size_t stride)
{
    return n > 1 ? stride : 0;
}

cudaError_t kernel_copy(enum dtype t, const struct copy_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), c->src,
                              {c->width, stride_that_counts(c->n0, c->src0),
                               stride_that_counts(c->n1, c->src1), stride_that_counts(c->n2, c->src2)}) &&
                    packs_fit(V, sizeof(T), c->dst,
                              {stride_that_counts(c->n0, c->dst0), stride_that_counts(c->n1, c->dst1),
                               stride_that_counts(c->n2, c->dst2)});
        CopyShape shape = {c->n0 * c->n1 * c->n2 * c->width / (fits ? V : 1), c->n1, c->n2, c->width,
                           c->src0, c->src1, c->src2, c->dst0, c->dst1, c->dst2};
        return launch(fits ? copy_rows<T, V> : copy_rows<T, 1>, blocks_for(shape.packs), 0, stream,
                      pointer<const T>(c->src), pointer<T>(c->dst), shape);
    });
}

// ---- the end of a linear ----

__device__ static float activated(enum activation activation, float x)
{
    if (activation == ACTIVATION_GELU)
        return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return activation == ACTIVATION_SILU ? x / (1.0f + expf(-x)) : x;
}

template <class T>
__global__ void finish(T *y, const float *sums, const T *bias, size_t m, size_t n, size_t ldy,
                       bool accumulate, enum activation activation)
{
    for (size_t i = first_item(); i < m * n; i += item_stride()) {
        T *to = y + i / n * ldy + i % n;
        float value = sums ? sums[i] : 0.0f;
        if (accumulate)
            value += to_float(*to);
        if (bias)
            value += to_float(bias[i % n]);
        *to = from_float<T>(activated(activation, value));
    }
}

cudaError_t kernel_finish(enum dtype t, const struct linear_call *c, const float *sums,
                          cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        return launch(finish<T>, blocks_for(c->m * c->n), 0, stream, pointer<T>(c->y), sums,
                      pointer<const T>(c->bias), c->m, c->n, c->ldy, c->accumulate, c->activation);
    });
}

// ---- element by element ----

// f(values of the sources) into dst over n elements; sources of T in the order given.
template <class T> struct Terms {
    const T *src[DEVICE_MAX_TERMS];
    float coefficient[DEVICE_MAX_TERMS];
    int count;
};

template <class T, int V> __global__ void weighted_sum(T *dst, Terms<T> terms, size_t packs)
{
    for (size_t pack = first_item(); pack < packs; pack += item_stride()) {
        float total[V], value[V];
        read<V>(terms.src[0] + pack * V, total);
        for (int k = 0; k < V; k++)
            total[k] *= terms.coefficient[0];
        for (int term = 1; term < DEVICE_MAX_TERMS; term++) { // unrolled: no indexed local memory
            if (term >= terms.count)
                break;
            read<V>(terms.src[term] + pack * V, value);
            for (int k = 0; k < V; k++)
                total[k] += terms.coefficient[term] * value[k];
        }
        write<V>(dst + pack * V, total);
    }
}

cudaError_t kernel_sum(enum dtype t, const struct sum_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), c->dst, {c->n});
        Terms<T> terms = {};
        terms.count = c->count;
        for (int i = 0; i < c->count; i++) {
            terms.src[i] = pointer<T>(c->src[i]);
            terms.coefficient[i] = (float)c->coefficient[i];
            fits = fits && packs_fit(V, sizeof(T), c->src[i], {});
        }
        size_t packs = c->n / (fits ? V : 1);
        return launch(fits ? weighted_sum<T, V> : weighted_sum<T, 1>, blocks_for(packs), 0, stream,
                      pointer<T>(c->dst), terms, packs);
    });
}

template <class T, int V>
__global__ void guide(T *noise, const T *cond, const T *uncond, float scale, size_t packs)
{
    for (size_t pack = first_item(); pack < packs; pack += item_stride()) {
        float c[V], u[V];
        read<V>(cond + pack * V, c);
        read<V>(uncond + pack * V, u);
        for (int k = 0; k < V; k++)
            u[k] += scale * (c[k] - u[k]);
        write<V>(noise + pack * V, u);
    }
}

cudaError_t kernel_guide(enum dtype t, const struct guide_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), c->noise, {c->n}) &&
                    packs_fit(V, sizeof(T), c->cond, {}) && packs_fit(V, sizeof(T), c->uncond, {});
        size_t packs = c->n / (fits ? V : 1);
        return launch(fits ? guide<T, V> : guide<T, 1>, blocks_for(packs), 0, stream,
                      pointer<T>(c->noise), pointer<const T>(c->cond), pointer<const T>(c->uncond),
                      (float)c->cfg_scale, packs);
    });
}

// x' = sqrt(a') (x - sqrt(1-a) e) / sqrt(a) + sqrt(1-a') e
struct Ddim {
    float noise_now, signal_now, noise_next, signal_next; // sqrt(1-a), sqrt(a), sqrt(1-a'), sqrt(a')
};

template <class T, int V> __global__ void ddim(float *latent, const T *noise, Ddim step, size_t packs)
{
    for (size_t pack = first_item(); pack < packs; pack += item_stride()) {
        float x[V], e[V];
        read<V>(latent + pack * V, x);
        read<V>(noise + pack * V, e);
        for (int k = 0; k < V; k++) {
            float start = (x[k] - step.noise_now * e[k]) / step.signal_now;
            x[k] = step.signal_next * start + step.noise_next * e[k];
        }
        write<V>(latent + pack * V, x);
    }
}

cudaError_t kernel_ddim(enum dtype t, const struct ddim_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 4;
        bool fits = packs_fit(V, sizeof(float), c->latent, {c->n}) &&
                    packs_fit(V, sizeof(T), c->noise, {});
        size_t packs = c->n / (fits ? V : 1);
        Ddim step = {(float)sqrt(1 - c->alpha), (float)sqrt(c->alpha), (float)sqrt(1 - c->alpha_next),
                     (float)sqrt(c->alpha_next)};
        return launch(fits ? ddim<T, V> : ddim<T, 1>, blocks_for(packs), 0, stream,
                      pointer<float>(c->latent), pointer<const T>(c->noise), step, packs);
    });
}

template <class T>
__global__ void predicted_noise(const T *out, T *noise, size_t rows, size_t batch, size_t area,
                                size_t channels, size_t out_channels, float scale)
{
    const size_t per_row = area * channels, width = area * out_channels;
    for (size_t i = first_item(); i < rows * per_row; i += item_stride()) {
        const size_t channel = i % per_row / area, place = i % area;
        const T *from = out + i / per_row * batch * width + place * out_channels + channel;
        float value = to_float(*from);
        if (batch == 2) {
            float uncond = to_float(from[width]);
            value = uncond + scale * (value - uncond);
        }
        noise[i] = from_float<T>(value);
    }
}

cudaError_t kernel_noise(enum dtype t, const struct noise_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        const size_t area = c->patch * c->patch;
        return launch(predicted_noise<T>, blocks_for(c->rows * area * c->channels), 0, stream,
                      pointer<const T>(c->out), pointer<T>(c->noise), c->rows, c->batch, area,
                      c->channels, c->out_channels, (float)c->cfg_scale);
    });
}

template <class T, int V> __global__ void silu(T *dst, const T *src, size_t packs)
{
    for (size_t pack = first_item(); pack < packs; pack += item_stride()) {
        float value[V];
        read<V>(src + pack * V, value);
        for (int k = 0; k < V; k++)
            value[k] = activated(ACTIVATION_SILU, value[k]);
        write<V>(dst + pack * V, value);
    }
}

cudaError_t kernel_silu(enum dtype t, struct devmem dst, struct devmem src, size_t n,
                        cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        constexpr int V = 16 / sizeof(T);
        bool fits = packs_fit(V, sizeof(T), src, {n}) && packs_fit(V, sizeof(T), dst, {});
        size_t packs = n / (fits ? V : 1);
        return launch(fits ? silu<T, V> : silu<T, 1>, blocks_for(packs), 0, stream, pointer<T>(dst),
                      pointer<const T>(src), packs);
    });
}

template <class To, class From, int V> __global__ void convert(To *dst, const From *src, size_t packs)
{
    for (size_t pack = first_item(); pack < packs; pack += item_stride()) {
        float value[V];
        read<V>(src + pack * V, value);
        write<V>(dst + pack * V, value);
    }
}

cudaError_t kernel_convert(enum dtype to, struct devmem dst, enum dtype from, struct devmem src,
                           size_t n, cudaStream_t stream)
{
    return by_type(to, [=](auto to_zero) {
        return by_type(from, [=](auto from_zero) {
            using To = decltype(to_zero);
            using From = decltype(from_zero);
            constexpr int V = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
            bool fits = packs_fit(V, sizeof(From), src, {n}) && packs_fit(V, sizeof(To), dst, {});
            size_t packs = n / (fits ? V : 1);
            return launch(fits ? convert<To, From, V> : convert<To, From, 1>, blocks_for(packs), 0,
                          stream, pointer<To>(dst), pointer<const From>(src), packs);
        });
    });
}

template <class T> __global__ void add_parts(T *dst, const T *parts, size_t n, int count, size_t stride)
{
    for (size_t i = first_item(); i < n; i += item_stride()) {
        float total = to_float(parts[i]);
        for (int part = 1; part < count; part++)
            total += to_float(parts[(size_t)part * stride + i]);
        dst[i] = from_float<T>(total);
    }
}

cudaError_t kernel_add_parts(enum dtype t, void *dst, const void *parts, size_t n, int count,
                             size_t stride, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        return launch(add_parts<T>, blocks_for(n), 0, stream, (T *)dst, (const T *)parts, n, count,
                      stride);
    });
}

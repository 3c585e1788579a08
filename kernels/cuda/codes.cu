// Codes of changes (struct code_call): a warp a group of DEVICE_CODE_GROUP elements, 16-byte accesses to fp32
// where addresses and strides allow it.
#include <initializer_list>

#include "kernels/cuda/kernel.cuh"

constexpr int GROUP = DEVICE_CODE_GROUP, EACH = GROUP / WARP; // elements a lane

// A call, and where its groups are.
struct Codes {
    float *base;
    uint32_t *codes;
    size_t groups, groups_each, width, row_words, group_words, parts, part_words;
    int bits, per_word, q; // q: the largest level
};

struct Group {
    size_t first, word; // of the array, of the codes
    int n;              // elements
};

__device__ inline Group group_at(const Codes &call, size_t index)
{
    const size_t row = index / call.groups_each, at = index % call.groups_each, left = call.width - at * GROUP;
    return {row * call.width + at * GROUP, row * call.row_words + at * call.group_words,
            left < GROUP ? (int)left : GROUP};
}

// The lane's k-th element within its group: packs of V, a warp's packs side by side.
template <int V> __device__ inline int element_at(int lane, int k)
{
    return (k / V * WARP + lane) * V + k % V;
}

template <int V, class T> __device__ inline void read_group(const T *from, int lane, int n, float (&out)[EACH])
{
    for (int k = 0; k < EACH; k += V) {
        float value[V] = {};
        const int i = element_at<V>(lane, k);
        if (i < n)
            read<V>(from + i, value);
        for (int v = 0; v < V; v++)
            out[k + v] = value[v];
    }
}

template <int V, class T> __device__ inline void write_group(T *to, int lane, int n, const float (&values)[EACH])
{
    for (int k = 0; k < EACH; k += V) {
        float value[V];
        const int i = element_at<V>(lane, k);
        for (int v = 0; v < V; v++)
            value[v] = values[k + v];
        if (i < n)
            write<V>(to + i, value);
    }
}

// Never beyond what the code holds, whatever the change: a step among the smallest numbers is inexact.
__device__ inline int level_of(float change, float step, int q)
{
    const float level = step > 0 ? rintf(change / step) : 0.0f;
    if (!(level >= (float)-q))
        return -q;
    return level > (float)q ? q : (int)level;
}

template <class X, int V> __global__ void encode(Codes call, const X *x)
{
    extern __shared__ float smem[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t index = (size_t)blockIdx.x * WARPS + warp;
    if (index >= call.groups)
        return;
    uint32_t *code = reinterpret_cast<uint32_t *>(smem) + warp * GROUP;
    const Group group = group_at(call, index);
    float change[EACH], base[EACH], largest = 0;
    read_group<V>(x + group.first, lane, group.n, change);
    read_group<V>(call.base + group.first, lane, group.n, base);
    for (int k = 0; k < EACH; k++) {
        change[k] -= base[k];
        largest = fmaxf(largest, fabsf(change[k]));
    }
    const float step = warp_max(largest) / (float)call.q;
    for (int k = 0; k < EACH; k++)
        code[element_at<V>(lane, k)] = (uint32_t)(level_of(change[k], step, call.q) + call.q);
    __syncwarp();
    uint32_t *words = call.codes + group.word;
    if (lane == 0)
        words[0] = __float_as_uint(step);
    for (int w = lane; w * call.per_word < group.n; w += WARP) {
        uint32_t word = 0;
        for (int i = 0; i < call.per_word && w * call.per_word + i < group.n; i++)
            word |= code[w * call.per_word + i] << (i * call.bits);
        words[1 + w] = word;
    }
}

template <class T, int V> __global__ void decode(Codes call, T *y)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t index = (size_t)blockIdx.x * WARPS + warp;
    if (index >= call.groups)
        return;
    const Group group = group_at(call, index);
    const uint32_t *words = call.codes + group.word, mask = (1u << call.bits) - 1;
    float base[EACH];
    read_group<V>(call.base + group.first, lane, group.n, base);
    for (size_t part = 0; part < call.parts; part++, words += call.part_words) {
        const float step = __uint_as_float(words[0]);
        for (int k = 0; k < EACH; k++) {
            const int i = element_at<V>(lane, k);
            if (i >= group.n)
                continue;
            const uint32_t code = words[1 + i / call.per_word] >> (i % call.per_word * call.bits) & mask;
            base[k] += (float)((int)code - call.q) * step;
        }
    }
    write_group<V>(call.base + group.first, lane, group.n, base);
    if (y)
        write_group<V>(y + group.first, lane, group.n, base);
}

// ---- host side ----

static Codes codes_of(const struct code_call *c)
{
    const size_t groups = (c->width + GROUP - 1) / GROUP, row_words = device_code_words(c->width, c->bits);
    return {pointer<float>(c->base), pointer<uint32_t>(c->codes), c->rows * groups, groups, c->width,
            row_words, device_code_words(GROUP, c->bits), c->parts, c->rows * row_words,
            c->bits, 32 / c->bits, (1 << (c->bits - 1)) - 1};
}

static size_t blocks_of(const Codes &call)
{
    return (call.groups + WARPS - 1) / WARPS;
}

constexpr int PACK = 4; // 16 bytes of fp32

cudaError_t kernel_encode(const struct code_call *c, cudaStream_t stream)
{
    return by_type(c->dtype, [=](auto zero) {
        using X = decltype(zero);
        const Codes call = codes_of(c);
        bool fits = packs_fit(PACK, sizeof(X), c->x, {c->width}) &&
                    packs_fit(PACK, sizeof(float), c->base, {});
        return launch(fits ? encode<X, PACK> : encode<X, 1>, blocks_of(call), BLOCK * EACH * sizeof(uint32_t),
                      stream, call, pointer<X>(c->x));
    });
}

cudaError_t kernel_decode(enum dtype t, const struct code_call *c, cudaStream_t stream)
{
    return by_type(t, [=](auto zero) {
        using T = decltype(zero);
        const Codes call = codes_of(c);
        bool fits = packs_fit(PACK, sizeof(T), c->y, {c->width}) && packs_fit(PACK, sizeof(float), c->base, {});
        return launch(fits ? decode<T, PACK> : decode<T, 1>, blocks_of(call), 0, stream, call, pointer<T>(c->y));
    });
}

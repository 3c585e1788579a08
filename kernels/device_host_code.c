/* Codes of changes (struct code_call) in host memory. */
#include "kernels/device_host.h"

#include <math.h>
#include <string.h>

/* Places of one group of a row: its elements, and the words of its message. */
struct group {
    size_t first, n, word;
};

static struct group group_at(const struct code_call *call, size_t row, size_t i)
{
    size_t words = device_code_words(call->width, call->bits);
    size_t whole = device_code_words(DEVICE_CODE_GROUP, call->bits);
    size_t left = call->width - i;
    return (struct group){.first = row * call->width + i,
                          .n = left < DEVICE_CODE_GROUP ? left : DEVICE_CODE_GROUP,
                          .word = row * words + i / DEVICE_CODE_GROUP * whole};
}

/* The largest level of a code: 127 of 8 bits, 7 of 4, 1 of 2. */
static int largest_level(int bits)
{
    return (1 << (bits - 1)) - 1;
}

static float step_of(size_t n, const float *change, int bits)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(change[i]));
    return largest / (float)largest_level(bits);
}

/* Never beyond what the code holds, whatever the change: a step among the smallest numbers is
 * inexact. */
static int level_of(float change, float step, int bits)
{
    float largest = (float)largest_level(bits), level = step > 0 ? rintf(change / step) : 0;
    if (!(level >= -largest))
        return -largest_level(bits);
    return level > largest ? largest_level(bits) : (int)level;
}

static void encode_group(const struct device *d, const struct code_call *call, struct group g)
{
    (void)d;
    const float *base = (const float *)lane_host_pointer(call->base) + g.first;
    uint32_t *words = (uint32_t *)lane_host_pointer(call->codes) + g.word;
    size_t per_word = 32 / (size_t)call->bits;
    float change[DEVICE_CODE_GROUP];
    device_host_read(call->dtype, call->x, g.first, g.n, change);
    for (size_t i = 0; i < g.n; i++)
        change[i] -= base[i];
    float step = step_of(g.n, change, call->bits);
    memcpy(words, &step, sizeof step);
    memset(words + 1, 0, (g.n + per_word - 1) / per_word * sizeof *words);
    for (size_t i = 0; i < g.n; i++) {
        int level = level_of(change[i], step, call->bits);
        uint32_t code = (uint32_t)(level + largest_level(call->bits));
        words[1 + i / per_word] |= code << (i % per_word * (size_t)call->bits);
    }
}

/* base += level * step of one part. */
static void decode_part(const struct code_call *call, const uint32_t *words, size_t n, float *base)
{
    size_t per_word = 32 / (size_t)call->bits;
    uint32_t mask = (1u << call->bits) - 1;
    float step;
    memcpy(&step, words, sizeof step);
    for (size_t i = 0; i < n; i++) {
        uint32_t code = words[1 + i / per_word] >> (i % per_word * (size_t)call->bits) & mask;
        base[i] += (float)((int)code - largest_level(call->bits)) * step;
    }
}

static void decode_group(const struct device *d, const struct code_call *call, struct group g)
{
    float *base = (float *)lane_host_pointer(call->base) + g.first;
    const uint32_t *words = (const uint32_t *)lane_host_pointer(call->codes) + g.word;
    size_t part_words = call->rows * device_code_words(call->width, call->bits);
    for (size_t part = 0; part < call->parts; part++)
        decode_part(call, words + part * part_words, g.n, base);
    if (!devmem_is_none(call->y))
        device_host_write(d->dtype, call->y, g.first, g.n, base);
}

static void each_group(const struct device *d, const struct code_call *call,
                       void (*work)(const struct device *, const struct code_call *, struct group))
{
    for (size_t row = 0; row < call->rows; row++)
        for (size_t i = 0; i < call->width; i += DEVICE_CODE_GROUP)
            work(d, call, group_at(call, row, i));
}

enum status device_host_encode(struct device *d, const struct code_call *call)
{
    each_group(d, call, encode_group);
    return OK;
}

enum status device_host_decode(struct device *d, const struct code_call *call)
{
    each_group(d, call, decode_group);
    return OK;
}

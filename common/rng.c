/* Philox rounds, Box-Muller pairs, and how elements map to blocks of four. */
#include "common/rng.h"

#include <math.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925286766559;

/* One round: two 32x32 -> 64 bit products, whose halves are crossed over (Salmon et al.,
 * section 3.3). */
static void philox_round(uint32_t x[4], const uint32_t key[2])
{
    uint64_t p0 = (uint64_t)x[0] * 0xd2511f53u, p1 = (uint64_t)x[2] * 0xcd9e8d57u;
    uint32_t y[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ key[0], (uint32_t)p1,
                     (uint32_t)(p0 >> 32) ^ x[3] ^ key[1], (uint32_t)p0};
    memcpy(x, y, sizeof y);
}

void rng_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t round_key[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        philox_round(x, round_key);
        round_key[0] += 0x9e3779b9u; /* golden ratio */
        round_key[1] += 0xbb67ae85u; /* sqrt(3) - 1 */
    }
    memcpy(out, x, sizeof x);
}

uint64_t rng_fnv1a64(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Box-Muller. u lies in (0, 1), both ends excluded, so the logarithm is finite. */
static void normal_pair(uint32_t r0, uint32_t r1, float out[2])
{
    double u0 = (r0 + 0.5) * 0x1p-32, u1 = (r1 + 0.5) * 0x1p-32;
    double radius = sqrt(-2.0 * log(u0));
    out[0] = (float)(radius * cos(two_pi * u1));
    out[1] = (float)(radius * sin(two_pi * u1));
}

/* Elements 4*block .. 4*block+3. */
static void normal_block(uint64_t seed, uint64_t tensor, uint64_t block, float out[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)tensor,
                                 (uint32_t)(tensor >> 32)};
    uint32_t r[4];
    rng_philox4x32_10(counter, key, r);
    normal_pair(r[0], r[1], out);
    normal_pair(r[2], r[3], out + 2);
}

void rng_normals(uint64_t seed, const char *tensor, uint64_t first, size_t n, float *out)
{
    uint64_t hash = rng_fnv1a64(tensor);
    for (size_t done = 0; done < n;) {
        uint64_t element = first + done;
        size_t skip = element % 4, count = 4 - skip < n - done ? 4 - skip : n - done;
        float block[4];
        normal_block(seed, hash, element / 4, block);
        memcpy(out + done, block + skip, count * sizeof *out);
        done += count;
    }
}

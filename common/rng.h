/* Counter-based random numbers: a function of (seed, tensor name, element index) only, so every rank
 * can draw any shard and nothing depends on the number of ranks. Philox4x32-10 (Salmon et al., SC'11)
 * and Box-Muller, computed in double and rounded to float. */
#ifndef COMMON_RNG_H
#define COMMON_RNG_H

#include <stddef.h>
#include <stdint.h>

void rng_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
uint64_t rng_fnv1a64(const char *text);
/* Standard normals for elements first .. first+n-1 of the named tensor. */
void rng_normals(uint64_t seed, const char *tensor, uint64_t first, size_t n, float *out);

#endif

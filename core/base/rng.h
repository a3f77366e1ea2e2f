/* rng.h - the one source of randomness: splitmix64 (Steele, Lea, Flood 2014), seeded, the same on every machine. */
#ifndef SX_CORE_BASE_RNG_H
#define SX_CORE_BASE_RNG_H
#include <stdint.h>

typedef struct {
    uint64_t state;
} sx_rng;

static inline uint64_t sx_rng_next(sx_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound > 0; the bias of at most bound / 2^64 does not matter here. */
static inline uint64_t sx_rng_below(sx_rng *rng, uint64_t bound)
{
    return sx_rng_next(rng) % bound;
}

/* Uniform in [-1, 1) with 24 significant bits: exact in f32. */
static inline float sx_rng_f32(sx_rng *rng)
{
    return (float)((int32_t)(sx_rng_next(rng) >> 39) - (1 << 24)) / (float)(1 << 24);
}
#endif

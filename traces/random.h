/*
 * Seeded random numbers by integer arithmetic only, so that a seed gives the
 * same numbers on every machine.
 */
#ifndef TRACES_RANDOM_H
#define TRACES_RANDOM_H

#include <stdint.h>

/* xoshiro256** (Blackman and Vigna, 2018). Plain data. */
struct random_state {
    uint64_t s[4];
};

/*
 * Returns one value of splitmix64 (Steele, Lea, Flood, 2014): a bijection on 64
 * bits in which every output bit depends on every input bit.
 */
static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* Sets up the state; any seed works, even 0. */
void random_init(struct random_state *state, uint64_t seed);

/* Returns the next 64 uniform bits. */
uint64_t random_u64(struct random_state *state);

/*
 * Returns a number uniform in [0, bound), bound at least 1, below 2^32: by
 * Lemire's multiplication (2019) without rejection, with a bias < bound / 2^32.
 */
uint32_t random_below(struct random_state *state, uint32_t bound);

/*
 * Returns an exponential number, mean 1, 32.32 fixed point. Von Neumann's
 * method (1951): only compares uniform numbers. Expected cost: about 6 draws.
 */
uint64_t random_exponential_q32(struct random_state *state);

#endif

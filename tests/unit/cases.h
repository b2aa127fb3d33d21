/* How many random cases a test goes through, and what they are drawn from. */
#ifndef TESTS_UNIT_CASES_H
#define TESTS_UNIT_CASES_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* CONDUCTOR_CASES percent of `n`, at least 1; without it all of them. meson
 * sets it where a build with sanitizers takes several times as long. */
static inline uint32_t cases_of(uint32_t n)
{
    const char *percent = getenv("CONDUCTOR_CASES");
    uint64_t of = percent ? n * strtoull(percent, NULL, 10) / 100 : n;

    return of == 0 ? 1 : of > UINT32_MAX ? UINT32_MAX : (uint32_t)of;
}

/* CONDUCTOR_SEED, or `otherwise` without it. */
static inline uint64_t seed_or(uint64_t otherwise)
{
    const char *text = getenv("CONDUCTOR_SEED");

    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Returns it, as above, and prints it. */
static inline uint64_t cases_seed(uint64_t otherwise)
{
    uint64_t seed = seed_or(otherwise);

    printf("[CONDUCTOR_SEED=%" PRIu64 "] ", seed);
    return seed;
}

/* The next 64 bits of splitmix64 (Steele, Lea, Flood, 2014): any state works.
 */
static inline uint64_t draw_u64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 .. n - 1 */
static inline uint32_t draw_below(uint64_t *state, uint64_t n)
{
    return (uint32_t)(draw_u64(state) % n);
}

#endif

/* What the benchmarks of core and of KV events share. */
#ifndef CONDUCTOR_TESTS_BENCH_H
#define CONDUCTOR_TESTS_BENCH_H

#include <stdint.h>
#include <time.h>

/* mix(z): 64 bits that look random, the same for the same z (splitmix64's
 * finaliser). */
static inline uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* now_s(): seconds of a clock that only goes forward. */
static inline double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

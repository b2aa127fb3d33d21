/*
 * The points that a profile measures: prefill over (new tokens, cached
 * prefix), decode steps over (batch, KV tokens of each request). Pure.
 */
#ifndef PREDICTOR_PROFILE_GRID_H
#define PREDICTOR_PROFILE_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROFILE_GRID_MAX 256

/* Prefill: a = uncached, b = cached tokens. Decode: a = batch, b = KV tokens of
 * each of its requests. */
struct profile_point {
    bool decode;
    uint32_t a, b;
};

struct profile_limits {
    uint32_t max_tokens; /* prompt and prefix */
    uint32_t max_batch;  /* decode batch */
    uint64_t max_kv;     /* KV tokens of a batch */
    uint32_t prefix_of;  /* prefixes are multiples of this many tokens */
    uint32_t kv_of;      /* the same for KV tokens of a request in a batch */
    uint32_t short_kv; /* also measure this many KV tokens a request (0 = no) */
    uint32_t min_kv;   /* least KV tokens of a request */
};

/* Fills points[] without duplicates: few new tokens (usual behind a long
 * prefix) and shares of the largest prompt, behind prefixes; batches of powers
 * of 2. Returns their number. */
size_t profile_grid(const struct profile_limits *limits,
                    struct profile_point points[PROFILE_GRID_MAX]);

/* Shuffles points[n]; the same state gives the same order. */
void profile_shuffle(struct profile_point *points, size_t n, uint64_t *state);

/* Returns a random number below `below` and advances *state. */
uint32_t profile_random(uint64_t *state, uint32_t below);

#endif

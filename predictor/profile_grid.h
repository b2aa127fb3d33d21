/*
 * Which points a profile measures: prefill over (new tokens, cached prefix),
 * decode steps over (batch, KV tokens of each request). Pure.
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
    uint32_t max_tokens; /* of a prompt */
    uint32_t max_batch;  /* of decode */
    uint64_t max_kv;     /* KV tokens of a batch */
    uint32_t prefix_of;  /* prefixes are multiples of so many tokens */
    uint32_t kv_of;      /* likewise what a request of a batch holds */
    uint32_t short_kv;   /* KV tokens of a short request, too (0: none) */
    uint32_t min_kv;     /* and of any */
};

/* Fills points[], each one once: few new tokens (a request with a long prefix
 * has few) and shares of the largest prompt, behind prefixes; batches of powers
 * of 2. Returns how many. */
size_t profile_grid(const struct profile_limits *limits,
                    struct profile_point points[PROFILE_GRID_MAX]);

/* Shuffles points[n]; the same state gives the same order. */
void profile_shuffle(struct profile_point *points, size_t n, uint64_t *state);

/* A number below `below`; *state goes on. */
uint32_t profile_random(uint64_t *state, uint32_t below);

#endif

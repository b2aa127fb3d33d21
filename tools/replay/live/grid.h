/*
 * What `conductor-replay profile` measures, and what it makes of the answers.
 * Pure.
 */
#ifndef TOOLS_REPLAY_LIVE_GRID_H
#define TOOLS_REPLAY_LIVE_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/report/record.h"

#define GRID_MAX 128

/* Requests of a decode point. */
#define GRID_BATCH_MAX 256

/* Tokens that a request of a decode point makes. */
#define GRID_DECODE_TOKENS 17

/* Prefill: a = uncached, b = cached tokens. Decode: a = batch, b = KV tokens of
 * each of its requests, in the mean. */
struct grid_point {
    bool decode;
    uint32_t a, b;
};

struct grid_limits {
    uint32_t max_tokens;   /* of a prompt, 64 at least */
    uint32_t max_batch;    /* of decode */
    uint64_t max_kv;       /* KV tokens of a batch */
    uint32_t block_tokens; /* what is cached is a multiple of it */
};

/* Fills points[], each one once: few new tokens and shares of the largest
 * prompt, behind prefixes; batches of powers of 2. Returns how many. */
size_t grid_plan(const struct grid_limits *limits,
                 struct grid_point points[GRID_MAX]);

/* Shuffles points[n]; the same state gives the same order. */
void grid_shuffle(struct grid_point *points, size_t n, uint64_t *state);

/* A number below `below`; *state goes on. */
uint32_t grid_random(uint64_t *state, uint32_t below);

/* Sets *point to what a prefill of it was by the record: where the server tells
 * cached tokens, by these. Returns whether they are the planned ones, but for
 * less than a block. */
bool grid_take_cached(struct grid_point *point,
                      const struct replay_record *record,
                      uint32_t block_tokens);

/* The time of a decode step of these requests, the median of their means. -1 if
 * one made fewer than two tokens, or if they did not all decode together for at
 * least half of the time. */
double grid_step_us(const struct replay_record *records, size_t n);

#endif

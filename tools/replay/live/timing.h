/*
 * What `conductor-replay profile` makes of an engine's answers. Pure.
 */
#ifndef TOOLS_REPLAY_LIVE_TIMING_H
#define TOOLS_REPLAY_LIVE_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "predictor/profile_grid.h"
#include "tools/replay/report/record.h"

/* Requests of a decode point. */
#define TIMING_BATCH_MAX 256

/* Tokens that a request of a decode point makes. */
#define TIMING_DECODE_TOKENS 17

/* Sets *point to what a prefill of it was by the record: where the server tells
 * cached tokens, by these. Returns whether they are the planned ones, but for
 * less than a block. */
bool timing_take_cached(struct profile_point *point,
                        const struct replay_record *record,
                        uint32_t block_tokens);

/* The time of a decode step of these requests, the median of their means. -1 if
 * one made fewer than two tokens, or if they did not all decode together for at
 * least half of the time. */
double timing_step_us(const struct replay_record *records, size_t n);

#endif

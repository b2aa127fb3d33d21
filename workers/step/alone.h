/* A worker's step loop without a conductor, for timing an engine under real
 * conditions: with a queue, a store that shares and evicts blocks, and the
 * compute thread. `conductor-worker --profile` runs on it. Each call waits
 * until its work is done. */
#ifndef WORKERS_STEP_ALONE_H
#define WORKERS_STEP_ALONE_H

#include "workers/engine/engine.h"

struct step_alone;

/* Makes a step loop over `engine`, borrowed, with a store of `n_blocks` blocks
 * and steps of at most `max_batch` decodes. Returns it owned, or NULL. */
[[nodiscard]] struct step_alone *
step_alone_new(struct engine *engine, uint32_t n_blocks, uint32_t max_batch);

/* Frees it. NULL is a no-op. */
void step_alone_free(struct step_alone *s);

/* Prefills tokens[n_tokens], of which the first *cached_tokens come from the
 * store. *us is the time from a conductor's PREFILL to the first token. Returns
 * 0, or a negative errno. */
[[nodiscard]] int step_alone_prefill(struct step_alone *s,
                                     const uint32_t *tokens, uint32_t n_tokens,
                                     uint32_t *cached_tokens, double *us);

/* Runs one step of segments[n]. Returns what engine_step() does. */
[[nodiscard]] int step_alone_step(struct step_alone *s,
                                  struct engine_segment *segments, uint32_t n);

#endif

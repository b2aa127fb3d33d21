/* The step loop of a worker without a conductor, for timing an engine as it
 * works in one: a queue, blocks of a store that are shared and evicted, and the
 * compute thread. `conductor-worker --profile` runs on it. Blocks until what
 * is asked for has ended. */
#ifndef WORKERS_STEP_ALONE_H
#define WORKERS_STEP_ALONE_H

#include "workers/engine/engine.h"

struct step_alone;

/* Make one over `engine`, borrowed, with `n_blocks` blocks, and room for
 * `max_batch` segments in a step. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct step_alone *
step_alone_new(struct engine *engine, uint32_t n_blocks, uint32_t max_batch);

/* Free it. NULL is a no-op. */
void step_alone_free(struct step_alone *s);

/* Prefill tokens[n_tokens], from the frame that a conductor would send to the
 * first token: *us. What the store holds of it is reused: *cached_tokens. 0, or
 * a negative errno. */
[[nodiscard]] int step_alone_prefill(struct step_alone *s,
                                     const uint32_t *tokens, uint32_t n_tokens,
                                     uint32_t *cached_tokens, double *us);

/* Run one step of segments[n], as engine_step(). */
[[nodiscard]] int step_alone_step(struct step_alone *s,
                                  struct engine_segment *segments, uint32_t n);

#endif

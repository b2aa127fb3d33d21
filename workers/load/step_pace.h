/* Predicts how long a chunk of a prefill takes, from earlier steps. Pure. */
#ifndef WORKERS_LOAD_STEP_PACE_H
#define WORKERS_LOAD_STEP_PACE_H

#include "workers/engine/engine.h"

struct cost_model;

/* With a cost model: its times, corrected by a ratio. Without: a token at
 * position p takes b + d p, fitted by least squares; older steps count less.
 * Begins as {.cost = ...}. */
struct step_pace {
    const struct cost_model *cost; /* borrowed; NULL = none */
    double ratio;                  /* measured / predicted; 0 = no step yet */
    /* Sums over steps of n = tokens, d = tokens x their mean position. */
    double nn, nd, dd, n_us, d_us;
};

/* Learns from a step of segments[n] that took `us`. Ignores steps with
 * decodes. */
void step_pace_learn(struct step_pace *p, const struct engine_segment *segments,
                     size_t n, int64_t us);

/* Returns the time (us) of n_tokens behind `position`, in a prefill that began
 * at `cached`; negative = not known yet. `arg` is the struct step_pace, which
 * makes this a meeting_chunk_us of core/step/meeting. */
double step_pace_us(const void *arg, uint32_t n_tokens, uint32_t position,
                    uint32_t cached);

#endif

/* How long a chunk of a prefill will take, from the steps that were seen. Pure.
 */
#ifndef WORKERS_LOAD_STEP_PACE_H
#define WORKERS_LOAD_STEP_PACE_H

#include "workers/engine/engine.h"

struct cost_model;

/* With a cost model: its times, corrected by a ratio. Without: a token at
 * position p takes b + d p, fitted by least squares with forgetting. Zero with
 * `cost` set, or not, is the start. */
struct step_pace {
    const struct cost_model *cost; /* borrowed; NULL: none */
    double ratio;                  /* seen / cost; 0: nothing was seen */
    /* Sums over steps of n = tokens, d = tokens x their mean position. */
    double nn, nd, dd, n_us, d_us;
};

/* A step of these n segments took `us`. Steps that also decode are ignored. */
void step_pace_learn(struct step_pace *p, const struct engine_segment *segments,
                     size_t n, int64_t us);

/* What n_tokens behind `position` take, in a run of chunks that began at
 * `cached`: microseconds; negative: nothing is known yet. `arg` is the struct
 * step_pace: a meeting_chunk_us of core/step/meeting. */
double step_pace_us(const void *arg, uint32_t n_tokens, uint32_t position,
                    uint32_t cached);

#endif

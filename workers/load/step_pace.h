/* How long a chunk of a prefill will take, from the steps that were seen, and
 * from that and the pace of a load how large the next chunk should be. Pure. */
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
 * `cached`: microseconds; negative: nothing is known yet. */
double step_pace_us(const struct step_pace *p, uint32_t n_tokens,
                    uint32_t position, uint32_t cached);

#define LOAD_TAILS_MAX 5

/* Where a load that comes from the end is, seen from a prefill that goes
 * forward. Blocks are those behind the one that `position` is in. */
struct load_meeting {
    uint32_t position;
    uint32_t cached; /* where its run of chunks began */
    uint32_t block_tokens;
    uint32_t most;    /* tokens that the next chunk may have: it ends in front
                         of what is loaded */
    uint32_t missing; /* blocks that are to be loaded or computed */
    double first_us;  /* until the next one of them is loaded */
    double block_us;  /* and each one after it; 0: not known */
    /* With several sources: what each of them has under way, which no other
     * will bring. */
    uint32_t n_tails;
    struct load_tail {
        uint32_t blocks;
        double first_us;
        double block_us;
    } tails[LOAD_TAILS_MAX];
};

/* How long until the load has brought `blocks` more. */
double load_meeting_us(const struct load_meeting *m, uint32_t blocks);

/* Tokens of the next chunk, 0 .. most: all of them as long as the load cannot
 * bring what is left behind them meanwhile. Else it ends at the end of that
 * block with which computing and loading are done together the soonest; among
 * equals the one that leaves more to the load. 0: waiting is sooner. */
uint32_t load_meeting_chunk(const struct load_meeting *m,
                            const struct step_pace *p);

#endif

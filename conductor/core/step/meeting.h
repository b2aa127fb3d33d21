/*
 * The meeting of a load from the end of a prompt and computing from its front
 * ("Compute Or Load KV Cache? Why Not Both?", section 3). Worker and
 * simulator ask here. Pure.
 *
 *      0        position ->                  <- loaded        end    n_tokens
 *      |  computed  |        neither yet        |   loaded     | suffix |
 *
 * Without a forecast (simulator), chunks end at the planned split, then at each
 * block. The worker forecasts chunks and blocks: its chunk ends where both
 * finish together soonest.
 */
#ifndef CONDUCTOR_CORE_STEP_MEETING_H
#define CONDUCTOR_CORE_STEP_MEETING_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether computing has met the load: everything in front of the loaded
 * part is computed. Both arguments in tokens, or both in blocks. */
bool meeting_met(int64_t computed, int64_t loaded_from);

/*
 * Returns the block before which the next chunk ends without a forecast: the
 * planned split; past it the next block; once the load is over, the loaded
 * part. Never inside the loaded part.
 *   position      computed tokens
 *   split_block   where the two meet in the plan
 *   loaded_block  the first loaded block; all blocks from there to the end of
 *                 the load are loaded
 *   over          no more blocks will be loaded
 */
uint32_t meeting_planned_block(uint32_t position, uint32_t block_tokens,
                               uint32_t split_block, uint32_t loaded_block,
                               bool over);

#define MEETING_TAILS_MAX 6

/* Blocks that one source is sending, so that no other source will. */
struct meeting_tail {
    uint32_t blocks;
    double first_us; /* until its next block is loaded */
    double block_us; /* for each further block */
};

/* A forecast. Blocks are counted from the one behind `position`'s. */
struct meeting {
    uint32_t position; /* computed tokens */
    uint32_t cached;   /* position at which its run of chunks began */
    uint32_t block_tokens;
    uint32_t most;    /* most tokens of the next chunk: up to the loaded part */
    uint32_t missing; /* blocks still to be loaded or computed */
    double first_us;  /* until the next missing block is loaded */
    double block_us;  /* for each further block; 0 = unknown */
    uint32_t n_tails; /* with several sources */
    struct meeting_tail tails[MEETING_TAILS_MAX];
};

/* Returns the engine's time (us) for n_tokens behind `position`, in a run of
 * chunks that began at `cached`; negative = unknown. */
typedef double meeting_chunk_us(const void *arg, uint32_t n_tokens,
                                uint32_t position, uint32_t cached);

/* Returns how long (us) the load takes for `blocks` more blocks. */
double meeting_load_us(const struct meeting *m, uint32_t blocks);

/* Returns the tokens of the next chunk: `most`, if the load cannot bring all
 * later blocks meanwhile. Otherwise the chunk ends at the block with which both
 * computing and loading finish soonest; of equal ones at the first, which
 * leaves most to the load. 0 = it is fastest to wait for the load.
 *   chunk_us, arg  the engine's time.
 * Cost: O(most / block_tokens) calls of chunk_us. */
uint32_t meeting_chunk(const struct meeting *m, meeting_chunk_us *chunk_us,
                       const void *arg);

#endif

/*
 * Where a load from the end of a prompt and computing from its front meet
 * ("Compute Or Load KV Cache? Why Not Both?", section 3). Worker, simulator and
 * the Cake experiments ask here. Pure.
 *
 *      0        position ->                  <- loaded        end    n_tokens
 *      |  computed  |        neither yet        |   loaded     | suffix |
 *
 * The simulator forecasts neither: it computes to the planned split, then block
 * by block. The worker knows how long chunks and blocks take: its chunk ends
 * where both finish together soonest.
 */
#ifndef CONDUCTOR_CORE_STEP_MEETING_H
#define CONDUCTOR_CORE_STEP_MEETING_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the two have met: everything in front of the loaded part is computed.
 * In tokens, or in blocks. */
bool meeting_met(int64_t computed, int64_t loaded_from);

/*
 * The block in front of which the next chunk ends: the planned split; behind
 * it, while more blocks come, one block after another; never inside the loaded
 * part.
 *   position      tokens that are computed
 *   split_block   where the two meet in the plan
 *   loaded_block  the first block that has come; so have all behind it, to the
 *                 end of the load
 *   over          nothing more comes
 */
uint32_t meeting_planned_block(uint32_t position, uint32_t block_tokens,
                               uint32_t split_block, uint32_t loaded_block,
                               bool over);

#define MEETING_TAILS_MAX 6

/* Blocks that one source has under way, and that no other source will bring. */
struct meeting_tail {
    uint32_t blocks;
    double first_us; /* until the next one is loaded */
    double block_us; /* and each one after it */
};

/* A forecast. Blocks are those behind the one that `position` is in. */
struct meeting {
    uint32_t position;
    uint32_t cached; /* where its run of chunks began */
    uint32_t block_tokens;
    uint32_t most;    /* tokens that the next chunk may have: it ends in front
                         of what is loaded */
    uint32_t missing; /* blocks that are to be loaded or computed */
    double first_us;  /* until the next one of them is loaded */
    double block_us;  /* and each one after it; 0: not known */
    uint32_t n_tails; /* with several sources */
    struct meeting_tail tails[MEETING_TAILS_MAX];
};

/* How long the engine takes for n_tokens behind `position`, in a run of chunks
 * that began at `cached`: microseconds; negative: not known. */
typedef double meeting_chunk_us(const void *arg, uint32_t n_tokens,
                                uint32_t position, uint32_t cached);

/* How long until the load has brought `blocks` more. */
double meeting_load_us(const struct meeting *m, uint32_t blocks);

/* Tokens of the next chunk, 0 .. most: all of them as long as the load cannot
 * bring the blocks behind them meanwhile. Otherwise the chunk ends at the block
 * with which computing and loading finish together soonest; of equal ones, at
 * the one that leaves more to the load. 0: waiting is faster.
 *   chunk_us, arg  the engine's pace.
 * O(most / block_tokens) calls of chunk_us. */
uint32_t meeting_chunk(const struct meeting *m, meeting_chunk_us *chunk_us,
                       const void *arg);

#endif

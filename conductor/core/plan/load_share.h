/*
 * Distributes the blocks of a load among the sources that can send them.
 * Internal to load_plan.
 */
#ifndef CONDUCTOR_CORE_PLAN_LOAD_SHARE_H
#define CONDUCTOR_CORE_PLAN_LOAD_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/plan/load_plan.h"

/* A source, cut to the blocks that a request may load; from = to if none. */
struct load_sender {
    uint32_t from_block;
    uint32_t to_block;
    int64_t start_us;
    double block_us;
    bool by_layer;
};

struct load_senders {
    struct load_sender at[LOAD_PLAN_SOURCES_MAX];
    size_t n;
};

/* Blocks to be loaded. A load by layer must let the whole prompt end in time:
 * the tokens behind it are computed layer by layer as layers come. */
struct load {
    uint32_t from_block;
    uint32_t to_block;
    bool by_layer;
    uint32_t layers;       /* by layer: at least 1 */
    int64_t rest_us;       /* by layer: to compute the tokens behind it */
    int64_t rest_layer_us; /* by layer: the same for one layer, rounded up */
};

struct load_sharing {
    struct load_piece pieces[LOAD_PLAN_PIECES_MAX];
    uint32_t n_pieces;
};

/* Returns how long (us) a sender takes for `blocks` blocks, at most
 * LOAD_PLAN_NEVER_US. */
int64_t load_sending_us(const struct load_sender *sender, uint32_t blocks);

/*
 * Returns whether a load can be in time at until_us.
 *   sharing  which source sends which blocks, written if true; may be NULL.
 * Cost: O(senders^2).
 */
bool load_can_end(const struct load_senders *senders, const struct load *load,
                  int64_t until_us, struct load_sharing *sharing);

/*
 * Returns the first time of low_us .. high_us at which a load can be in time;
 * LOAD_PLAN_NEVER_US if there is none.
 *   high_us  below LOAD_PLAN_NEVER_US.
 * Cost: O(senders^2 log(microseconds)), O(senders^2) if one has all blocks.
 */
int64_t load_first_end_us(const struct load_senders *senders,
                          const struct load *load, int64_t low_us,
                          int64_t high_us);

#endif

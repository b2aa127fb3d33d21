/*
 * How the blocks of a trace are reused: how many other blocks were touched in
 * between (their stack distance), after what time, and how often. The distances
 * give the hit ratio of one LRU cache of every capacity in a single pass
 * (Mattson et al., 1970): a cache of C blocks hits exactly if fewer than C
 * other blocks were touched since the block's last touch.
 */
#ifndef TRACES_REUSE_H
#define TRACES_REUSE_H

#include <stdint.h>

#include "traces/trace.h"

struct trace_reuse;

/* Nothing seen yet. Returns owned, or NULL without memory. */
[[nodiscard]] struct trace_reuse *trace_reuse_new(void);

/* Frees it; NULL is a no-op. */
void trace_reuse_free(struct trace_reuse *reuse);

/*
 * Touches the blocks of the next request (borrowed), first to last; a partial
 * last one counts. Returns 0, -ENOMEM, or -E2BIG beyond 2^31 different blocks;
 * only good for _free then. O(log unique) a block; remembers all different
 * blocks, about 100 bytes each, and 4 bytes for every touch of a known one.
 */
[[nodiscard]] int trace_reuse_add(struct trace_reuse *reuse,
                                  const struct trace_request *request);

/* Different blocks so far, and those of them touched once. */
uint64_t trace_reuse_unique(const struct trace_reuse *reuse);
uint64_t trace_reuse_used_once(const struct trace_reuse *reuse);

/* Touches that one LRU cache of `capacity_blocks` hits. O(capacity). */
uint64_t trace_reuse_hits(const struct trace_reuse *reuse,
                          uint64_t capacity_blocks);

/*
 * The time between two touches of a block that a share (0 to 1) of all reuses
 * does not exceed, in milliseconds, by linear interpolation between ranks; 0
 * without any. The first call after _add sorts: O(n log n).
 */
double trace_reuse_gap_ms(struct trace_reuse *reuse, double share);

/* The touches of each block, most first: uses (unique), or NULL without
 * memory; owned by the caller. O(n log n). */
[[nodiscard]] uint32_t *trace_reuse_popularity(const struct trace_reuse *reuse);

#endif

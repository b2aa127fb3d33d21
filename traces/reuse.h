/*
 * Measures how the blocks of a trace are reused: how many other blocks are
 * touched in between (the stack distance), the time in between, and how often.
 * The distances give the hit ratio of an LRU cache of every capacity in a
 * single pass (Mattson et al., 1970): a cache of C blocks hits exactly if
 * fewer than C other blocks were touched since the block's last touch.
 */
#ifndef TRACES_REUSE_H
#define TRACES_REUSE_H

#include <stdint.h>

#include "traces/trace.h"

struct trace_reuse;

/* Returns an empty measurement, owned, or NULL: out of memory. */
[[nodiscard]] struct trace_reuse *trace_reuse_new(void);

/* Frees a measurement; NULL is a no-op. */
void trace_reuse_free(struct trace_reuse *reuse);

/*
 * Touches the blocks of the next request (borrowed), first to last; a partial
 * last one counts. Returns 0, -ENOMEM, or -E2BIG beyond 2^31 different blocks;
 * after an error it can only be freed. O(log unique) a block; memory: about
 * 100 bytes per different block, and 4 bytes per touch of a known one.
 */
[[nodiscard]] int trace_reuse_add(struct trace_reuse *reuse,
                                  const struct trace_request *request);

/* Return the number of different blocks so far, and of those touched once. */
uint64_t trace_reuse_unique(const struct trace_reuse *reuse);
uint64_t trace_reuse_used_once(const struct trace_reuse *reuse);

/* Returns the touches that hit in an LRU cache of `capacity_blocks`.
 * O(capacity). */
uint64_t trace_reuse_hits(const struct trace_reuse *reuse,
                          uint64_t capacity_blocks);

/*
 * Returns the quantile `share` (0 to 1) of the time between two touches of a
 * block, in ms, by linear interpolation; 0 without reuse. The first call after
 * trace_reuse_add() sorts: O(n log n).
 */
double trace_reuse_gap_ms(struct trace_reuse *reuse, double share);

/* Returns the touches of each block, most first: (unique), owned by the
 * caller, or NULL: out of memory. O(n log n). */
[[nodiscard]] uint32_t *trace_reuse_popularity(const struct trace_reuse *reuse);

#endif

/* The work of a trace, and the load it puts on a cluster. */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_WORK_H
#define TOOLS_REPLAY_STUDY_SWEEP_WORK_H

#include <stddef.h>
#include <stdint.h>

#include "sim/cluster/cluster.h"
#include "tools/replay/trace/stream.h"

/* Work of all requests of a trace, on nodes of speed 1. */
struct sweep_work {
    double prefill_s; /* one node's time, with the reuse of one cache as large
                         as all */
    double decode_s;  /* one node's time, with full batches */
    double kv_bytes;  /* KV of all prompts */
    double span_s;    /* first to last arrival, at the trace's speed */
    int64_t touched_tokens; /* of distinct blocks */
    int64_t longest_tokens; /* longest prompt plus answer */
};

/*
 * Reads a trace and adds up its work.
 *   cluster  model, costs, kv_tokens, max_batch and the nodes' memory; without
 *            nodes that prefill, the cache is infinite.
 *   error    (size) a message of one line.
 * Returns 0; -EINVAL: all requests have the same time; or a negative errno.
 * O(requests, blocks).
 */
[[nodiscard]] int sweep_work_read(const struct replay_stream_options *source,
                                  const struct cluster *cluster,
                                  struct sweep_work *work, char *error,
                                  size_t size);

/*
 * Returns the least time (s) a cluster needs for the work: the largest of
 *   prefill_s / total speed of prefill nodes,
 *   decode_s / total speed of decode nodes,
 *   kv_bytes / links of the smaller group, where KV crosses links;
 * for coupled nodes (prefill_s + decode_s) / their total speed. The load at a
 * trace speed x is this time / (span_s / x).
 */
double sweep_work_least_s(const struct sweep_work *work,
                          const struct cluster *cluster);

/* One LRU cache of block ids: an upper bound of what a cluster's nodes cache
 * together. */
struct sweep_lru;

/* Creates an empty cache of `capacity` blocks, at least 1. It remembers up to
 * `ids` distinct ids, evicted or not; further ids never hit. Returns it, owned,
 * or NULL when out of memory. */
[[nodiscard]] struct sweep_lru *sweep_lru_new(uint64_t capacity, size_t ids);

/* Frees a cache; NULL is a no-op. */
void sweep_lru_free(struct sweep_lru *lru);

/* Sets *leading to the number of leading blocks of ids[0 .. n) in the cache,
 * then caches all of them; the last ones are evicted first. Adds the number of
 * new ids to *new_blocks. Returns 0 or -ENOMEM. O(n). */
[[nodiscard]] int sweep_lru_use(struct sweep_lru *lru, const uint64_t *ids,
                                size_t n, size_t *leading,
                                uint64_t *new_blocks);

#endif

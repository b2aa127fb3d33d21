/* What a trace asks of a cluster, and the load that it is. */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_WORK_H
#define TOOLS_REPLAY_STUDY_SWEEP_WORK_H

#include <stddef.h>
#include <stdint.h>

#include "sim/cluster/cluster.h"
#include "tools/replay/trace/stream.h"

/* The work of all requests of a trace, on nodes of speed 1. */
struct sweep_work {
    double prefill_s; /* of one node, if all was reused that one cache of the
                         size of all would */
    double decode_s;  /* of one node whose batches are full */
    double kv_bytes;  /* of all prompts */
    double span_s;    /* first to last arrival, at the trace's speed */
    int64_t touched_tokens; /* of different blocks */
    int64_t longest_tokens; /* prompt and answer */
};

/*
 * Reads a trace and adds its work up.
 *   cluster  its model, costs, kv_tokens and max_batch; and its nodes' memory,
 *            or none that prefill: then the cache is infinite.
 *   error    (size) a message of one line.
 * Returns 0; -EINVAL: no two requests at different times; or a negative errno.
 * O(requests, blocks).
 */
[[nodiscard]] int sweep_work_read(const struct replay_stream_options *source,
                                  const struct cluster *cluster,
                                  struct sweep_work *work, char *error,
                                  size_t size);

/*
 * The time that a cluster needs at least for the work: the longest of
 *   prefill_s / sum of the speeds of nodes that prefill,
 *   decode_s / the same of nodes that decode,
 *   kv_bytes / the links of the fewer of both, where KV has to go over them;
 * of coupled nodes (prefill_s + decode_s) / sum of their speeds.
 * A load of 1 at a speed x of the trace is span_s / x = this time.
 */
double sweep_work_least_s(const struct sweep_work *work,
                          const struct cluster *cluster);

#endif

/* The part of a trace to replay, in memory, scaled. */
#ifndef TOOLS_REPLAY_TRACE_LOAD_H
#define TOOLS_REPLAY_TRACE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/report/record.h"
#include "tools/replay/trace/stream.h"
#include "traces/trace.h"

struct replay_trace {
    struct trace_request *requests; /* (count), scaled */
    size_t count;
    size_t capacity;
    uint32_t block_tokens;     /* scaled */
    uint32_t input_max_tokens; /* longest prompt, scaled */
};

/*
 * Reads and checks the whole part before anything is sent. Returns 0 with
 * *trace filled (free with _fini), or a negative errno with a message in
 * `error` (`size` bytes) and *trace untouched. A part without requests is
 * -EINVAL.
 */
[[nodiscard]] int replay_trace_load(const struct replay_stream_options *options,
                                    struct replay_trace *trace, char *error,
                                    size_t size);

/*
 * Returns the hit ratio of an infinite cache over the answered requests, in
 * trace order: reused / input tokens, or -1 when out of memory. Counts rejected
 * and failed requests, too: a server may compute their blocks. Counts full
 * blocks only, or with `with_partial` also a prompt's last block: an upper
 * bound for a server whose blocks are smaller than the trace's. records[0 ..
 * trace->count) are those of the trace's requests. O(blocks).
 */
double replay_best_hit_ratio(const struct replay_trace *trace,
                             const struct replay_record *records,
                             bool with_partial);

/* Frees what the trace owns. */
void replay_trace_fini(struct replay_trace *trace);

#endif

/* See load.h. */
#include "tools/replay/trace/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "traces/stats.h"

void replay_trace_fini(struct replay_trace *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        trace_request_fini(&trace->requests[i]);
    free(trace->requests);
    *trace = (struct replay_trace){0};
}

static int add_request(struct replay_trace *trace,
                       const struct trace_request *request)
{
    if (array_reserve(trace->requests, trace->capacity, trace->count + 1))
        return -ENOMEM;
    trace->requests[trace->count] = (struct trace_request){0};
    int rc = trace_request_copy(&trace->requests[trace->count], request);
    if (rc == 0)
        trace->count++;
    return rc;
}

int replay_trace_load(const struct replay_stream_options *options,
                      struct replay_trace *trace, char *error, size_t size)
{
    struct replay_trace t = {.block_tokens =
                                 options->block_tokens / options->length_scale};
    struct trace_request request = {0};
    struct replay_stream *stream = NULL;
    int rc = replay_stream_open(options, &stream, error, size);

    if (rc != 0)
        return rc;
    snprintf(error, size, "%s: out of memory", options->path);
    while ((rc = replay_stream_next(stream, &request)) > 0) {
        if (request.input_tokens > t.input_max_tokens)
            t.input_max_tokens = request.input_tokens;
        rc = add_request(&t, &request);
        if (rc != 0)
            break;
    }
    if (replay_stream_error(stream)[0] != '\0')
        snprintf(error, size, "%s", replay_stream_error(stream));
    if (rc == 0 && t.count == 0) {
        replay_stream_say_empty(stream, error, size);
        rc = -EINVAL;
    }
    trace_request_fini(&request);
    replay_stream_free(stream);
    if (rc == 0)
        *trace = t;
    else
        replay_trace_fini(&t);
    return rc;
}

double replay_best_hit_ratio(const struct replay_trace *trace,
                             const struct replay_record *records,
                             bool with_partial)
{
    struct trace_stats *stats =
        trace_stats_new(trace->block_tokens, with_partial);
    int rc = stats ? 0 : -ENOMEM;

    for (size_t i = 0; i < trace->count && rc == 0; i++)
        if (records[i].outcome != REPLAY_PENDING)
            rc = trace_stats_add(stats, &trace->requests[i]);
    double ratio =
        rc == 0 ? trace_totals_hit_ratio(trace_stats_totals(stats)) : -1.0;
    trace_stats_free(stats);
    return ratio;
}

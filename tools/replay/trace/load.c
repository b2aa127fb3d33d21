/* See load.h. */
#include "tools/replay/trace/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "traces/trace_reader.h"
#include "traces/trace_stats.h"

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
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity == 0 ? 256 : trace->capacity * 2;
        struct trace_request *requests =
            realloc(trace->requests, capacity * sizeof requests[0]);

        if (!requests)
            return -ENOMEM;
        trace->requests = requests;
        trace->capacity = capacity;
    }
    trace->requests[trace->count] = (struct trace_request){0};
    int rc = trace_request_copy(&trace->requests[trace->count], request);
    if (rc == 0)
        trace->count++;
    return rc;
}

static int add_scaled(struct replay_trace *trace, struct trace_request *request,
                      uint32_t scale)
{
    trace_request_scale(request, scale);
    if (request->input_tokens > trace->input_max_tokens)
        trace->input_max_tokens = request->input_tokens;
    return add_request(trace, request);
}

static int read_all(struct trace_reader *reader,
                    const struct replay_load_options *o,
                    struct replay_trace *trace, struct trace_error *error)
{
    struct trace_request request = {0};
    uint64_t read = 0;
    int rc = 0;

    for (uint64_t i = 0; o->requests == 0 || i < o->from + o->requests; i++) {
        rc = trace_reader_next(reader, &request, error);
        if (rc <= 0)
            break;
        read++;
        rc = i < o->from ? 0 : add_scaled(trace, &request, o->length_scale);
        if (rc != 0) {
            trace_error_set(error, "", "", 0, "out of memory");
            break;
        }
    }
    trace_request_fini(&request);
    if (rc == 0 && trace->count == 0) {
        if (read == 0) {
            trace_error_set(error, "", "", 0, "is empty");
        } else {
            trace_error_set(
                error, "", "", 0, "holds %llu requests, and --from skips %llu",
                (unsigned long long)read, (unsigned long long)o->from);
        }
        rc = -EINVAL;
    }
    return rc;
}

int replay_trace_load(const struct replay_load_options *options,
                      struct replay_trace *trace, char *error, size_t size)
{
    struct trace_reader_options reading = {.block_tokens =
                                               options->block_tokens};
    struct replay_trace t = {.block_tokens =
                                 options->block_tokens / options->length_scale};
    struct trace_error why = {0};
    struct trace_reader *reader = NULL;
    int rc = trace_reader_open(options->path, &reading, &reader, &why);

    if (rc == 0) {
        rc = read_all(reader, options, &t, &why);
        trace_reader_free(reader);
    }
    if (rc != 0) {
        replay_trace_fini(&t);
        trace_error_format(&why, options->path, error, size);
        return rc;
    }
    *trace = t;
    return 0;
}

double replay_best_hit_ratio(const struct replay_trace *trace,
                             const struct replay_record *records,
                             bool with_partial)
{
    struct trace_stats *stats =
        trace_stats_new(trace->block_tokens, with_partial);
    int rc = stats ? 0 : -ENOMEM;

    for (size_t i = 0; i < trace->count && rc == 0; i++)
        if (records[i].outcome == REPLAY_COMPLETED)
            rc = trace_stats_add(stats, &trace->requests[i]);
    double ratio =
        rc == 0 ? trace_totals_hit_ratio(trace_stats_totals(stats)) : -1.0;
    trace_stats_free(stats);
    return ratio;
}

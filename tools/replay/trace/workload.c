/* One pass over a trace; see workload.h. */
#include "tools/replay/trace/workload.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/ticker.h"
#include "traces/id_map.h"

/* What is kept while reading. */
struct reading {
    struct trace_stats *stats;
    double *input, *output; /* (capacity) */
    size_t count;
    size_t capacity;
    uint64_t at_once; /* requests at the last arrival time */
    int64_t last_us;
    struct id_map *first; /* first block -> requests that begin with it */
    uint64_t first_most;
};

static int reserve(struct reading *r)
{
    if (r->count < r->capacity)
        return 0;
    size_t n = r->capacity == 0 ? 1024 : r->capacity * 2;
    double *input = realloc(r->input, n * sizeof input[0]);
    if (!input)
        return -ENOMEM;
    r->input = input;
    double *output = realloc(r->output, n * sizeof output[0]);
    if (!output)
        return -ENOMEM;
    r->output = output;
    r->capacity = n;
    return 0;
}

static void count_arrival(struct reading *r, struct replay_workload *f,
                          int64_t at_us)
{
    bool again = r->count > 0 && at_us == r->last_us;

    r->at_once = again ? r->at_once + 1 : 1;
    f->arrival_times += !again;
    if (r->at_once > f->arrivals_at_once_max)
        f->arrivals_at_once_max = r->at_once;
    r->last_us = at_us;
}

static int count_first(struct reading *r, const struct trace_request *request)
{
    if (request->block_count == 0)
        return 0;
    const uint64_t *before = id_map_get(r->first, request->hash_ids[0]);
    uint64_t count = before ? *before + 1 : 1;
    if (count > r->first_most)
        r->first_most = count;
    return id_map_put(r->first, request->hash_ids[0], count);
}

static int add(struct reading *r, struct replay_workload *f,
               const struct trace_request *request)
{
    int rc = reserve(r);

    if (rc == 0)
        rc = trace_stats_add(r->stats, request);
    if (rc == 0)
        rc = trace_reuse_add(f->reuse, request);
    if (rc == 0)
        rc = count_first(r, request);
    if (rc == 0) {
        count_arrival(r, f, request->arrival_us);
        r->input[r->count] = request->input_tokens;
        r->output[r->count++] = request->output_tokens;
    }
    return rc;
}

static int read_all(struct replay_stream *source, struct reading *r,
                    struct replay_workload *f, char *error)
{
    struct replay_ticker ticker;
    struct trace_request request = {0};
    int rc;

    replay_ticker_init(&ticker, "requests read", 0);
    while ((rc = replay_stream_next(source, &request)) > 0) {
        rc = add(r, f, &request);
        if (rc != 0) {
            snprintf(error, REPLAY_STREAM_ERROR_BYTES, "out of memory");
            break;
        }
        if (r->count % 4096 == 0)
            replay_ticker_show(&ticker, r->count);
    }
    replay_ticker_end(&ticker);
    trace_request_fini(&request);
    if (rc < 0 && replay_stream_error(source)[0] != '\0') {
        snprintf(error, REPLAY_STREAM_ERROR_BYTES, "%s",
                 replay_stream_error(source));
    }
    f->skipped_lines = replay_stream_skipped(source);
    return rc;
}

static int finish(struct reading *r, struct replay_workload *f)
{
    f->totals = *trace_stats_totals(r->stats);
    f->span_s =
        (double)(f->totals.last_arrival_us - f->totals.first_arrival_us) / 1e6;
    f->input_tokens = replay_summarise(r->input, r->count);
    f->output_tokens = replay_summarise(r->output, r->count);
    f->unique_blocks = trace_reuse_unique(f->reuse);
    f->used_once_blocks = trace_reuse_used_once(f->reuse);
    f->first_block_share = replay_ratio(r->first_most, f->totals.requests);
    f->gap_p50_s = trace_reuse_gap_ms(f->reuse, 0.5) / 1e3;
    f->gap_p90_s = trace_reuse_gap_ms(f->reuse, 0.9) / 1e3;
    f->best_block_ratio =
        replay_ratio(f->totals.reused_blocks, f->totals.blocks);
    f->best_token_ratio = trace_totals_hit_ratio(&f->totals);
    f->popularity = trace_reuse_popularity(f->reuse);
    return f->popularity ? 0 : -ENOMEM;
}

int replay_workload_read(const struct replay_stream_options *options,
                         struct replay_workload **facts,
                         char error[REPLAY_STREAM_ERROR_BYTES])
{
    struct replay_stream *source = NULL;
    struct reading r = {0};
    int rc =
        replay_stream_open(options, &source, error, REPLAY_STREAM_ERROR_BYTES);

    if (rc != 0)
        return rc;
    struct replay_workload *f = calloc(1, sizeof *f);
    r.first = id_map_new(SIZE_MAX);
    r.stats = trace_stats_new((uint32_t)options->block_tokens, true);
    rc = -ENOMEM;
    snprintf(error, REPLAY_STREAM_ERROR_BYTES, "out of memory");
    if (f) {
        f->reuse = trace_reuse_new();
        f->block_tokens = options->block_tokens;
    }
    if (f && f->reuse && r.stats && r.first) {
        rc = read_all(source, &r, f, error);
        if (rc == 0 && r.count == 0) {
            replay_stream_say_empty(source, error, REPLAY_STREAM_ERROR_BYTES);
            rc = -EINVAL;
        }
        rc = rc == 0 ? finish(&r, f) : rc;
    }
    replay_stream_free(source);
    trace_stats_free(r.stats);
    id_map_free(r.first);
    free(r.input);
    free(r.output);
    if (rc != 0) {
        replay_workload_free(f);
        return rc;
    }
    *facts = f;
    return 0;
}

void replay_workload_free(struct replay_workload *facts)
{
    if (facts) {
        trace_reuse_free(facts->reuse);
        free(facts->popularity);
        free(facts);
    }
}

double replay_workload_lru_ratio(const struct replay_workload *facts,
                                 double capacity_tokens)
{
    double blocks = floor(capacity_tokens / (double)facts->block_tokens);
    uint64_t capacity = blocks < 1e15 ? (uint64_t)blocks : UINT64_MAX;

    return replay_ratio(trace_reuse_hits(facts->reuse, capacity),
                        facts->totals.blocks);
}

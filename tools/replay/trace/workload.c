/* One pass over a trace; its statistics as JSON and as a picture; see
 * workload.h. */
#include "tools/replay/trace/workload.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "tools/plot/plot.h"
#include "tools/replay/ticker.h"
#include "traces/id_map.h"

/* State of the pass. */
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
    size_t capacity = r->capacity; /* of both */
    int rc = array_reserve(r->input, capacity, r->count + 1);

    return rc == 0 ? array_reserve(r->output, r->capacity, r->count + 1) : rc;
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
    r.stats = trace_stats_new(options->block_tokens, true);
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

#define CURVE_POINTS 121

static json_t *summary_json(const struct replay_summary *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "p50",
                     s->p50, "p90", s->p90, "p99", s->p99, "max", s->max);
}

static json_t *caches_json(const struct replay_workload *f,
                           const double *mtokens, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_t *row =
            json_pack("{s:f, s:f}", "mtokens", mtokens[i], "hit_ratio",
                      replay_workload_lru_ratio(f, mtokens[i] * 1e6));

        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *popularity_json(const struct replay_workload *f)
{
    json_t *list = json_array();

    for (uint64_t rank = 1; rank <= f->unique_blocks; rank *= 10) {
        json_t *row = json_pack("{s:I, s:I}", "rank", (json_int_t)rank,
                                "touches", (json_int_t)f->popularity[rank - 1]);

        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *replay_workload_json(const struct replay_workload *f,
                             const double *mtokens, size_t n)
{
    /* "o" steals its reference even when packing fails; NULL makes it fail. */
    return json_pack(
        "{s:I, s:f, s:I, s:I, s:I, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:f},"
        " s:{s:f, s:f}, s:{s:f, s:f}, s:o, s:o}",
        "requests", (json_int_t)f->totals.requests, "span_s", f->span_s,
        "arrival_times", (json_int_t)f->arrival_times, "arrivals_at_once_max",
        (json_int_t)f->arrivals_at_once_max, "skipped_lines",
        (json_int_t)f->skipped_lines, "input_tokens",
        summary_json(&f->input_tokens), "output_tokens",
        summary_json(&f->output_tokens), "blocks", "tokens",
        (json_int_t)f->block_tokens, "touched", (json_int_t)f->totals.blocks,
        "different", (json_int_t)f->unique_blocks, "used_once",
        (json_int_t)f->used_once_blocks, "first_block_share",
        f->first_block_share, "reuse_gap_s", "p50", f->gap_p50_s, "p90",
        f->gap_p90_s, "best_possible_hit_ratio", "blocks", f->best_block_ratio,
        "tokens", f->best_token_ratio, "lru", caches_json(f, mtokens, n),
        "popularity", popularity_json(f));
}

/* Returns the i-th of CURVE_POINTS from `least` to `most`, evenly spaced on a
 * logarithmic axis. */
static double spread(double least, double most, size_t i)
{
    return least * pow(most / least, (double)i / (double)(CURVE_POINTS - 1));
}

/* Writes the points of the three curves. */
static void put_curves(struct replay_workload *f, FILE *file)
{
    double blocks = (double)f->unique_blocks;
    double most = fmax(1, blocks * (double)f->block_tokens / 1e6 * 1.2);

    fputs("mtokens,hit_ratio,rank,touches,share,gap_s\n", file);
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        double mtokens = spread(0.1, most, i);
        double rank = floor(spread(1, blocks, i) + 1e-9);
        size_t at = rank > 1 ? (size_t)rank - 1 : 0;
        double share = (double)i / (double)(CURVE_POINTS - 1);

        fprintf(file, "%.9g,%.9g,%.0f,%u,%.9g,%.9g\n", mtokens,
                replay_workload_lru_ratio(f, mtokens * 1e6), rank,
                (unsigned)f->popularity[at < f->unique_blocks ? at : 0], share,
                fmax(0.1, trace_reuse_gap_ms(f->reuse, share) / 1e3));
    }
}

int replay_workload_plot(struct replay_workload *f, const char *path)
{
    json_t *json = replay_workload_json(f, NULL, 0);
    char title[160];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title,
             "%llu requests, %.0f tokens in and %.0f out on average, at best "
             "%.1f %% of the input reused",
             (unsigned long long)f->totals.requests, f->input_tokens.mean,
             f->output_tokens.mean, 100 * f->best_token_ratio);
    if (rc == 0 && (!json || json_dumpf(json, plot.file, 0) != 0))
        rc = -ENOMEM;
    if (rc == 0)
        put_curves(f, plot.file);
    json_decref(json);
    return plot_end(&plot, rc, "stats", title, path);
}

/* conductor-replay stats: a trace's demand, and the hit ratios of caches. */
#include "traces/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "tools/plot/plot.h"
#include "tools/replay/command.h"
#include "tools/replay/report/report.h"
#include "tools/replay/ticker.h"
#include "tools/replay/trace/stream.h"
#include "traces/id_map.h"
#include "traces/reuse.h"

static const struct option_usage usage = {
    .name = "stats",
    .synopsis = "--trace FILE [OPTIONS]",
    .text = "Describes a trace: lengths, arrivals, how often and how soon "
            "blocks come back, and\nthe hit ratios that caches could reach on "
            "it: the best possible one, and that of\none LRU cache of every "
            "capacity (Mooncake, FAST'25, Figure 9). The partial\nlast block "
            "counts, as in the published numbers.",
    .examples = "  conductor-replay stats --trace traces/sample.jsonl\n"
                "  conductor-replay stats --trace conversation_trace.jsonl.gz "
                "--plot stats.svg\n"
                "  conductor-replay stats --trace t.jsonl --skip-bad "
                "--capacities 0.5,2,8 --json s.json\n",
};

struct settings {
    struct replay_stream_options source;
    const char *capacities; /* millions of tokens */
    const char *json;
    const char *plot;
};

struct replay_workload {
    struct trace_totals totals; /* infinite cache, partial blocks included */
    uint64_t block_tokens;
    uint64_t skipped_lines;
    double span_s;
    uint64_t arrival_times; /* distinct */
    uint64_t arrivals_at_once_max;
    struct replay_summary input_tokens;
    struct replay_summary output_tokens;
    uint64_t unique_blocks;
    uint64_t used_once_blocks;
    double first_block_share; /* share of requests with the most frequent first
                                 block */
    double gap_p50_s;
    double gap_p90_s;
    double best_block_ratio;
    double best_token_ratio;
    uint32_t *popularity;      /* (unique_blocks), most used first; owned */
    struct trace_reuse *reuse; /* owned */
};

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

static void free_workload(struct replay_workload *facts)
{
    if (facts) {
        trace_reuse_free(facts->reuse);
        free(facts->popularity);
        free(facts);
    }
}

/* Reads the whole source, with progress on stderr. Returns 0 with *facts owned
 * by the caller; or a negative errno with a message in `error`: a trace without
 * requests is -EINVAL. O(blocks log blocks). */
static int read_workload(const struct replay_stream_options *options,
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
        free_workload(f);
        return rc;
    }
    *facts = f;
    return 0;
}

/* Returns the block hit ratio of one LRU cache of this capacity, in whole
 * blocks. O(capacity). */
static double lru_ratio(const struct replay_workload *facts,
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
        json_t *row = json_pack("{s:f, s:f}", "mtokens", mtokens[i],
                                "hit_ratio", lru_ratio(f, mtokens[i] * 1e6));

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

/* Returns all facts as JSON, with the LRU's hit ratio at mtokens[0 .. n)
 * millions of tokens: a new reference, or NULL when out of memory. */
static json_t *workload_json(const struct replay_workload *f,
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
                lru_ratio(f, mtokens * 1e6), rank,
                (unsigned)f->popularity[at < f->unique_blocks ? at : 0], share,
                fmax(0.1, trace_reuse_gap_ms(f->reuse, share) / 1e3));
    }
}

/* Draws LRU hit ratio over capacity, popularity over rank, and the
 * distribution of reuse gaps. Returns 0 or a negative errno. */
static int plot_workload(struct replay_workload *f, const char *path)
{
    json_t *json = workload_json(f, NULL, 0);
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

static void print_lengths(const char *what, const struct replay_summary *s)
{
    printf("%-16s %12.1f %10.0f %10.0f %10.0f %10.0f\n", what, s->mean, s->p50,
           s->p90, s->p99, s->max);
}

static void print_facts(const struct replay_workload *f)
{
    printf("requests         %" PRIu64 " over %.0f s, %.3f per second\n",
           f->totals.requests, f->span_s,
           f->span_s > 0 ? (double)f->totals.requests / f->span_s : 0.0);
    printf("arrivals         at %" PRIu64 " different times, up to %" PRIu64
           " at one\n",
           f->arrival_times, f->arrivals_at_once_max);
    if (f->skipped_lines > 0)
        printf("bad lines        %" PRIu64 " skipped\n", f->skipped_lines);
    printf("\n%-16s %12s %10s %10s %10s %10s\n", "tokens", "mean", "p50", "p90",
           "p99", "max");
    print_lengths("input", &f->input_tokens);
    print_lengths("output", &f->output_tokens);
    printf("\nblocks           %" PRIu64 " touched, %" PRIu64
           " different, %" PRIu64 " of them once\n",
           f->totals.blocks, f->unique_blocks, f->used_once_blocks);
    printf("first block      %.1f %% of requests begin with the most common "
           "one\n",
           100 * f->first_block_share);
    printf("reuse gap        p50 %.0f s, p90 %.0f s\n", f->gap_p50_s,
           f->gap_p90_s);
    printf("best hit ratio   %.6f of blocks, %.6f of tokens (infinite cache)\n",
           f->best_block_ratio, f->best_token_ratio);
}

static void print_caches(const struct replay_workload *f,
                         const struct replay_numbers *capacities)
{
    printf("\none LRU cache    hit ratio   of the best\n");
    for (size_t i = 0; i < capacities->count; i++) {
        double ratio = lru_ratio(f, capacities->values[i] * 1e6);

        printf("%8g M tokens   %.4f   %6.1f %%\n", capacities->values[i], ratio,
               f->best_block_ratio > 0 ? 100 * ratio / f->best_block_ratio : 0);
    }
    printf("\nrank of a block  touches\n");
    for (uint64_t rank = 1; rank <= f->unique_blocks; rank *= 10) {
        printf("%12" PRIu64 "     %" PRIu32 "\n", rank,
               f->popularity[rank - 1]);
    }
}

static int write_json(const struct settings *s, const struct replay_workload *f,
                      const struct replay_numbers *capacities)
{
    json_t *json = workload_json(f, capacities->values, capacities->count);
    int rc = json ? replay_json_write(json, s->json) : -ENOMEM;

    json_decref(json);
    return rc;
}

static int measure(const struct settings *s,
                   const struct replay_numbers *capacities)
{
    struct replay_workload *facts = NULL;
    char error[REPLAY_STREAM_ERROR_BYTES];

    if (read_workload(&s->source, &facts, error) != 0)
        return replay_complain(usage.name, "%s", error);
    print_facts(facts);
    print_caches(facts, capacities);
    int status =
        REPLAY_OUTPUT(usage.name, s->json, write_json(s, facts, capacities)) |
        REPLAY_OUTPUT(usage.name, s->plot, plot_workload(facts, s->plot));
    free_workload(facts);
    return status;
}

int replay_command_stats(int argc, char **argv)
{
    struct settings s = {.source = {.block_tokens = TRACE_BLOCK_TOKENS},
                         .capacities = "1,3,10,30,50"};
    const struct option_spec specs[] = {
        REPLAY_STREAM_SPECS(s.source),
        {"block-tokens", OPTION_U32, &s.source.block_tokens, "N", 1, 65536,
         "tokens per hash id of the trace (default 512)"},
        {"capacities", OPTION_TEXT, &s.capacities, "LIST", 0, 0,
         "capacities of the LRU cache, in millions of tokens (default "
         "1,3,10,30,50)"},
        {"json", OPTION_OUTPUT, &s.json, "FILE", 0, 0,
         "write all numbers as JSON"},
        {"plot", OPTION_OUTPUT, &s.plot, "FILE", 0, 0,
         "draw hit ratio over capacity, popularity and reuse gaps as SVG"},
    };
    struct replay_numbers capacities;
    char error[REPLAY_LIST_ERROR_BYTES];
    int status = 0;
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) != 0)
        return status;
    if (replay_list_numbers("capacities", s.capacities, 1e-6, 1e9, &capacities,
                            error) != 0)
        return replay_refuse(usage.name, "%s", error);
    return measure(&s, &capacities);
}

/* conductor-replay stats: a trace's demand, and the hit ratios of caches. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "tools/replay/command.h"
#include "tools/replay/report/report.h"
#include "tools/replay/trace/stream.h"
#include "tools/replay/trace/workload.h"

static const struct option_usage usage = {
    .name = "stats",
    .synopsis = "--trace FILE [OPTIONS]",
    .text =
        "Says what a trace asks for: lengths, arrivals, how often blocks come "
        "back and how\nsoon; and what caches can do for it: the best possible "
        "prefix-hit ratio, and that\nof one LRU cache of every capacity "
        "(Mooncake, FAST'25, Figure 9). The partial\nlast block counts, as "
        "in the published numbers.",
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
        double ratio =
            replay_workload_lru_ratio(f, capacities->values[i] * 1e6);

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
    json_t *json =
        replay_workload_json(f, capacities->values, capacities->count);
    int rc = json ? replay_json_write(json, s->json) : -ENOMEM;

    json_decref(json);
    return rc;
}

static int measure(const struct settings *s,
                   const struct replay_numbers *capacities)
{
    struct replay_workload *facts = NULL;
    char error[REPLAY_STREAM_ERROR_BYTES];

    if (replay_workload_read(&s->source, &facts, error) != 0)
        return replay_complain(usage.name, "%s", error);
    print_facts(facts);
    print_caches(facts, capacities);
    int status =
        REPLAY_OUTPUT(usage.name, s->json, write_json(s, facts, capacities)) |
        REPLAY_OUTPUT(usage.name, s->plot,
                      replay_workload_plot(facts, s->plot));
    replay_workload_free(facts);
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

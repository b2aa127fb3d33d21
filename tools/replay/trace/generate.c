/* conductor-replay generate: a trace like a published workload. */
#include "traces/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/replay/command.h"
#include "tools/result_file.h"
#include "traces/file.h"
#include "traces/stats.h"
#include "traces/writer.h"

static const struct option_usage usage = {
    .name = "generate",
    .synopsis = "--like WORKLOAD [OPTIONS]",
    .text =
        "Writes a trace with the statistics of a workload of the Mooncake "
        "paper (FAST'25):\nlengths, arrivals, and the part of the input that "
        "an infinite cache would reuse; or of\nanother kind of traffic "
        "(traces/DESIGN.md), in which --rate changes the starts of\nsessions "
        "and not the gaps within them. The same seed gives the same trace on "
        "every\nmachine. A summary goes to stderr.\n\n  chats    short chats "
        "behind shared system prompts\n  agents   coding agents: long prompts, "
        "mostly the turn before\n  crowds   many users with questions about "
        "one document\n  day      conversations whose rate follows the hours "
        "of a day\n  bursts   conversations that start many at once\n  singles "
        " prompts that share no block\n  mixed    30 % agents, 70 % chats\n  "
        "nightly  chats by day, a batch of long prompts by night",
    .examples =
        "  conductor-replay generate --like conversation --out conv.jsonl.gz\n"
        "  conductor-replay generate --like synthetic --requests 200 "
        "--rate 2 --seed 7\n"
        "  conductor-replay generate --like agents --requests 3000 --rate 12 "
        "--out a.jsonl.gz\n",
};

static int generate(struct trace_generator *generator, uint64_t requests,
                    FILE *file, struct trace_stats *stats)
{
    struct trace_request request = {0};
    int rc = 0;

    for (uint64_t i = 0; i < requests && rc == 0; i++) {
        rc = trace_generator_next(generator, &request);
        if (rc == 0)
            rc = trace_write(file, &request);
        if (rc == 0)
            rc = trace_stats_add(stats, &request);
    }
    trace_request_fini(&request);
    return rc;
}

static void print_totals(const struct trace_totals *t)
{
    double n = (double)t->requests;

    fprintf(stderr,
            "%" PRIu64 " requests over %.0f s, mean input %.0f and output "
            "%.0f tokens, an infinite cache reuses %.1f %% of the input\n",
            t->requests,
            (double)(t->last_arrival_us - t->first_arrival_us) / 1e6,
            (double)t->input_tokens / n, (double)t->output_tokens / n,
            100 * trace_totals_hit_ratio(t));
}

static int write_trace(struct trace_generator *generator, uint64_t requests,
                       const char *path)
{
    struct trace_stats *stats = trace_stats_new(TRACE_BLOCK_TOKENS, true);
    FILE *file = !path                  ? stdout
                 : result_is_open(path) ? result_open(path)
                                        : trace_file_create(path);
    int rc = -ENOMEM;

    if (!file)
        rc = -errno;
    else if (stats)
        rc = generate(generator, requests, file, stats);
    if (file && (path ? fclose(file) : fflush(file)) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        print_totals(trace_stats_totals(stats));
    else
        rc = replay_complain(usage.name, "%s: %s", path ? path : "stdout",
                             strerror(-rc));
    trace_stats_free(stats);
    return rc;
}

static const char *workload_name(size_t i)
{
    const struct trace_workload_facts *facts = trace_workload_facts(i);

    return facts ? facts->name : NULL;
}

int replay_command_generate(int argc, char **argv)
{
    const char *like = NULL;
    const char *out = NULL;
    uint64_t requests = 0;
    uint64_t seed = 1;
    double rate = 0;
    const struct option_spec specs[] = {
        {"like", OPTION_TEXT, &like, "WORKLOAD", 0, 0,
         "the workload:", .choice = workload_name, .required = true},
        {"requests", OPTION_COUNT, &requests, "N", 1, 1e9,
         "number of requests (default: as many as the paper's, or 6,000)"},
        {"rate", OPTION_NUMBER, &rate, "R", 1e-6, 1e6,
         "mean requests per second (default: the workload's)"},
        {"seed", OPTION_COUNT, &seed, "S", 0, 9e15,
         "seed of the trace (default 1)"},
        {"out", OPTION_OUTPUT, &out, "FILE", 0, 0,
         "write the trace to this file, gzipped if the name ends in .gz "
         "(default: stdout)"},
    };
    int status = 0;
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) != 0)
        return status;
    struct trace_generator *generator = NULL;
    int rc = trace_generator_new(like, seed, rate, &generator);
    if (rc != 0)
        return replay_complain(usage.name, "%s", strerror(-rc));
    for (size_t i = 0; requests == 0; i++)
        if (strcmp(workload_name(i), like) == 0)
            requests = trace_workload_facts(i)->requests;
    status = write_trace(generator, requests, out);
    trace_generator_free(generator);
    return status;
}

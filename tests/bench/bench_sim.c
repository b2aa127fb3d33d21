/*
 * What the simulator takes: requests per second of one core and peak memory.
 * Beside each figure stands the aim. Never fails on a time.
 *
 * usage: bench_sim CLUSTER.json [TRACE [REQUESTS NODES]]
 *   TRACE     a file; "-" or none: generated like the conversation trace
 *   REQUESTS  generated ones for the large run, default 1,000,000
 *   NODES     of the large run, default 1,000
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sim/sim.h"
#include "traces/generate.h"
#include "traces/reader.h"

enum { TRACE_REQUESTS = 12031, TRACE_NODES = 16 };

/* Requests of the conversation workload a second and node that leave nodes a
 * third idle. */
#define RATE_PER_NODE 0.27

struct source {
    struct trace_reader *reader;       /* of a file, or */
    struct trace_generator *generator; /* generated: */
    uint64_t left;
    double ttft_s; /* sum */
    uint64_t input_tokens, reused_tokens;
};

static int next(void *arg, struct trace_request *request)
{
    struct source *s = arg;
    struct trace_error error;

    if (s->reader)
        return trace_reader_next(s->reader, request, &error);
    if (s->left == 0)
        return 0;
    s->left--;
    return trace_generator_next(s->generator, request) == 0 ? 1 : -1;
}

static void take(void *arg, const struct sim_record *r)
{
    struct source *s = arg;

    s->ttft_s += (double)(r->first_token_us - r->arrival_us) / 1e6;
    s->input_tokens += r->input_tokens;
    s->reused_tokens += r->local_tokens + r->fetched_tokens;
}

/* Of this process: what else runs on the machine does not count. */
static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double peak_mb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1e3;
}

static void run(const char *what, const struct cluster *cluster,
                const char *policy, struct source *source, const char *aim)
{
    struct sim_config config = {
        .cluster = cluster, .policy = policy, .speed = 1.0, .seed = 1};
    struct sim_io io = {.next = next, .record = take, .arg = source};
    struct sim_summary summary;
    char error[SIM_ERROR_BYTES] = "";
    double begin_s = now_s();

    if (sim_run(&config, &io, &summary, error) != 0) {
        printf("%s: %s\n", what, error);
        return;
    }
    double cpu_s = now_s() - begin_s;

    printf("%-34s %-13s %8.3f s %9.0f requests/s %8.0f MB  %s\n", what, policy,
           cpu_s, (double)summary.requests / cpu_s, peak_mb(), aim);
    printf("    %" PRIu64 " requests, %" PRIu64 " events, %.0f s simulated, "
           "at most %" PRIu64 " at once, mean TTFT %.3f s, hit ratio %.3f\n",
           summary.requests, summary.events, (double)summary.simulated_us / 1e6,
           summary.max_unfinished, source->ttft_s / (double)summary.requests,
           (double)source->reused_tokens / (double)source->input_tokens);
    fflush(stdout);
}

static void run_generated(const char *what, struct cluster *cluster,
                          const char *policy, uint64_t requests, uint32_t nodes,
                          const char *aim)
{
    struct source source = {.left = requests};
    char error[CLUSTER_ERROR_BYTES];

    if (cluster_override(cluster, &(struct cluster_changes){nodes, -1, -1, -1},
                         error) != 0) {
        printf("%s\n", error);
        return;
    }
    if (trace_generator_new("conversation", 1, RATE_PER_NODE * nodes,
                            &source.generator) != 0) {
        printf("no generator\n");
        return;
    }
    run(what, cluster, policy, &source, aim);
    trace_generator_free(source.generator);
}

static void run_file(struct cluster *cluster, const char *policy,
                     const char *path)
{
    struct source source = {.left = 0};
    struct trace_error error;

    if (trace_reader_open(path, NULL, &source.reader, &error) != 0) {
        printf("%s: cannot be read\n", path);
        return;
    }
    run("the trace, reading included", cluster, policy, &source, "aim: 1 s");
    trace_reader_free(source.reader);
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {"global_cache", "local_cache",
                                           "least_loaded"};
    struct cluster cluster;
    char error[CLUSTER_ERROR_BYTES];
    uint64_t requests = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000;
    uint32_t nodes = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1000;
    const char *trace = argc > 2 && strcmp(argv[2], "-") != 0 ? argv[2] : NULL;

    if (argc < 2 || cluster_load_file(argv[1], &cluster, error) != 0) {
        printf("%s\n", argc < 2 ? "usage: bench_sim CLUSTER.json [TRACE "
                                  "[REQUESTS NODES]]"
                                : error);
        return 2;
    }
    for (size_t p = 0; p < 3; p++) {
        if (trace)
            run_file(&cluster, policies[p], trace);
        else
            run_generated("generated, making included", &cluster, policies[p],
                          TRACE_REQUESTS, TRACE_NODES, "aim: 1 s");
    }
    run_generated("large, making included", &cluster, "global_cache", requests,
                  nodes, "aim: bounded memory");
    return 0;
}

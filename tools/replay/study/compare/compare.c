/* conductor-replay compare: policies side by side. */
#include "tools/replay/study/compare/compare.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/command.h"
#include "tools/replay/list.h"
#include "tools/replay/simulate/policies.h"
#include "tools/replay/study/study.h"

static const struct replay_usage usage = {
    .name = "compare",
    .synopsis = "--trace FILE --cluster FILE [OPTIONS]",
    .text =
        "Simulates a trace under several policies, speeds and numbers of "
        "prefill nodes, and\nputs TTFT, hit ratio and effective requests side "
        "by side. Effective are requests\nwithin both SLOs (30 s and 0.2 s "
        "unless said otherwise); only those given here\nare asked for, so "
        "that what no choice can meet is rejected at arrival.",
    .examples =
        "  conductor-replay compare --trace conversation.jsonl.gz --cluster "
        "\\\n      traces/clusters/reference-16.json --speeds 1,2,3 "
        "--prefill 8,10,16 \\\n      --plot order.svg --csv order.csv\n"
        "  conductor-replay compare --trace conversation.jsonl.gz --cluster "
        "\\\n      traces/clusters/paper-16.json --slo-ttft 30 --speeds "
        "1,2,4,8\n",
};

struct settings {
    struct replay_study study;
    const char *cluster, *policies, *speeds, *prefill, *links, *admission;
    const char *csv, *plot;
    double slo_ttft_s, slo_tbt_s, cache_tokens;
    uint64_t decode, seed;
    struct replay_policies numbers;
};

#define NOT_GIVEN UINT64_MAX

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(s->study),
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &s->policies, "LIST", 0, 0,
         "default random,least_loaded,local_cache,global_cache,plan"},
        REPLAY_POLICY_SPEC(s->numbers),
        {"speeds", OPTION_TEXT, &s->speeds, "LIST", 0, 0,
         "how many times as fast as the trace (default 1)"},
        {"prefill", OPTION_TEXT, &s->prefill, "LIST", 0, 0,
         "numbers of prefill (or coupled) nodes (default: the file's)"},
        {"decode", OPTION_COUNT, &s->decode, "N", 0, CLUSTER_NODES_MAX,
         "decode nodes, instead of the file's"},
        {"link-gbps", OPTION_TEXT, &s->links, "LIST", 0, 0,
         "Gbit/s of every link, instead of the file's"},
        {"cache-tokens", OPTION_NUMBER, &s->cache_tokens, "N", 1, 1e12,
         "tokens that a prefill node's device caches, likewise"},
        {"admission", OPTION_TEXT, &s->admission, "NAME", 0, 0,
         "plain or none, as of simulate (default plain)"},
        {"slo-ttft", OPTION_NUMBER, &s->slo_ttft_s, "S", 0, 1e6,
         "seconds to the first token that requests ask for"},
        {"slo-tbt", OPTION_NUMBER, &s->slo_tbt_s, "S", 0, 1e6,
         "seconds between tokens that they ask for"},
        {"seed", OPTION_COUNT, &s->seed, "S", 0, 9e15,
         "of random choices (default 1)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0, "a line a simulation"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0, "SVG"},
    };
    const struct option_table table = {specs, sizeof specs / sizeof specs[0]};
    if (replay_parse(&usage, &table, argc, argv, status) != 0)
        return -1;
    *status = REPLAY_EXIT_USAGE;
    return 0;
}

static int read_lists(const struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_LIST_ERROR_BYTES];

    if (replay_list_names("policies", s->policies, sim_policy_name,
                          &c->policies, error) != 0 ||
        replay_list_numbers("speeds", s->speeds, 1e-3, 1e6, &c->speeds,
                            error) != 0 ||
        (s->prefill &&
         replay_list_numbers("prefill", s->prefill, 1, CLUSTER_NODES_MAX,
                             &c->nodes, error) != 0) ||
        (s->links && replay_list_numbers("link-gbps", s->links, 0, 1e9,
                                         &c->links, error) != 0)) {
        replay_complain(usage.name, "%s", error);
        return -1;
    }
    for (size_t i = 0; i < c->nodes.count; i++) {
        if (floor(c->nodes.values[i]) != c->nodes.values[i]) {
            replay_complain(usage.name, "--prefill %s: must be whole numbers",
                            s->prefill);
            return -1;
        }
    }
    return 0;
}

static struct replay_case make_case(const struct settings *s,
                                    const struct cluster *cluster, double speed,
                                    const char *policy)
{
    struct replay_case one = replay_case_make(cluster, policy);

    one.settings = &s->numbers.settings;
    one.speed = speed;
    one.seed = s->seed;
    one.admission = s->admission;
    one.slo_ttft_s = s->slo_ttft_s;
    one.slo_tbt_s = s->slo_tbt_s;
    if (s->slo_ttft_s > 0)
        one.effective_ttft_s = s->slo_ttft_s;
    if (s->slo_tbt_s > 0)
        one.effective_tbt_s = s->slo_tbt_s;
    return one;
}

/* One case for every rate of links, number of nodes, speed and policy, in this
 * order. */
static int make_cases(const struct settings *s, const struct cluster *file,
                      struct replay_comparison *c)
{
    char error[CLUSTER_ERROR_BYTES];
    size_t i = 0;

    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        struct cluster cluster = *file;
        double gbps =
            c->links.count > 0 ? c->links.values[n / c->nodes.count] : -1;

        if (cluster_override(&cluster,
                             (int64_t)c->nodes.values[n % c->nodes.count],
                             s->decode == NOT_GIVEN ? -1 : (int64_t)s->decode,
                             -1, error) != 0 ||
            replay_override(&cluster, gbps, s->cache_tokens, error) != 0) {
            replay_complain(usage.name, "%s", error);
            return -EINVAL;
        }
        for (size_t v = 0; v < c->speeds.count; v++) {
            for (size_t p = 0; p < c->policies.count; p++) {
                c->cases[i++] = make_case(s, &cluster, c->speeds.values[v],
                                          c->policies.names[p]);
            }
        }
    }
    return 0;
}

static int run(const struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_STUDY_ERROR_BYTES];

    if (replay_study_run(&s->study, c->cases, c->n_cases, error) != 0) {
        replay_complain(usage.name, "%s", error);
        return 1;
    }
    replay_comparison_print(c, stdout);
    int status = 0;
    if (s->csv)
        status |= replay_complain_output(usage.name, s->csv,
                                         replay_comparison_csv(c, s->csv));
    if (s->plot)
        status |= replay_complain_output(usage.name, s->plot,
                                         replay_comparison_plot(c, s->plot));
    return status;
}

int replay_command_compare(int argc, char **argv)
{
    struct settings s = {
        .policies = "random,least_loaded,local_cache,global_cache,plan",
        .speeds = "1",
        .admission = "plain",
        .cache_tokens = -1,
        .decode = NOT_GIVEN,
        .seed = 1};
    static const struct replay_comparison none;
    struct replay_comparison c = none;
    struct cluster file;
    char error[CLUSTER_ERROR_BYTES];
    int status = REPLAY_EXIT_USAGE;

    if (replay_policies_begin(&s.numbers, argc) != 0)
        return 1;
    bool good = parse(argc, argv, &s, &status) == 0 && read_lists(&s, &c) == 0;
    if (replay_policies_end(&s.numbers, usage.name, c.policies.names,
                            good ? c.policies.count : 0) != 0)
        return REPLAY_EXIT_USAGE;
    if (!good)
        return status;
    if (replay_check_admission(usage.name, s.admission) != 0)
        return REPLAY_EXIT_USAGE;
    if (cluster_load_file(s.cluster, &file, error) != 0) {
        replay_complain(usage.name, "%s", error);
        return 1;
    }
    if (c.nodes.count == 0) {
        c.nodes.values[c.nodes.count++] =
            file.prefill_nodes + file.coupled_nodes;
    }
    c.n_cases =
        replay_comparison_clusters(&c) * c.speeds.count * c.policies.count;
    c.cases = calloc(c.n_cases, sizeof c.cases[0]);
    if (!c.cases) {
        replay_complain(usage.name, "out of memory");
        return 1;
    }
    status = make_cases(&s, &file, &c) == 0 ? run(&s, &c) : 1;
    replay_cases_fini(c.cases, c.n_cases);
    free(c.cases);
    return status;
}

/* conductor-replay compare: policies side by side. */
#include "tools/replay/study/compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/command.h"
#include "tools/replay/list.h"
#include "tools/replay/simulate/policies.h"
#include "tools/replay/study/study.h"

static const struct option_usage usage = {
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
    struct replay_case base; /* of all cases */
    struct cluster_changes changes;
    struct replay_policies numbers;
    const char *cluster, *policies, *speeds, *prefill, *links;
    const char *csv, *plot;
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(s->study),
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &s->policies, "LIST", 0, 0,
         "default: those of the paper's Figure 5, and " POLICY_DEFAULT},
        REPLAY_POLICY_SPEC(s->numbers),
        {"speeds", OPTION_TEXT, &s->speeds, "LIST", 0, 0,
         "how many times as fast as the trace (default 1)"},
        {"prefill", OPTION_TEXT, &s->prefill, "LIST", 0, 0,
         "numbers of prefill (or coupled) nodes (default: the file's)"},
        {"decode", OPTION_COUNT, &s->changes.decode_nodes, "N", 0,
         CLUSTER_NODES_MAX, "decode nodes, instead of the file's"},
        {"link-gbps", OPTION_TEXT, &s->links, "LIST", 0, 0,
         "Gbit/s of every link, instead of the file's"},
        {"cache-tokens", OPTION_NUMBER, &s->changes.cache_tokens, "N", 1, 1e12,
         "tokens that a prefill node's device caches, likewise"},
        {"admission", OPTION_TEXT, &s->base.admission, "NAME", 0, 0,
         "plain or none, as of simulate (default plain)"},
        {"slo-ttft", OPTION_NUMBER, &s->base.slo_ttft_s, "S", 0, 1e6,
         "seconds to the first token that requests ask for"},
        {"slo-tbt", OPTION_NUMBER, &s->base.slo_tbt_s, "S", 0, 1e6,
         "seconds between tokens that they ask for"},
        {"seed", OPTION_COUNT, &s->base.seed, "S", 0, 9e15,
         "of random choices (default 1)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0, "a line a simulation"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0, "SVG"},
    };
    return replay_policies_parse(&s->numbers, &usage, OPTION_TABLE(specs), argc,
                                 argv, status);
}

static int read_lists(const struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_LIST_ERROR_BYTES];

    if (!s->policies)
        replay_comparison_policies(&c->policies);
    if ((s->policies &&
         replay_list_names("policies", s->policies, sim_policy_name,
                           &c->policies, error) != 0) ||
        replay_list_numbers("speeds", s->speeds, 1e-3, 1e6, &c->speeds,
                            error) != 0 ||
        (s->prefill &&
         replay_list_numbers("prefill", s->prefill, 1, CLUSTER_NODES_MAX,
                             &c->nodes, error) != 0) ||
        (s->links && replay_list_numbers("link-gbps", s->links, 0, 1e9,
                                         &c->links, error) != 0))
        return replay_complain(usage.name, "%s", error);
    for (size_t i = 0; i < c->nodes.count; i++)
        if (floor(c->nodes.values[i]) != c->nodes.values[i])
            return replay_complain(
                usage.name, "--prefill %s: must be whole numbers", s->prefill);
    return 0;
}

/* One case for every rate of links, number of nodes, speed and policy, in this
 * order. */
static int make_cases(const struct settings *s, struct replay_comparison *c)
{
    struct replay_case one = s->base;
    struct cluster_changes changes = s->changes;
    char error[CLUSTER_ERROR_BYTES];
    size_t i = 0;

    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        if (c->links.count > 0)
            changes.link_gbps = c->links.values[n / c->nodes.count];
        changes.prefill_nodes = (int64_t)c->nodes.values[n % c->nodes.count];
        one.cluster = s->base.cluster;
        if (cluster_override(&one.cluster, &changes, error) != 0)
            return replay_complain(usage.name, "%s", error);
        for (size_t v = 0; v < c->speeds.count; v++) {
            for (size_t p = 0; p < c->policies.count; p++) {
                one.speed = c->speeds.values[v];
                one.policy = c->policies.names[p];
                c->cases[i++] = one;
            }
        }
    }
    return 0;
}

static int run(const struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_STUDY_ERROR_BYTES];

    if (replay_study_run(&s->study, c->cases, c->n_cases, error) != 0)
        return replay_complain(usage.name, "%s", error);
    replay_comparison_print(c, stdout);
    return REPLAY_OUTPUT(usage.name, s->csv, replay_comparison_csv(c, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->plot,
                         replay_comparison_plot(c, s->plot));
}

int replay_command_compare(int argc, char **argv)
{
    struct settings s = {.base = REPLAY_CASE_DEFAULT,
                         .changes = CLUSTER_UNCHANGED,
                         .speeds = "1"};
    static const struct replay_comparison none;
    struct replay_comparison c = none;
    int status = 0;

    s.base.admission = "plain";
    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (read_lists(&s, &c) != 0 ||
        replay_policies_check(&s.numbers, usage.name, c.policies.names,
                              c.policies.count) != 0 ||
        replay_check_admission(usage.name, s.base.admission) != 0)
        return REPLAY_EXIT_USAGE;
    s.base.settings = &s.numbers.settings;
    if (s.base.slo_ttft_s > 0)
        s.base.effective_ttft_s = s.base.slo_ttft_s;
    if (s.base.slo_tbt_s > 0)
        s.base.effective_tbt_s = s.base.slo_tbt_s;
    if (replay_load_cluster(usage.name, s.cluster, &CLUSTER_UNCHANGED,
                            &s.base.cluster) != 0)
        return 1;
    if (c.nodes.count == 0)
        c.nodes.values[c.nodes.count++] =
            s.base.cluster.prefill_nodes + s.base.cluster.coupled_nodes;
    c.n_cases =
        replay_comparison_clusters(&c) * c.speeds.count * c.policies.count;
    c.cases = calloc(c.n_cases, sizeof c.cases[0]);
    if (!c.cases)
        return replay_complain(usage.name, "out of memory");
    status = make_cases(&s, &c) == 0 ? run(&s, &c) : 1;
    replay_cases_fini(c.cases, c.n_cases);
    free(c.cases);
    return status;
}

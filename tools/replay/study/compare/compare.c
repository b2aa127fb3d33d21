/* conductor-replay compare: policies side by side. */
#include "tools/replay/study/compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/replay/command.h"
#include "tools/replay/study/study.h"

static const struct option_usage usage = {
    .name = "compare",
    .synopsis = "--trace FILE --cluster FILE [OPTIONS]",
    .text =
        "Simulates a trace under several policies, speeds and numbers of "
        "prefill nodes, and\ncompares TTFT, hit ratio and effective requests: "
        "those within both SLOs (30 s and\n0.2 s by default). Requests ask "
        "only for the SLOs given here, and those that no node\ncan meet are "
        "rejected at arrival. Verdicts need --seeds 3 or more.",
    .examples =
        "  conductor-replay compare --trace conversation.jsonl.gz --cluster "
        "\\\n      traces/clusters/reference-16.json --speeds 1,2,3 "
        "--prefill 8,10,16 \\\n      --plot order.svg --csv order.csv\n"
        "  conductor-replay compare --trace conversation.jsonl.gz --cluster "
        "\\\n      traces/clusters/paper-16.json --slo-ttft 30 --speeds "
        "1,2,4,8\n",
    REPLAY_POLICY_TOPIC,
};

#define SEEDS_MAX 100
/* Most runs with --requests-csv: each keeps a file until all have ended. */
#define REQUESTS_CSV_RUNS_MAX 500

struct settings {
    struct replay_study study;
    struct replay_case base; /* of all cases */
    struct cluster_changes changes;
    struct replay_policies numbers;
    const char *cluster, *policies, *speeds, *prefill, *links;
    const char *csv, *requests_csv, *plot, *without;
    struct replay_rules rules; /* of --rules; n = 0: none */
    uint64_t seeds;
    struct replay_stream_options sources[SEEDS_MAX]; /* (seeds) */
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(s->study),
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/plan/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &s->policies, "LIST", 0, 0,
         "policies to compare (default: those of the paper's Figure 5, "
         "and " POLICY_DEFAULT ")"},
        REPLAY_POLICY_SPEC(s->numbers),
        {"rules", OPTION_TEXT, &s->without, "LIST", 0, 0,
         "instead: one policy (default " POLICY_DEFAULT
         ") as it is, and with each of these options set to 0; switches: all "
         "options that are 0 or 1, and now 1"},
        {"speeds", OPTION_TEXT, &s->speeds, "LIST", 0, 0,
         "speeds relative to the trace (default 1)"},
        {"prefill", OPTION_TEXT, &s->prefill, "LIST", 0, 0,
         "numbers of prefill (or coupled) nodes (default: the file's)"},
        {"decode", OPTION_COUNT, &s->changes.decode_nodes, "N", 0,
         CLUSTER_NODES_MAX, "number of decode nodes, instead of the file's"},
        {"link-gbps", OPTION_TEXT, &s->links, "LIST", 0, 0,
         "bandwidths of every link, in Gbit/s, instead of the file's"},
        {"cache-tokens", OPTION_NUMBER, &s->changes.cache_tokens, "N", 1, 1e12,
         "device cache of a prefill node, in tokens, instead of the file's"},
        {"admission", OPTION_TEXT, &s->base.admission, "NAME", 0, 0,
         "plain or none, as in simulate (default plain)"},
        {"slo-ttft", OPTION_NUMBER, &s->base.slo_ttft_s, "S", 0, 1e6,
         "TTFT SLO of each request, in seconds"},
        {"slo-tbt", OPTION_NUMBER, &s->base.slo_tbt_s, "S", 0, 1e6,
         "TBT SLO of each request, in seconds"},
        {"seed", OPTION_COUNT, &s->base.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        {"seeds", OPTION_COUNT, &s->seeds, "N", 1, SEEDS_MAX,
         "number of seeds, from --seed on; table, picture and verdicts show "
         "means over them (default 1)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per simulation"},
        {"requests-csv", OPTION_OUTPUT, &s->requests_csv, "FILE", 0, 0,
         "write one line per request of each simulation"},
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

/* Reads --rules: one policy, with and without each of its rules. */
static int read_rules(struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_LIST_ERROR_BYTES];

    if (!s->without)
        return 0;
    if (s->policies && c->policies.count != 1)
        return replay_complain(usage.name, "--policies %s: --rules is for one",
                               s->policies);
    c->of_rules = true;
    s->base.policy = s->policies ? c->policies.names[0] : POLICY_DEFAULT;
    return replay_rules_read(s->without, s->base.policy, &s->numbers.settings,
                             &s->rules, &c->policies, error) == 0
               ? 0
               : replay_complain(usage.name, "%s", error);
}

/* Makes the runs of a case, one per seed. From the second seed on, requests of
 * one timestamp come in another order; without noise, all runs would else be
 * equal. */
static int make_runs(const struct settings *s, struct replay_comparison *c,
                     const struct replay_case *one)
{
    for (size_t k = 0; k < c->n_seeds; k++) {
        struct replay_case *run = &c->runs[c->n_runs++];

        *run = *one;
        run->seed += k;
        run->source = &s->sources[k];
        if (s->requests_csv && !(run->csv = tmpfile()))
            return replay_complain_output(usage.name, s->requests_csv, -errno);
    }
    return 0;
}

/* Makes the runs of one case per link rate, node count, speed and policy, in
 * this order. */
static int make_cases(struct settings *s, struct replay_comparison *c)
{
    struct replay_case one = s->base;
    struct cluster_changes changes = s->changes;
    char error[CLUSTER_ERROR_BYTES];

    for (size_t k = 0; k < c->n_seeds; k++) {
        s->sources[k] = s->study.source;
        s->sources[k].ties_seed = k > 0 ? s->base.seed + k : 0;
    }
    for (size_t n = 0; n < replay_comparison_clusters(c); n++) {
        if (c->links.count > 0)
            changes.link_gbps = c->links.values[n / c->nodes.count];
        changes.prefill_nodes = (int64_t)c->nodes.values[n % c->nodes.count];
        one.cluster = s->base.cluster;
        if (cluster_override(&one.cluster, &changes, error) != 0)
            return replay_complain(usage.name, "%s", error);
        for (size_t i = 0; i < c->speeds.count * c->policies.count; i++) {
            size_t p = i % c->policies.count;

            one.speed = c->speeds.values[i / c->policies.count];
            one.policy = s->rules.n > 0 ? s->base.policy : c->policies.names[p];
            one.label = c->policies.names[p];
            if (s->rules.n > 0)
                one.settings = &s->rules.settings[p];
            if (make_runs(s, c, &one) != 0)
                return -1;
        }
    }
    return 0;
}

static int run(struct settings *s, struct replay_comparison *c)
{
    char error[REPLAY_STUDY_ERROR_BYTES];

    if (make_cases(s, c) != 0)
        return 1;
    if (replay_study_run(&s->study, c->runs, c->n_runs, error) != 0)
        return replay_complain(usage.name, "%s", error);
    return replay_complain_script(usage.name, replay_comparison_print(c)) |
           REPLAY_OUTPUT(usage.name, s->csv, replay_comparison_csv(c, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->requests_csv,
                         replay_comparison_requests_csv(c, s->requests_csv)) |
           REPLAY_OUTPUT(usage.name, s->plot,
                         replay_comparison_plot(c, s->plot));
}

static void free_runs(struct replay_comparison *c)
{
    for (size_t i = 0; i < c->n_runs; i++)
        if (c->runs[i].csv)
            (void)fclose(c->runs[i].csv);
    replay_cases_fini(c->runs, c->n_runs);
    free(c->runs);
}

int replay_command_compare(int argc, char **argv)
{
    struct settings s = {.base = REPLAY_CASE_DEFAULT,
                         .changes = CLUSTER_UNCHANGED,
                         .speeds = "1",
                         .seeds = 1};
    static const struct replay_comparison none;
    struct replay_comparison c = none;
    int status = 0;

    s.base.admission = "plain";
    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (read_lists(&s, &c) != 0 ||
        replay_policies_check(&s.numbers, usage.name, c.policies.names,
                              c.policies.count) != 0 ||
        replay_check_admission(usage.name, s.base.admission) != 0 ||
        read_rules(&s, &c) != 0)
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
    c.n_seeds = s.seeds;
    size_t n = replay_comparison_clusters(&c) * c.speeds.count *
               c.policies.count * c.n_seeds;
    if (s.requests_csv && n > REQUESTS_CSV_RUNS_MAX)
        return replay_complain(usage.name,
                               "--requests-csv: %zu simulations, must be at "
                               "most %d",
                               n, REQUESTS_CSV_RUNS_MAX);
    c.runs = calloc(n, sizeof c.runs[0]);
    status =
        c.runs ? run(&s, &c) : replay_complain(usage.name, "out of memory");
    free_runs(&c);
    return status;
}

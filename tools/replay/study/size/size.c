/* conductor-replay size: what cluster a trace needs under SLOs. size.py beside
 * this file, copied to tools/plot, searches and reports; it asks size-run
 * (../run.c) to simulate clusters. */
#include <stdlib.h>

#include "tools/replay/command.h"
#include "tools/replay/study/study.h"

static const struct option_usage usage = {
    .name = "size",
    .synopsis = "--trace FILE --nodes FILE|DIR --slo-ttft S --slo-tbt S "
                "[OPTIONS]",
    .text = "Finds the cheapest cluster with which a share of all requests, "
            "and of their input\ntokens, meets both SLOs: how many nodes of "
            "which kind prefill, and how many decode.\nA kind of node is a "
            "cluster file, with price_per_hour if there are several. Requests\n"
            "that no node can serve in time are rejected, and count as missed. "
            "Also tells what is\nleft when a node is lost, and, with --report, "
            "at which load the cluster breaks.",
    .examples =
        "  conductor-replay size --trace conversation.jsonl.gz --nodes "
        "traces/clusters/nodes \\\n      --slo-ttft 10 --slo-tbt 0.1 --target "
        "0.95 --token-target 0.9 --spare \\\n      --report size.html\n"
        "  conductor-replay size --trace t.jsonl --nodes "
        "traces/clusters/paper-16.json \\\n      --slo-ttft 30 --slo-tbt 0.2 "
        "--target 0.99 --speed 4 --plot frontier.svg\n"
        "  conductor-replay size --trace t.jsonl --nodes c.json --slo-ttft 10 "
        "\\\n      --slo-tbt 0.1 --interval 300\n",
    .topic = POLICY_OPTION_TOPIC,
    .explain = replay_policies_explain,
};

int replay_command_size(int argc, char **argv)
{
    struct replay_study study = {.jobs = 0};
    struct replay_case base = {.speed = 1, .seed = 1, .policy = POLICY_DEFAULT};
    struct cluster_changes changes = CLUSTER_UNCHANGED;
    struct replay_policies policies = {.texts.count = 0};
    const char *nodes = NULL, *kinds = NULL, *csv = NULL, *json = NULL;
    const char *plot = NULL, *capacity = NULL, *report = NULL;
    const char *loads = "0.5,0.75,1,1.25,1.5,2,3";
    double target = 0.95, token_target = 0, interval_s = 0;
    uint64_t max_prefill = 64, max_decode = 64, subsets = 4;
    bool spare = false, fixed = false;
    struct replay_numbers numbers;
    char error[REPLAY_LIST_ERROR_BYTES];
    int status = 0;

    policies.texts.items = calloc((size_t)argc, sizeof(const char *));
    if (!policies.texts.items)
        return replay_complain(usage.name, "out of memory");
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(study),
        {"policy", OPTION_TEXT, &base.policy, "NAME", 0, 0,
         "policy:", .choice = sim_policy_name},
        REPLAY_POLICY_SPEC(policies),
        {"slo-ttft", OPTION_NUMBER, &base.slo_ttft_s, "S", 1e-3, 1e6,
         "TTFT SLO, in seconds", .required = true},
        {"slo-tbt", OPTION_NUMBER, &base.slo_tbt_s, "S", 1e-4, 1e6,
         "TBT SLO, in seconds (mean of the longest 10 %)"},
        {"target", OPTION_NUMBER, &target, "R", 1e-3, 1,
         "share of requests that must meet both SLOs (default "
         "0.95)"},
        {"token-target", OPTION_NUMBER, &token_target, "R", 0, 1,
         "share of input tokens whose requests must meet both "
         "SLOs (default 0: any)"},
        {"nodes", OPTION_TEXT, &nodes, "FILE|DIR", 0, 0,
         "a cluster file, or a folder with one for each kind of node "
         "(docs/plan/size.md)",
         .required = true},
        {"kinds", OPTION_TEXT, &kinds, "LIST", 0, 0,
         "of a folder, only these: file names without .json"},
        {"speed", OPTION_NUMBER, &base.speed, "X", 1e-3, 1e6,
         "speed relative to the trace (default 1)"},
        {"spare", OPTION_FLAG, &spare, NULL, 0, 0,
         "also find the cheapest cluster that meets the target with any one "
         "node lost"},
        {"csv", OPTION_OUTPUT, &csv, "FILE", 0, 0,
         "write one line per simulated cluster"},
        {"report", OPTION_OUTPUT, &report, "FILE", 0, 0,
         "write a report with pictures as one HTML file"},
        {"max-prefill", OPTION_COUNT, &max_prefill, "N", 1, 4096,
         "most prefill (or coupled) nodes to try (default 64)",
         .section = "search"},
        {"max-decode", OPTION_COUNT, &max_decode, "N", 1, 4096,
         "most decode nodes to try (default 64)"},
        {"fixed", OPTION_FLAG, &fixed, NULL, 0, 0,
         "no search: judge the file's own numbers of nodes"},
        {"loads", OPTION_TEXT, &loads, "LIST", 0, 0,
         "loads of the capacity curve, relative to --speed (default "
         "0.5,0.75,1,1.25,1.5,2,3)"},
        {"subsets", OPTION_COUNT, &subsets, "N", 0, 64,
         "random subsets of the trace's sessions that make the curve's band "
         "(default 4)"},
        {"capacity", OPTION_OUTPUT, &capacity, "FILE", 0, 0,
         "write the capacity curve as CSV: load against TTFT and shares"},
        {"json", OPTION_OUTPUT, &json, "FILE", 0, 0,
         "write all that was found as JSON"},
        {"plot", OPTION_OUTPUT, &plot, "FILE", 0, 0,
         "draw the clusters, and the best share over the price, as SVG"},
        {"cluster-template", OPTION_TEXT, &nodes, "FILE", 0, 0,
         "the same as --nodes"},
        {"cluster", OPTION_TEXT, &nodes, "FILE", 0, 0, "the same as --nodes"},
        REPLAY_OVERRIDE_SPECS(changes),
        {"interval", OPTION_NUMBER, &interval_s, "S", 1, 1e6,
         "instead: find the best split of the file's nodes for "
         "each S seconds of the trace; --csv lists all"},
        {"seed", OPTION_COUNT, &base.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
    };
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) == 0)
        status =
            replay_list_numbers("loads", loads, 1e-3, 1e3, &numbers, error) != 0
                ? replay_refuse(usage.name, "%s", error)
                : replay_script_parsed("size.py", usage.name,
                                       OPTION_TABLE(specs));
    free(policies.texts.items);
    return status;
}

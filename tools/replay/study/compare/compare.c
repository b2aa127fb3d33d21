/* conductor-replay compare: policies side by side. compare.py beside this file,
 * copied to tools/plot, makes the cases and shows them; it asks compare-run
 * (../run.c) to simulate. */
#include <math.h>
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

/* Checks the lists of an option table. */
static int check_lists(const char *policies, const char *speeds,
                       const char *prefill, const char *links)
{
    struct replay_names names;
    struct replay_numbers numbers;
    char error[REPLAY_LIST_ERROR_BYTES];

    if ((policies && replay_list_names("policies", policies, sim_policy_name,
                                       &names, error) != 0) ||
        replay_list_numbers("speeds", speeds, 1e-3, 1e6, &numbers, error) !=
            0 ||
        (links && replay_list_numbers("link-gbps", links, 0, 1e9, &numbers,
                                      error) != 0) ||
        (prefill &&
         replay_list_numbers("prefill", prefill, 1, CLUSTER_NODES_MAX, &numbers,
                             error) != 0))
        return replay_complain(usage.name, "%s", error);
    for (size_t i = 0; prefill && i < numbers.count; i++)
        if (floor(numbers.values[i]) != numbers.values[i])
            return replay_complain(
                usage.name, "--prefill %s: must be whole numbers", prefill);
    return 0;
}

int replay_command_compare(int argc, char **argv)
{
    struct replay_study study = {.jobs = 0};
    struct replay_case base = REPLAY_CASE_DEFAULT;
    struct cluster_changes changes = CLUSTER_UNCHANGED;
    struct replay_policies numbers = {.texts.count = 0};
    const char *cluster = NULL, *policies = NULL, *speeds = "1";
    const char *prefill = NULL, *links = NULL, *without = NULL;
    const char *csv = NULL, *requests_csv = NULL, *plot = NULL;
    const char *standard = POLICY_DEFAULT;
    uint64_t seeds = 1;
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(study),
        {"cluster", OPTION_TEXT, &cluster, "FILE", 0, 0,
         "the cluster's description (docs/plan/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &policies, "LIST", 0, 0,
         "policies to compare (default: those of the paper's Figure 5, "
         "and " POLICY_DEFAULT ")"},
        REPLAY_POLICY_SPEC(numbers),
        {"rules", OPTION_TEXT, &without, "LIST", 0, 0,
         "instead: one policy (default " POLICY_DEFAULT
         ") as it is, and with each of these options set to 0; switches: all "
         "options that are 0 or 1, and now 1"},
        {"speeds", OPTION_TEXT, &speeds, "LIST", 0, 0,
         "speeds relative to the trace (default 1)"},
        {"prefill", OPTION_TEXT, &prefill, "LIST", 0, 0,
         "numbers of prefill (or coupled) nodes (default: the file's)"},
        {"decode", OPTION_COUNT, &changes.decode_nodes, "N", 0,
         CLUSTER_NODES_MAX, "number of decode nodes, instead of the file's"},
        {"link-gbps", OPTION_TEXT, &links, "LIST", 0, 0,
         "bandwidths of every link, in Gbit/s, instead of the file's"},
        {"cache-tokens", OPTION_NUMBER, &changes.cache_tokens, "N", 1, 1e12,
         "device cache of a prefill node, in tokens, instead of the file's"},
        {"admission", OPTION_TEXT, &base.admission, "NAME", 0, 0,
         "plain or none, as in simulate (default plain)"},
        {"slo-ttft", OPTION_NUMBER, &base.slo_ttft_s, "S", 0, 1e6,
         "TTFT SLO of each request, in seconds"},
        {"slo-tbt", OPTION_NUMBER, &base.slo_tbt_s, "S", 0, 1e6,
         "TBT SLO of each request, in seconds"},
        {"seed", OPTION_COUNT, &base.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        {"seeds", OPTION_COUNT, &seeds, "N", 1, SEEDS_MAX,
         "number of seeds, from --seed on; table, picture and verdicts show "
         "means over them (default 1)"},
        {"csv", OPTION_OUTPUT, &csv, "FILE", 0, 0,
         "write one line per simulation"},
        {"requests-csv", OPTION_OUTPUT, &requests_csv, "FILE", 0, 0,
         "write one line per request of each simulation"},
        {"plot", OPTION_OUTPUT, &plot, "FILE", 0, 0, "SVG"},
        /* Only for the script. */
        {"default-policy", OPTION_TEXT, &standard, NULL, 0, 0, NULL},
    };
    const struct option_table *all = OPTION_TABLE(specs);
    const struct option_table own = {all->specs, all->count - 1};
    int status = 1;

    numbers.texts.items = calloc((size_t)argc, sizeof numbers.texts.items[0]);
    if (!numbers.texts.items)
        (void)replay_complain(usage.name, "out of memory");
    else if (replay_parse(&usage, &own, argc, argv, &status) == 0)
        status = check_lists(policies, speeds, prefill, links) != 0
                     ? REPLAY_EXIT_USAGE
                     : replay_script_parsed("compare.py", usage.name, all);
    free(numbers.texts.items);
    return status;
}

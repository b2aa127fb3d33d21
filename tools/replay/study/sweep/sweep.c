/* conductor-replay sweep: policies on many random clusters. sweep.py beside
 * this file, copied to tools/plot, draws and judges them; it asks sweep-run
 * (../run.c) to simulate. */
#include <stdlib.h>

#include "tools/replay/command.h"
#include "tools/replay/study/study.h"

static const struct option_usage usage = {
    .name = "sweep",
    .synopsis = "--description FILE [OPTIONS]",
    .text =
        "Draws random clusters, traces and loads from a description, simulates "
        "policies on\neach, and lists where the first policy loses to the best "
        "of the others, worst first:\nin mean and p99 of TTFT where requests "
        "have no SLO, in the effective share of\nrequests and of input tokens "
        "where they have one, and in late accepted requests.\nA loss is "
        "confirmed with other seeds before it counts. The same seed gives "
        "the\nsame cases and results, whatever the number of jobs.",
    .examples =
        "  conductor-replay sweep --description traces/sweeps/default.json "
        "--cases 20\n"
        "  conductor-replay sweep --description traces/sweeps/default.json "
        "\\\n      --trace conversation.jsonl.gz --cases 1000 --causes --csv "
        "sweep.csv\n"
        "  conductor-replay sweep --description traces/sweeps/default.json "
        "--case 17 \\\n      --policies plan,global_cache --policy-option "
        "wait_price=1\n",
    REPLAY_POLICY_TOPIC,
};

#define NOT_ONE UINT64_MAX
#define CASES_MAX 20000

int replay_command_sweep(int argc, char **argv)
{
    const char *description = NULL, *csv = NULL, *json = NULL;
    const char *policies = "plan,global_cache,local_cache,least_loaded";
    uint64_t cases = 100, only = NOT_ONE, seed = 1, seeds = 3, jobs = 0;
    double threshold = 0.02;
    bool causes = false;
    struct replay_policies numbers = {.texts.count = 0};
    struct option_list traces = {.count = 0};
    struct option_list words = {(const char **)argv + 1, (size_t)argc - 1};
    const struct option_spec specs[] = {
        {"description", OPTION_TEXT, &description, "FILE", 0, 0,
         "description of the cases to draw (docs/plan/sweep.md)",
         .required = true},
        {"trace", OPTION_LIST, &traces, "FILE", 0, 0,
         "also use this trace; may be repeated"},
        {"cases", OPTION_COUNT, &cases, "N", 1, CASES_MAX,
         "number of cases to draw (default 100)"},
        {"case", OPTION_COUNT, &only, "K", 0, 9e15,
         "run only case K, counted from 0"},
        {"seed", OPTION_COUNT, &seed, "S", 0, 9e15,
         "seed of all random draws (default 1)"},
        {"seeds", OPTION_COUNT, &seeds, "N", 1, 20,
         "number of seeds that must confirm a loss (default 3)"},
        {"threshold", OPTION_NUMBER, &threshold, "X", 0, 100,
         "smallest difference that counts as a loss; five times as much for "
         "p99 (default 0.02 = 2 %, or 2 points of a share)"},
        {"policies", OPTION_TEXT, &policies, "LIST", 0, 0,
         "policies; the first is compared with the others (default "
         "plan,global_cache,local_cache,least_loaded)"},
        REPLAY_POLICY_SPEC(numbers),
        {"causes", OPTION_FLAG, &causes, NULL, 0, 0,
         "simulate each lost case without its features, one at a time"},
        {"jobs", OPTION_COUNT, &jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
        {"csv", OPTION_OUTPUT, &csv, "FILE", 0, 0,
         "write one line per case and policy"},
        {"json", OPTION_OUTPUT, &json, "FILE", 0, 0,
         "write cases, results and losses as JSON"},
        /* Only for the script: the command line. */
        {"words", OPTION_LIST, &words, NULL, 0, 0, NULL},
    };
    const struct option_table *all = OPTION_TABLE(specs);
    const struct option_table own = {all->specs, all->count - 1};
    int status = 1;

    traces.items = calloc((size_t)argc, sizeof traces.items[0]);
    numbers.texts.items = calloc((size_t)argc, sizeof traces.items[0]);
    if (!traces.items || !numbers.texts.items)
        (void)replay_complain(usage.name, "out of memory");
    else if (replay_parse(&usage, &own, argc, argv, &status) == 0)
        status = replay_script_parsed("sweep.py", usage.name, all);
    free(numbers.texts.items);
    free(traces.items);
    return status;
}

/* conductor-replay sessions: recorded sessions of agents, closed-loop.
 * sessions.py beside this file, copied to tools/plot, makes the cases and shows
 * them; it asks sessions-run (run.c) to simulate. */
#include <math.h>
#include <stdlib.h>

#include "tools/replay/command.h"
#include "tools/replay/study/study.h"

static const struct option_usage usage = {
    .name = "sessions",
    .synopsis = "--trace FILE --cluster FILE [OPTIONS]",
    .text =
        "Simulates recorded sessions of agents in a closed loop, under several "
        "policies and\nnumbers of sessions in flight, side by side. A turn "
        "starts when the answer before it\nhas ended and the recorded pause is "
        "over; sub-agents run beside their parent;\nwhen a session ends the "
        "next one of the file starts, after the last the first.",
    .examples =
        "  conductor-replay sessions --trace agentic_sessions.jsonl.gz "
        "--cluster \\\n      traces/clusters/paper-16.json --in-flight 50,100 "
        "--policies global_cache,plan\n"
        "  conductor-replay sessions --trace agentic_sessions.jsonl.gz "
        "--cluster \\\n      traces/clusters/paper-16.json --ttft 30 --report "
        "sessions.json\n",
    REPLAY_POLICY_TOPIC,
};

/* Checks the lists of an option table. */
static int check_lists(const char *policies, const char *in_flight)
{
    struct replay_names names;
    struct replay_numbers numbers;
    char error[REPLAY_LIST_ERROR_BYTES];

    if (replay_list_numbers("in-flight", in_flight, 1,
                            CLOSED_LOOP_IN_FLIGHT_MAX, &numbers, error) != 0 ||
        (policies && replay_list_names("policies", policies, sim_policy_name,
                                       &names, error) != 0))
        return replay_complain(usage.name, "%s", error);
    for (size_t i = 0; i < numbers.count; i++)
        if (floor(numbers.values[i]) != numbers.values[i])
            return replay_complain(
                usage.name, "--in-flight %s: must be whole numbers", in_flight);
    return 0;
}

int replay_command_sessions(int argc, char **argv)
{
    struct closed_loop_options loop = {.input_max_tokens =
                                           CLOSED_LOOP_INPUT_MAX_TOKENS};
    double ttft_s = 0, hours = 0;
    double think_max_s = (double)CLOSED_LOOP_THINK_MAX_US / 1e6;
    struct replay_policies numbers = {.texts.count = 0};
    const char *cluster = NULL, *policies = NULL, *in_flight = NULL;
    const char *report = NULL;
    uint64_t seed = 1, jobs = 0;
    const struct option_spec specs[] = {
        {"trace", OPTION_TEXT, &loop.path, "FILE", 0, 0,
         "recorded sessions, one per line (traces/DESIGN.md), plain or gzip",
         .required = true},
        {"cluster", OPTION_TEXT, &cluster, "FILE", 0, 0,
         "the cluster's description (docs/plan/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &policies, "LIST", 0, 0,
         "default: all, global_cache first"},
        REPLAY_POLICY_SPEC(numbers),
        {"in-flight", OPTION_TEXT, &in_flight, "LIST", 0, 0,
         "numbers of sessions in flight (default 16)"},
        {"ttft", OPTION_NUMBER, &ttft_s, "S", 1e-3, 1e6,
         "instead of --in-flight: the number at which the first policy's mean "
         "TTFT is nearest to S seconds, half of it, and twice it"},
        {"hours", OPTION_NUMBER, &hours, "H", 1e-3, 1e5,
         "virtual hours after which no turn starts (default 8, or none with "
         "--sessions)"},
        {"sessions", OPTION_COUNT, &loop.sessions, "N", 1, 1e9,
         "number of sessions to start (default: no limit)"},
        {"think-max", OPTION_NUMBER, &think_max_s, "S", 0, 1e6,
         "longest pause before a turn, in seconds; longer ones are cut "
         "(default 120)"},
        {"input-max", OPTION_U32, &loop.input_max_tokens, "N", 1,
         TRACE_TOKENS_MAX,
         "longest prompt, in tokens; a session ends before a longer one "
         "(default 131072)"},
        {"seed", OPTION_COUNT, &seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        OPTION_SPEC("jobs", OPTION_COUNT, &jobs, "N", 1, 1024,
                    "simulations at once (default: the cores of this machine)"),
        {"report", OPTION_OUTPUT, &report, "FILE", 0, 0,
         "write all numbers as JSON"},
    };

    const struct option_table *table = OPTION_TABLE(specs);
    int status = 1;

    numbers.texts.items = calloc((size_t)argc, sizeof numbers.texts.items[0]);
    if (!numbers.texts.items) {
        (void)replay_complain(usage.name, "out of memory");
    } else if (replay_parse(&usage, table, argc, argv, &status) == 0) {
        if (in_flight && ttft_s > 0)
            status = replay_refuse(usage.name,
                                   "--in-flight: does not go with --ttft");
        else if (check_lists(policies, in_flight ? in_flight : "1") != 0)
            status = REPLAY_EXIT_USAGE;
        else
            status = replay_script_parsed("sessions.py", usage.name, table);
    }
    free(numbers.texts.items);
    return status;
}

/*
 * conductor-replay agree: compares a live replay with its simulation. The
 * report of `live` contains the replay's settings, so they need not be given
 * again. tools/agree makes such a report with timed workers and runs this.
 * agree.py beside this file, copied to tools/plot, does the work.
 */
#include "tools/replay/command.h"

static const struct option_usage usage = {
    .name = "agree",
    .synopsis = "--live REPORT.json --cluster FILE [OPTIONS]",
    .text = "Simulates what `live` replayed, as its report says (trace, part, "
            "scale, speed,\npolicy), on a cluster file that describes the live "
            "cluster, and compares TTFT\nand hit ratio. tools/agree does both: "
            "it starts a conductor and timed workers,\nreplays, and runs this. "
            "Ends with 1 if the difference is over a limit: of p50\nand p90 of "
            "TTFT in per cent, of the hit ratio in percentage points.",
    .examples = "  tools/agree\n"
                "  conductor-replay agree --live run/3/report.json --cluster "
                "\\\n      traces/clusters/agree-3.json --json agree.json\n",
};

int replay_command_agree(int argc, char **argv)
{
    const char *live = NULL, *cluster = NULL, *trace = NULL, *policy = NULL;
    const char *json = NULL;
    double ttft_percent = 5, hit_points = 0.5;
    const struct option_spec specs[] = {
        {"live", OPTION_TEXT, &live, "FILE", 0, 0,
         "report written by conductor-replay live", .required = true},
        {"cluster", OPTION_TEXT, &cluster, "FILE", 0, 0,
         "description of the live cluster (docs/plan/clusters.md)",
         .required = true},
        {"trace", OPTION_TEXT, &trace, "FILE", 0, 0,
         "path of the trace, instead of the report's"},
        {"policy", OPTION_TEXT, &policy, "NAME", 0, 0,
         "policy, instead of the report's"},
        {"max-ttft", OPTION_NUMBER, &ttft_percent, "P", 0, 1e6,
         "largest difference of p50 and p90 of TTFT, in per cent (default 5)"},
        {"max-hits", OPTION_NUMBER, &hit_points, "P", 0, 100,
         "largest difference of the hit ratio, in percentage points (default "
         "0.5)"},
        {"json", OPTION_OUTPUT, &json, "FILE", 0, 0,
         "write the comparison as JSON"},
    };

    return replay_script("agree.py", &usage, OPTION_TABLE(specs), argc, argv);
}

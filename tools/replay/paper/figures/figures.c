/* conductor-replay figures: the paper's figures for every trace found. This
 * file checks the command line; figures.py beside it, copied to tools/plot,
 * does the work. */
#include <stdbool.h>
#include <stdint.h>

#include "tools/replay/command.h"

static const struct option_usage usage = {
    .name = "figures",
    .synopsis = "--traces DIR --out DIR [OPTIONS]",
    .text =
        "Simulates what the Mooncake paper's figures 1, 5 to 11, 13 and 15 "
        "show (FAST'25), for\nevery *.jsonl and *.jsonl.gz in a folder, and "
        "writes each as SVG and CSV into a folder\nper trace. RESULTS.md puts "
        "the paper's statements beside the numbers. A trace "
        "with\nconversation, "
        "toolagent or synthetic in its name is compared with that workload.",
    .examples =
        "  conductor-replay figures --traces ~/traces --out docs/results\n"
        "  conductor-replay figures --traces ~/traces --out /tmp/f --only "
        "05,11 "
        "\\\n      --requests 2000\n",
};

static const char *figure_name(size_t i)
{
    static const char *const names[] = {"01", "05", "08", "09",     "10",
                                        "11", "13", "15", "goodput"};

    return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

int replay_command_figures(int argc, char **argv)
{
    const char *traces = NULL, *out = NULL, *clusters = "traces/clusters";
    const char *figures = NULL;
    uint64_t requests = 0, jobs = 0;
    bool skip_bad = false;
    const struct option_spec specs[] = {
        {"traces", OPTION_TEXT, &traces, "DIR", 0, 0,
         "folder with *.jsonl and *.jsonl.gz", .required = true},
        {"out", OPTION_TEXT, &out, "DIR", 0, 0, "folder for the results",
         .required = true},
        {"clusters", OPTION_TEXT, &clusters, "DIR", 0, 0,
         "folder with cluster descriptions (default traces/clusters)"},
        {"only", OPTION_TEXT, &figures, "LIST", 0, 0,
         "figures: 01 (1, 6 and 7), 05, 08, 09, 10, 11, 13, 15, goodput "
         "(default all)"},
        {"requests", OPTION_COUNT, &requests, "N", 1, 1e12,
         "use only the first N requests of each trace"},
        {"skip-bad", OPTION_FLAG, &skip_bad, NULL, 0, 0, "skip bad lines"},
        {"jobs", OPTION_COUNT, &jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
    };
    struct replay_names only;
    char error[REPLAY_LIST_ERROR_BYTES];
    int status = 0;
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) != 0)
        return status;
    if (figures &&
        replay_list_names("only", figures, figure_name, &only, error) != 0)
        return replay_refuse(usage.name, "%s", error);
    return replay_script_parsed("figures.py", usage.name, OPTION_TABLE(specs));
}

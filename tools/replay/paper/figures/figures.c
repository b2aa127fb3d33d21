/* conductor-replay figures: the paper's figures for every trace found. This
 * file checks the command line; figures.py beside it, copied to tools/plot,
 * does the work. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/plot/plot.h"
#include "tools/replay/command.h"
#include "tools/replay/list.h"

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

struct settings {
    const char *traces, *out, *clusters, *only;
    uint64_t requests, jobs;
    bool skip_bad;
};

static const char *figure_name(size_t i)
{
    static const char *const names[] = {"01", "05", "08", "09",     "10",
                                        "11", "13", "15", "goodput"};

    return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

/* Executes the script. Returns the exit status if that fails. */
static int run_script(const struct settings *s)
{
    char program[PATH_MAX], script[PATH_MAX + 64];
    char requests[24], jobs[24], skip[] = {s->skip_bad ? '1' : '0', '\0'};

    plot_find("figures.py", program, script);
    snprintf(requests, sizeof requests, "%" PRIu64, s->requests);
    snprintf(jobs, sizeof jobs, "%" PRIu64, s->jobs);
    execlp("python3", "python3", "-B", script, program, s->traces, s->out,
           s->clusters, s->only ? s->only : "", requests, skip, jobs,
           (char *)NULL);
    return replay_complain(usage.name, "needs python3: %s", strerror(errno));
}

int replay_command_figures(int argc, char **argv)
{
    struct settings s = {.clusters = "traces/clusters"};
    const struct option_spec specs[] = {
        {"traces", OPTION_TEXT, &s.traces, "DIR", 0, 0,
         "folder with *.jsonl and *.jsonl.gz", .required = true},
        {"out", OPTION_TEXT, &s.out, "DIR", 0, 0, "folder for the results",
         .required = true},
        {"clusters", OPTION_TEXT, &s.clusters, "DIR", 0, 0,
         "folder with cluster descriptions (default traces/clusters)"},
        {"only", OPTION_TEXT, &s.only, "LIST", 0, 0,
         "figures: 01 (1, 6 and 7), 05, 08, 09, 10, 11, 13, 15, goodput "
         "(default all)"},
        {"requests", OPTION_COUNT, &s.requests, "N", 1, 1e12,
         "use only the first N requests of each trace"},
        {"skip-bad", OPTION_FLAG, &s.skip_bad, NULL, 0, 0, "skip bad lines"},
        {"jobs", OPTION_COUNT, &s.jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
    };
    struct replay_names only;
    char error[REPLAY_LIST_ERROR_BYTES];
    int status = 0;
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) != 0)
        return status;
    if (s.only &&
        replay_list_names("only", s.only, figure_name, &only, error) != 0)
        return replay_refuse(usage.name, "%s", error);
    return run_script(&s);
}

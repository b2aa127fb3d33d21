/* conductor-replay sweep: policies on many random clusters. */
#include "tools/replay/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "tools/replay/study/study.h"
#include "tools/replay/study/sweep/sweep.h"

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

struct settings {
    struct sweep sweep;
    struct replay_policies numbers;
    const char *description, *policies, *csv, *json;
    struct option_list traces;
    uint64_t only;
    char *line; /* the command without options that select cases */
};

#define NOT_ONE UINT64_MAX
#define CASES_MAX 20000

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    struct sweep *sweep = &s->sweep;
    const struct option_spec specs[] = {
        {"description", OPTION_TEXT, &s->description, "FILE", 0, 0,
         "description of the cases to draw (docs/plan/sweep.md)",
         .required = true},
        {"trace", OPTION_LIST, &s->traces, "FILE", 0, 0, "also use this trace"},
        {"cases", OPTION_COUNT, &sweep->n_cases, "N", 1, CASES_MAX,
         "number of cases to draw (default 100)"},
        {"case", OPTION_COUNT, &s->only, "K", 0, 9e15,
         "run only case K, counted from 0"},
        {"seed", OPTION_COUNT, &sweep->seed, "S", 0, 9e15,
         "seed of all random draws (default 1)"},
        {"seeds", OPTION_COUNT, &sweep->seeds, "N", 1, 20,
         "number of seeds that must confirm a loss (default 3)"},
        {"threshold", OPTION_NUMBER, &sweep->threshold, "X", 0, 100,
         "smallest difference that counts as a loss; five times as much for "
         "p99 (default 0.02 = 2 %, or 2 points of a share)"},
        {"policies", OPTION_TEXT, &s->policies, "LIST", 0, 0,
         "policies; the first is compared with the others (default "
         "plan,global_cache,local_cache,least_loaded)"},
        REPLAY_POLICY_SPEC(s->numbers),
        {"causes", OPTION_FLAG, &sweep->causes, NULL, 0, 0,
         "simulate each lost case without its features, one at a time"},
        {"jobs", OPTION_COUNT, &sweep->jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per case and policy"},
        {"json", OPTION_OUTPUT, &s->json, "FILE", 0, 0,
         "write cases, results and losses as JSON"},
    };

    s->traces.items = calloc((size_t)argc, sizeof(*s->traces.items));
    if (!s->traces.items)
        return replay_complain(usage.name, "out of memory");
    return replay_policies_parse(&s->numbers, &usage, OPTION_TABLE(specs), argc,
                                 argv, status);
}

static int read_policies(struct settings *s)
{
    struct replay_names *names = &s->sweep.policies;
    char error[REPLAY_LIST_ERROR_BYTES];

    if (replay_list_names("policies", s->policies, sim_policy_name, names,
                          error) != 0)
        return replay_complain(usage.name, "%s", error);
    if (names->count < 2 || names->count > SWEEP_POLICIES_MAX)
        return replay_complain(usage.name, "--policies %s: must be 2 to %d",
                               s->policies, SWEEP_POLICIES_MAX);
    return replay_policies_check(&s->numbers, usage.name, names->names,
                                 names->count);
}

static int read_description(const struct settings *s,
                            struct sweep_description *d)
{
    char error[SWEEP_ERROR_BYTES];

    if (sweep_description_load(s->description, d, error) != 0)
        return replay_complain(usage.name, "%s", error);
    for (size_t i = 0; i < s->traces.count; i++)
        if (sweep_description_add_file(d, s->traces.items[i]) != 0)
            return replay_complain(usage.name,
                                   "--trace %s: too long, or more than %d",
                                   s->traces.items[i], SWEEP_TRACES_MAX);
    return 0;
}

static int run(const struct settings *s)
{
    struct sweep_result *results = calloc(s->sweep.n_cases, sizeof(results[0]));
    char error[SWEEP_ERROR_BYTES];
    int rc;

    if (!results)
        return replay_complain(usage.name, "out of memory");
    if (sweep_run(&s->sweep, results, error) != 0) {
        rc = replay_complain(usage.name, "%s", error);
    } else {
        rc =
            replay_complain_script(usage.name, sweep_print(&s->sweep, results));
        rc |= REPLAY_OUTPUT(usage.name, s->csv,
                            sweep_csv(&s->sweep, results, s->csv)) |
              REPLAY_OUTPUT(usage.name, s->json,
                            sweep_json(&s->sweep, results, s->json));
    }
    free(results);
    return rc;
}

/* Returns the number of arguments of an option that selects cases or their
 * output; 0 for other options. */
static int args_of_all(const char *arg)
{
    static const char *const names[] = {"--cases", "--case", "--csv",
                                        "--json",  "--jobs", "--causes"};
    int n = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);

        if (strncmp(arg, names[i], length) != 0)
            continue;
        if (arg[length] == '=' || strcmp(arg, "--causes") == 0)
            n = 1;
        else if (arg[length] == '\0')
            n = 2;
    }
    return n;
}

/* Returns the given command, to which one case can be added. */
static const char *command_line(int argc, char **argv, char **line)
{
    size_t size;
    FILE *f = open_memstream(line, &size);

    if (!f)
        return "";
    fputs("conductor-replay sweep", f);
    for (int i = 1; i < argc; i++) {
        int n = args_of_all(argv[i]);

        if (n > 0)
            i += n - 1;
        else
            fprintf(f, strpbrk(argv[i], " *?$&|;<>()\"\\") ? " '%s'" : " %s",
                    argv[i]);
    }
    return fclose(f) == 0 && *line ? *line : "";
}

int replay_command_sweep(int argc, char **argv)
{
    struct settings s = {
        .sweep = {.n_cases = 100, .seed = 1, .seeds = 3, .threshold = 0.02},
        .policies = "plan,global_cache,local_cache,least_loaded",
        .only = NOT_ONE};
    struct sweep_description *d = calloc(1, sizeof(*d));
    int status = 1;

    s.sweep.description = d;
    s.sweep.again = command_line(argc, argv, &s.line);
    s.sweep.settings = &s.numbers.settings;
    if (!d)
        replay_complain(usage.name, "out of memory");
    else if (parse(argc, argv, &s, &status) != 0)
        ;
    else if (read_policies(&s) != 0)
        status = REPLAY_EXIT_USAGE;
    else
        status = read_description(&s, d) != 0 ? 1 : 0;
    if (s.only != NOT_ONE) {
        s.sweep.first = s.only;
        s.sweep.n_cases = 1;
    }
    if (status == 0 && d->n_traces > 0)
        status = run(&s);
    free(s.traces.items);
    free(s.line);
    free(d);
    return status;
}

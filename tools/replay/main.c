/* conductor-replay: the table of subcommands. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/plot/plot.h"
#include "tools/replay/command.h"

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"live", "replay a trace against a running conductor, and report",
     replay_command_live},
    {"live-sessions", "play recorded sessions closed-loop against a server",
     replay_command_live_sessions},
    {"profile", "measure a running engine's costs, for conductor-fit",
     replay_command_profile},
    {"simulate", "simulate a trace on a described cluster, and report",
     replay_command_simulate},
    {"generate", "write a trace with the statistics of a published workload",
     replay_command_generate},
    {"from-log", "make a trace from a conductor's access log",
     replay_command_from_log},
    {"stats",
     "describe a trace: lengths, arrivals, reuse, best hit ratios of caches",
     replay_command_stats},
    {"compare", "simulate a trace under several policies, side by side",
     replay_command_compare},
    {"sessions", "simulate recorded sessions closed-loop, side by side",
     replay_command_sessions},
    {"sweep", "search random clusters for one where a policy loses",
     replay_command_sweep},
    {"agree", "compare a live replay with its simulation",
     replay_command_agree},
    {"figures", "draw the Mooncake paper's figures for every trace found",
     replay_command_figures},
    {"cake", "predict the Cake paper's speed-ups with the load plan",
     replay_command_cake},
    {"cake-fluctuation", "simulate loading while budget and bandwidth change",
     replay_command_cake_fluctuation},
    {"cake-adaptive", "simulate a cached prompt among short ones",
     replay_command_cake_adaptive},
    {"size", "find the smallest cluster that meets SLOs", replay_command_size},
};

#define NAME_BYTES 64
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *file)
{
    fputs("usage: conductor-replay COMMAND [OPTIONS]\n\n"
          "Request traces in the format of the Mooncake paper (FAST'25).\n\n",
          file);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(file, "  %-16s  %s\n", commands[i].name, commands[i].summary);
    fputs("\nconductor-replay help COMMAND explains a command.\n"
          "conductor-replay --version prints the version.\n"
          "A file named - is standard output; the text goes to standard error "
          "then.\n\n"
          "examples:\n"
          "  conductor-replay live --trace traces/sample.jsonl "
          "--length-scale 16\n"
          "  conductor-replay generate --like conversation --requests 100\n",
          file);
}

int replay_complain_output(const char *name, const char *path, int rc)
{
    return rc == 0 ? 0
                   : replay_complain(name, "%s: %s", options_shown_path(path),
                                     plot_error(rc));
}

void replay_missing(const char *name, const char *option)
{
    char program[NAME_BYTES];

    snprintf(program, sizeof program, "conductor-replay %s", name);
    options_missing(program, option);
}

int replay_parse(const struct option_usage *usage,
                 const struct option_table *table, int argc, char **argv,
                 int *status)
{
    char error[256], name[NAME_BYTES];
    struct option_usage all = *usage;

    all.name = name;
    snprintf(name, sizeof name, "conductor-replay %s", usage->name);
    if (options_start(&all, table, argc, argv, status) != 0)
        return -1;
    if (options_claim_stdout(table, error, sizeof error) == 0 &&
        options_check_outputs(table, error, sizeof error) == 0)
        return 0;
    *status = 1;
    return replay_complain(usage->name, "%s", error);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    fprintf(stderr,
            "conductor-replay: unknown command '%s'; "
            "conductor-replay --help lists them\n",
            name);
    return NULL;
}

/* Runs `COMMAND --help` for `help COMMAND`. */
static int explain(const char *name)
{
    const struct command *command = find_command(name);
    char text[NAME_BYTES];
    char help[] = "--help";
    char *argv[] = {text, help, NULL};

    snprintf(text, sizeof text, "%s", name);
    return command ? command->run(2, argv) : REPLAY_EXIT_USAGE;
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return REPLAY_EXIT_USAGE;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (help && argc > 2)
        return explain(argv[2]);
    if (help || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("conductor-replay " CONDUCTOR_VERSION);
        return 0;
    }
    const struct command *command = find_command(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : REPLAY_EXIT_USAGE;
}

/* Fails if standard output could not be written. */
int main(int argc, char **argv)
{
    int status = run_command(argc, argv);

    status = status < 0 ? 1 : status;
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fprintf(stderr, "conductor-replay: standard output: %s\n",
                strerror(errno));
        return status != 0 ? status : 1;
    }
    return status;
}

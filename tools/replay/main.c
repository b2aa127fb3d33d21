/* conductor-replay: the table of subcommands. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/plot/plot.h"
#include "tools/replay/command.h"

struct command {
    const char *name;
    const char *summary; /* NULL = for scripts, not listed */
    int (*run)(int argc, char **argv);
    const char *group; /* the title above it in --help; NULL = none */
};

static const struct command commands[] = {
    {"simulate", "simulate a trace on a described cluster, and report",
     replay_command_simulate, "Simulate clusters"},
    {"compare", "simulate a trace under several policies, side by side",
     replay_command_compare},
    {"size", "find the cheapest cluster that meets SLOs", replay_command_size},
    {"sessions", "simulate recorded sessions closed-loop, side by side",
     replay_command_sessions},
    {"sweep", "search random clusters for one where a policy loses",
     replay_command_sweep},
    {"live", "replay a trace against a running conductor, and report",
     replay_command_live, "Play against a running server"},
    {"live-sessions", "play recorded sessions closed-loop against a server",
     replay_command_live_sessions},
    {"profile", "measure a running engine's costs, for conductor-fit",
     replay_command_profile},
    {"agree", "compare a live replay with its simulation",
     replay_command_agree},
    {"from-log", "make a trace from a conductor's access log",
     replay_command_from_log, "Make and describe traces"},
    {"generate", "write a trace with the statistics of a published workload",
     replay_command_generate},
    {"stats", "describe a trace: lengths, arrivals, reuse, best hit ratios",
     replay_command_stats},
    {"figures", "draw the Mooncake paper's figures for every trace found",
     replay_command_figures, "Repeat what papers measured"},
    {"cake", "predict the Cake paper's speed-ups with the load plan",
     replay_command_cake},
    {"cake-fluctuation", "simulate loading while budget and bandwidth change",
     replay_command_cake_fluctuation},
    {"cake-adaptive", "simulate a cached prompt among short ones",
     replay_command_cake_adaptive},
    {"cake-run", NULL, replay_command_cake_run},
    {"size-run", NULL, replay_command_study_run},
    {"compare-run", NULL, replay_command_study_run},
    {"sessions-run", NULL, replay_command_study_run},
    {"sweep-run", NULL, replay_command_study_run},
};

#define NAME_BYTES 64
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *file)
{
    fputs("usage: conductor-replay COMMAND [OPTIONS]\n\n"
          "Replays, simulates and makes traces of requests, in the format of "
          "the Mooncake\npaper (FAST'25).\n\n"
          "examples:\n"
          "  conductor-replay compare --trace traces/sample.jsonl \\\n"
          "      --cluster traces/clusters/paper-16.json\n"
          "  conductor-replay live --trace traces/sample.jsonl "
          "--length-scale 16\n",
          file);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (commands[i].group)
            fprintf(file, "\n%s\n", commands[i].group);
        if (commands[i].summary)
            fprintf(file, "  %-16s  %s\n", commands[i].name,
                    commands[i].summary);
    }
    fputs("\nconductor-replay help COMMAND explains a command.\n"
          "conductor-replay --version prints the version.\n"
          "A file named - is standard output; the text goes to standard error "
          "then.\n",
          file);
}

/* Appends "option=value" to the file, unless the option has no value; the
 * values of a list stand one on a line. */
static void put_argument(const struct option_spec *spec, FILE *file)
{
    const void *value = spec->value;

    switch (spec->kind) {
    case OPTION_FLAG:
        if (*(const bool *)value)
            fprintf(file, "%s=1", spec->name);
        return;
    case OPTION_STRING:
        fprintf(file, "%s=%s", spec->name, (const char *)value);
        return;
    case OPTION_COUNT:
        fprintf(file, "%s=%" PRIu64, spec->name, *(const uint64_t *)value);
        return;
    case OPTION_U32:
        fprintf(file, "%s=%" PRIu32, spec->name, *(const uint32_t *)value);
        return;
    case OPTION_NUMBER:
        fprintf(file, "%s=%.17g", spec->name, *(const double *)value);
        return;
    case OPTION_LIST: {
        const struct option_list *list = value;

        for (size_t i = 0; i < list->count; i++)
            fprintf(file, "%s%s%s", i == 0 ? spec->name : "",
                    i == 0 ? "=" : "\n", list->items[i]);
        return;
    }
    default:
        if (*(const char *const *)value)
            fprintf(file, "%s=%s", spec->name, *(const char *const *)value);
    }
}

int replay_script(const char *script, const struct option_usage *usage,
                  const struct option_table *table, int argc, char **argv)
{
    int status = 0;

    return replay_parse(usage, table, argc, argv, &status) == 0
               ? replay_script_parsed(script, usage->name, table)
               : status;
}

int replay_script_parsed(const char *script, const char *name,
                         const struct option_table *table)
{
    char program[PATH_MAX], path[PATH_MAX + 64];
    char **words = calloc(table->count + 7, sizeof(*words));
    const char *const first[] = {"python3", "-B", path, program, name};
    size_t n = sizeof first / sizeof first[0], size;

    if (!words)
        return replay_complain(name, "out of memory");
    memcpy(words, first, sizeof first);
    plot_find(script, program, path);
    for (size_t i = 0; i < table->count; i++) {
        FILE *file = open_memstream(&words[n++], &size);

        if (file)
            put_argument(&table->specs[i], file);
        if (!file || fclose(file) != 0)
            return replay_complain(name, "out of memory");
    }
    execvp(words[0], words);
    return replay_complain(name, "needs python3: %s", strerror(errno));
}

static const struct command *find_command(const char *name)
{
    const char *nearest = NULL;
    size_t bytes = strlen(name), least = bytes / 3 + 1;

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *c = &commands[i];

        if (strcmp(name, c->name) == 0)
            return c;
        if (c->summary &&
            text_nearer(name, bytes, c->name, strlen(c->name), &least))
            nearest = c->name;
    }
    fprintf(stderr,
            "conductor-replay: unknown command '%s'%s%s%s "
            "(conductor-replay --help lists them)\n",
            name, nearest ? ": did you mean " : "", nearest ? nearest : "",
            nearest ? "?" : "");
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

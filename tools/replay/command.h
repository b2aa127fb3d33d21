/*
 * The subcommands of conductor-replay, one file each. A new one needs a
 * function here and a line in the table of main.c.
 */
#ifndef TOOLS_REPLAY_COMMAND_H
#define TOOLS_REPLAY_COMMAND_H

#include "tools/replay/options.h"

/* Exit statuses: a bad command line is 2, Ctrl-C is 130 as in a shell. */
#define REPLAY_EXIT_USAGE OPTIONS_EXIT_USAGE
#define REPLAY_EXIT_INTERRUPTED 130

/*
 * Parses the options of a subcommand and checks its output files; prints the
 * help or the error. The usage names the subcommand alone. Returns 0 to go on,
 * or -1 with the exit status in *status.
 */
[[nodiscard]] int replay_parse(const struct option_usage *usage,
                               const struct option_table *table, int argc,
                               char **argv, int *status);

/* Prints an error about the output file `path` unless rc is 0 (see
 * plot_error()). Returns 0 or -1. */
int replay_complain_output(const char *name, const char *path, int rc);

/* Writes an optional output: evaluates `write` only if there is a path. */
#define REPLAY_OUTPUT(name, path, write) \
    ((path) ? replay_complain_output(name, path, write) : 0)

/* Parses the options of a subcommand, and executes its Python script `script`
 * (see plot_find()) with the program's path, the subcommand's name, and
 * "option=value" for each option that has a value. Returns the exit status. */
int replay_script(const char *script, const struct option_usage *usage,
                  const struct option_table *table, int argc, char **argv);

/* Executes a script as replay_script(), with options that were parsed. */
int replay_script_parsed(const char *script, const char *name,
                         const struct option_table *table);

/* Prints which required option is missing, and where help is. */
void replay_missing(const char *name, const char *option);

/* Run a subcommand, whose name is argv[0]. Return the exit status; below 0
 * stands for 1. */
int replay_command_live(int argc, char **argv);
int replay_command_live_sessions(int argc, char **argv);
int replay_command_profile(int argc, char **argv);
int replay_command_from_log(int argc, char **argv);
int replay_command_generate(int argc, char **argv);
int replay_command_stats(int argc, char **argv);
int replay_command_compare(int argc, char **argv);
int replay_command_size(int argc, char **argv);
int replay_command_agree(int argc, char **argv);
int replay_command_cake(int argc, char **argv);
int replay_command_cake_adaptive(int argc, char **argv);
int replay_command_cake_fluctuation(int argc, char **argv);
int replay_command_cake_run(int argc, char **argv);
int replay_command_figures(int argc, char **argv);
int replay_command_simulate(int argc, char **argv);
int replay_command_sessions(int argc, char **argv);
int replay_command_sweep(int argc, char **argv);
int replay_command_study_run(int argc, char **argv);

#endif

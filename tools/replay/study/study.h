/*
 * Many simulations of one trace, in parallel on this machine's cores. Cases are
 * independent: results do not depend on how many run at once.
 */
#ifndef TOOLS_REPLAY_STUDY_STUDY_H
#define TOOLS_REPLAY_STUDY_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "conductor/config/policy_text.h"
#include "sim/cluster/cluster.h"
#include "tools/replay/command.h"
#include "tools/replay/simulate/sim.h"

#define REPLAY_STUDY_ERROR_BYTES 1024

/* Common to all cases of a study. */
struct replay_study {
    struct replay_stream_options source;
    uint64_t jobs; /* simulations at once; 0 = number of cores */
    bool quiet;    /* show no progress */
};

/* Requests that arrive in an interval of a trace. */
struct replay_interval {
    uint64_t requests;
    uint64_t effective;
    uint64_t answered;
    double ttft_s; /* sum over answered requests */
};

/* Most intervals of a case; later requests count in the last one. */
#define REPLAY_INTERVALS_MAX 100000u

/* One simulation. The caller fills the upper part; the run fills the rest. */
struct replay_case {
    struct cluster cluster;
    const char *policy;
    const struct policy_settings *settings;     /* NULL = none; borrowed */
    const char *admission;                      /* NULL = plain */
    const struct replay_stream_options *source; /* NULL = the study's;
                                                   borrowed */
    const struct closed_loop_options *loop;     /* replaces the source; NULL =
                                                   none; borrowed */
    FILE *csv; /* a line per request; NULL = none; borrowed */
    double speed;
    double slo_ttft_s; /* limit of every request; 0 = none */
    double slo_tbt_s;
    double effective_ttft_s; /* limit of effective requests */
    double effective_tbt_s;  /* limit of effective requests; 0 = none */
    uint64_t seed;
    bool gives_up; /* after more than misses_max ineffective requests, or more
                      than miss_tokens_max of their input tokens */
    uint64_t misses_max;
    uint64_t miss_tokens_max;
    double interval_s; /* of `intervals`; 0 = not kept */

    bool failed;  /* its error is the study's; no result */
    bool gave_up; /* no result */
    struct replay_sim_result result;
    double arrivals_s;             /* first to last arrival, at this speed */
    double prefill_s;              /* sum over all prefill nodes */
    struct replay_summary error_s; /* of the predicted TTFT, absolute, in
                                      answered requests */
    uint64_t judged; /* requests ended, counted also if given up */
    uint64_t misses, miss_tokens;
    struct replay_interval *intervals; /* (n_intervals), in order of time */
    size_t n_intervals;
    size_t intervals_room;
    struct replay_distribution errors_s; /* collects error_s */
};

/* Rows for a subcommand's option table. */
#define REPLAY_STUDY_SPECS(o)                              \
    REPLAY_STREAM_SPECS((o).source),                       \
        OPTION_SPEC(                                       \
            "jobs", OPTION_COUNT, &(o).jobs, "N", 1, 1024, \
            "simulations at once (default: the cores of this machine)")

/* Rows for overrides of a cluster file. */
#define REPLAY_OVERRIDE_SPECS(changes)                                         \
    OPTION_SPEC("link-gbps", OPTION_NUMBER, &(changes).link_gbps, "X", 0, 1e9, \
                "bandwidth of every link, in Gbit/s, instead of the file's"),  \
        OPTION_SPEC("cache-tokens", OPTION_NUMBER, &(changes).cache_tokens,    \
                    "N", 1, 1e12,                                              \
                    "device cache of a prefill node, in tokens, instead of "   \
                    "the file's")

/* Loads a cluster file and applies the overrides. Returns 0, or -1 after
 * printing an error of the subcommand `name`. */
[[nodiscard]] int replay_load_cluster(const char *name, const char *path,
                                      const struct cluster_changes *changes,
                                      struct cluster *cluster);

/* Checks the name of an admission policy. Returns 0, or -1 after printing an
 * error of the subcommand `name`. */
[[nodiscard]] int replay_check_admission(const char *name,
                                         const char *admission);

/* The option --policy-option of subcommands. */
struct replay_policies {
    struct option_list texts;
    struct policy_settings settings;
};

/* Row for a subcommand's option table. */
#define REPLAY_POLICY_SPEC(p)                                          \
    {                                                                  \
        "policy-option", OPTION_LIST, &(p).texts, "NAME=NUMBER", 0, 0, \
            POLICY_OPTION_HELP                                         \
    }

/* The topic of --help, for a subcommand's struct option_usage. */
#define REPLAY_POLICY_TOPIC \
    .topic = POLICY_OPTION_TOPIC, .explain = replay_policies_explain
void replay_policies_explain(FILE *out);

/* Parses as replay_parse(), with a table that has REPLAY_POLICY_SPEC(*p). */
[[nodiscard]] int replay_policies_parse(struct replay_policies *p,
                                        const struct option_usage *usage,
                                        const struct option_table *table,
                                        int argc, char **argv, int *status);

/*
 * Checks the options against policies[0 .. n), all of which exist. Returns 0,
 * or -1 after printing an error of the subcommand `name`.
 */
[[nodiscard]] int replay_policies_check(const struct replay_policies *p,
                                        const char *name,
                                        const char *const *policies, size_t n);

/* Default values of a case, as in the Mooncake paper. */
#define REPLAY_CASE_DEFAULT                                                   \
    {                                                                         \
        .speed = 1, .seed = 1, .effective_ttft_s = 30, .effective_tbt_s = 0.2 \
    }

/*
 * Runs all cases.
 *   study  borrowed; a block size of 0 in the source means each cluster's.
 *   cases  (n), filled; call replay_cases_fini() even after an error.
 *   error  the message of the first case that failed.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int replay_study_run(const struct replay_study *study,
                                   struct replay_case *cases, size_t n,
                                   char error[REPLAY_STUDY_ERROR_BYTES]);

/* Frees what the cases own, but not the array. */
void replay_cases_fini(struct replay_case *cases, size_t n);

#endif

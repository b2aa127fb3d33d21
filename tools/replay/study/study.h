/*
 * Many simulations of one trace, side by side on the cores of this machine.
 * Each case is independent: the numbers do not depend on how many run at once.
 */
#ifndef TOOLS_REPLAY_STUDY_STUDY_H
#define TOOLS_REPLAY_STUDY_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "conductor/policy_text.h"
#include "sim/cluster/cluster.h"
#include "tools/replay/options.h"
#include "tools/replay/simulate/sim.h"

#define REPLAY_STUDY_ERROR_BYTES 1024

/* What the cases of a study have in common. */
struct replay_study {
    struct replay_stream_options source;
    uint64_t jobs;    /* simulations at once; 0: as many as there are cores */
    const char *what; /* for progress on stderr: "simulations" */
    bool quiet;       /* no progress */
};

/* The requests that came in an interval of a trace. */
struct replay_interval {
    uint64_t requests;
    uint64_t effective; /* of these */
    uint64_t answered;
    double ttft_s; /* the sum of these */
};

/* Intervals of a case at most; later requests count in the last one. */
#define REPLAY_INTERVALS_MAX 100000u

/* One simulation: the upper part is the caller's, the rest is filled. */
struct replay_case {
    struct cluster cluster;
    const char *policy;
    const char *label; /* what a comparison calls it; borrowed */
    const struct policy_settings *settings;     /* NULL: none; borrowed */
    const char *admission;                      /* NULL: plain */
    const struct replay_stream_options *source; /* NULL: the study's; borrowed
                                                 */
    const struct closed_loop_options *loop;     /* in the source's place; NULL:
                                                   none; borrowed */
    FILE *csv; /* a line a request; NULL: none; borrowed */
    double speed;
    double slo_ttft_s; /* asked for by every request; 0: none */
    double slo_tbt_s;
    double effective_ttft_s; /* what counts as effective */
    double effective_tbt_s;  /* 0: any */
    uint64_t seed;
    bool gives_up; /* beyond misses_max requests that are not effective */
    uint64_t misses_max;
    double interval_s; /* of `intervals`; 0: none are kept */

    bool failed;  /* it has no result, and the error is its own */
    bool gave_up; /* then there is no result */
    struct replay_sim_result result;
    double arrivals_s; /* from the first to the last, at this speed */
    double prefill_s;  /* time of all prefill nodes together */
    struct replay_summary error_s; /* of the predicted TTFT, absolute, of all
                                      that were answered */
    uint64_t judged; /* requests that ended, also of a case given up */
    uint64_t misses;
    struct replay_interval *intervals; /* (n_intervals), in order of time */
    size_t n_intervals;
    size_t intervals_room;
    struct replay_distribution errors_s; /* behind error_s */
};

/* How a study's options appear in a subcommand's table. */
#define REPLAY_STUDY_SPECS(o)                              \
    REPLAY_STREAM_SPECS((o).source),                       \
        OPTION_SPEC(                                       \
            "jobs", OPTION_COUNT, &(o).jobs, "N", 1, 1024, \
            "simulations at once (default: the cores of this machine)")

/* What a command can replace of a cluster file. */
#define REPLAY_OVERRIDE_SPECS(changes)                                         \
    OPTION_SPEC("link-gbps", OPTION_NUMBER, &(changes).link_gbps, "X", 0, 1e9, \
                "Gbit/s of every link, instead of the file's"),                \
        OPTION_SPEC("cache-tokens", OPTION_NUMBER, &(changes).cache_tokens,    \
                    "N", 1, 1e12,                                              \
                    "tokens that a prefill node's device caches, likewise")

/* Loads a cluster file and makes the changes. Returns 0, or -1 after a
 * complaint of the subcommand `name`. */
[[nodiscard]] int replay_load_cluster(const char *name, const char *path,
                                      const struct cluster_changes *changes,
                                      struct cluster *cluster);

/* Whether there is an admission policy of that name. 0, or -1 after a complaint
 * of the subcommand `name` that lists them. */
[[nodiscard]] int replay_check_admission(const char *name,
                                         const char *admission);

/* What a case is with nothing said, as in the Mooncake paper. */
#define REPLAY_CASE_DEFAULT                                                   \
    {                                                                         \
        .speed = 1, .seed = 1, .effective_ttft_s = 30, .effective_tbt_s = 0.2 \
    }

/*
 * Runs all cases.
 *   study  borrowed; the source's block size must be 0 (it becomes that of
 *          each cluster) or set.
 *   cases  (n), filled; to be freed with replay_cases_fini() in any case.
 *   error  the message of the first case that failed.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int replay_study_run(const struct replay_study *study,
                                   struct replay_case *cases, size_t n,
                                   char error[REPLAY_STUDY_ERROR_BYTES]);

/* Frees what the cases own, not the array. */
void replay_cases_fini(struct replay_case *cases, size_t n);

/* Effective requests per second of the trace's time at the case's speed. */
double replay_case_goodput(const struct replay_case *c);

#endif

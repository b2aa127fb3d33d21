/*
 * One simulation of a trace with its report, for `simulate` and for subcommands
 * that run many. Requests are streamed from a file.
 */
#ifndef TOOLS_REPLAY_SIMULATE_SIM_H
#define TOOLS_REPLAY_SIMULATE_SIM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/sim.h"
#include "tools/replay/report/report.h"
#include "tools/replay/simulate/facts.h"
#include "tools/replay/trace/stream.h"
#include "traces/recorded/loop.h"

/* Virtual time between counts of copies, as in the paper's figure 11. */
#define REPLAY_COPIES_INTERVAL_US INT64_C(30000000)
/* Most counts kept of a run. Whenever they are full, every second one is
 * dropped and the interval doubles. */
#define REPLAY_COPIES_MAX 4096

struct replay_sim_params {
    struct sim_config sim; /* watch_* are filled in by replay_sim_run() */
    struct replay_stream_options source; /* a regular file, read twice */
    /* A closed loop instead of the source, with the cluster's block size;
     * borrowed. NULL = none. It gives no facts but the best ratio. */
    const struct closed_loop_options *loop;
    double slo_ttft_s; /* limits of an effective request */
    double slo_tbt_s;
    bool with_facts;            /* do a first pass for the best ratio and the
                                   ranks */
    int64_t copies_interval_us; /* for ranked blocks; 0 =
                                   REPLAY_COPIES_INTERVAL_US */
    FILE *csv;                  /* a line per request; NULL = none */
    FILE *nodes_csv;            /* a line per node and sample; NULL = none */
    /* Called with every record (borrowed), in trace order; a negative errno
     * ends the run with that error. NULL = not called. */
    int (*observe)(void *arg, const struct replay_record *record);
    void *observe_arg;
};

/* Copies of the ranked blocks over time. */
struct replay_copies {
    int64_t *at_us;   /* (n) */
    uint32_t *copies; /* (n, facts.n_ranked) */
    size_t n;         /* at most REPLAY_COPIES_MAX */
    size_t capacity;
    int64_t interval_us; /* virtual time between counts */
};

/* Most role switches kept. */
#define REPLAY_SWITCHES_MAX 1024

struct replay_switches {
    struct sim_switch *at; /* (n) */
    size_t n;              /* at most REPLAY_SWITCHES_MAX; later ones are
                              dropped */
    size_t capacity;
};

struct replay_sim_result {
    struct replay_report report; /* borrows the policy's name */
    struct replay_facts facts;
    struct sim_summary summary;
    struct replay_copies copies;
    struct replay_switches switches;
    struct replay_sessions sessions; /* of a closed loop */
    uint64_t skipped;                /* bad lines */
    char first_skipped[512];         /* message of the first; "" = none */
    double wall_s; /* of the simulation, first pass excluded */
};

/*
 * Runs a simulation.
 *   params  borrowed for the call; the report keeps sim.policy.
 *   result  written on success; the caller calls _fini.
 *   error   (size) a message of one line.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int replay_sim_run(const struct replay_sim_params *params,
                                 struct replay_sim_result *result, char *error,
                                 size_t size);

/* Writes the header of nodes_csv. */
void replay_nodes_csv_header(FILE *file);

/* Frees what a result owns. */
void replay_sim_result_fini(struct replay_sim_result *result);

/*
 * Returns a live replay's report plus "sim", "transfers", "pushes" and
 * "replicas": a new reference, or NULL when out of memory. Wall times, which
 * differ between runs, are null without `timing`.
 */
[[nodiscard]] json_t *replay_sim_json(const struct replay_sim_result *result,
                                      bool timing);

/* Prints the report as a table, and the time of the simulation. */
void replay_sim_print(const struct replay_sim_result *result, FILE *file);

#endif

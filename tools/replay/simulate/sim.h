/*
 * One simulation of a trace with its report: what `simulate` prints, and what
 * other subcommands run many of. Requests come from a file, read as a stream.
 */
#ifndef TOOLS_REPLAY_SIMULATE_SIM_H
#define TOOLS_REPLAY_SIMULATE_SIM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/sim.h"
#include "tools/replay/report/report.h"
#include "tools/replay/report/sessions.h"
#include "tools/replay/simulate/facts.h"
#include "tools/replay/trace/stream.h"
#include "traces/recorded/loop.h"

/* Virtual time between two counts of copies, as in the paper's figure 11. */
#define REPLAY_COPIES_INTERVAL_US INT64_C(30000000)
/* Counts kept of a run; of a longer one every second is left out, again and
 * again. */
#define REPLAY_COPIES_MAX 4096

struct replay_sim_params {
    struct sim_config sim; /* watch_* are filled in by replay_sim_run() */
    struct replay_stream_options source; /* a regular file, read twice */
    /* A closed loop in its place, whose block size becomes the cluster's;
     * borrowed. NULL: none. Then there are no facts but the best ratio. */
    const struct closed_loop_options *loop;
    double slo_ttft_s; /* what counts as effective */
    double slo_tbt_s;
    bool with_facts;            /* a first pass for best ratio and ranks */
    int64_t copies_interval_us; /* of the ranked blocks; 0: as
                                   REPLAY_COPIES_INTERVAL_US */
    FILE *csv;                  /* a line a request; NULL: none */
    FILE *nodes_csv;            /* a line a node and sample; NULL: none */
    /* Sees every record, borrowed, in the order of the trace; a negative errno
     * from it ends the run with that error. NULL: nobody. */
    int (*observe)(void *arg, const struct replay_record *record);
    void *observe_arg;
};

/* Copies of the ranked blocks over time. */
struct replay_copies {
    int64_t *at_us;   /* (n) */
    uint32_t *copies; /* (n, facts.n_ranked) */
    size_t n;         /* at most REPLAY_COPIES_MAX */
    size_t capacity;
    int64_t interval_us; /* of virtual time between two */
};

/* Nodes that switched their roles. */
#define REPLAY_SWITCHES_MAX 1024

struct replay_switches {
    struct sim_switch *at; /* (n) */
    size_t n;              /* at most REPLAY_SWITCHES_MAX: later ones are not
                              kept */
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
    char first_skipped[512];         /* the message of the first; "": none */
    double wall_s; /* of the simulation, without the first pass */
};

/*
 * Runs a simulation.
 *   params  borrowed for the call; the report keeps sim.policy.
 *   result  written on success, fini by the caller.
 *   error   (size) a message of one line.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int replay_sim_run(const struct replay_sim_params *params,
                                 struct replay_sim_result *result, char *error,
                                 size_t size);

/* The header of the file of nodes. */
void replay_nodes_csv_header(FILE *file);

/* Frees what a result owns. */
void replay_sim_result_fini(struct replay_sim_result *result);

/*
 * The report of a live replay and what only a simulation has: "sim",
 * "transfers", "pushes", "replicas". With `timing` the wall times, which no
 * two runs have alike; else they are null. Returns a new reference, or NULL.
 */
[[nodiscard]] json_t *replay_sim_json(const struct replay_sim_result *result,
                                      bool timing);

/* Prints the report as a table, and what the simulation took. */
void replay_sim_print(const struct replay_sim_result *result, FILE *file);

#endif

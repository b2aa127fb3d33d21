/*
 * Draws the cases of a sweep. The k-th case depends on the description, the
 * sweep's seed and k alone, so that it can be repeated by itself. The
 * description has ranges of clusters, loads and errors, and lists of hardware
 * and traces; it is plain data, read from a JSON file (format:
 * docs/plan/sweep.md).
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_DRAW_H
#define TOOLS_REPLAY_STUDY_SWEEP_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cluster/cluster.h"
#include "tools/replay/study/sweep/work.h"

#define SWEEP_ERROR_BYTES 1024
#define SWEEP_NAME_BYTES 64
#define SWEEP_PATH_BYTES 1024
#define SWEEP_HARDWARE_MAX 8
#define SWEEP_TRACES_MAX 16
/* Most requests of a case: they are in memory at once. */
#define SWEEP_REQUESTS_MAX 1000000

struct sweep_range {
    double least, most;
};

/* A node's model, costs and memory. */
struct sweep_hardware {
    char name[SWEEP_NAME_BYTES];
    uint32_t layers;
    int64_t kv_bytes_per_token;
    double prefill_us[COST_MODEL_PREFILL_TERMS];
    double decode_us[COST_MODEL_DECODE_TERMS];
    int64_t kv_tokens; /* of a decode node */
    uint32_t max_batch;
    uint32_t step_tokens;
    struct cluster_tier tiers[BLOCK_TIERS]; /* of a prefill node; the disk only
                                               in cases with disks */
};

struct sweep_trace {
    char name[SWEEP_NAME_BYTES];
    char like[SWEEP_NAME_BYTES]; /* workload to generate; "" = read the file */
    char file[SWEEP_PATH_BYTES];
    uint32_t length_scale; /* divides token counts and block size */
};

struct sweep_description {
    char name[SWEEP_NAME_BYTES];
    struct sweep_range requests;  /* per case */
    struct sweep_range nodes;     /* of the whole cluster; logarithmic */
    struct sweep_range balance;   /* prefill nodes / a balanced number */
    struct sweep_range link_gbps; /* logarithmic */
    struct sweep_range load;      /* 1 = the estimated capacity */
    struct sweep_range slo_ttft_s;
    struct sweep_range slo_tbt_s;           /* all 0 = none */
    struct sweep_range prefill_error_sigma; /* in cases with errors */
    struct sweep_range decode_error_sigma;
    struct sweep_range slow_nodes; /* share of nodes, in unequal cases */
    struct sweep_range slow_speed;
    struct sweep_range max_tokens;   /* requested, in cases with asks */
    struct sweep_range mixed_nodes;  /* share of nodes of another kind */
    struct sweep_range mixed_cost;   /* factor on their costs */
    struct sweep_range mixed_memory; /* factor on their memory */
    struct sweep_range cache; /* memory of all nodes / tokens the trace touches;
                                 logarithmic */
    double aggregated, disks, unequal, errors;          /* share of the cases */
    double asks, mixed, small;                          /* share of the cases; 0
                                                           if left out */
    struct sweep_hardware hardware[SWEEP_HARDWARE_MAX]; /* (n_hardware) */
    size_t n_hardware;
    struct sweep_trace traces[SWEEP_TRACES_MAX]; /* (n_traces) */
    size_t n_traces;
};

/*
 * Reads a description.
 *   path  borrowed; trace files in it are relative to it.
 * Returns 0; or a negative errno with *d untouched and a message of one line
 * that names file, field and value.
 */
[[nodiscard]] int sweep_description_load(const char *path,
                                         struct sweep_description *d,
                                         char err[SWEEP_ERROR_BYTES]);

/* Reads a description from `size` bytes at `text`, otherwise as
 * sweep_description_load(); `name` stands for the file in messages. */
[[nodiscard]] int sweep_description_parse(const char *text, size_t size,
                                          const char *name,
                                          struct sweep_description *d,
                                          char err[SWEEP_ERROR_BYTES]);

/* Adds a trace file. Returns 0, -ENOSPC (SWEEP_TRACES_MAX reached) or
 * -ENAMETOOLONG. */
[[nodiscard]] int sweep_description_add_file(struct sweep_description *d,
                                             const char *path);

/* The parameters drawn for a case. */
struct sweep_draw {
    uint64_t number; /* from 0 */
    uint64_t seed;   /* of its random numbers */
    const struct sweep_hardware *hardware;
    const struct sweep_trace *trace;
    uint64_t requests;
    uint32_t nodes;
    bool aggregated, disks;
    double balance;
    double slow_nodes; /* share of nodes; 0 = all equal */
    double slow_speed;
    double link_gbps;
    double load;
    double slo_ttft_s;
    double slo_tbt_s;                               /* 0 = none */
    double prefill_error_sigma, decode_error_sigma; /* 0 = none */
    uint32_t max_tokens;                            /* requested; 0 = the exact
                                                       output */
    double mixed_nodes; /* share of nodes; 0 = one kind only */
    double mixed_cost, mixed_memory;
    double cache; /* of all nodes / tokens touched; 0 = the hardware's */
};

/* A case ready to simulate. */
struct sweep_case {
    struct sweep_draw draw;
    struct cluster cluster;
    double speed; /* of the trace, to reach the load */
    double rate;  /* of generated sessions, in requests per second; 0 = the
                     workload's own */
    double load;  /* actual load: the one drawn, within 3 % if the rate was
                     searched */
};

/* Draws case `number`. Borrows from `d`. O(1). */
void sweep_draw(const struct sweep_description *d, uint64_t seed,
                uint64_t number, struct sweep_draw *draw);

/* Returns the source of a case's requests for its i-th seed: another generated
 * trace, or for i > 0 the file with another order of equal timestamps. Borrows
 * from the draw. `rate` as in a case. */
struct replay_stream_options sweep_source(const struct sweep_draw *draw,
                                          uint64_t i, double rate);

/*
 * Makes a case from a draw: reads its trace, several times if the load depends
 * on when sessions start.
 *   error  a message of one line.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int sweep_case_make(const struct sweep_draw *draw,
                                  struct sweep_case *made,
                                  char error[SWEEP_ERROR_BYTES]);

#endif

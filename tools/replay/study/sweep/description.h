/*
 * What a sweep draws its cases from: ranges of clusters, loads and errors, and
 * lists of hardware and traces. Plain data, read from a JSON file (format:
 * docs/sweep.md).
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_DESCRIPTION_H
#define TOOLS_REPLAY_STUDY_SWEEP_DESCRIPTION_H

#include <stddef.h>
#include <stdint.h>

#include "sim/cluster/cluster.h"

#define SWEEP_ERROR_BYTES 1024
#define SWEEP_NAME_BYTES 64
#define SWEEP_PATH_BYTES 1024
#define SWEEP_HARDWARE_MAX 8
#define SWEEP_TRACES_MAX 16
/* More than this in memory at once would need another way of reading. */
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
    int64_t kv_tokens; /* of a node that decodes */
    uint32_t max_batch;
    uint32_t step_tokens;
    struct cluster_tier tiers[BLOCK_TIERS]; /* of a node that prefills; the
                                               disk is for cases with disks */
};

struct sweep_trace {
    char name[SWEEP_NAME_BYTES];
    char like[SWEEP_NAME_BYTES]; /* a workload to generate; "": the file */
    char file[SWEEP_PATH_BYTES];
    uint32_t length_scale; /* divides lengths and blocks */
};

struct sweep_description {
    char name[SWEEP_NAME_BYTES];
    struct sweep_range requests;  /* of a case */
    struct sweep_range nodes;     /* all of a cluster, by their logarithm */
    struct sweep_range balance;   /* prefill nodes, times what would balance */
    struct sweep_range link_gbps; /* by its logarithm */
    struct sweep_range load;      /* 1: the estimated capacity */
    struct sweep_range slo_ttft_s;
    struct sweep_range slo_tbt_s;           /* all 0: none */
    struct sweep_range prefill_error_sigma; /* in cases that have errors */
    struct sweep_range decode_error_sigma;
    struct sweep_range slow_nodes; /* share of the nodes, in unequal cases */
    struct sweep_range slow_speed;
    struct sweep_range max_tokens;  /* asked for, in cases that ask for more */
    struct sweep_range mixed_nodes; /* share of the nodes of another kind */
    struct sweep_range mixed_cost;  /* their costs and memory, times those of */
    struct sweep_range mixed_memory; /* the others */
    struct sweep_range cache; /* of all nodes together, over what the trace
                                 touches: by its logarithm */
    double aggregated, disks, unequal, errors;          /* share of the cases */
    double asks, mixed, small;                          /* 0 if left out */
    struct sweep_hardware hardware[SWEEP_HARDWARE_MAX]; /* (n_hardware) */
    size_t n_hardware;
    struct sweep_trace traces[SWEEP_TRACES_MAX]; /* (n_traces) */
    size_t n_traces;
};

/*
 * Reads a description.
 *   path  borrowed; trace files that it names are relative to it.
 * Returns 0; or a negative errno with a message of one line that names file,
 * field and value, and *d untouched.
 */
[[nodiscard]] int sweep_description_load(const char *path,
                                         struct sweep_description *d,
                                         char err[SWEEP_ERROR_BYTES]);

/* As sweep_description_load(), from `size` bytes at `text`; `name` stands for
 * the file in messages. */
[[nodiscard]] int sweep_description_parse(const char *text, size_t size,
                                          const char *name,
                                          struct sweep_description *d,
                                          char err[SWEEP_ERROR_BYTES]);

/* Adds the trace of a file. Returns 0, or -ENOSPC: SWEEP_TRACES_MAX; or
 * -ENAMETOOLONG. */
[[nodiscard]] int sweep_description_add_file(struct sweep_description *d,
                                             const char *path);

#endif

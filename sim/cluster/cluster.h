/*
 * The description of a simulated cluster: how many nodes of which kind, what
 * their work costs, what they hold, how they are linked. Plain data, read from
 * a JSON file (format: docs/clusters.md).
 */
#ifndef SIM_CLUSTER_CLUSTER_H
#define SIM_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "predictor/cost_model.h"

#define CLUSTER_NAME_BYTES 64
#define CLUSTER_ERROR_BYTES 512
#define CLUSTER_NODES_MAX 8192
#define CLUSTER_STAGES_MAX 64
#define CLUSTER_GROUPS_MAX 16
#define CLUSTER_SPEEDS_MAX 512
#define CLUSTER_JSON_MAX_BYTES (64 * 1024)

/* Memory for cached blocks. */
struct cluster_tier {
    int64_t capacity_tokens; /* 0: there is no such tier */
    double read_bytes_per_s; /* into the computing device; 0: at no cost */
};

/* When blocks are matched and given places in a node's cache. */
enum cluster_cache_at {
    /* As workers do: matched when the prefill begins, placed as computed. */
    CLUSTER_CACHE_AT_SERVICE,
    /* The reference conventions: matched, touched and placed front to back
     * when the request is dispatched; ready when its prefill ends. */
    CLUSTER_CACHE_AT_DISPATCH,
};

/* Nodes of one role that differ from the others. What it does not say is as of
 * the others. */
struct cluster_group {
    bool decodes;   /* of decode nodes, else of those that prefill */
    uint32_t first; /* of its nodes, counted within the role */
    uint32_t nodes;
    bool has_prefill, has_decode, has_tier[BLOCK_TIERS]; /* of its own */
    double prefill_us[COST_MODEL_PREFILL_TERMS];
    double decode_us[COST_MODEL_DECODE_TERMS];
    struct cluster_tier tiers[BLOCK_TIERS];
    int64_t decode_kv_tokens;  /* 0: as the others */
    uint32_t decode_max_batch; /* likewise */
};

/* How reality differs from the predictions, which do not know of it but from
 * observations, where nothing else is said. All zero: not at all. */
struct cluster_reality {
    /* The time of a request's prefill, and of a decode step, is that of the
     * cost model times a lognormal factor of mean 1 and this sigma of its
     * logarithm: drawn once a request. A step has the mean of its requests'. */
    double prefill_error_sigma;
    double decode_error_sigma;
    double node_speed[CLUSTER_SPEEDS_MAX]; /* (n_speeds), of the first nodes:
                                              2 is twice as fast as the model */
    uint32_t n_speeds;
    bool speeds_unknown;        /* predictions take every node for one like the
                                   cluster's cost; false: they know the cost of its
                                   group, at its speed */
    bool first_token_at_decode; /* the decode node sends the first token */
    uint32_t max_tokens_fixed;  /* asked for, or the output if that is longer */
    double max_tokens_times;    /* likewise: so many times the output; 0: 1 */
};

struct cluster {
    char name[CLUSTER_NAME_BYTES];

    /* The model and what it costs. */
    uint32_t layers;
    uint32_t block_tokens;
    int64_t kv_bytes_per_token;
    struct cost_model cost;

    /* Either prefill nodes with or without decode nodes, or coupled ones. */
    uint32_t prefill_nodes;
    uint32_t decode_nodes; /* 0: TTFT only, a request ends with its prefill */
    uint32_t coupled_nodes;
    /* The last of the coupled ones are engines of pairs: so many that only
     * prefill, and behind them those that decode for these. */
    uint32_t pair_prefills;
    uint32_t pair_decodes;
    bool pair_decodes_alone; /* these serve requests alone, too */

    /* A node that prefills. */
    char order[32];           /* of core/queue */
    uint32_t step_tokens;     /* computed in one step; 0: the whole prompt */
    bool mix_requests;        /* a step may end one prompt and begin another */
    uint32_t max_waiting;     /* accepted prefills waiting on a node */
    int64_t handover_us;      /* from a decision until its node knows of it */
    uint32_t pipeline_stages; /* machines of one node, see DESIGN.md */
    bool prefix_cache;        /* false: nothing is ever reused */
    struct cluster_tier tiers[BLOCK_TIERS];

    /* A node that decodes. */
    int64_t decode_kv_tokens; /* of requests in decode; of a coupled node all
                                 its memory, cached blocks share it */
    uint32_t decode_max_batch;

    /* Every node's link, each direction. */
    double link_bytes_per_s;
    bool links_shared; /* transfers that meet at a node share its link */
    bool layerwise;    /* KV goes to the decode node layer by layer */

    /* Conventions. */
    enum cluster_cache_at cache_at;
    bool whole_prompt_reuse; /* see struct simulated_world */
    double kvcache_balancing_threshold;

    struct cluster_group groups[CLUSTER_GROUPS_MAX]; /* (n_groups) */
    uint32_t n_groups;
    struct cluster_reality reality;
};

/* What one node has, and what work really costs there. */
struct cluster_node {
    struct cost_model cost; /* of its group, at its speed */
    struct cluster_tier tiers[BLOCK_TIERS];
    int64_t decode_kv_tokens;
    uint32_t decode_max_batch;
};

/*
 * Reads a description.
 *   path  borrowed; a cost model file that it names is relative to it.
 *   err   a message of one line that names file, field and value, on error.
 * Returns 0; or a negative errno with *cluster untouched: -EINVAL for what is
 * no valid description, or what opening and reading report.
 */
[[nodiscard]] int cluster_load_file(const char *path, struct cluster *cluster,
                                    char err[CLUSTER_ERROR_BYTES]);

/* As cluster_load_file(), from `size` bytes at `text`; `name` stands for the
 * file in messages. */
[[nodiscard]] int cluster_load_buffer(const char *text, size_t size,
                                      const char *name, struct cluster *cluster,
                                      char err[CLUSTER_ERROR_BYTES]);

/*
 * Checks what holds between fields; loading calls it, and who changes fields
 * (an override) calls it again.
 * Returns 0, or -EINVAL with a message.
 */
[[nodiscard]] int cluster_check(const struct cluster *cluster,
                                char err[CLUSTER_ERROR_BYTES]);

/* What replaces numbers of a description; a negative one leaves what is there.
 */
struct cluster_changes {
    int64_t prefill_nodes; /* or coupled ones */
    int64_t decode_nodes;  /* 0: TTFT only */
    double link_gbps;
    double cache_tokens; /* that each prefill node's device keeps */
};

#define CLUSTER_UNCHANGED    \
    (struct cluster_changes) \
    {                        \
        -1, -1, -1, -1       \
    }

/* Makes the changes. Returns 0, or -EINVAL with a message and the cluster
 * unchanged. */
[[nodiscard]] int cluster_override(struct cluster *cluster,
                                   const struct cluster_changes *changes,
                                   char err[CLUSTER_ERROR_BYTES]);

/* All nodes; they are numbered prefill or coupled ones first. */
uint32_t cluster_nodes(const struct cluster *cluster);

/* Whether node i is one of a pair that only prefills, or decodes for those. */
bool cluster_pair_prefills(const struct cluster *cluster, uint32_t i);
bool cluster_pair_decodes(const struct cluster *cluster, uint32_t i);

/* What node i is, its group and speed taken in. */
void cluster_node_at(const struct cluster *cluster, uint32_t i,
                     struct cluster_node *node);

/* The output tokens that a client asks for whose answer will have n_output. */
uint32_t cluster_max_tokens(const struct cluster *cluster, uint32_t n_output);

/* "prefill-3", "decode-0", "coupled-7": the name of node i, into `name`. */
void cluster_node_name(const struct cluster *cluster, uint32_t i, char *name,
                       size_t size);

#endif

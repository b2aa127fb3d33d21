/*
 * The description of a simulated cluster: number and kinds of nodes, costs,
 * memory, links. Plain data, read from a JSON file (format:
 * docs/plan/clusters.md).
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
    int64_t capacity_tokens; /* 0 = the tier does not exist */
    double read_bytes_per_s; /* into the computing device; 0 = no cost */
};

/* When blocks are matched and placed in a node's cache. */
enum cluster_cache_at {
    /* As workers do: matched when the prefill begins, placed as computed. */
    CLUSTER_CACHE_AT_SERVICE,
    /* The reference conventions: matched, touched and placed front to back
     * when the request is dispatched; ready when its prefill ends. */
    CLUSTER_CACHE_AT_DISPATCH,
};

/* Nodes of one role that differ. Fields missing in a group keep the cluster's
 * value. */
struct cluster_group {
    bool decodes;   /* decode nodes; else nodes that prefill */
    uint32_t first; /* index of its first node within the role */
    uint32_t nodes;
    bool has_prefill, has_decode, has_tier[BLOCK_TIERS]; /* set in the group */
    double prefill_us[COST_MODEL_PREFILL_TERMS];
    double decode_us[COST_MODEL_DECODE_TERMS];
    struct cluster_tier tiers[BLOCK_TIERS];
    int64_t decode_kv_tokens;  /* 0 = the cluster's value */
    uint32_t decode_max_batch; /* 0 = the cluster's value */
};

/* How reality differs from the predictions, which learn of it only from
 * observations, unless a field says otherwise. All zero = no difference. */
struct cluster_reality {
    /* The time of a request's prefill, and of a decode step, is the cost
     * model's times a lognormal factor of mean 1, drawn once per request, with
     * this sigma of its logarithm. A step's factor is the mean of its
     * requests'.
     */
    double prefill_error_sigma;
    double decode_error_sigma;
    double node_speed[CLUSTER_SPEEDS_MAX]; /* (n_speeds), of the first nodes;
                                              2 = twice as fast */
    uint32_t n_speeds;
    bool speeds_unknown; /* true: predictions use the cluster's cost for every
                            node; false: the cost of the node's group, at its
                            speed */
    bool first_token_at_decode; /* the decode node sends the first token */
    uint32_t max_tokens_fixed;  /* least max_tokens of a request */
    double max_tokens_times;    /* least max_tokens / output; 0 = 1 */
};

struct cluster {
    char name[CLUSTER_NAME_BYTES];

    /* The model and its costs. */
    uint32_t layers;
    uint32_t block_tokens;
    int64_t kv_bytes_per_token;
    struct cost_model cost;

    /* Either prefill nodes, with or without decode nodes, or coupled nodes. */
    uint32_t prefill_nodes;
    uint32_t decode_nodes; /* 0 = TTFT only: a request ends with its prefill */
    uint32_t coupled_nodes;
    /* The last coupled nodes are pairs: pair_prefills nodes that only prefill,
     * then pair_decodes nodes that decode for them. */
    uint32_t pair_prefills;
    uint32_t pair_decodes;
    bool pair_decodes_alone; /* these also serve requests without a pair */

    /* Each prefill or coupled node. */
    char order[32];           /* name in core/queue */
    uint32_t step_tokens;     /* most tokens of a step; 0 = the whole prompt */
    bool mix_requests;        /* a step may end one prompt and begin the next */
    uint32_t max_waiting;     /* most accepted prefills waiting on a node */
    int64_t handover_us;      /* from a decision until its node knows it */
    uint32_t pipeline_stages; /* machines of one node, see DESIGN.md */
    bool prefix_cache;        /* false: no reuse */
    struct cluster_tier tiers[BLOCK_TIERS];

    /* Each decode or coupled node. */
    int64_t decode_kv_tokens; /* of requests in decode; of a coupled node all
                                 memory, shared with cached blocks */
    uint32_t decode_max_batch;

    /* Each node's link, in each direction. */
    double link_bytes_per_s;
    bool links_shared; /* transfers at a node share its link */
    bool layerwise;    /* KV goes to the decode node layer by layer */

    /* Conventions. */
    enum cluster_cache_at cache_at;
    bool whole_prompt_reuse; /* see struct simulated_world */
    double kvcache_balancing_threshold;

    struct cluster_group groups[CLUSTER_GROUPS_MAX]; /* (n_groups) */
    uint32_t n_groups;
    struct cluster_reality reality;
};

/* One node's hardware, and its true costs. */
struct cluster_node {
    struct cost_model cost; /* of its group, at its speed */
    struct cluster_tier tiers[BLOCK_TIERS];
    int64_t decode_kv_tokens;
    uint32_t decode_max_batch;
};

/*
 * Reads a description.
 *   path  borrowed; a cost model file in it is relative to it.
 *   err   a message of one line with file, field and value, on error.
 * Returns 0, or a negative errno with *cluster untouched: -EINVAL for an
 * invalid description, or the error of opening or reading a file.
 */
[[nodiscard]] int cluster_load_file(const char *path, struct cluster *cluster,
                                    char err[CLUSTER_ERROR_BYTES]);

/* Reads a description from `size` bytes at `text`, otherwise as
 * cluster_load_file(); `name` stands for the file in messages. */
[[nodiscard]] int cluster_load_buffer(const char *text, size_t size,
                                      const char *name, struct cluster *cluster,
                                      char err[CLUSTER_ERROR_BYTES]);

/*
 * Checks the rules between fields. Loading calls it; call it again after a
 * change of fields. Returns 0, or -EINVAL with a message.
 */
[[nodiscard]] int cluster_check(const struct cluster *cluster,
                                char err[CLUSTER_ERROR_BYTES]);

/* Overrides of a description; a negative number keeps the old value. */
struct cluster_changes {
    int64_t prefill_nodes; /* of coupled nodes in a coupled cluster */
    int64_t decode_nodes;  /* 0 = TTFT only */
    double link_gbps;
    double cache_tokens; /* device cache of each prefill node */
};

#define CLUSTER_UNCHANGED    \
    (struct cluster_changes) \
    {                        \
        -1, -1, -1, -1       \
    }

/* Applies the overrides. Returns 0, or -EINVAL with a message and the cluster
 * unchanged. */
[[nodiscard]] int cluster_override(struct cluster *cluster,
                                   const struct cluster_changes *changes,
                                   char err[CLUSTER_ERROR_BYTES]);

/* Returns the number of nodes. Prefill or coupled nodes come first. */
uint32_t cluster_nodes(const struct cluster *cluster);

/* Return whether node i prefills for pairs only, or decodes for pairs. */
bool cluster_pair_prefills(const struct cluster *cluster, uint32_t i);
bool cluster_pair_decodes(const struct cluster *cluster, uint32_t i);

/* Fills in node i, with its group's values and its speed. */
void cluster_node_at(const struct cluster *cluster, uint32_t i,
                     struct cluster_node *node);

/* Returns the max_tokens of a request whose answer will have n_output. */
uint32_t cluster_max_tokens(const struct cluster *cluster, uint32_t n_output);

/* Writes the name of node i: "prefill-3", "decode-0" or "coupled-7". */
void cluster_node_name(const struct cluster *cluster, uint32_t i, char *name,
                       size_t size);

#endif

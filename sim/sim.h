/*
 * The simulator runs the requests of a trace through a described cluster, on a
 * virtual clock. The archive conductor/core makes all decisions.
 *
 * The same configuration and requests give the same records and summary, byte
 * for byte. Memory grows with the simulated state (cached blocks, requests that
 * have not ended), never with the length of the trace.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/replication/replication.h"
#include "conductor/core/roles/roles.h"
#include "conductor/core/schedule/policy.h"
#include "conductor/core/warm/warm.h"
#include "sim/cluster/cluster.h"
#include "traces/trace.h"

#define SIM_ERROR_BYTES 256
#define SIM_WATCH_MAX 16
#define SIM_NO_NODE UINT32_MAX
#define SIM_CONDUCTORS_MAX 256
#define SIM_STATE_DELAY_MAX_US INT64_C(60000000)

struct sim_config {
    const struct cluster *cluster; /* borrowed for the run */
    const char *policy; /* of core/schedule, or "ideal_pool": one cache as
                           large as all together, which every node reads
                           at no cost */
    /* Numbers of the policy, (n_settings), borrowed; settings that it does not
     * have are ignored. They take precedence over the cluster's
     * kvcache_balancing_threshold and over `seed`. */
    const struct policy_setting *settings;
    size_t n_settings;
    const char *admission; /* of core/admission; NULL: "plain" */
    double speed;          /* arrivals come so many times faster; above 0 */
    int64_t slo_ttft_us;   /* asked for by every request; 0: none */
    int64_t slo_tbt_us;    /* likewise */
    uint64_t seed;
    /* Of tenants: the first is of tenant 1. (n_weights), borrowed, each above
     * 0; those beyond have 1. */
    const double *weights;
    size_t n_weights;
    uint32_t conductors;    /* that requests come to in turn; 0: 1 */
    bool conductors_drawn;  /* not in turn: drawn for each request */
    int64_t state_delay_us; /* until one hears what another one knows of its
                               requests */
    bool nothing_shared;    /* none ever hears of that */
    bool ask_again; /* a rejected request comes again, once, after the time that
                       it was told; its times count from then on */
    /* Blocks whose copies are counted every watch_interval_us of virtual
     * time. */
    const uint64_t *watch_ids;  /* (n_watch), borrowed */
    size_t n_watch;             /* at most SIM_WATCH_MAX; 0: none */
    int64_t watch_interval_us;  /* above 0 if n_watch is */
    int64_t sample_interval_us; /* of virtual time between samples of nodes; 0:
                                   none are taken */
};

enum sim_outcome {
    SIM_COMPLETED,
    SIM_REJECTED, /* no choice meets the SLO */
    SIM_FAILED,   /* cannot be served at all */
};

/* How one request ended. Times count from the first arrival; -1: there is none.
 */
struct sim_record {
    uint64_t index; /* in the order of the source, from 0 */
    enum sim_outcome outcome;
    const char *reason; /* static: the verdict, if it was not served */
    int64_t arrival_us;
    int64_t first_token_us; /* end of prefill */
    int64_t end_us;         /* last token, or the refusal */
    int64_t tbt_us;         /* mean of the longest 10 % of its intervals */
    int64_t queue_us;       /* from acceptance to the begin of its prefill */
    int64_t prefill_us;     /* begin to end of its prefill */
    int64_t predicted_ttft_us;
    int64_t predicted_p90_us; /* the 90th percentile of its TTFT */
    int64_t predicted_tbt_us;
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint64_t tenant; /* 0: none */
    int32_t priority;
    uint32_t local_tokens; /* reused from the node's own cache */
    uint32_t fetched_tokens;
    uint32_t computed_tokens;
    uint32_t prefill_node; /* SIM_NO_NODE: none */
    uint32_t decode_node;
};

struct sim_count {
    uint64_t count;
    uint64_t bytes;
};

struct sim_summary {
    uint64_t requests;
    uint64_t events; /* arrivals, steps, ends of transfers */
    uint64_t decisions;
    int64_t simulated_us;                /* first arrival to last event */
    struct sim_count fetches;            /* of cached blocks between nodes */
    struct sim_count pushes;             /* of KV to decode nodes */
    uint64_t loaded_tokens[BLOCK_TIERS]; /* by plans, from tiers of the node
                                            itself and of others */
    uint64_t max_unfinished;             /* requests in the system at once */
    uint64_t lent;                 /* prefills that were lent other nodes */
    uint64_t max_waiting_for_room; /* of these, not accepted by any node */
    uint64_t crowded;              /* decisions for which another conductor's
                                      pool had no place when it heard of them */
    uint64_t asked_again;          /* rejected requests that came again, */
    uint64_t accepted_again;       /* and of these the ones not rejected */
    struct warm_counts warm;       /* refused prompts in the background */
    struct sim_count copies;       /* pieces of hot blocks, ahead of demand */
    struct replication_counts replication;
    struct roles_counts roles;
};

/* What a node did in an interval, and what it has at its end. */
struct sim_sample {
    int64_t at_us; /* its end, counted from the first arrival */
    uint32_t node;
    unsigned role;            /* ROLE_* */
    int64_t busy_us;          /* in steps */
    int64_t prefill_us;       /* of these in steps with prefill chunks */
    uint32_t waiting;         /* accepted prefills that have not begun */
    uint32_t prefills;        /* under way */
    uint32_t decodes;         /* in its batch */
    uint32_t decodes_waiting; /* for a place in it; their KV is here */
    int64_t decode_kv_tokens; /* of the batch */
};

/* A node begins to switch its role, or has switched it. */
struct sim_switch {
    int64_t at_us; /* counted from the first arrival */
    uint32_t node;
    unsigned to; /* ROLE_* */
    bool taken;
    struct roles_reason reason;
};

/* Where requests come from and records go to. */
struct sim_io {
    /*
     * Fills the next request; it is {0} or one that was filled before, and
     * belongs to the caller. Returns 1; 0: no more; or a negative errno,
     * which ends the run.
     */
    int (*next)(void *arg, struct trace_request *request);
    /*
     * Of a closed loop, where requests follow from answers; both NULL: requests
     * come by the source's clock alone.
     * due_us: when `next` has a request, in us of the simulation; speed does
     * not scale it; -1: not before another one ends, or never. It may have
     * changed when a request has ended.
     * ended: a request has ended, in the order of time, at record->end_us.
     * Returns 0 or a negative errno, which ends the run.
     */
    int64_t (*due_us)(void *arg);
    int (*ended)(void *arg, const struct sim_record *record);
    /* Takes the record of a request that ended, in the order of the source. */
    void (*record)(void *arg, const struct sim_record *record);
    /* Copies of the watched blocks at a time, (n_watch). May be NULL. */
    void (*copies)(void *arg, int64_t at_us, const uint32_t *copies);
    /* Takes a sample of every node, in their order, at the end of each interval
     * that ends before the run does. May be NULL. */
    void (*sample)(void *arg, const struct sim_sample *sample);
    /* Takes in that a node switches its role. May be NULL. */
    void (*switches)(void *arg, const struct sim_switch *s);
    void *arg;
};

/*
 * Runs the whole source.
 *   config, io  borrowed for the run.
 *   summary     written on success.
 *   err         a message of one line on error.
 * Returns 0; -EINVAL: a bad configuration (the policy's name among it);
 * -ERANGE: arrivals over 30 years apart, something that takes longer, or a
 * prefill over 1,000 s; -ENOMEM; -ENOSPC: more cached blocks
 * than can be indexed; or what io->next returned.
 */
[[nodiscard]] int sim_run(const struct sim_config *config,
                          const struct sim_io *io, struct sim_summary *summary,
                          char err[SIM_ERROR_BYTES]);

/* The names of the policies, core's and the simulator's own: the i-th, NULL
 * beyond. */
const char *sim_policy_name(size_t i);

/* The policy of core that decides under that name, static; NULL: there is no
 * such policy. */
const struct schedule_policy *sim_policy(const char *name);

#endif

/*
 * Runs the requests of a trace through a described cluster, on a virtual clock.
 * The archive conductor/core makes all decisions.
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
    const char *policy; /* in core/schedule, or "ideal_pool": one cache as large
                           as all together, which every node reads at no cost */
    /* The policy's options, (n_settings), borrowed; options that it lacks are
     * ignored. They take precedence over the cluster's
     * kvcache_balancing_threshold and over `seed`. */
    const struct policy_setting *settings;
    size_t n_settings;
    const char *admission; /* name in core/admission; NULL = "plain" */
    double speed;          /* factor on the arrival rate, above 0 */
    int64_t slo_ttft_us;   /* of every request; 0 = no limit */
    int64_t slo_tbt_us;    /* of every request; 0 = no limit */
    uint64_t seed;
    /* Weights of tenants 1 .. n_weights, borrowed, each above 0; other tenants
     * weigh 1. */
    const double *weights;
    size_t n_weights;
    uint32_t conductors;    /* requests come to them in turn; 0 = 1 */
    bool conductors_drawn;  /* drawn for each request, not in turn */
    int64_t state_delay_us; /* news of a request reach others so much later */
    bool nothing_shared;    /* conductors get no news of others' requests */
    bool ask_again; /* a rejected request comes again, once, after its retry
                       time; its times count from then on */
    /* Blocks whose copies are counted every watch_interval_us of virtual time.
     */
    const uint64_t *watch_ids;  /* (n_watch), borrowed */
    size_t n_watch;             /* at most SIM_WATCH_MAX; 0 = none */
    int64_t watch_interval_us;  /* above 0 if n_watch is */
    int64_t sample_interval_us; /* virtual time between samples of nodes; 0 = no
                                   samples */
};

enum sim_outcome {
    SIM_COMPLETED,
    SIM_REJECTED, /* no choice meets the SLO */
    SIM_FAILED,   /* cannot be served at all */
};

/* How one request ended. Times count from the first arrival; -1 = did not
 * happen. */
struct sim_record {
    uint64_t index; /* in the order of the source, from 0 */
    enum sim_outcome outcome;
    const char *reason; /* static: the verdict, if it was not served */
    int64_t arrival_us;
    int64_t first_token_us; /* end of prefill */
    int64_t end_us;         /* last token, or refusal */
    int64_t tbt_us;     /* mean of the longest 10 % of its token intervals */
    int64_t queue_us;   /* from acceptance to the start of its prefill */
    int64_t prefill_us; /* start to end of its prefill */
    int64_t predicted_ttft_us;
    int64_t predicted_p90_us; /* 90th percentile of its predicted TTFT */
    int64_t predicted_tbt_us;
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint64_t tenant; /* 0 = none */
    int32_t priority;
    uint32_t local_tokens; /* reused from the node's own cache */
    uint32_t fetched_tokens;
    uint32_t computed_tokens;
    uint32_t prefill_node; /* SIM_NO_NODE = none */
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
    struct sim_count fetches;            /* cached blocks between nodes */
    struct sim_count pushes;             /* KV to decode nodes */
    uint64_t loaded_tokens[BLOCK_TIERS]; /* by plans, from any node's tiers */
    uint64_t max_unfinished;       /* most requests in the system at once */
    uint64_t lent;                 /* prefills that got lent nodes */
    uint64_t max_waiting_for_room; /* most requests at once without a node */
    uint64_t crowded; /* decisions that another conductor's pool had no room for
                         when the news came */
    uint64_t asked_again;    /* rejected requests that came again */
    uint64_t accepted_again; /* of these, accepted at the second try */
    struct warm_counts warm; /* refused prompts in the background */
    struct sim_count copies; /* pieces of hot blocks copied ahead of demand */
    struct replication_counts replication;
    struct roles_counts roles;
};

/* A node's work in an interval, and its state at the end. */
struct sim_sample {
    int64_t at_us; /* end of the interval, from the first arrival */
    uint32_t node;
    unsigned role;            /* ROLE_* */
    int64_t busy_us;          /* in steps */
    int64_t prefill_us;       /* in steps with prefill chunks */
    uint32_t waiting;         /* accepted prefills that have not begun */
    uint32_t prefills;        /* in progress */
    uint32_t decodes;         /* in its batch */
    uint32_t decodes_waiting; /* KV is here, but no place in the batch */
    int64_t decode_kv_tokens; /* of the batch */
};

/* A node begins or completes a switch of its role. */
struct sim_switch {
    int64_t at_us; /* from the first arrival */
    uint32_t node;
    unsigned to; /* ROLE_* */
    bool taken;
    struct roles_reason reason;
};

/* Source of requests and sink of records. */
struct sim_io {
    /*
     * Fills the next request; the caller owns it; it is {0} or was filled
     * before. Returns 1; 0 = no more requests; or a negative errno, which ends
     * the run.
     */
    int (*next)(void *arg, struct trace_request *request);
    /*
     * For a closed loop, where answers trigger requests; both NULL = requests
     * come by the source's clock alone.
     * due_us: returns when `next` has a request, in us of the simulation (speed
     * does not scale it); -1 = not before another request ends, or never. It
     * may change whenever a request ends.
     * ended: takes each request's end at record->end_us, in the order of time.
     * Returns 0 or a negative errno, which ends the run.
     */
    int64_t (*due_us)(void *arg);
    int (*ended)(void *arg, const struct sim_record *record);
    /* Takes each request's record, in the order of the source. */
    void (*record)(void *arg, const struct sim_record *record);
    /* Takes the copies of the watched blocks at a time, (n_watch). May be NULL.
     */
    void (*copies)(void *arg, int64_t at_us, const uint32_t *copies);
    /* Takes a sample of every node, in node order, at the end of each interval
     * that ends before the run does. May be NULL. */
    void (*sample)(void *arg, const struct sim_sample *sample);
    /* Takes the begin or the end of a node's role switch. May be NULL. */
    void (*switches)(void *arg, const struct sim_switch *s);
    void *arg;
};

/*
 * Runs the whole source.
 *   config, io  borrowed for the run.
 *   summary     written on success.
 *   err         a message of one line on error.
 * Returns 0; -EINVAL: a bad configuration (such as an unknown policy); -ERANGE:
 * arrivals or an event over 30 years apart, or a prefill over 1,000 s; -ENOMEM;
 * -ENOSPC: more cached blocks than the index can hold; -EIO: requests never
 * end, or work stays booked (bugs); or the error of an `io` function.
 */
[[nodiscard]] int sim_run(const struct sim_config *config,
                          const struct sim_io *io, struct sim_summary *summary,
                          char err[SIM_ERROR_BYTES]);

/* Returns the i-th name of core's and the simulator's own policies; NULL beyond
 * the last. */
const char *sim_policy_name(size_t i);

/* Returns the policy of core behind a name, static; NULL = no such policy. */
const struct schedule_policy *sim_policy(const char *name);

#endif

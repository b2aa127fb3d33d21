/*
 * The structs of a running simulation, shared by the files of sim/ (DESIGN.md
 * has their map).
 *
 * Slow motion: inside, everything happens SIM_SLOWDOWN times more slowly. Costs
 * and arrivals are multiplied, rates divided, records divided again. Core
 * counts whole microseconds, and a rounding of half a microsecond can decide
 * which of two nearly equal queues is shorter; from there on a saturated
 * cluster takes a different course
 * (docs/internals/decisions/031-slow-motion.md). Every
 * `_us` inside is a microsecond of the slow world.
 *
 * Invariants:
 *   - a request that has arrived and not ended is in exactly one of: the wait
 *     list of `dispatch` (no room), a node's queue, a node's active prefills,
 *     on the way (its flows, a pipeline), a node's ready list, a node's batch;
 *     one whose KV waits for memory on its decode node is in kv_waits, too;
 *   - prefix index and caches change together: the index holds for a node
 *     exactly the ready blocks of its cache.
 */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include <stdbool.h>
#include <sys/queue.h>

#include "base/heap.h"
#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/replication/replication.h"
#include "conductor/core/roles/roles.h"
#include "conductor/core/schedule/schedule.h"
#include "conductor/core/warm/warm.h"
#include "predictor/learned.h"
#include "sim/block_cache.h"
#include "sim/links.h"
#include "sim/load.h"
#include "sim/samples.h"
#include "sim/sim.h"
#include "sim/time.h"
#include "sim/views/news.h"
#include "traces/noise.h"
#include "traces/random.h"

#define SIM_SLOWDOWN 1000
/* Longest time of the source, in us (31 years): SIM_LAST_US / SIM_SLOWDOWN */
#define SIM_SPAN_MAX_US 1e15
/* Ranks in the heap: ends of transfers (rank 0) come first. */
#define SIM_NODE_RANK 1u
#define SIM_NEWS_RANK 2u

/* Most prefills in progress on a node, as in workers/step/batch.h. */
#define SIM_ACTIVE_MAX 16

/* The kinds of transfers and timers. */
enum sim_flow {
    SIM_FLOW_HANDOVER, /* a decision reaches its prefill node */
    SIM_FLOW_FETCH,    /* fetched blocks reach a prefill node */
    SIM_FLOW_PUSH,     /* KV reaches a decode node */
    SIM_FLOW_PIPE,     /* the last chunk leaves a pipeline */
    SIM_FLOW_READ,     /* a block of a load is read from its tier */
    SIM_FLOW_LOAD,     /* a block of a load arrives over the links */
    SIM_FLOW_LOOK,     /* a node looks at its queue again */
    SIM_FLOW_AGAIN,    /* a rejected request comes again */
    SIM_FLOW_DUE,      /* planned begin of a prefill by layer */
    SIM_FLOW_PASS,     /* replication pass */
    SIM_FLOW_COPY,     /* copied hot blocks arrive */
    SIM_FLOW_ROLES,    /* role pass */
};

/* A request's prefill. Times in slow us. */
struct sim_prefill {
    int64_t started_us;
    int64_t stood_us;  /* time of interruptions since then */
    int64_t engine_us; /* time in the node's first stage, without stood_us */
    struct queue_item item; /* its queue item, at the start */
    uint32_t cached_tokens;
    uint32_t position;           /* tokens with KV so far */
    uint32_t step_tokens;        /* in the current step */
    uint32_t computed_tokens;    /* in completed steps */
    int64_t load_us;             /* exposed reads, for the next step */
    double error;                /* true time / time by the node's cost */
    int64_t computed_us;         /* by the model core predicts by */
    int64_t waited_us;           /* exposed reads, in all */
    struct sim_request *follows; /* waiting prefill that makes the next missing
                                    block; NULL = none */
    int64_t shared_us;           /* extra time to compute its blocks here */
    uint32_t n_there;     /* leading blocks at hand when `follows` was set */
    bool waits_for_other; /* held in the queue: another prefill of the node
                             makes blocks for it */
    bool by_layer;        /* loads by layer */
    bool held;            /* computed, but a layer is still loading */
    bool done;
};

/* The push of a request's KV to its decode node. */
struct sim_push {
    bool under_way;         /* a transfer is; the request's next one waits */
    uint32_t unsent_tokens; /* reused tokens, not sent yet */
    uint32_t step_tokens;   /* to send in the current step */
    bool asked;             /* the decode node was asked for memory */
    bool granted;           /* and granted it */
    double held_bytes;      /* waiting for memory or the previous transfer */
    bool nothing;           /* the decode node had the KV of a chunk */
    uint32_t there_tokens;  /* next tokens that the decode node has */
};

/* A fetch of cached blocks from another node, in one transfer. */
struct sim_fetch {
    double bytes;
    int64_t us;
};

/* A request in its decode node's batch. */
struct sim_decode {
    uint64_t join_step;   /* first step with the request */
    uint64_t finish_step; /* last step with the request */
    int64_t first_gap_us; /* from the first token to the begin of join_step */
    double error;         /* true / modelled time of its steps */
};

struct sim_request {
    TAILQ_ENTRY(sim_request) every; /* in sim.every */
    TAILQ_ENTRY(sim_request) link;  /* in a node's kv_waits or ready list */
    TAILQ_ENTRY(sim_request) ready_link; /* in sim.ready, if `ready` */
    bool ready;                          /* its blocks or hand-over have come */
    bool queued;                         /* is or was in a node's queue */
    bool asks_again;                     /* was rejected and has come again */
    bool holds_first;      /* its first token waits for its push */
    struct sim_view *view; /* its conductor */
    struct dispatch_request dispatch;
    uint64_t *keys; /* (n_keys) */
    uint32_t n_keys;
    uint32_t n_tokens;
    uint32_t n_output;   /* 0 or 1: no decode */
    uint32_t max_output; /* most tokens by its client's request */
    int64_t accepted_at_us;
    struct prefill_estimate plan;
    struct forecast forecast;  /* of the TTFT */
    struct schedule_lent lent; /* nodes lent until the prefill is done */
    struct sim_load *load;     /* NULL = nothing to load (any more) */
    struct warm_job *warms;    /* NULL = no piece of a refused prompt */
    struct sim_prefill prefill;
    struct sim_push push;
    struct sim_fetch fetch;
    struct sim_decode decode;
    struct sim_record record; /* in slow us until handed over */
};

TAILQ_HEAD(sim_request_list, sim_request);

/* The batch of a node that decodes. */
struct sim_batch {
    struct sim_request **requests; /* (max_batch) */
    uint32_t n;
    struct sim_request_list ready;    /* KV is here; join at the next step */
    struct sim_request_list kv_waits; /* no memory for the KV yet */
    int64_t granted_tokens;           /* memory in use, in whole blocks */
    uint64_t step;                    /* steps completed */
    int64_t kv_tokens;                /* of the next step */
    int64_t *log_us; /* (log_mask + 1), step s at s & log_mask */
    uint64_t log_mask;
    const double *cost_us; /* (COST_MODEL_DECODE_TERMS), the node's */
    double error;          /* of the current run: mean over its requests */
    uint64_t run_steps;    /* steps of the current run */
    int64_t run_start_us;
};

/* Waiting prefills of a node, oldest first. */
struct sim_queue {
    struct sim_request **requests; /* (capacity) */
    struct queue_item *items;      /* (capacity) */
    uint32_t n;
    size_t capacity;
    uint64_t next_seq;
};

struct sim_node {
    struct sim *sim;
    uint32_t index; /* of the node, and its slot in the pool */
    uint32_t id;    /* in the pool */
    unsigned role;
    bool shares;             /* decodes and cached blocks share its memory */
    struct cluster_node has; /* slowed down, with the true cost */
    const struct cost_model *known; /* cost used by core's predictions */
    struct block_cache *cache;      /* NULL = no cache */
    struct sim_source_list readers[BLOCK_TIERS]; /* the first one reads */
    struct sim_queue queue;
    struct sim_request *active[SIM_ACTIVE_MAX];
    uint32_t n_active;
    int64_t *stage_free_us;           /* (pipeline_stages) */
    TAILQ_ENTRY(sim_node) dirty_link; /* in sim.dirty, if `dirty` */
    bool dirty;                       /* marked: something has changed for it */
    bool in_step;
    bool computes;         /* the current step has prefill chunks */
    uint32_t n_lent;       /* prefills it is lent to; above 0, it begins
                                    only group leaders */
    int64_t decode_tokens; /* of accepted decodes, without full prompt blocks */
    struct sim_batch batch;
    struct sim_spent spent, sampled; /* completed steps; last sample */
};

TAILQ_HEAD(sim_node_list, sim_node);
TAILQ_HEAD(sim_copy_list, sim_copy);

/* Records that ended before an earlier request: request i at i & mask, in (mask
 * + 1) slots; index UINT64_MAX = empty. `first` is handed over next. */
struct sim_late_records {
    struct sim_record *records;
    uint64_t mask;
    uint64_t first;
};

/* A conductor's view of the nodes, and its waiting requests. Shared state, such
 * as the prefix index, is in struct sim. */
struct sim_view {
    uint32_t index;
    struct pool *pool; /* a node has the same id in all pools */
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct warm warm;     /* refused prompts to compute */
    uint64_t *told_steps; /* (n_nodes), batch steps told to the pool */
};

struct sim {
    struct sim_config config;
    struct cluster cluster; /* slowed down */
    const struct queue_order *order;
    struct sim_io io;
    char *err; /* (SIM_ERROR_BYTES) */
    int rc;    /* first error; ends the loop */

    struct sim_view *views; /* (n_views), at least one */
    uint32_t n_views;
    uint64_t n_turns;     /* requests that came to any view */
    struct sim_news news; /* between the views */
    struct prefix_index *index;
    struct prefix_index *expected; /* NULL = blocks are placed at service */
    struct heap heap;
    struct sim_links *links;
    struct sim_node *nodes; /* (n_nodes) */
    uint32_t n_nodes;
    const struct schedule_policy *policy;
    double policy_options[POLICY_OPTIONS_MAX];
    struct schedule_rules rules; /* of the policy with these options */
    bool shared;                 /* one cache (node 0's) for all nodes */
    struct sim_load_list loads;
    struct sim_moves *moves; /* moves while a chain is stored (copies.c) */
    struct sim_request_list every;

    /* Marked for the end of the current event: marks.c. */
    struct sim_node_list dirty;
    struct sim_request_list ready;

    struct learned pushes; /* push times of pairs, in the source's us */
    double push[2];        /* terms of these, in slow us, for estimates */

    uint64_t n_pieces;               /* pieces of refused prompts so far */
    struct replication *replication; /* NULL = no copies ahead of demand */
    struct roles *roles;             /* NULL = nodes keep their roles */
    bool looks_at_roles;             /* the next role pass is scheduled */
    struct sim_copy_list copying;    /* copies in transfer */
    bool passes;      /* the next replication pass is scheduled */
    bool replicates;  /* replication may have new orders */
    bool source_over; /* the source has no more requests */

    int64_t now_us;
    int64_t epoch_us; /* first arrival, in the source's us */
    uint64_t n_unfinished;
    int64_t next_watch_us;
    int64_t next_sample_us; /* begin of the interval */
    int64_t *scratch_us;    /* (n_scratch), step times of one request */
    size_t n_scratch;
    struct sim_summary summary;

    struct sim_late_records late;
};

/* Event ids in the heap: the end of a node's step has the node's index; then
 * the news; then the links. */
static inline uint32_t sim_news_id(const struct sim *sim)
{
    return sim->n_nodes;
}

/* setup.c: checks a configuration. Returns 0, or -EINVAL with a message. */
[[nodiscard]] int sim_check_config(const struct sim_config *config,
                                   char err[SIM_ERROR_BYTES]);

/* setup.c: creates all parts of a zeroed simulation, for a checked
 * configuration. Returns 0 or a negative errno; call sim_fini() in either case.
 */
[[nodiscard]] int sim_init(struct sim *sim, const struct sim_config *config,
                           const struct sim_io *io, char *err);

/* setup.c: frees all parts, and requests that have not ended. */
void sim_fini(struct sim *sim);

/* switch.c: returns the KV capacity (tokens) of a node in a role. */
int64_t sim_node_kv_tokens(const struct sim_node *node, unsigned role);

/* Returns the key of a block id; never 0, which means no key. */
static inline uint64_t sim_key_of(uint64_t id)
{
    uint64_t key = random_mix(id);

    return key != 0 ? key : 1;
}

/* marks.c: records the first error, with its message, and ends the loop. */
void sim_fail(struct sim *sim, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* marks.c: marks a node for sim_node_poke() after the current event. No-op if
 * it is marked. */
void sim_mark_node(struct sim *sim, struct sim_node *node);

/* marks.c: removes the mark of a node. */
void sim_unmark_node(struct sim *sim, struct sim_node *node);

/* marks.c: marks a request for sim_load_ready() after the current event, if it
 * can then begin or end its prefill. */
void sim_mark_ready(struct sim *sim, struct sim_request *request);

/* marks.c: removes the mark of a request. */
void sim_unmark_ready(struct sim *sim, struct sim_request *request);

/* records.c: converts slow us to the source's; -1 if negative. */
int64_t sim_real_us(int64_t slow_us);

/* records.c: ends a request: hands over its record and frees it. */
void sim_end(struct sim *sim, struct sim_request *request,
             enum sim_outcome outcome, const char *reason);

/* request.c: creates a request of the source that arrives now; the caller sets
 * its record's index. Returns it, owned, or NULL when out of memory. */
struct sim_request *sim_request_new(const struct sim *sim,
                                    const struct trace_request *t);

/* request.c: fills request->dispatch for a request that asks now, and draws its
 * prediction errors. Its record must have its index. */
void sim_request_describe(const struct sim *sim, struct sim_request *request);

/* dispatch.c: takes a request of the source, which arrives now. */
void sim_arrive(struct sim *sim, const struct trace_request *request);

/* dispatch.c: tries a view's oldest request that waits for room. Returns false
 * if none waits, or it must wait on. */
bool sim_retry_next(struct sim *sim, struct sim_view *view);

/* dispatch.c: returns whether a round of tries starts at once instead of at the
 * next event, because time alone makes room or requests pass others. */
bool sim_retries_at_once(const struct sim *sim);

/* dispatch.c: decides again on a rejected request. */
void sim_ask_again(struct sim *sim, struct sim_request *request);

/* hand_over.c: a decision reaches its prefill node. */
void sim_handed_over(struct sim *sim, struct sim_request *request);

/* hand_over.c: puts a request in its node's queue. It becomes ready after the
 * hand-over, but its place is by the order of the decisions. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int sim_hand_over(struct sim *sim, struct sim_node *node,
                                struct sim_request *request);

/* follow.c: returns whether prefills wait for others of their node that make
 * blocks they count on. */
bool sim_follows(const struct sim *sim);

/* follow.c: finds the prefill that the last one of a node's queue follows. */
void sim_follow_joined(const struct sim *sim, struct sim_node *node);

/* follow.c: updates the queued prefills that followed the begun one. */
void sim_follow_began(const struct sim *sim, struct sim_node *node,
                      const struct sim_request *begun);

/* follow.c: returns whether the i-th of a node's queue waits for another one.
 */
bool sim_follow_waits(const struct sim *sim, struct sim_node *node, uint32_t i);

/* follow.c: call it when a queued prefill begins and will evict blocks. Makes
 * the blocks that other prefills count on the most recently used, the oldest
 * prefill's last, as many as all tiers of the node hold. */
void sim_follow_keep(const struct sim *sim, struct sim_node *node);

/* warm.c: keeps a refused prompt for the background, if it is worth it. */
void sim_warm(struct sim *sim, const struct sim_request *request,
              const struct dispatch_order *order);

/* warm.c: begins a piece of a refused prompt on an idle instance. Returns
 * whether there may be more. */
bool sim_warm_next(struct sim *sim);

/* warm.c: returns the sums over all conductors. */
struct warm_counts sim_warm_counts(const struct sim *sim);

/* warm.c: frees a conductor's jobs. */
void sim_warm_fini(struct sim_view *view);

/* replicate.c: counts a request that arrives. */
void sim_replicate_asked(struct sim *sim, const struct sim_request *request);

/* replicate.c: runs a replication pass that is due. */
void sim_replicate_pass(struct sim *sim);

/* replicate.c: carries out the replication's orders, if there may be any. */
void sim_replicate_next(struct sim *sim);

/* replicate.c: a copy has arrived. */
void sim_replicate_copied(struct sim *sim, const struct links_end *end);

/* replicate.c: frees the replication and its copies. */
void sim_replicate_fini(struct sim *sim);

/* switch.c: creates the roles, if nodes may switch. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_switch_init(struct sim *sim);

/* switch.c: counts a decision on a request; repeated requests do not count. */
void sim_switch_asked(struct sim *sim, const struct sim_request *request,
                      const struct dispatch_order *order);

/* switch.c: runs a role pass that is due. */
void sim_switch_pass(struct sim *sim);

/* switch.c: switches empty nodes to the roles ordered for them. */
void sim_switch_next(struct sim *sim);

/* hand_over.c: a fetch has ended. */
void sim_fetch_ended(struct sim *sim, const struct links_end *end);

/* hand_over.c: lets a prefill begin, or end, now that its load is there. */
void sim_load_ready(struct sim *sim, struct sim_request *request);

/* node.c: begins a step if the node can, or ends its run of decode steps early
 * if there is work for the next step. */
void sim_node_poke(struct sim *sim, struct sim_node *node);

/* node.c: ends the current step. */
void sim_node_step_ended(struct sim *sim, struct sim_node *node);

/* reuse.c: returns the time (us) of computing tokens behind cached ones. */
int64_t sim_model_us(const struct cost_model *cost, uint32_t uncached,
                     uint32_t cached);

/* reuse.c: returns the true time of `us` of a request's modelled work. */
int64_t sim_real_work_us(const struct sim_request *request, int64_t us);

/* reuse.c: settles what a request reuses, at the begin of its prefill. */
void sim_reuse_settle(struct sim *sim, struct sim_node *node,
                      struct sim_request *request);

/* reuse.c: returns whether a request computes towards its load. */
bool sim_reuse_meets_load(const struct sim_request *request);

/* reuse.c: returns the token up to which a prefill may compute before it checks
 * its load again. A prefill that has met its load moves behind it. */
uint32_t sim_reuse_chunk_end(struct sim *sim, struct sim_node *node,
                             struct sim_request *request);

/* prefill.c: returns the time (us) left of all waiting and active prefills. */
int64_t sim_prefill_left_us(const struct sim *sim, const struct sim_node *node);

/* prefill.c: gives the node's prefills their tokens of the next step. Returns
 * the time (us) of these; *any becomes true if there are any. */
int64_t sim_prefill_form(struct sim *sim, struct sim_node *node, bool *any);

/* prefill.c: returns how long (us) a prompt takes behind the first stage of its
 * node: for each stage one step of its longest chunk (the first, the last full
 * or the last one). 0 without a pipeline. Core knows only the first stage.
 *   cost  as core knows it, of the node or of any. */
int64_t sim_prefill_passage_us(const struct sim *sim,
                               const struct cost_model *cost, uint32_t n_tokens,
                               int64_t cached_tokens);

/* lend.c: lends nodes to a request's prefill. */
void sim_lend(struct sim *sim, struct sim_request *request,
              const struct schedule_lent *lent);

/* lend.c: returns the nodes lent to a request. */
void sim_give_back(struct sim *sim, struct sim_request *request);

/* lend.c: limits a request's next tokens to one chunk, if it has lent nodes. */
uint32_t sim_lent_chunk(const struct sim_request *request, uint32_t tokens);

/* lend.c: returns the time (us) of a chunk in a request's first stage; `us` is
 * its time on one node. */
int64_t sim_lent_us(const struct sim_request *request, int64_t us);

/* prefill.c: takes in the tokens of the completed step. */
void sim_prefill_advance(struct sim *sim, struct sim_node *node);

/* prefill.c: ends a prefill whose last token is computed, unless a layer is
 * still loading. */
void sim_prefill_done(struct sim *sim, struct sim_request *request);

/* prefill.c: handles a request's last chunk leaving the pipeline. */
void sim_prefill_pipe_ended(struct sim *sim, struct sim_request *request);

/* push.c: sends KV (bytes) to the request's decode node, at once or when it has
 * memory and the previous transfer has ended. */
void sim_push(struct sim *sim, struct sim_request *request, double bytes);

/* push.c: leaves out of the push the blocks that the decode node has now. */
void sim_push_begin(struct sim *sim, struct sim_request *request);

/* push.c: returns how many of a request's next tokens the decode node lacks. */
uint32_t sim_push_left(struct sim_request *request, uint32_t tokens);

/* push.c: updates, from the observations, the push terms that estimates use. */
void sim_push_learn(struct sim *sim);

/* push.c: learns the duration of a pair's push, whose request joins the batch,
 * and caches the prompt's blocks on the decode node. */
void sim_push_observe(struct sim *sim, const struct sim_request *request);

/* push.c: sends the KV held for lack of memory. Returns whether more KV is to
 * come. */
bool sim_push_granted(struct sim *sim, struct sim_request *request);

/* prefill.c: handles the end of a transfer of a request's KV. */
void sim_push_ended(struct sim *sim, const struct links_end *end);

#endif

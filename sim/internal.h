/*
 * The structs of a running simulation, shared by the files of sim/ (DESIGN.md
 * has their map).
 *
 * Slow motion: inside, everything happens SIM_SLOWDOWN times more slowly. Costs
 * and arrivals are multiplied, rates divided, records divided again. Core
 * counts whole microseconds, and a rounding of half a microsecond can decide
 * which of two nearly equal queues is shorter; from there on a saturated
 * cluster takes a different course (docs/decisions/031-slow-motion.md). Every
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
/* Longest time that fits, 31 years: SIM_LAST_US before the slow motion. */
#define SIM_SPAN_MAX_US 1e15
/* In the heap: after the ends of transfers, which have rank 0. */
#define SIM_NODE_RANK 1u
#define SIM_NEWS_RANK 2u

/* Prefills under way on a node at once: as workers/step/batch.h. */
#define SIM_ACTIVE_MAX 16

/* What the end of a transfer means. */
enum sim_flow {
    SIM_FLOW_HANDOVER, /* a decision has come to its prefill node */
    SIM_FLOW_FETCH,    /* cached blocks have come to a prefill node */
    SIM_FLOW_PUSH,     /* KV has come to a decode node */
    SIM_FLOW_PIPE,     /* the last chunk has left a pipeline */
    SIM_FLOW_READ,     /* a block has been read from a slow tier */
    SIM_FLOW_LOAD,     /* a block that a plan loads has come over the links */
    SIM_FLOW_LOOK,     /* a node waited for a prefill that may be late */
    SIM_FLOW_AGAIN,    /* a rejected request comes again */
    SIM_FLOW_DUE,      /* a prefill by layer can begin, as planned */
    SIM_FLOW_PASS,     /* what is copied ahead of demand is looked at */
    SIM_FLOW_COPY,     /* a piece of that has come */
    SIM_FLOW_ROLES,    /* roles are looked at */
};

/* A request's prefill. */
struct sim_prefill {
    int64_t started_us;
    int64_t stood_us;  /* of that it was interrupted */
    int64_t engine_us; /* begin to end in the first stage of its node, without
                          that */
    struct queue_item item; /* as it waited */
    uint32_t cached_tokens;
    uint32_t position;        /* tokens whose KV is there */
    uint32_t step_tokens;     /* of the step under way */
    uint32_t computed_tokens; /* in steps that ended */
    int64_t load_us;     /* reading cached blocks that computing can't hide */
    double error;        /* its time is so many times that of its node's cost */
    int64_t computed_us; /* in the model's time */
    int64_t waited_us;   /* and for reads */
    struct sim_request *follows; /* waits too, and makes what it lacks; NULL */
    int64_t shared_us;           /* of what that one costs, for such blocks */
    uint32_t n_there;            /* leading blocks that were there by then */
    bool waits_for_other;        /* not ready, as one of the node makes blocks
                                    that it can use */
    bool by_layer;               /* layers came while those before computed */
    bool held;                   /* computed, but for a layer that is to come */
    bool done;
};

/* Its KV on the way to the decode node. */
struct sim_push {
    bool under_way;         /* a transfer: one request's follow each other */
    uint32_t unsent_tokens; /* reused, and not yet on the way */
    uint32_t step_tokens;   /* whose KV leaves in the step under way */
    bool asked;             /* its decode node knows that KV is coming */
    bool granted;           /* and has memory for it */
    double held_bytes;      /* that wait for that, or for that transfer */
    bool nothing;           /* what was to be pushed was there */
    uint32_t there_tokens;  /* from the front, that its decode node has */
};

/* Cached blocks from another node, at once. */
struct sim_fetch {
    double bytes;
    int64_t us;
};

/* Its part in the batch of its decode node. */
struct sim_decode {
    uint64_t join_step;   /* the first that it was in */
    uint64_t finish_step; /* and the last */
    int64_t first_gap_us; /* from its first token to the begin of join_step */
    double error;         /* of its steps' time */
};

struct sim_request {
    TAILQ_ENTRY(sim_request) every;      /* all that have not ended */
    TAILQ_ENTRY(sim_request) link;       /* a node's kv_waits, or ready list */
    TAILQ_ENTRY(sim_request) ready_link; /* of sim.ready, if `ready` */
    bool ready;                          /* what it waited for is here */
    bool queued;                         /* it is or was in a node's queue */
    bool asks_again;                     /* it was rejected, and came again */
    bool holds_first;                    /* its first token waits for its KV */
    struct sim_view *view;               /* of the conductor that it came to */
    struct dispatch_request dispatch;
    uint64_t *keys; /* (n_keys) */
    uint32_t n_keys;
    uint32_t n_tokens;
    uint32_t n_output;   /* 0 and 1 need no decode */
    uint32_t max_output; /* as its client asks */
    int64_t accepted_at_us;
    struct prefill_estimate plan;
    struct forecast forecast;  /* of its TTFT */
    struct schedule_lent lent; /* until its prefill is done */
    struct sim_load *load;     /* what a plan loads; NULL: nothing (more) */
    struct warm_job *warms; /* it is a piece of this job; NULL: of the source */
    struct sim_prefill prefill;
    struct sim_push push;
    struct sim_fetch fetch;
    struct sim_decode decode;
    struct sim_record record; /* in slow time until it is handed over */
};

TAILQ_HEAD(sim_request_list, sim_request);

/* The batch of a node that decodes. */
struct sim_batch {
    struct sim_request **requests; /* (max_batch) */
    uint32_t n;
    struct sim_request_list ready;    /* KV is here, joins at the next step */
    struct sim_request_list kv_waits; /* no memory for their KV yet */
    int64_t granted_tokens;           /* of memory, in whole blocks */
    uint64_t step;                    /* steps ended so far */
    int64_t kv_tokens;                /* at the next step */
    int64_t *log_us; /* (log_mask + 1): duration of step s at s & log_mask */
    uint64_t log_mask;
    const double *cost_us; /* (COST_MODEL_DECODE_TERMS), of its node */
    double error;          /* of the run under way: the mean of its requests' */
    uint64_t run_steps;    /* of the step or run of steps under way */
    int64_t run_start_us;
};

/* Requests that wait for their prefill, side by side, by age. */
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
    bool shares; /* what it decodes and its cached blocks share its memory */
    struct cluster_node has;        /* slowed down; its cost is the true one */
    const struct cost_model *known; /* that core predicts by */
    struct block_cache *cache;      /* NULL: it keeps no blocks */
    struct sim_source_list readers[BLOCK_TIERS]; /* the first one reads */
    struct sim_queue queue;
    struct sim_request *active[SIM_ACTIVE_MAX];
    uint32_t n_active;
    int64_t *stage_free_us;           /* (pipeline_stages) */
    TAILQ_ENTRY(sim_node) dirty_link; /* of sim.dirty, if `dirty` */
    bool dirty;                       /* something has come to it */
    bool in_step;
    bool computes;         /* the step under way has prefill chunks */
    uint32_t n_lent;       /* to prefills of other nodes: it begins no own */
    int64_t decode_tokens; /* of accepted decodes, beyond their full blocks */
    struct sim_batch batch;
    struct sim_spent spent, sampled; /* in steps that ended; at a sample */
};

TAILQ_HEAD(sim_node_list, sim_node);
TAILQ_HEAD(sim_copy_list, sim_copy);

/* Records of the requests first .. first + n - 1 that ended out of order:
 * (mask + 1) at index & mask; index UINT64_MAX: not yet. */
struct sim_late_records {
    struct sim_record *records;
    uint64_t mask;
    uint64_t first;
};

/* What a conductor knows of the nodes, and who waits there. What all know at
 * once is not here: the prefix index. */
struct sim_view {
    uint32_t index;
    struct pool *pool; /* a node has the same id in all of them */
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct warm warm;     /* what it refused */
    uint64_t *told_steps; /* (n_nodes): of each batch, that the pool has heard
                             of */
};

struct sim {
    struct sim_config config;
    struct cluster cluster; /* slowed down */
    const struct queue_order *order;
    struct sim_io io;
    char *err; /* (SIM_ERROR_BYTES) */
    int rc;    /* the first error; the loop ends on it */

    struct sim_view *views; /* (n_views), at least one */
    uint32_t n_views;
    uint64_t n_turns;     /* requests that have come to any of them */
    struct sim_news news; /* what they tell one another */
    struct prefix_index *index;
    struct prefix_index *expected; /* NULL: blocks are placed at service */
    struct heap heap;
    struct sim_links *links;
    struct sim_node *nodes; /* (n_nodes) */
    uint32_t n_nodes;
    const struct schedule_policy *policy;
    double policy_options[POLICY_OPTIONS_MAX];
    struct schedule_rules rules; /* of the policy, with these */
    bool shared;                 /* all nodes have the cache of node 0 */
    struct sim_load_list loads;
    struct sim_moves *moves; /* copies.c: what storing a chain moves */
    struct sim_request_list every;

    /* What the loop looks at when the event under way is over: marks.c. */
    struct sim_node_list dirty;
    struct sim_request_list ready;

    struct learned pushes; /* of pairs, in the source's microseconds */
    double push[2];        /* its terms, which estimates look at */

    uint64_t n_pieces;               /* of refused prompts */
    struct replication *replication; /* NULL: nothing is copied ahead */
    struct roles *roles;             /* NULL: nodes keep theirs */
    bool looks_at_roles;             /* that is among the events */
    struct sim_copy_list copying;    /* pieces on the way */
    bool passes;                     /* the next pass is among the events */
    bool replicates;  /* something has changed for what is copied */
    bool source_over; /* no more requests come */

    int64_t now_us;
    int64_t epoch_us; /* arrival of the first request, of the source's time */
    uint64_t n_unfinished;
    int64_t next_watch_us;
    int64_t next_sample_us; /* begin of its interval */
    int64_t *scratch_us;    /* (n_scratch) intervals of one request */
    size_t n_scratch;
    struct sim_summary summary;

    struct sim_late_records late;
};

/* Events in the heap: ends of steps have their node's number, then comes that
 * of news, then those of links. */
static inline uint32_t sim_news_id(const struct sim *sim)
{
    return sim->n_nodes;
}

/* setup.c: whether a configuration can be run. Returns 0 or -EINVAL. */
[[nodiscard]] int sim_check_config(const struct sim_config *config,
                                   char err[SIM_ERROR_BYTES]);

/* setup.c: makes all parts of a zeroed simulation for a checked configuration.
 * Returns 0 or -ENOMEM; sim_fini() in either case. */
[[nodiscard]] int sim_init(struct sim *sim, const struct sim_config *config,
                           const struct sim_io *io, char *err);

/* setup.c: frees all parts, and requests that have not ended. */
void sim_fini(struct sim *sim);

/* switch.c: tokens of KV that a node has room for in a role. */
int64_t sim_node_kv_tokens(const struct sim_node *node, unsigned role);

/* The key of a block id: never 0, which is no key, but for one id in 2^64. */
static inline uint64_t sim_key_of(uint64_t id)
{
    uint64_t key = random_mix(id);

    return key != 0 ? key : 1;
}

/* marks.c: keeps the first error, with its message, and ends the loop. */
void sim_fail(struct sim *sim, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* marks.c: something has changed for a node: the loop calls sim_node_poke()
 * when the event under way is over. Marking it again changes nothing. */
void sim_mark_node(struct sim *sim, struct sim_node *node);

/* marks.c: the node was looked at, or need not be. */
void sim_unmark_node(struct sim *sim, struct sim_node *node);

/* marks.c: what a request waits for may have come: the loop calls
 * sim_load_ready() when the event under way is over, if the request can then
 * begin or end. */
void sim_mark_ready(struct sim *sim, struct sim_request *request);

/* marks.c: it does not. */
void sim_unmark_ready(struct sim *sim, struct sim_request *request);

/* records.c: back to the source's microseconds. */
int64_t sim_real_us(int64_t slow_us);

/* records.c: hands over the record of a request that has ended and frees the
 * request. */
void sim_end(struct sim *sim, struct sim_request *request,
             enum sim_outcome outcome, const char *reason);

/* request.c: a request of the source that arrives now. Returns NULL: out of
 * memory. Its record gets its number from the caller. */
struct sim_request *sim_request_new(const struct sim *sim,
                                    const struct trace_request *t);

/* request.c: what core is told of a request whose record has its number and
 * that asks now, and what no prediction knows. */
void sim_request_describe(const struct sim *sim, struct sim_request *request);

/* dispatch.c: a request of the source arrives now. */
void sim_arrive(struct sim *sim, const struct trace_request *request);

/* dispatch.c: tries the oldest request of a view that waits for room. False:
 * none waits, or it must wait on. */
bool sim_retry_next(struct sim *sim, struct sim_view *view);

/* dispatch.c: where time alone makes room, or requests pass others, a round of
 * tries is not put off to the next event, nor left over from when nobody
 * waited. */
bool sim_retries_at_once(const struct sim *sim);

/* dispatch.c: a rejected request comes again. */
void sim_ask_again(struct sim *sim, struct sim_request *request);

/* hand_over.c: a decision has come to the node that it chose. */
void sim_handed_over(struct sim *sim, struct sim_request *request);

/* hand_over.c: a request goes to its node's queue, at once or after the
 * hand-over. It has its place in the queue from now on: hand-overs keep the
 * order of the decisions. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_hand_over(struct sim *sim, struct sim_node *node,
                                struct sim_request *request);

/* follow.c: whether prefills wait for others of their node that make blocks
 * which they count on. */
bool sim_follows(const struct sim *sim);

/* follow.c: the last of a node's queue joined it. */
void sim_follow_joined(const struct sim *sim, struct sim_node *node);

/* follow.c: one that was in a node's queue begins. */
void sim_follow_began(const struct sim *sim, struct sim_node *node,
                      const struct sim_request *begun);

/* follow.c: whether the i-th of a node's queue waits for one before it. */
bool sim_follow_waits(const struct sim *sim, struct sim_node *node, uint32_t i);

/* follow.c: one of a node's queue begins, and will push blocks out: those that
 * the others count on become the most recently used, those of the oldest last,
 * as far as they are a quarter of all. */
void sim_follow_keep(const struct sim *sim, struct sim_node *node);

/* warm.c: keeps the prompt of a request that was refused so, if it is to be
 * warmed. */
void sim_warm(struct sim *sim, const struct sim_request *request,
              const struct dispatch_order *order);

/* warm.c: begins a piece of a refused prompt where its conductor knows of
 * nothing else to do. Returns whether there may be more. */
bool sim_warm_next(struct sim *sim);

/* warm.c: the sums over all conductors. */
struct warm_counts sim_warm_counts(const struct sim *sim);

/* warm.c: frees what a conductor keeps. */
void sim_warm_fini(struct sim_view *view);

/* replicate.c: a request arrives. */
void sim_replicate_asked(struct sim *sim, const struct sim_request *request);

/* replicate.c: a pass is due. */
void sim_replicate_pass(struct sim *sim);

/* replicate.c: carries out what is ordered, if something has changed. */
void sim_replicate_next(struct sim *sim);

/* replicate.c: a piece has come. */
void sim_replicate_copied(struct sim *sim, const struct links_end *end);

/* replicate.c: frees it all. */
void sim_replicate_fini(struct sim *sim);

/* switch.c: makes what nodes need that may take another role. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int sim_switch_init(struct sim *sim);

/* switch.c: a request was placed, for the first time or again. */
void sim_switch_asked(struct sim *sim, const struct sim_request *request,
                      const struct dispatch_order *order);

/* switch.c: roles are looked at. */
void sim_switch_pass(struct sim *sim);

/* switch.c: nodes that are empty take the roles that they are to have. */
void sim_switch_next(struct sim *sim);

/* hand_over.c: a fetch has ended. */
void sim_fetch_ended(struct sim *sim, const struct links_end *end);

/* dispatch.c: what a request needed to begin, or to end, has come. */
void sim_load_ready(struct sim *sim, struct sim_request *request);

/* node.c: looks whether a node can begin a step, or must end a run of decode
 * steps early, now that something has come to it. */
void sim_node_poke(struct sim *sim, struct sim_node *node);

/* node.c: the step under way ends. */
void sim_node_step_ended(struct sim *sim, struct sim_node *node);

/* reuse.c: computing tokens behind cached ones, by a cost model. */
int64_t sim_model_us(const struct cost_model *cost, uint32_t uncached,
                     uint32_t cached);

/* reuse.c: `us` of a request's work, as its node needs it, in reality. */
int64_t sim_real_work_us(const struct sim_request *request, int64_t us);

/* reuse.c: what a request reuses is settled, at the begin of its prefill. */
void sim_reuse_settle(struct sim *sim, struct sim_node *node,
                      struct sim_request *request);

/* reuse.c: whether a request computes towards what is being loaded. */
bool sim_reuse_meets_load(const struct sim_request *request);

/* reuse.c: up to which token a prefill may compute before it looks again at
 * what has been loaded; one that has met its load goes on behind it. */
uint32_t sim_reuse_chunk_end(struct sim *sim, struct sim_node *node,
                             struct sim_request *request);

/* prefill.c: the time that all prefills which wait there or are under way have
 * yet to take. */
int64_t sim_prefill_left_us(const struct sim *sim, const struct sim_node *node);

/* prefill.c: gives the node's prefills their tokens of the next step.
 * Returns the time they take together; *any: whether there are any. */
int64_t sim_prefill_form(struct sim *sim, struct sim_node *node, bool *any);

/* prefill.c: how long a prompt needs behind the first stage of its node: one
 * step of its longest chunk a stage, the first, the last full or the last one.
 * Core knows of the first stage only. 0 without a pipeline.
 *   cost  of the node, as core knows it, or of any. */
int64_t sim_prefill_passage_us(const struct sim *sim,
                               const struct cost_model *cost, uint32_t n_tokens,
                               int64_t cached_tokens);

/* lend.c: what a request was lent computes stages of it from now on. */
void sim_lend(struct sim *sim, struct sim_request *request,
              const struct schedule_lent *lent);

/* lend.c: its prefill is done: what it was lent is free. */
void sim_give_back(struct sim *sim, struct sim_request *request);

/* lend.c: of so many tokens that could be computed next, those of a chunk. */
uint32_t sim_lent_chunk(const struct sim_request *request, uint32_t tokens);

/* lend.c: how long the first stage of a request takes for a chunk that takes
 * `us` alone. */
int64_t sim_lent_us(const struct sim_request *request, int64_t us);

/* prefill.c: takes in the step's tokens. */
void sim_prefill_advance(struct sim *sim, struct sim_node *node);

/* prefill.c: a request's last token is computed, and all that it waited for has
 * come. */
void sim_prefill_done(struct sim *sim, struct sim_request *request);

/* prefill.c: the last chunk of a request has left the pipeline. */
void sim_prefill_pipe_ended(struct sim *sim, struct sim_request *request);

/* push.c: so many bytes of a request's KV go to its decode node, now or as soon
 * as that has memory for them. */
void sim_push(struct sim *sim, struct sim_request *request, double bytes);

/* push.c: its prefill begins; what its decode node has by now is not pushed. */
void sim_push_begin(struct sim *sim, struct sim_request *request);

/* push.c: of a request's next tokens, those that its decode node lacks. */
uint32_t sim_push_left(struct sim_request *request, uint32_t tokens);

/* push.c: what estimates are told of pushes, by what was observed. */
void sim_push_learn(struct sim *sim);

/* push.c: one of a pair begins to decode a request: how long its push took is
 * learned, and it has the prompt's blocks. */
void sim_push_observe(struct sim *sim, const struct sim_request *request);

/* push.c: the decode node has memory for a request's KV. Returns whether some
 * is to come yet. */
bool sim_push_granted(struct sim *sim, struct sim_request *request);

/* prefill.c: KV has come to the request's decode node. */
void sim_push_ended(struct sim *sim, const struct links_end *end);

#endif

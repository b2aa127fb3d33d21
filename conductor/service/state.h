/*
 * The structs of the daemon's scheduler side. Private to the files of
 * conductor/service (DESIGN.md has their map); the front sees service.h.
 *
 * Invariants:
 *   - a live request is in exactly one of: the inbox (state RECEIVED), the
 *     wait list of `dispatch` (state WAITING), or with workers (any later
 *     state);
 *   - every attempt has an attempt id of its own, so that a late frame of an
 *     earlier attempt finds no request;
 *   - callbacks to the front come from the event loop only, never from within
 *     service_submit() or service_cancel().
 */
#ifndef CONDUCTOR_SERVICE_STATE_H
#define CONDUCTOR_SERVICE_STATE_H

#include <event2/event.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/log.h"
#include "conductor/cluster/cluster.h"
#include "conductor/config/config.h"
#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/observation/observation.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/roles/roles.h"
#include "conductor/core/schedule/schedule.h"
#include "conductor/core/warm/warm.h"
#include "conductor/link/worker_link.h"
#include "conductor/service/explain/explain.h"
#include "conductor/service/kept.h"
#include "conductor/service/metrics.h"
#include "conductor/service/name_sets.h"
#include "conductor/service/request/token_cache.h"
#include "conductor/service/service.h"
#include "conductor/service/sessions.h"
#include "conductor/service/spans/spans.h"
#include "conductor/service/worker/copies.h"
#include "conductor/service/worker/notes.h"
#include "conductor/service/worker/switch.h"
#include "predictor/alike.h"
#include "predictor/cost_model.h"
#include "predictor/learned.h"
#include "predictor/steps.h"

enum request_state {
    REQUEST_RECEIVED,     /* in the inbox, not looked at yet */
    REQUEST_WAITING,      /* no instance has room; tried again when one has */
    REQUEST_SCHEDULED,    /* sent to its workers, not begun */
    REQUEST_PREFILLING,   /* the prefill has begun */
    REQUEST_TRANSFERRING, /* first token sent; its KV is on the way */
    REQUEST_DECODING,
    REQUEST_ENDED,      /* done, failed, rejected or cancelled */
    REQUEST_TOKENIZING, /* before REQUEST_RECEIVED: an engine is asked for its
                           tokens */
};
#define REQUEST_STATES 8

/* Blocks [from_block, to_block) are loaded from `instance`. */
struct request_source {
    uint32_t instance; /* pool id; the prefill instance itself: from its disk */
    uint32_t from_block, to_block;
    bool shared; /* or the store that it shares with others */
};

struct request_prompt {
    uint32_t *tokens; /* (n_tokens) */
    uint32_t n_tokens;
    uint32_t max_tokens; /* of the answer */
    uint64_t *keys;      /* (n_keys) */
    size_t n_keys;
    uint64_t key_seed;
};

/* The tokens handed to the front, and those that came too early for that. */
struct request_output {
    int64_t first_token_us, last_token_us;
    uint32_t n_tokens; /* handed to the front, and not taken back */
    bool timed; /* its first token was counted, even if the client has not got
                   it */
    /* Tokens 1, 2, ... of the decode worker that arrived before token 0 of the
     * prefill worker: frames of two connections arrive in any order. */
    uint32_t *early; /* (n_early), room for max_tokens; NULL until needed */
    uint32_t n_early;
    bool early_done; /* its DONE came, too */
    /* The timer that hands over token 0, which is held back until the KV for
     * the next tokens has arrived. NULL: token 0 is not held back. */
    struct event *held;
    uint32_t held_token;
};

/* One choice of workers; a retry is another attempt. */
struct request_attempt {
    uint64_t id;                    /* 0 between attempts */
    uint32_t prefill, decode;       /* pool ids */
    bool is_unsent;                 /* PREFILL was not sent yet */
    bool cleared;                   /* may be sent: no decode worker, or it is
                                       ready */
    bool prefill_open, decode_open; /* entered in the pool */
    bool holds_first;               /* its first token waits for its KV */
    struct request_source
        sources[MSG_SOURCES_MAX]; /* (n_sources) to load from */
    uint32_t n_sources;
    uint8_t load_mode; /* enum proto_load_mode */
    struct prefill_estimate plan;
    struct schedule_lent lent; /* entered in the pool, too */
    int64_t planned_us;        /* when it was decided */
    int64_t heard_us; /* when it was decided, or when its worker or engine last
                         sent something about it that is no token */
    struct forecast forecast; /* of its TTFT */
    int64_t predicted_tbt_us;
    /* When its prefill worker was lost, while its KV may still have been on the
     * way; 0: not lost. */
    int64_t orphaned_us;
};

struct service_request {
    TAILQ_ENTRY(service_request) entry;  /* inbox */
    TAILQ_ENTRY(service_request) unsent; /* of its prefill worker */
    struct service *service;
    const struct service_reply_ops *ops;
    void *arg;
    enum request_state state;
    uint32_t slot;
    char request_id[32];
    uint64_t number;               /* of the request, in its id too */
    uint64_t session;              /* 0: none */
    char session_id[64];           /* printable, cut; "": none */
    char client_id[64], trace[64]; /* likewise */
    struct request_spans spans;
    struct dispatch_request dispatch; /* the core's part of it */
    struct request_prompt prompt;
    struct request_attempt attempt;
    struct request_output output;
    bool broken;             /* request_break() was said of it */
    char last_failure[160];  /* why it was scheduled again */
    struct forward *forward; /* owned; NULL: for native workers */
    struct name_set *named;  /* the alias or adapter that it names, which counts
                                it; NULL: it names the model itself */
    struct service_result result;
};

TAILQ_HEAD(request_list, service_request);

TAILQ_HEAD(worker_list, worker);

struct pair;
TAILQ_HEAD(pair_list, pair);

/* A piece of a refused prompt that a worker computes in the background. */
struct worker_warm {
    uint64_t attempt_id;  /* 0: none */
    struct warm_job *job; /* of which it is one */
    struct warm_piece piece;
    int64_t heard_us; /* of it, the last time */
    bool started;
};

/* A registered worker, by its pool slot. */
struct worker {
    struct worker_link *link; /* NULL: slot not in use */
    uint32_t id;              /* pool id */
    struct msg_hello hello;
    char host[MSG_HOST_MAX];   /* where its peers reach it */
    uint64_t kv_pinned_blocks; /* as last reported */
    uint64_t disk_used_blocks; /* likewise */
    struct msg_shared shared;  /* likewise; all 0: it has no such store */
    uint64_t shared_id;        /* the last one that was not 0 */
    uint32_t keys_taken;       /* of the frame that comes again */
    bool leaves;               /* it said LEAVING */
    uint64_t lead;             /* token of LEAD that it was told; 0: none */
    bool greet;                /* it is to be told which conductors there are */
    bool waits;                /* in service->blocks.line */
    TAILQ_ENTRY(worker) line;
    struct {
        int64_t until_us; /* to begin or to end it; 0: it is not asked */
        bool began;       /* the inventory did */
        int64_t next_us;  /* not before */
        int64_t pause_us; /* after the last time */
    } ask;                /* for its inventory */
    struct request_list
        unsent; /* prefills decided and not sent, oldest first */
    struct worker_warm warm;
    struct worker_copy copy;
    const char *path_names[POOL_PATHS_MAX]; /* transports of its paths */
};

/* The requests that have not ended, and the numbers of the next ones. */
struct request_table {
    struct service_request **by_slot; /* (size) */
    uint32_t *free_slots;             /* (n_free), a stack */
    uint32_t n_free, size;
    uint64_t first_attempt, next_attempt;
    uint64_t next_request;
};

#define TICKET_TENANTS 1024u /* a power of 2 */

/* Requests that other gateways send (gateway/ticket.h). */
struct tickets {
    struct request_list open;      /* by when they were last heard of */
    uint64_t n;                    /* and those that are still to be decided */
    uint32_t n_of[TICKET_TENANTS]; /* of each tenant */
    uint64_t seed;
};

struct service {
    struct models *models;
    struct event_base *base;
    struct config config;
    struct cost_model cost;
    struct cost_file *costs; /* owned: of single instances (costs.h) */
    const struct cost_model **worker_costs; /* (n + 1) of worker_costs, then
                                               NULL */
    bool predicts; /* false: there is no cost model, and `cost` counts tokens
                      and requests instead of time */
    struct pool *pool;
    struct cluster_pool *peers; /* other conductors; NULL: none */
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct secret *secret; /* NULL: workers need none */
    struct worker_links *links;
    struct event *inbox_event; /* active while the inbox may hold requests */
    struct event *tick;
    int64_t tick_us;     /* when that was last */
    struct event *sweep; /* the index has slices of work */
    struct metrics metrics;
    struct explain *explain;
    struct sessions *sessions; /* NULL: none yet */
    struct kept kept;          /* answers that engines keep */
    struct service_model_info model;
    uint64_t fingerprint; /* of the registered workers; 0 = none yet */
    uint32_t n_workers;
    bool has_orphans;       /* some request may be orphaned */
    bool has_broken;        /* some request may be broken */
    int64_t stalled_us;     /* when they were last looked for */
    struct worker *workers; /* (max_instances), by pool slot */
    struct service *next;   /* owned: of another model */
    uint32_t number;        /* among the models */

    /* Whether this model is served by engines; then the fields above for native
     * workers are unused. */
    bool forwards;
    bool names_due; /* engines came, left or changed their names: n_engines and
                       the windows must be computed again */
    bool names_untold;       /* and the log must say so */
    bool costs_due;          /* entries came or left */
    int64_t names_told_us;   /* when the log last had who has which */
    bool names_full_told;    /* it has that not all have room */
    struct name_sets names;  /* of engines; zeros: of native workers */
    struct engine **engines; /* (max_instances), by pool slot; NULL: none */
    uint32_t n_engines;
    uint32_t n_heard, n_asked; /* of these: whose KV events have come; that can
                                  be asked for tokens */
    struct kv_feeds *feeds;    /* NULL: no engine publishes KV events */
    const struct store_config *store; /* that all of them read; NULL: none */
    struct kv_feed *store_feed;       /* likewise */
    struct learned learned;
    struct alike_model prefills, steps; /* what engines are compared by */
    struct learned pushes;  /* of pairs: from a prefill to the first token */
    double push[2];         /* its terms, which estimates look at */
    struct pair_list pairs; /* that have outlived their requests */
    uint32_t next_tokenizer;
    struct log_rate broken_log; /* of answers that broke off */
    struct token_cache *tokens; /* of texts that were asked for */
    const char *cost_source;    /* of `cost`: static */

    struct {
        struct event *next; /* the next turn of the loop; pending if this turn
                               has taken blocks */
        uint32_t left;      /* blocks that it may still take */
        uint32_t part;      /* of these, of the worker that is served */
        struct worker_list line; /* whose frames wait, the next one first */
        struct worker *served;   /* NULL: nobody of the line is */
    } blocks;                    /* that workers report */
    struct {
        int64_t next_us;    /* no other worker is asked before */
        uint32_t next_slot; /* to be looked at */
    } healing;

    struct request_table table;
    /* dispatch.overhead_us is the time that a first token spends outside queue
     * and prefill: hand-over, frames, wake-ups. */
    struct dispatch dispatch;
    struct warm warm;
    struct copies *copies;
    struct notes copy_notes;
    struct roles *roles;
    struct observation_overheads overheads;
    struct request_list inbox;
    struct tickets tickets;
    uint64_t shared_id; /* what the store that workers share has; 0: none */
    struct prefix_match held; /* of service_ask_index() */
    struct wire_buf out;      /* scratch for one frame */
};

/* The slot of the shared store in the index, behind the slots of the pool. */
static inline uint32_t service_store_slot(const struct service *s)
{
    return (uint32_t)s->config.max_instances;
}

/* request_fail(request, http_status, code, message, retry_after_us): ends a
 * request that is in no list with an error; it is freed. The callback may
 * cancel other requests. retry_after_us as in struct service_failure. */
void request_fail(struct service_request *request, int http_status,
                  const char *code, const char *message,
                  int64_t retry_after_us);

/* request_break(request): after a bug: the request fails with 500
 * "internal_error" in the next turn of the loop, whatever its state. */
void request_break(struct service_request *request);

/* request_fail_broken(service): fails the requests that request_break() was
 * called for. O(requests) if there are any. */
void request_fail_broken(struct service *service);

/* request_take_inbox(service): has core/dispatch place the requests of the
 * inbox. */
void request_take_inbox(struct service *service);

/* request_send(request): announces the attempt to its decode worker, if that is
 * another one, and puts it into the line of its prefill worker. */
void request_send(struct service_request *request);

/* request_plan_sources(request, decision): stores what the decision says about
 * loading. */
void request_plan_sources(struct service_request *request,
                          const struct schedule_decision *decision);

/* request_clear(request): its decode worker is ready; the PREFILL may go. */
void request_clear(struct service_request *request);

/* request_unsend(request): takes the request out of the line of its prefill
 * worker. No-op if it was sent. */
void request_unsend(struct service_request *request);

/* request_flush_unsent(worker): sends the PREFILLs of its line that may go, up
 * to one that others still wait for. */
void request_flush_unsent(struct worker *worker);

/* request_send_cancel(service, id, attempt_id): tells an instance to free what
 * an attempt holds. */
void request_send_cancel(struct service *service, uint32_t id,
                         uint64_t attempt_id);

/* request_warm(request, order): the request is refused by this order: keeps its
 * prompt, if core/warm wants it computed in the background. */
void request_warm(struct service_request *request,
                  const struct dispatch_order *order);

/* request_warm_next(service): sends the kept prompts that core/warm orders now.
 */
void request_warm_next(struct service *service);

/* request_warm_frame(service, id, h, payload, rc): takes a frame from instance
 * id. Returns whether it was about a piece of a kept prompt; then *rc is what
 * request_frame() would return. */
bool request_warm_frame(struct service *service, uint32_t id,
                        const struct frame_header *h, const uint8_t *payload,
                        int *rc);

/* request_warm_left(service, worker): the worker is gone, and the piece that it
 * computed with it. */
void request_warm_left(struct service *service, struct worker *worker);

/* request_warm_tick(service): gives up pieces whose worker reports nothing, and
 * begins others. */
void request_warm_tick(struct service *service);

/* request_warm_fini(service): frees the kept prompts. */
void request_warm_fini(struct service *service);

/* What a worker may report at most: a time, bytes. */
#define REPORTED_MAX_US ((uint64_t)COST_MODEL_MAX_US)
#define REPORTED_MAX_BYTES (UINT64_C(1) << 50)

/* prefill_done_ok(service, n_tokens, done): whether a worker's report about a
 * prefill of n_tokens tokens is possible. */
bool prefill_done_ok(const struct service *service, uint32_t n_tokens,
                     const struct msg_prefill_done *done);

/* request_loaded(request, done): its prefill has ended; counts and learns from
 * the KV that was loaded for it. request_pushed(request): its KV has arrived at
 * the decode worker; likewise. */
void request_loaded(struct service_request *request,
                    const struct msg_prefill_done *done);
void request_pushed(struct service_request *request);

/* request_hold_first(request, token): holds its first token back until
 * request_release_first(), or until its TTFT limit is nearly over. False: the
 * token does not have to wait, or there is no memory.
 * request_release_first(request): hands the held token over, if there is one.
 * False: the request is gone. request_drop_first(request): forgets the held
 * token. */
bool request_hold_first(struct service_request *request, uint32_t token);
bool request_release_first(struct service_request *request);
void request_drop_first(struct service_request *request);

/* request_token(request, token): hands a token to the front. False: the front
 * has cancelled the request, which is gone. */
bool request_token(struct service_request *request, uint32_t token);

/* request_find(service, attempt_id): the request of a running attempt, or NULL.
 */
struct service_request *request_find(struct service *service,
                                     uint64_t attempt_id);

/* request_instance_lost(request, id, why): an instance that works for the
 * request failed it: another choice before the first token, the end after it.
 */
void request_instance_lost(struct service_request *request, uint32_t id,
                           const char *why);

/* request_place_again(request): ends its attempt, of which no token was handed
 * over, and puts the request back into the inbox. */
void request_place_again(struct service_request *request);

/* request_move_waiting(service, id): an instance is drained: places its
 * requests that have not begun anew, if another instance could take them.
 * O(requests). */
void request_move_waiting(struct service *service, uint32_t id);

/* request_end_work(service, id): takes all requests from a drained instance, as
 * if it were lost. O(requests). */
void request_end_work(struct service *service, uint32_t id);

/* request_frame(service, id, h, payload): a frame about a request from instance
 * id. Returns 0, -EBADMSG, or -EPROTO for a type that is out of place. */
[[nodiscard]] int request_frame(struct service *service, uint32_t id,
                                const struct frame_header *h,
                                const uint8_t *payload);

/* request_retry_waiting(service): carries out the orders for requests that wait
 * for room: those that find some, and those that have waited too long. */
void request_retry_waiting(struct service *service);

/* service_freed(service): room that a waiting request may use has become free;
 * the loop's next turn looks. */
void service_freed(struct service *service);

/* The same of a link to a decode instance, if a request waits for one. */
void service_link_freed(struct service *service);

/* request/count.c: the number of tokens of its prompt, and how that is known:
 * as counted when its prefill ended; before that, as the decision had it.
 * request_count_prompt(request): adds the prompt's tokens in request->result to
 * the metrics and the last hour. Called once for each prefill of a worker, and
 * once for each request of an engine. */
uint32_t request_prompt_tokens(const struct service_request *request);
enum service_known_by request_known_by(const struct service_request *request);
void request_count_prompt(struct service_request *request);

/* request_set_state(request, next): changes the state if the transition table
 * in request/state.c allows it; returns whether it did. If not, that is a bug:
 * the request fails in the next turn of the loop, and stays valid until then.
 */
bool request_set_state(struct service_request *request,
                       enum request_state next);

/* request_close_pool(request): removes the attempt's prefill, decode and lent
 * memory from the pool, as far as they are still there. */
void request_close_pool(struct service_request *request);

/* request_first_token(request, ttft_us, now_us): enters its TTFT into explain,
 * history and the forecasts. */
void request_first_token(struct service_request *request, int64_t ttft_us,
                         int64_t now_us);

/* request_answered(request, tokens): its answer ended by itself after so many
 * tokens: learns the length for the answers to come. */
void request_answered(struct service_request *request, int64_t tokens);

/* request_end(request, outcome, how, reason): ends and frees a request that has
 * its whole answer; how and reason as in explain_ended(). */
void request_end(struct service_request *request, enum metrics_outcome outcome,
                 const char *how, const char *reason);

/* request_free(request): frees its memory and slot. The request must be with no
 * worker and in no list. */
void request_free(struct service_request *request);

/* service_set_window(s): after a worker came or left: sets the served window to
 * the longest window of the registered workers. Without any it stays. */
void service_set_window(struct service *s);

/* service_new_one(models, config, engines, err): creates the service of
 * config->model: for engines, which the caller starts, or for native workers.
 * Returns as models_new(). */
[[nodiscard]] struct service *service_new_one(struct models *models,
                                              const struct config *config,
                                              bool engines,
                                              char err[CONFIG_ERROR_MAX]);

/* service_drop_requests(s): frees all requests without a callback. */
void service_drop_requests(struct service *s);

/* service_free_one(s): frees this service, whose engines must be gone, and not
 * s->next. NULL is a no-op. */
void service_free_one(struct service *s);

/* service_make_scheduler(s, kv_bytes_per_token, layers, coupled): creates the
 * scheduler of this model's instances from the configuration, and frees the one
 * before. Returns 0 or -ENOMEM. */
[[nodiscard]] int service_make_scheduler(struct service *s,
                                         int64_t kv_bytes_per_token,
                                         uint32_t layers, bool coupled);

/* service_has_worker(): whether a native worker of that name is registered. */
bool service_has_worker(const struct service *s, const char *name);

/* service_join(...): worker_link_ops.joined; arg is the service. */
uint16_t service_join(void *arg, struct worker_link *link,
                      const struct msg_hello *m, const char *peer_host,
                      struct msg_welcome *welcome, char text[MSG_TEXT_MAX]);

/* peers.c: the other conductors of these instances. Joins them, if there are
 * any. Returns 0 or -ENOMEM. */
[[nodiscard]] int peers_join(struct service *s);

/* peers_tick(s): tells workers that have come which conductors there are. */
void peers_tick(struct service *s);

/* service_link_ops: the callbacks of the worker links; arg is the service. */
extern const struct worker_link_ops service_link_ops;

/* shared_frame(s, worker, payload, len): takes a SHARED frame in. Returns 0,
 * -EBADMSG or -EPROTO. */
[[nodiscard]] int shared_frame(struct service *s, struct worker *worker,
                               const uint8_t *payload, size_t len);

/* shared_left(s, worker): the worker is gone. With the last worker of the
 * shared store all that is known of the store is forgotten. */
void shared_left(struct service *s, struct worker *worker);

/* shared_write_metrics(all, out): appends the metrics of the shared stores of
 * all services. Returns 0 or -ENOMEM. */
[[nodiscard]] int shared_write_metrics(const struct service *all,
                                       struct evbuffer *out);

/* shared_is_same(s, worker): whether the worker uses the shared store whose
 * blocks the index has. */
bool shared_is_same(const struct service *s, const struct worker *worker);

/* blocks_init(s), blocks_fini(s): what blocks_frame() needs. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int blocks_init(struct service *s);
void blocks_fini(struct service *s);

/* blocks_frame(s, worker, slot, h, payload): a frame about the blocks of the
 * worker in a pool slot. Returns 0, FRAME_AGAIN or a negative errno, as
 * worker_link_ops.frame. */
[[nodiscard]] int blocks_frame(struct service *s, struct worker *worker,
                               uint32_t slot, const struct frame_header *h,
                               const uint8_t *payload);

/* blocks_left(s, worker): it is gone. */
void blocks_left(struct service *s, struct worker *worker);

/* instances_tick(service, away_us): suspects silent instances, and clears those
 * that were heard from; fails orphans whose decode worker says nothing, and
 * requests of which nobody has spoken for too long. away_us: so long this
 * process did not run, and heard nobody. */
void instances_tick(struct service *service, int64_t away_us);

/* index_tick(service): a few times a second: begins to sweep what cleared
 * workers left in the index, and asks a worker for its inventory. */
void index_tick(struct service *service);

/* index_on_sweep(...): of the event service->sweep; arg is the service. */
void index_on_sweep(evutil_socket_t fd, short what, void *arg);

/* index_inventory_mark(service, worker, slot, payload, len): the inventory of
 * the worker in a pool slot begins or ends. Returns 0 or -EBADMSG. */
[[nodiscard]] int index_inventory_mark(struct service *service,
                                       struct worker *worker, uint32_t slot,
                                       const uint8_t *payload, size_t len);

/* instances_count(service, role, named): the number of ready instances with
 * that role bit, and with that name; named NULL: with any. */
uint32_t instances_count(const struct service *service, unsigned role,
                         const struct name_set *named);

/* instances_pack_lead(service, worker): appends to service->out the frame that
 * says that this conductor leads, if the worker has not got it. */
void instances_pack_lead(struct service *service, struct worker *worker);

/* worker_of(service, id): the worker of a pool id, or NULL if it is gone. */
struct worker *worker_of(const struct service *service, uint32_t id);

#endif

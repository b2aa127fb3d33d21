/*
 * Inference engines (vLLM, SGLang, ..) as instances of a service, and the
 * requests forwarded to them. Private to the files of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_ENGINE_H
#define CONDUCTOR_SERVICE_ENGINE_ENGINE_H

#include "base/loop/loop.h"
#include "conductor/config/engines.h"
#include "conductor/core/index/predicted.h"
#include "conductor/json/text_buf.h"
#include "conductor/link/events/feed.h"
#include "conductor/link/upstream/bootstrap.h"
#include "conductor/link/upstream/exchange/upstream.h"
#include "conductor/link/upstream/model_list.h"
#include "conductor/link/upstream/report.h"
#include "conductor/service/engine_request/told.h"
#include "conductor/service/internal.h"

#define ENGINE_AUTHORIZATION_BYTES 4200
/* Bytes kept of an answer's end, since its usage is there. */
#define FORWARD_TAIL_BYTES 512

struct expectation;
TAILQ_HEAD(expectation_list, expectation);
enum engine_question { ASKS_HEALTH, ASKS_MODELS, ASKS_BOOTSTRAP, ASKS_REPORT };

struct fleet_entry;

/* Keeps the first few engines that refused a request. */
#define FORWARD_DOUBTS_MAX 4u
struct forward_doubt {
    uint32_t instance; /* pool id */
    int status;
    uint32_t partner; /* pool id of the pair's other engine, if it had not
                         answered; else POOL_NO_INSTANCE */
};

/* The KV events that an engine publishes. */
struct engine_events {
    struct kv_feed *feed; /* NULL = the engine publishes none */
    bool heard;           /* at least one event has come */
    bool silence_told;    /* the log says that events are missing */
    uint64_t n_messages;  /* received at the last check */
    /* Requests that ended there since the last event and must have stored a new
     * block. */
    uint64_t n_unheard;
    int64_t unheard_since_us; /* end of the first of them */
    int64_t heal_after_us;    /* earliest time to ask for all events again */
};

/* The models that an engine lists. */
struct engine_models {
    struct text_buf models; /* the answer to ASKS_MODELS or ASKS_BOOTSTRAP */
    bool had_model;         /* the engine has listed its model */
    bool other_model;       /* the engine now lists another model */
    bool restarted;         /* since it joined: it may tell other facts */
    uint32_t window_tokens; /* as listed; 0 = not told */
    bool doubt_told;   /* logged: it lists another model, or has neither path */
    bool dropped_told; /* logged: it lists too many names */
    bool lack_told;    /* logged: it lacks a name of its entry */
    uint32_t seen_aliases; /* a bit for each alias of its entry that the engine
                              has listed */
    uint32_t seen_adapters;
    uint64_t left_out; /* hash of the listed adapters that its entry lacks, as
                          last logged; 0 = none */
};

/* The id by which decode engines find a prefill engine. It is asked for with
 * every probe, and forgotten when the engine may be another process. Without an
 * id the engine gets no work. */
struct engine_bootstrap {
    struct upstream *server; /* NULL = no bootstrap server */
    char id[BOOTSTRAP_ID_MAX];
    bool due; /* ask the server after the running probe */
};

#define BOOTSTRAP_WHY_MAX 256 /* bytes of a reason */

/* With this many failures in a row an engine gets no work. */
#define ENGINE_FAILURES_MAX 3u

/* The health of an engine, from probes and from the outcome of requests. */
struct engine_wellness {
    struct loop_timer timer;       /* of the next probe, or the limit of one */
    struct exchange *probe;        /* NULL = none in flight */
    int probe_status;              /* of the last answer */
    enum engine_question question; /* of the probe in flight, or the last one */
    uint64_t n_good;               /* good health probes, counted */
    int64_t well_us;               /* when the last good probe ended */
    bool no_health;                /* health_path answers 404 */
    uint32_t failures_in_row;
    uint32_t refused_in_row; /* refused requests; good probes do not count */
    bool on_trial;        /* no request ended well since the engine came back */
    uint32_t trials;      /* failed trials in a row */
    uint32_t good_to_go;  /* good probes needed before the next */
    bool key_refused;     /* its last answer refused the key */
    uint64_t blamed_by;   /* 1 + number of the last failed request */
    bool unreachable;     /* refused connections since it was last ready */
    char last_error[192]; /* why the last probe or request failed, or "" */
};

/* Counts of an engine, for /metrics. */
struct engine_counts {
    uint64_t sent, failures, status[6]; /* status by class */
    uint64_t excused; /* part of sent that need not cause a KV event */
    uint64_t timed;   /* prefills with a measured time */
    /* Cached tokens as predicted, and as told by the engine, in its own tokens;
     * over all answers that tell both these and, for prompts with guessed
     * tokens, the prompt's tokens. */
    uint64_t predicted_tokens, told_tokens;
};

struct engine {
    TAILQ_ENTRY(engine) of_entry; /* in fleet_entry.engines */
    const struct fleet_entry *entry;
    struct service *service;
    const struct engine_config *config; /* &own */
    struct engine_config own;
    struct engine_config wanted; /* as its entry says */
    bool leaving;    /* it gets no work, freed after its last request */
    int64_t left_us; /* since when */
    bool replaced;   /* another engine has its name now */
    uint32_t id;     /* pool id */
    const struct cost_model *own_cost; /* from costs_take(), or &cost; NULL =
                                          its model's costs */
    struct cost_model cost;            /* from `learned` */
    struct learned learned;            /* from the engine's own answers */
    struct alike prefills, steps;      /* compared with the model's */
    struct tls *tls;                   /* NULL = http */
    char authorization[ENGINE_AUTHORIZATION_BYTES]; /* a header line, or "" */
    struct upstream *upstream; /* NULL = the engine only publishes KV events */
    struct engine_wellness health;
    struct engine_models list;
    struct engine_bootstrap bootstrap;
    struct engine_events events;
    struct predicted *predicted;
    struct expectation_list expected; /* blocks expected in its events */
    size_t report_bytes;              /* bytes read of the present report */
    struct report_scan scan;
    struct engine_report report; /* the last complete report */
    uint32_t block_tokens;       /* of its own blocks, as far as known */
    int64_t told_block_tokens;   /* from its last report; 0 = none */
    unsigned jitter;             /* state of rand_r() */
    uint64_t n_drops; /* refused requests whose blocks are not predicted */
    int64_t doubt_after_us;    /* earliest next warning on its block size */
    int64_t tokenize_after_us; /* earliest next question */
    int64_t tokenize_pause_us; /* length of the present pause */
    /* Requests without a first token, as sent; the first one counts as
     * computing. */
    struct request_list line;
    struct steps prefill_steps; /* steps inferred from first tokens */
    struct engine_counts count;
    bool tells_cached[2]; /* a usage of it had cached_tokens: of completions,
                             of chats */
    uint32_t n_tickets;   /* of other gateways */
};

TAILQ_HEAD(engine_row, engine);

/* The state of a forwarded request, kept by the service until it ends. */
struct forward {
    struct tokenizing *tokenizing; /* owned; NULL = not asked */
    uint64_t ticket;               /* the secret in its ticket's id; 0 = none */
    char cache_salt[256];
    char adapter[256];           /* "" = none */
    struct service_forward what; /* borrowed from the front */
    char *headers;               /* owned: as sent */
    struct engine *engine; /* the engine with the request; NULL = none. Of a
                              pair first the prefill, then the decode engine */
    struct engine *shares; /* decode engine of a ticket for a pair */
    struct pair *pair;     /* owned, if pair_ops serve it; NULL = one leg */
    uint32_t silent; /* pool id of the pair's engine that had not answered when
                        the other's leg failed, perhaps because the other could
                        not reach it; else POOL_NO_INSTANCE */
    struct exchange *exchange;       /* NULL = not sent */
    const struct upstream_ops *ops;  /* of the answering leg; arg: request */
    bool in_line;                    /* in engine->line */
    struct expectation *expectation; /* in engine->expected; NULL = none */
    int64_t line_us;                 /* when the request joined the line */
    uint64_t alone; /* engine->count.sent after sending, if the engine had no
                       other request; else 0 */
    size_t n_had;   /* leading blocks predicted before sending */
    uint64_t drops_seen; /* engine->n_drops at sending */
    union {
        struct answer_id id;   /* answer's id, if the engine keeps the answer */
        struct meta_info meta; /* if what.apart: tokens of each prompt */
    } read;
    bool second; /* a second engine was asked about a refusal */
    struct forward_doubt doubts[FORWARD_DOUBTS_MAX]; /* (n_doubts) */
    uint32_t n_doubts;
    bool refused;                  /* the answer's status is 300 or more */
    bool invalid;                  /* it says that the request is wrong */
    bool paused;                   /* reading of its answer is paused */
    char tail[FORWARD_TAIL_BYTES]; /* (n_tail): the last bytes of the answer */
    size_t n_tail;
    uint64_t n_bytes; /* of the answer's body */
    struct {
        int64_t prompt, cached;
    } told; /* by forward_told() in this attempt; below 0 = not told */
};

/* Checks the files that an engine's configuration names. Returns 0, or -EINVAL
 * with a message that begins with the field: "FIELD: VALUE:". */
[[nodiscard]] int engine_check(const struct engine_config *config,
                               char err[CONFIG_ERROR_MAX]);

/* check.c: engine_check() of each of n, with "engines[i]." before the
 * message. */
[[nodiscard]] int engines_check(const struct engine_config *list, size_t n,
                                char err[CONFIG_ERROR_MAX]);

/* check.c: returns whether one of n engines has a cost model fitted for a block
 * size that no engine of its model has; if so, fills in *out. Reads each file
 * once. Returns false if memory runs out. */
bool engine_costs_clash(const struct engine_config *const *all, size_t n,
                        struct engine_clash *out);

/* Logs a warning for the first two engines with the same model and url, since
 * each counts as a server of its own; ranks of one server are exempt. Writes
 * the two to *told; logs nothing if *told already has them. */
struct engine_pair {
    char names[2][ENGINE_NAME_MAX];
};
void engine_urls_warn(const struct engine_config *const *all, size_t n,
                      struct engine_pair *told);

/* partners.c: logs the engines of pairs that have no partner, or whose
 * bootstrap address is another engine's. O(n^2). */
void engine_partners_warn(const struct engine_config *const *all, size_t n);

/* Replaces the cost model of the service's model by the one in `file`, an array
 * of ENGINE_PATH_MAX; "" = learn it. */
void engine_change_costs(struct service *s, const char *file);

/* Makes a service ready for the engines of its model. Returns 0 or a negative
 * errno with a message. */
[[nodiscard]] int engines_prepare(struct service *s,
                                  char err[CONFIG_ERROR_MAX]);

/* Makes an engine of the service's model and begins to ask for its health.
 * Copies its configuration. Returns it, owned, or NULL with a message. */
[[nodiscard]] struct engine *engine_start(struct service *s,
                                          const struct engine_config *config,
                                          char err[CONFIG_ERROR_MAX]);

/* Takes an engine out of service: it gets no new requests, and finishes its
 * present ones. */
void engine_retire(struct engine *e);

/* usage.c: takes the next n bytes of an answer: keeps its last
 * FORWARD_TAIL_BYTES, and the tokens of each prompt (told.h). */
void forward_keep_tail(struct forward *f, const char *bytes, size_t n);

/* Called at the end of an answer. told: its cached tokens; below 0 = not told.
 * Counts the request if its engine must publish a KV event for it. The prompt's
 * last block does not count: it is computed each time, and perhaps not
 * published. */
void forward_count_unheard(struct service_request *request, int64_t told);

/* Reads the usage at an answer's end, counts it and learns from it.
 * tells_cached: the answer's number of cached tokens is valid. */
void forward_take_usage(struct service_request *request, bool tells_cached);

/* forward.c: takes all requests from an engine; each is tried elsewhere, or
 * fails. */
void engine_cut_off(struct engine *e, const char *why);

/* Removes an engine without requests from its service, its pool and its index,
 * and frees it. */
void engine_leave(struct engine *e);

/* Writes the header line with the engine's key, or "". Returns 0, or -EINVAL
 * with a message as engine_check(). */
[[nodiscard]] int engine_read_key(const struct engine_config *config,
                                  char line[ENGINE_AUTHORIZATION_BYTES],
                                  char err[CONFIG_ERROR_MAX]);

/* listed.c. engine_models_due(): returns whether to ask a healthy engine for
 * its models now. engine_take_models(): reads its answer of n bytes, which may
 * be no list; returns whether the engine has its model, as far as is known. */
bool engine_models_due(struct engine *e);
[[nodiscard]] bool engine_take_models(struct engine *e, const char *text,
                                      size_t n);

/* bootstrap.c. engine_bootstrap_new(): makes the connection to its bootstrap
 * server, if it has one; 0 or -ENOMEM. engine_take_bootstrap(): reads the id in
 * that server's answer; 0, or -EINVAL with a reason: no id, or another
 * engine's. A 200 answer without a valid id clears the earlier id. */
[[nodiscard]] int engine_bootstrap_new(struct engine *e,
                                       const struct upstream_options *options);
[[nodiscard]] int engine_take_bootstrap(struct engine *e,
                                        char why[BOOTSTRAP_WHY_MAX]);

/* probe.c: the callback of the probe timer; arg is the engine. */
void engine_look(void *arg);

/* Returns the engine of a pool id, or NULL. */
struct engine *engine_of(const struct service *s, uint32_t id);

/* find.c: return the engine in a pool slot, or the name of its entry in the
 * configuration; NULL = none, as for all native workers. */
struct engine *engine_at(const struct service *s, uint32_t slot);
const char *engine_entry_name(const struct service *s, uint32_t slot);

/* Counts a failed request. unreachable: the connection was refused. */
void engine_failed(struct engine *e, bool unreachable, const char *why);

/* Counts a failed probe, which fails no trial; else as engine_failed(). */
void engine_probe_failed(struct engine *e, bool unreachable, const char *why);

/* Counts a refused request that another engine has answered well. */
void engine_refused(struct engine *e, const char *why);

/* Resets the failures in a row: a request was answered well. */
void engine_answered(struct engine *e);

/* Returns the number of blocks, published by a service's engines and their
 * store, that were forgotten because their maps were full. */
uint64_t engines_unkept(const struct service *s);

/* The metrics of engines. engine_metrics() returns their number.
 * engine_metric_begin() appends the head of the i-th, unless it shares the
 * previous one's; engine_metric_line() appends its line for the engine in a
 * slot, if there is one. Both return 0, or not 0: out of memory. */
size_t engine_metrics(void);
[[nodiscard]] int engine_metric_begin(size_t i, struct text_buf *out);
[[nodiscard]] int engine_metric_line(const struct service *s, uint32_t slot,
                                     size_t i, struct text_buf *out);

/* store.c. store_listen(): subscribes to the KV events of the model's store, if
 * there is one; 0, or -EINVAL with a message. store_share(): makes the engine a
 * reader of the store. stores_write_metrics(): appends the metrics of the
 * stores of all services; 0 or -ENOMEM. */
[[nodiscard]] int store_listen(struct service *s, char err[CONFIG_ERROR_MAX]);
void store_share(struct engine *e);
[[nodiscard]] int stores_write_metrics(const struct service *all,
                                       struct text_buf *out);

/* blocks.c. engine_misfits(): returns whether an engine's blocks cannot be cut
 * to the block size of its model's index; if so, writes *out.
 * engine_take_size(): updates the size of the engine's blocks and of its cache.
 * engine_doubt_size(): logs once if the engine's report has another size.
 * engine_unseen_tokens(): returns the most tokens of a prompt that the engine
 * may reuse beyond cached_tokens. */
bool engine_misfits(const struct service *s, const struct engine_config *c,
                    struct engine_clash *out);
void engine_take_size(struct engine *e);
void engine_doubt_size(struct engine *e);
uint32_t engine_unseen_tokens(const struct engine *e, uint32_t prompt_tokens,
                              int64_t cached_tokens);

/* Subscribes to an engine's KV events, if configured. Returns 0, or -EINVAL
 * with a message. */
[[nodiscard]] int engine_listen(struct engine *e, char err[CONFIG_ERROR_MAX]);

/* Counts an ended request that must have made the engine store a new block. */
void engine_unheard(struct engine *e);

/* Checks whether an engine's KV events come; logs once that they are missing,
 * and once that they have resumed. */
void engine_check_events(struct engine *e);

/* Returns the state of an engine's KV events; it must publish some. */
enum kv_feed_state engine_events_state(const struct engine *e);

/* expect.c: the blocks that an engine will hold. Call these when a request was
 * sent to it; was refused, or taken back before an answer; got the begin of a
 * good answer; ended well; failed or was given up (no-op without an
 * expectation). */
void expect_sent(struct service_request *request);
void expect_refused(struct service_request *request);
void expect_answered(struct service_request *request);
void expect_ended(struct service_request *request);
void expect_failed(struct service_request *request);

/* Returns whether a request must have made its engine store a block other than
 * the prompt's last one, if the engine had the first `had` index blocks
 * before. */
bool expect_stores(const struct service_request *request, uint64_t had);

/* expect_told(): looks at expectations when events have come. expect_until():
 * ends the expectations that are over at now_us; INT64_MAX = all but those of
 * requests in work, as the cache is empty. */
void expect_told(struct engine *e);
void expect_until(struct engine *e, int64_t now_us);

/* Returns whether cached blocks of prompts given as token ids (ids), or of
 * other prompts, are predicted at this engine. */
bool engine_predicts(const struct engine *e, bool ids);

/* The callback of predicted_use() for blocks that leave the predicted cache;
 * arg is the engine. */
void engine_evicted(void *arg, uint64_t key);

/* Forgets everything about an engine's cache. */
void engine_clear(struct engine *e);

/* learn.c. engine_learn_prefill() learns from a step that computed prompts,
 * engine_learn_step() from the time between the tokens of an answer: for the
 * engine, and for its model unless the engine is known to differ. Once the
 * model has learned enough, times are predicted. No-op for NULL and for
 * impossible values. */
void engine_learn_prefill(struct engine *e, const struct steps_step *step);
void engine_learn_step(struct engine *e, int64_t us);

/* Learns from an answer that was not streamed.
 *   computed_tokens  prompt tokens that were not cached
 *   tokens           of the answer
 *   us               from the start of the prefill to the end of the answer,
 *                    during which the engine had no other request */
void engine_learn_whole(struct engine *e, int64_t computed_tokens,
                        int64_t tokens, int64_t us);

/* Forgets an engine's own costs after long idleness. */
void engine_forget_costs(struct engine *e);

/* tokenize.c. tokenize_begin(): asks an engine for the tokens of a request that
 * was just submitted; false = no engine is asked, go on. tokenize_abort():
 * stops asking. */
bool tokenize_begin(struct service_request *request);
void tokenize_abort(struct service_request *request);

/* line.c: the first token of a request has come, at at_us. */
void forward_first_token(struct service_request *request, int64_t at_us);

/* usage.c: sets the prompt's tokens and cached tokens as told by the engine
 * that computed the prompt; below 0 = not told. The first told value stays. */
void forward_told(struct service_request *request, int64_t prompt,
                  int64_t cached);

/* charge.c: does instance_ops.count: after the prefill, counts the prompt's
 * tokens in request->result, the metrics and the tenant's use. */
void forward_count(struct service_request *request);

/* line.c: learns from an answer of `tokens` tokens that was not streamed. */
void forward_learn_whole(struct service_request *request, int64_t tokens);

/* line.c: ends the prefill of a request. seen: it ended at now_us, else at an
 * unknown time. */
void forward_prefill_over(struct service_request *request, bool seen,
                          int64_t now_us);

/* send.c. forward_headers(): makes the headers for an engine: `headers`, the
 * engine's key (without one, `key`), the request's id, and the engine's rank.
 * Owned by the caller; NULL = out of memory. forward_compose(): the same for a
 * request to forward->engine. */
[[nodiscard]] char *forward_headers(const struct engine *e, const char *headers,
                                    const char *key, const char *id);
[[nodiscard]] char *forward_compose(const struct service_request *request);

/* send.c: sends `body` (n bytes, borrowed until the answer's end) to
 * forward->engine; its answer goes to the client. Returns 0 or -ENOMEM. */
[[nodiscard]] int forward_ask(struct service_request *request, const char *body,
                              size_t n);

/* forward.c: ends prefills without a visible first token when they must be
 * over. */
void forward_tick(struct service *s);

/* status.c: handles a request that failed at its engine; its exchange must have
 * ended. */
void forward_failed(struct service_request *request, bool unreachable,
                    const char *why);

/* send.c: as instance_ops.take. */
[[nodiscard]] int forward_take(struct service_request *request,
                               const struct service_request_params *params);

/* engine_request/status.c. forward_is_silent(): returns whether nothing of the
 * answer has come for too long. The others: as in instance_ops. */
bool forward_is_silent(const struct service_request *request, int64_t now_us);
void forward_fail_silent(struct service_request *request, int64_t now_us);
bool forward_leaves(const struct service_request *request,
                    const struct engine *e);

/* engine_request/attempt.c, the steps of an attempt. forward_begin(): call it
 * before sending the first leg; ops: of the answering leg. forward_sent(): the
 * legs are sent. forward_answered(): passes the head of the answer on, or tries
 * the request elsewhere. forward_heard(): bytes have come; forward_begins():
 * returns whether they are the first. forward_hand_on(): passes n bytes to the
 * client. forward_ended(): ends a request with a whole answer; arguments as in
 * forward_take_usage(). forward_free(): as instance_ops.free. */
void forward_begin(struct service_request *request,
                   const struct upstream_ops *ops);
void forward_sent(struct service_request *request);
void forward_answered(struct service_request *request,
                      const struct http_head *head);
bool forward_begins(const struct service_request *request);
void forward_heard(struct service_request *request, int64_t now_us);
void forward_hand_on(struct service_request *request, const char *bytes,
                     size_t n, int64_t now_us);
void forward_ended(struct service_request *request, bool tells_cached);
void forward_free(struct service_request *request);

/* engine_request/status.c: handles an answer with this status. Returns whether
 * the request is tried elsewhere, as after a failure of the engine, which is
 * not blamed yet. */
bool forward_try_elsewhere(struct service_request *request, int status);

/* engine_request/status.c: handles an engine's refusal of a request with this
 * status. Its blocks do not count as cached there, and its session keeps its
 * former instance. */
void forward_is_refused(struct service_request *request, int status);

/* engine_request/status.c: handles a good answer: blames the engines that
 * refused the request before. */
void forward_answers_well(struct service_request *request);

/* engine_request/line.c. forward_join_line(): puts a request into the line of
 * its engine. forward_refused_in_line(): takes it out after a refusal, if it is
 * in one: the next request's turn then begins where this one's began.
 * forward_abort(): gives up the
 * attempt, in whatever state. */
void forward_join_line(struct service_request *request, int64_t now_us);
void forward_refused_in_line(struct service_request *request, int64_t now_us);
void forward_abort(struct service_request *request);

#endif

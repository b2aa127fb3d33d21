/*
 * Engines that others wrote, as instances of a service, and the requests that
 * are handed to them as they came. Private to the files of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_ENGINE_H
#define CONDUCTOR_SERVICE_ENGINE_ENGINE_H

#include "conductor/config/engines.h"
#include "conductor/core/index/predicted.h"
#include "conductor/front/json/text_buf.h"
#include "conductor/link/engine/bootstrap.h"
#include "conductor/link/engine/model_list.h"
#include "conductor/link/engine/report.h"
#include "conductor/link/engine/upstream/upstream.h"
#include "conductor/link/events/feed.h"
#include "conductor/service/forward/answer_id.h"
#include "conductor/service/forward/meta_info.h"
#include "conductor/service/state.h"

#define ENGINE_AUTHORIZATION_BYTES 4200
/* Of an answer's end, where its usage stands. */
#define FORWARD_TAIL_BYTES 512

struct expectation;
TAILQ_HEAD(expectation_list, expectation);
enum engine_question { ASKS_HEALTH, ASKS_MODELS, ASKS_BOOTSTRAP, ASKS_REPORT };

struct fleet_entry;

/* Engines that refused a request; the first ones count. */
#define FORWARD_DOUBTS_MAX 4u
struct forward_doubt {
    uint32_t instance; /* pool id */
    int status;
    uint32_t partner; /* that had said nothing, of a pair; POOL_NO_INSTANCE:
                         none */
};

/* The KV events that an engine publishes. */
struct engine_events {
    struct kv_feed *feed; /* NULL: it publishes none */
    bool heard;           /* some came */
    bool silence_told;    /* the log has it that none come */
    uint64_t n_messages;  /* when last looked at */
    /* Requests that ended there since, and should have stored a new block. */
    uint64_t n_unheard;
    int64_t unheard_since_us; /* the first of these */
    int64_t heal_after_us;    /* they are not asked for again before */
};

/* The models that an engine lists. */
struct engine_models {
    struct text_buf models; /* the answer to ASKS_MODELS or ASKS_BOOTSTRAP */
    bool had_model;         /* it has listed its model */
    bool other_model;       /* it has another one now */
    uint32_t window_tokens; /* that it told; 0: none */
    bool doubt_told;        /* the log has it that it lists another one, or has
                               neither of the paths */
    bool dropped_told;      /* and that it lists too many names */
    bool lack_told;         /* and that it lacks one of its entry */
    uint32_t seen_aliases;  /* a bit of each of its entry that it has listed */
    uint32_t seen_adapters;
    uint64_t left_out; /* of adapters that its entry does not list, as the
                          log has it; 0: none */
};

/* Under which id the decode engines of its pairs find a prefill engine. It is
 * asked for again with every probe, and forgotten when the engine may be
 * another process; without it the engine gets no work. */
struct engine_bootstrap {
    struct upstream *server; /* NULL: it has none */
    char id[BOOTSTRAP_ID_MAX];
    bool due; /* it is asked after the probe under way */
};

#define BOOTSTRAP_WHY_MAX 256 /* bytes of what is wrong with its answer */

/* In a row; then it gets no work. */
#define ENGINE_FAILURES_MAX 3u

/* Whether an engine is well: probes, and what became of requests. */
struct engine_wellness {
    struct event *timer;           /* of the next probe, or the limit of one */
    struct exchange *probe;        /* NULL: none under way */
    int probe_status;              /* of the last one that was answered */
    enum engine_question question; /* that it is about */
    uint64_t n_good;               /* answers for its health */
    int64_t well_us;               /* when the last good probe ended */
    bool no_health;                /* it answers 404 when asked for it */
    uint32_t failures_in_row;
    uint32_t refused_in_row; /* requests, which no good health makes up for */
    bool on_trial;           /* no request has ended well since it came back */
    uint32_t trials;         /* that failed in a row */
    uint32_t good_to_go;     /* good answers for its health before the next */
    bool key_refused;        /* it was, when it was last asked */
    uint64_t blamed_by; /* number + 1 of the request that failed there last */
    bool unreachable;   /* nobody listened there since it was last ready */
};

/* What is counted of an engine, for /metrics. */
struct engine_counts {
    uint64_t sent, failures, status[6]; /* by class */
    uint64_t excused; /* of sent: no KV event was to come of them */
    uint64_t timed;   /* prefills whose time was seen */
    /* Of answers that tell their cached tokens: those predicted, and those.
     * Both are the engine's tokens: what was predicted of a prompt that is
     * known by its bytes counts where its tokens are told, too. */
    uint64_t predicted_tokens, told_tokens;
};

struct engine {
    TAILQ_ENTRY(engine) of_entry; /* of the fleet */
    const struct fleet_entry *entry;
    struct service *service;
    const struct engine_config *config; /* own */
    struct engine_config own;
    struct engine_config wanted; /* as its entry has it */
    bool leaving;    /* it gets no work, and goes when it has none */
    int64_t left_us; /* since when */
    bool replaced;   /* while another one has its name */
    uint32_t id;     /* pool id */
    const struct cost_model *own_cost; /* of costs_take(), or `cost`; NULL: its
                                          model's */
    struct cost_model cost;            /* as `learned` has it */
    struct learned learned;            /* of itself, where its model learns */
    struct alike prefills, steps;      /* whether they are as its model's */
    struct tls *tls;                   /* NULL: http */
    char authorization[ENGINE_AUTHORIZATION_BYTES]; /* a header line, or "" */
    struct upstream *upstream; /* NULL: it is only listened to */
    struct engine_wellness health;
    struct engine_models list;
    struct engine_bootstrap bootstrap;
    struct engine_events events;
    struct predicted *predicted;
    struct expectation_list expected; /* blocks that its events will tell */
    size_t report_bytes;              /* so many of them have come */
    struct report_scan scan;
    struct engine_report report; /* the last whole one */
    uint32_t block_tokens;       /* in a block of its own, as far as known */
    int64_t told_block_tokens;   /* in its last report; 0: none */
    unsigned jitter;             /* state of rand_r() */
    uint64_t n_drops; /* refused requests whose blocks are not predicted */
    int64_t doubt_after_us;    /* not before is its size doubted again */
    int64_t tokenize_after_us; /* it is not asked before: it was late */
    int64_t tokenize_pause_us; /* the next time for so long */
    /* Requests whose first token has not come, in the order in which they were
     * sent: the first of them is taken to be computed now. */
    struct request_list line;
    struct steps prefill_steps; /* of first tokens, which come in order */
    struct engine_counts count;
    uint32_t n_tickets; /* that other gateways have for it */
};

TAILQ_HEAD(engine_row, engine);

/* What the service holds of a request that is forwarded. */
struct forward {
    struct tokenizing *tokenizing; /* owned; NULL: not under way */
    uint64_t ticket; /* what proves it; 0: it has none (gateway/ticket.h) */
    char cache_salt[256];
    char adapter[256];               /* "": none */
    struct service_forward what;     /* borrowed from the front */
    char *headers;                   /* owned: what is sent */
    struct engine *engine;           /* NULL: with none. Of a pair: first the
                                        prefill, then the decode engine */
    struct engine *shares;           /* of a ticket of a pair: the decode
                                        engine; NULL: none */
    struct pair *pair;               /* owned; NULL: one leg */
    struct exchange *exchange;       /* NULL: not sent */
    const struct upstream_ops *ops;  /* what becomes of a leg that answers the
                                        client; arg is the request */
    bool in_line;                    /* engine->line */
    struct expectation *expectation; /* of engine->expected; NULL: none */
    int64_t line_us;                 /* when it joined that */
    int64_t turn_us;     /* since when it is the first of the line */
    uint64_t alone;      /* engine->count.sent with it, if the engine had no
                            other request then; 0: it had */
    size_t n_had;        /* leading blocks that were predicted before */
    uint64_t drops_seen; /* engine->n_drops when it was sent */
    union {
        struct answer_id id;   /* under which the engine keeps its answer */
        struct meta_info meta; /* what.apart: the tokens of each prompt */
    } read;
    bool second; /* a second opinion was asked for */
    struct forward_doubt doubts[FORWARD_DOUBTS_MAX]; /* (n_doubts) */
    uint32_t n_doubts;
    bool refused;                  /* by the status of the answer */
    bool paused;                   /* nothing is read of its answer */
    char tail[FORWARD_TAIL_BYTES]; /* (n_tail): the last bytes of the answer */
    size_t n_tail;
    uint64_t n_bytes; /* of its body */
    struct {
        int64_t prompt, cached;
    } told; /* by forward_told(), of this attempt; below 0: not */
};

/* Whether the files that an engine's configuration names can be used. Returns
 * 0, or -EINVAL with a message that begins with the field: "FIELD: VALUE:". */
[[nodiscard]] int engine_check(const struct engine_config *config,
                               char err[CONFIG_ERROR_MAX]);

/* check.c: engine_check() of each of n, with "engines[i]." before the
 * message. */
[[nodiscard]] int engines_check(const struct engine_config *list, size_t n,
                                char err[CONFIG_ERROR_MAX]);

/* check.c: whether one of n engines has a cost model of other blocks
 * than those of its model have; then *out says so. Reads each file once.
 * Without memory it says no. */
bool engine_costs_clash(const struct engine_config *const *all, size_t n,
                        struct engine_clash *out);

/* Logs the first two that have one model and one url, unless they are two of
 * its ranks: their load is counted apart. Engines of two models may well be one
 * server. Not if they are *told, which they become. */
struct engine_pair {
    char names[2][ENGINE_NAME_MAX];
};
void engine_urls_warn(const struct engine_config *const *all, size_t n,
                      struct engine_pair *told);

/* partners.c: logs which engines of pairs have no partner among all, or are
 * met where another one is. O(n^2). */
void engine_partners_warn(const struct engine_config *const *all, size_t n);

/* The costs of the service's model are those of another file, or, if that is
 * "", learned. */
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

/* It gets no more requests. Those that it has go on. */
void engine_retire(struct engine *e);

/* usage.c: keeps the end of what has come of an answer, (n), and what it tells
 * of each prompt. */
void forward_keep_tail(struct forward *f, const char *bytes, size_t n);

/* kept.c: notes which engine keeps an answer as soon as its id has come, with
 * the answer's next n bytes. */
void forward_note_kept(struct service_request *request, const char *bytes,
                       size_t n);

/* Its answer, which told so many cached tokens (below 0: nothing), has ended:
 * counts whether the engine's KV events are to tell of the prompt. The last
 * block is computed, and perhaps not published, each time. */
void forward_count_unheard(struct service_request *request, int64_t told);

/* Its answer has ended: takes in what the usage tells of it. */
void forward_take_usage(struct service_request *request);

/* forward.c: the requests that it has are tried elsewhere, or fail. */
void engine_cut_off(struct engine *e, const char *why);

/* Takes one without requests out of its service, with all that is known of it,
 * and frees it. */
void engine_leave(struct engine *e);

/* The header line with the engine's key, or "". Returns 0, or -EINVAL with a
 * message as engine_check(). */
[[nodiscard]] int engine_read_key(const struct engine_config *config,
                                  char line[ENGINE_AUTHORIZATION_BYTES],
                                  char err[CONFIG_ERROR_MAX]);

/* models.c: whether a healthy engine is to be asked for its models now;
 * what its answer means, n bytes, which may be no list: whether it has its
 * model, as far as is known. */
bool engine_models_due(struct engine *e);
[[nodiscard]] bool engine_take_models(struct engine *e, const char *text,
                                      size_t n);

/* bootstrap.c: makes what asks its bootstrap server, if it has one (0, or
 * -ENOMEM); takes in what that says: 0, or -EINVAL with what is wrong: an
 * answer without an id, or with that of another engine of the model, has the
 * old one forgotten. */
[[nodiscard]] int engine_bootstrap_new(struct engine *e,
                                       const struct upstream_options *options);
[[nodiscard]] int engine_take_bootstrap(struct engine *e,
                                        char why[BOOTSTRAP_WHY_MAX]);

/* probe.c: the timer's callback; arg is the engine. */
void engine_look(evutil_socket_t fd, short what, void *arg);

/* The engine of a pool id; NULL: none. */
struct engine *engine_of(const struct service *s, uint32_t id);

/* A request failed there; nobody listens, if `unreachable`. */
void engine_failed(struct engine *e, bool unreachable, const char *why);

/* Likewise a probe, which is no trial. */
void engine_probe_failed(struct engine *e, bool unreachable, const char *why);

/* A request was refused there that another engine has answered well. */
void engine_refused(struct engine *e, const char *why);

/* A request was answered well. */
void engine_answered(struct engine *e);

/* Blocks that the engines of a service have told of, and their store, and that
 * had no room in their maps: nothing is known of them. */
uint64_t engines_unkept(const struct service *s);

/* What is counted of engines: how many metrics there are; the head of the i-th,
 * if it does not share that of the one before; its line of the engine in a
 * slot, if there is one. They return 0, or not 0: out of memory. */
size_t engine_metrics(void);
[[nodiscard]] int engine_metric_begin(size_t i, struct evbuffer *out);
[[nodiscard]] int engine_metric_line(const struct service *s, uint32_t slot,
                                     size_t i, struct evbuffer *out);

/* store.c: subscribes to the KV events of the store of the service's model, if
 * there is one: 0, or -EINVAL with a message; has an engine read it; appends
 * what is counted of the stores of all services: 0 or -ENOMEM. */
[[nodiscard]] int store_listen(struct service *s, char err[CONFIG_ERROR_MAX]);
void store_share(struct engine *e);
[[nodiscard]] int stores_write_metrics(const struct service *all,
                                       struct evbuffer *out);

/* blocks.c: whether an engine's blocks cannot be cut for the index of
 * its model (*out is written then); takes in how large its blocks and its cache
 * are, which may be news; logs once if its report says another size; how many
 * tokens of a prompt it may reuse beyond those that the index found, at most.
 */
bool engine_misfits(const struct service *s, const struct engine_config *c,
                    struct engine_clash *out);
void engine_take_size(struct engine *e);
void engine_doubt_size(struct engine *e);
uint32_t engine_unseen_tokens(const struct engine *e, uint32_t prompt_tokens,
                              int64_t cached_tokens);

/* Subscribes to its KV events, if the configuration says so. Returns 0, or
 * -EINVAL with a message. */
[[nodiscard]] int engine_listen(struct engine *e, char err[CONFIG_ERROR_MAX]);

/* A request ended there that must have made it store a new block. */
void engine_unheard(struct engine *e);

/* Looks whether events have come, and logs once that they should have, and that
 * they do again. */
void engine_check_events(struct engine *e);

/* Of its KV events, which it must publish. */
enum kv_feed_state engine_events_state(const struct engine *e);

/* expect.c: what an engine will hold. A request was handed to it; is refused,
 * or taken from it before it was answered; begins to be answered well; has
 * ended well; has failed, or was given up (nothing if it is not expected any
 * more). */
void expect_sent(struct service_request *request);
void expect_refused(struct service_request *request);
void expect_answered(struct service_request *request);
void expect_ended(struct service_request *request);
void expect_failed(struct service_request *request);

/* Whether a request must have made its engine store a block, beside the
 * prompt's last one, if it had so many of the index's blocks. */
bool expect_stores(const struct service_request *request, uint64_t had);

/* Events have come; so late is it; nothing is in its cache any more, which ends
 * what is expected until INT64_MAX, but for requests that it has. */
void expect_told(struct engine *e);
void expect_until(struct engine *e, int64_t now_us);

/* Whether the cached blocks of such prompts are predicted there, of token ids
 * or of others. */
bool engine_predicts(const struct engine *e, bool ids);

/* What predicted_use() calls; arg is the engine. */
void engine_evicted(void *arg, uint64_t key);

/* Its cache is empty. */
void engine_clear(struct engine *e);

/* learn.c: a step that computed so many tokens of prompts took so long there;
 * so long was it between an answer's tokens. The cost model of its model learns
 * of that, unless the engine is known to be another: when that is enough, times
 * are promised from then on. NULL is a no-op, and so is what cannot be. */
void engine_learn_prefill(struct engine *e, const struct steps_step *step);
void engine_learn_step(struct engine *e, int64_t us);

/* Learns from an answer that was not streamed.
 *   computed_tokens  prompt tokens that were not cached
 *   tokens           of the answer
 *   us               from the prefill's begin to the whole answer, during which
 *                    the engine had no other request */
void engine_learn_whole(struct engine *e, int64_t computed_tokens,
                        int64_t tokens, int64_t us);

/* Its own costs are forgotten if nothing was seen of it for long. */
void engine_forget_costs(struct engine *e);

/* tokenize.c: ask for the tokens of a request that was just submitted (false:
 * it goes on at once), and give up asking. */
bool tokenize_begin(struct service_request *request);
void tokenize_abort(struct service_request *request);

/* first.c: its first token came then. */
void forward_first_token(struct service_request *request, int64_t at_us);

/* usage.c: who computed the prompt told that it has so many tokens, of which so
 * many were cached; below 0: not told. What was told first stands. */
void forward_told(struct service_request *request, int64_t prompt,
                  int64_t cached);

/* charge.c: the request ends, whichever way: if its prefill is over, counts its
 * prompt's tokens, in request->result and wherever they are added up. */
void forward_count(struct service_request *request);

/* first.c: its answer of so many tokens has come whole: what that teaches. */
void forward_learn_whole(struct service_request *request, int64_t tokens);

/* first.c: its prefill is over; seen: now, else nobody knows when. */
void forward_prefill_over(struct service_request *request, bool seen,
                          int64_t now_us);

/* send.c: the headers that an engine gets: these lines, its key or else the
 * client's line, the request's id, and its rank. Owned; NULL: out of
 * memory. The second one: of a request at forward->engine. */
[[nodiscard]] char *forward_headers(const struct engine *e, const char *headers,
                                    const char *key, const char *id);
[[nodiscard]] char *forward_compose(const struct service_request *request);

/* send.c: sends this body, borrowed until the answer's end, to
 * forward->engine, which is to answer the client. Returns 0 or -ENOMEM. */
[[nodiscard]] int forward_ask(struct service_request *request, const char *body,
                              size_t n);

/* forward.c: hand a request over (0, or -ENOMEM with nothing changed); look
 * after those whose first token cannot be seen. */
[[nodiscard]] int forward_send(struct service_request *request);
void forward_tick(struct service *s);

/* status.c: its engine failed it, and nothing is under way there any more. */
void forward_failed(struct service_request *request, bool unreachable,
                    const char *why);

/* forward/hung.c: whether its engine should have gone on with its answer; it
 * did not: the engine has failed it. */
bool forward_late(const struct service_request *request, int64_t now_us);
void forward_end_late(struct service_request *request);

/* forward/status.c: an answer of that status has come. Whether the request is
 * tried elsewhere: as if the engine had failed, but no fault of it yet. */
bool forward_try_elsewhere(struct service_request *request, int status);

/* forward/status.c: its engine refuses it with that status: nothing of it is
 * cached there, and its session's home is what it was. */
void forward_is_refused(struct service_request *request, int status);

/* forward/status.c: its engine answers well: those that did not are at fault.
 */
void forward_answers_well(struct service_request *request);

/* forward/line.c: enter the line of the request's engine; leave it, nothing if
 * it is in none; likewise, because the engine refused the request: its turn was
 * the next one's; give the request up, wherever it is. */
void forward_join_line(struct service_request *request, int64_t now_us);
void forward_leave_line(struct service_request *request, int64_t now_us);
void forward_refused_in_line(struct service_request *request, int64_t now_us);
void forward_abort(struct service_request *request);

#endif

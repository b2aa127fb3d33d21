/*
 * A request: its structs, and its life from the inbox to the end. Private to
 * the files of conductor/service.
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
#ifndef CONDUCTOR_SERVICE_REQUEST_REQUEST_H
#define CONDUCTOR_SERVICE_REQUEST_REQUEST_H

#include <sys/queue.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/observation/observation.h"
#include "conductor/service/engine_request/token_cache.h"
#include "conductor/service/kept.h"
#include "conductor/service/observe.h"
#include "conductor/service/service.h"
#include "conductor/service/sessions.h"
#include "conductor/service/spans/spans.h"

struct engine;
struct name_set;
struct worker;

enum request_state {
    REQUEST_RECEIVED,     /* in the inbox, not decided yet */
    REQUEST_WAITING,      /* no instance has room; decided again when one has */
    REQUEST_SCHEDULED,    /* sent to its workers, not begun */
    REQUEST_PREFILLING,   /* the prefill has begun */
    REQUEST_TRANSFERRING, /* first token sent; its KV is on the way */
    REQUEST_DECODING,
    REQUEST_ENDED,      /* done, failed, rejected or cancelled */
    REQUEST_TOKENIZING, /* before REQUEST_RECEIVED: an engine tokenizes it */
};
#define REQUEST_STATES 8

/* Blocks [from_block, to_block) are loaded from `instance`. */
struct request_source {
    uint32_t instance; /* pool id; if the prefill instance: its own disk */
    uint32_t from_block, to_block;
    bool shared; /* from the shared store, not its own disk */
};

struct request_prompt {
    uint32_t *tokens; /* (n_tokens) */
    uint32_t n_tokens;
    uint32_t max_tokens; /* of the answer */
    uint64_t *keys;      /* (n_keys) */
    size_t n_keys;
    uint64_t key_seed;
    enum service_known_by known_by; /* how n_tokens is known */
};

/* Output tokens: handed to the front, or received too early. */
struct request_output {
    int64_t first_token_us, last_token_us;
    uint32_t n_tokens; /* handed to the front, not taken back */
    bool timed; /* its first token is in the metrics, even if taken back */
    /* Tokens 1, 2, ... of the decode worker that arrived before token 0 of the
     * prefill worker: frames of two connections arrive in any order. */
    uint32_t *early; /* (n_early), room for max_tokens; NULL until needed */
    uint32_t n_early;
    bool early_done; /* DONE came before token 0, too */
    /* Token 0 is held back until the KV for the next tokens has arrived, and at
     * most until the timer fires. */
    bool holds;
    struct loop_timer held;
    uint32_t held_token;
};

/* One choice of workers; a retry is another attempt. */
struct request_attempt {
    uint64_t id;              /* 0 = between attempts */
    uint32_t prefill, decode; /* pool ids */
    bool is_unsent;           /* PREFILL not sent yet */
    bool cleared; /* PREFILL may go: the decode worker is ready, or there is
                     none */
    bool prefill_open, decode_open; /* entered in the pool */
    bool holds_first;               /* its first token waits for its KV */
    struct request_source sources[MSG_SOURCES_MAX]; /* (n_sources) */
    uint32_t n_sources;
    uint8_t load_mode; /* enum proto_load_mode */
    struct prefill_estimate plan;
    struct schedule_lent lent; /* also entered in the pool */
    int64_t planned_us;        /* time of the decision */
    int64_t turn_us;  /* when it became the first of its engine's line; 0 = not
                         yet, or at a native worker */
    int64_t heard_us; /* time of the decision, or of the last frame or bytes
                         about it, other than TOKENS */
    struct forecast forecast; /* of its TTFT */
    int64_t predicted_tbt_us;
    /* When its prefill worker was lost during the KV transfer; 0 = not lost. */
    int64_t orphaned_us;
};

/* The server of a request: native workers, an engine of others, two engines
 * that share it, or another gateway. Code of requests calls these and knows
 * none of them. */
struct instance_ops {
    /* Takes the prompt and what else of the parameters is for it alone, at
     * first. Returns 0 or -ENOMEM. */
    int (*take)(struct service_request *request,
                const struct service_request_params *params);
    /* NULL, or asks for the tokens of the prompt. Returns whether it goes into
     * the inbox later. */
    bool (*tokenize)(struct service_request *request);
    /* The attempt on the instances of request->attempt begins. Returns 0, or
     * -ENOMEM with nothing changed. */
    int (*send)(struct service_request *request);
    /* The instances forget the attempt. */
    void (*abort)(struct service_request *request);
    /* The request ends: counts what of its prompt is not counted yet. */
    void (*count)(struct service_request *request);
    /* Ends the request or its attempt if nothing was heard about it for too
     * long. */
    void (*fail_silent)(struct service_request *request, int64_t now_us);
    /* The request is freed next. */
    void (*free)(struct service_request *request);
    /* Returns whether the attempt fails when engine e is lost. For engines
     * alone. */
    bool (*lost_with)(struct service_request *request, const struct engine *e);
    /* Returns whether a request without output is taken away from engine e,
     * which answers no probe. For engines alone. */
    bool (*leaves)(const struct service_request *request,
                   const struct engine *e);
    bool tells_begin; /* an instance says when a prefill begins; before that
                         the request may go elsewhere at no loss */
    bool hands_over;  /* once a request decodes, the instance of its prefill
                         has no part in it */
    bool tells_last;  /* it tells at the end alone how many tokens of a prompt
                         it has computed, and the tenant is charged then */
    bool two_legs;    /* the end of a prefill is seen even if the answer is not
                         streamed, and no leg is sent twice */
};

extern const struct instance_ops native_ops; /* worker/serve.c */
extern const struct instance_ops engine_ops; /* engine_request/attempt.c */
extern const struct instance_ops pair_ops;   /* pair/answer.c */
extern const struct instance_ops ticket_ops; /* ticket/ticket.c */

struct service_request {
    TAILQ_ENTRY(service_request) entry;  /* inbox */
    TAILQ_ENTRY(service_request) unsent; /* of its prefill worker */
    struct service *service;
    const struct service_reply_ops *ops;
    void *arg;
    const struct instance_ops *by; /* its server; engine_ops become pair_ops for
                                      an attempt on two engines */
    enum request_state state;
    uint32_t slot;
    char request_id[32];
    uint64_t number;               /* also part of its id */
    uint64_t session;              /* 0 = none */
    char session_id[64];           /* printable, cut; "" = none */
    char client_id[64], trace[64]; /* likewise */
    struct request_spans spans;
    struct dispatch_request dispatch; /* core/dispatch's part */
    struct request_prompt prompt;
    struct request_attempt attempt;
    struct request_output output;
    bool broken;             /* request_break() was called for it */
    char last_failure[160];  /* reason of the last retry */
    const char *method;      /* of the client; borrowed from the front */
    struct forward *forward; /* owned by the operations of engines, pairs and
                                tickets, for them alone */
    struct name_set *named; /* the alias or adapter in the request, which counts
                               it; NULL = the model itself */
    struct service_result result;
};

TAILQ_HEAD(request_list, service_request);

/* The requests of a service that have not ended, and the numbers of the next
 * ones. Written by this folder alone, but for `kept`, which is
 * engine_request/'s.
 */
struct requests {
    struct service_request **by_slot; /* (size) */
    uint32_t *free_slots;             /* (n_free), a stack */
    uint32_t n_free, size;
    uint64_t first_attempt, next_attempt;
    uint64_t next_request;
    struct request_list inbox;
    struct loop_timer look;     /* deferred while the inbox may hold requests */
    bool has_broken;            /* request_break() was called for some */
    struct sessions *sessions;  /* NULL: none yet */
    struct token_cache *tokens; /* of texts that engines were asked for */
    uint32_t next_tokenizer;    /* pool slot */
    struct observation_overheads overheads;
    struct kept kept;        /* answers that engines keep */
    struct log_rate cut_log; /* of answers that were cut */
};

/* Returns whether a line about how this request ended may go into the log: at
 * most 10 a second do. */
bool request_may_log(const struct service_request *request);

/* request_fail(request, http_status, code, message, retry_after_us): ends a
 * request with an error, and frees it. It must be in no list. The callback may
 * cancel other requests. retry_after_us: as in struct service_failure. */
void request_fail(struct service_request *request, int http_status,
                  const char *code, const char *message,
                  int64_t retry_after_us);

/* request_unlist(request): takes a request that ends from outside request/ out
 * of the inbox, or of the wait list. */
void request_unlist(struct service_request *request);

/* request_fail_broken(service): fails the requests that a bug has broken.
 * O(requests) if there are any. */
void request_fail_broken(struct service *service);

/* request_refuse(request, order): ends a request that the order refuses, with
 * the status, code and text of its reason. */
void request_refuse(struct service_request *request,
                    const struct dispatch_order *order);

/* submit.c: sets the prompt's length and block keys by its n tokens. Returns 0,
 * or -ENOMEM with nothing changed. */
[[nodiscard]] int request_compute_keys(struct service_request *request,
                                       const uint32_t *tokens, size_t n);

/* request_take_inbox(service): has core/dispatch place the requests of the
 * inbox. */
void request_take_inbox(struct service *service);

/* request_plan_sources(request, decision): stores the sources to load from. */
void request_plan_sources(struct service_request *request,
                          const struct schedule_decision *decision);

/* request_clear(request): lets the PREFILL go: its decode worker is ready. */
void request_clear(struct service_request *request);

/* request_flush_unsent(worker): sends PREFILLs from the front of its line, up
 * to one that must still wait for its decode worker. */
void request_flush_unsent(struct worker *worker);

/* request_send_cancel(service, id, attempt_id): tells a worker to free an
 * attempt. */
void request_send_cancel(struct service *service, uint32_t id,
                         uint64_t attempt_id);

/* request_warm(request, order): keeps the prompt of a request refused by this
 * order, if core/warm wants it computed in the background. */
void request_warm(struct service_request *request,
                  const struct dispatch_order *order);

/* request_warm_next(service): sends the kept prompts that core/warm orders now.
 */
void request_warm_next(struct service *service);

/* request_warm_frame(service, id, h, payload, rc): takes a frame from instance
 * id. Returns whether it was about a piece of a kept prompt; then *rc is as by
 * request_frame(). */
bool request_warm_frame(struct service *service, uint32_t id,
                        const struct frame_header *h, const uint8_t *payload,
                        int *rc);

/* request_warm_left(service, worker): ends the piece of a lost worker. */
void request_warm_left(struct service *service, struct worker *worker);

/* request_warm_tick(service): gives up pieces without a report for
 * request_timeout_ms, and begins others. */
void request_warm_tick(struct service *service);

/* request_warm_fini(service): frees the kept prompts. */
void request_warm_fini(struct service *service);

/* Limits of reported times and bytes: above all real values, and small enough
 * that sums and products do not overflow. */
#define REPORTED_MAX_US ((uint64_t)COST_MODEL_MAX_US)
#define REPORTED_MAX_BYTES (UINT64_C(1) << 50)

/* prefill_done_ok(service, n_tokens, done): returns whether a worker's report
 * about a prefill of n_tokens tokens is plausible. */
bool prefill_done_ok(const struct service *service, uint32_t n_tokens,
                     const struct msg_prefill_done *done);

/* request_loaded(request, done): at the end of its prefill, counts and learns
 * from its loads. request_pushed(request): likewise, when its KV has arrived at
 * the decode worker. */
void request_loaded(struct service_request *request,
                    const struct msg_prefill_done *done);
void request_pushed(struct service_request *request);

/* request_drop_first(request): drops the first token if it is held back. */
void request_drop_first(struct service_request *request);

/* service_request_find(service, attempt_id): returns the request of a live
 * attempt, or NULL. */
struct service_request *service_request_find(struct service *service,
                                             uint64_t attempt_id);

/* request_instance_lost(request, id, why): ends an attempt that instance id
 * failed (POOL_NO_INSTANCE = blame none). Retries before the first token or if
 * the front takes its tokens back; else the request fails. */
void request_instance_lost(struct service_request *request, uint32_t id,
                           const char *why);

/* request_receive(request): puts a request into the inbox.
 */
void request_receive(struct service_request *request);

/* request_move_waiting(service, id): places requests that have not begun on a
 * drained instance again, if another instance can take them. O(requests). */
void request_move_waiting(struct service *service, uint32_t id);

/* request_end_work(service, id): ends all attempts on a drained instance, as if
 * it were lost. O(requests). */
void request_end_work(struct service *service, uint32_t id);

/* request_frame(service, id, h, payload): takes a frame about a request from
 * instance id. Returns 0, -EBADMSG, or -EPROTO for a type out of place. */
[[nodiscard]] int request_frame(struct service *service, uint32_t id,
                                const struct frame_header *h,
                                const uint8_t *payload);

/* request_retry_waiting(service): sends waiting requests that have room now,
 * and rejects those that have waited too long. */
void request_retry_waiting(struct service *service);

/* The prompt's tokens and the source of that number: as
 * counted when its prefill ended, before that as decided. */
uint32_t request_prompt_tokens(const struct service_request *request);
enum service_known_by request_known_by(const struct service_request *request);

/* service_request_set_state(request, next): changes the state if the transition
 * table in request.c allows it; returns whether it did. If not, that is a bug:
 * the request fails in the next turn of the loop, and stays valid until then.
 */
bool service_request_set_state(struct service_request *request,
                               enum request_state next);

/* request_answered(request, tokens): learns the length of an answer that ended
 * by itself. */
void request_answered(struct service_request *request, int64_t tokens);

/* request_end(request, outcome, reason): ends and frees a request whose answer
 * is over; reason as in struct request_outcome. */
void request_end(struct service_request *request, enum metrics_outcome outcome,
                 const char *reason);

/* service_request_free(request): frees its memory and slot. The request must be
 * with no worker and in no list. */
void service_request_free(struct service_request *request);

/* Writes ": all 2 are drained" if operators drained all instances that have one
 * of the roles (a mask of ROLE_PREFILL and ROLE_DECODE), else "".
 * O(instances). */
void request_say_drained(const struct service *service, unsigned roles,
                         char text[SERVICE_DRAINED_BYTES]);

#endif

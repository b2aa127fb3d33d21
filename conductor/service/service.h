/*
 * The HTTP front's calls into the service, and the callbacks in return.
 *
 * Only messages pass between the two: the front submits a request with
 * everything it needs, and its outcome comes back through four callbacks. The
 * two sides share no state, so that the front may later run on threads of its
 * own.
 *
 *   service_submit -> scheduled (again after every retry)
 *                  -> token, token, ...
 *                  -> done | failed      the request is dead afterwards
 *   service_cancel at any time before that: silence, the request is dead
 *
 * A forwarded request gets answer and bytes, bytes, ... in place of tokens.
 */
#ifndef CONDUCTOR_SERVICE_SERVICE_H
#define CONDUCTOR_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/http/parse.h"
#include "conductor/service/history/history.h"
#include "conductor/service/tenant/terms.h"

#define SERVICE_NAME_BYTES 64   /* of an instance */
#define SERVICE_MODEL_BYTES 256 /* of a model's name */
#define SERVICE_ERROR_BYTES 512 /* of a message */

struct models;
struct service;
struct service_request;
struct text_buf;

/* A request to be forwarded to an engine unchanged. Borrowed until the request
 * is dead. */
struct service_forward {
    const char *method;
    const char *path;          /* with the query */
    const char *headers;       /* whole lines with CR LF, as in
                                  upstream_request */
    const char *authorization; /* a header line, or "" */
    const char *body;          /* (n) */
    size_t n;
    bool stream; /* the first byte of the answer's body is the first token */
    const char *tokenize; /* (n_tokenize): body for vLLM's /tokenize; NULL =
                             tokens are known, or need not be asked for */
    size_t n_tokenize;
    const char *cache_salt; /* seeds block keys; borrowed for the call */
    const uint64_t *hashes; /* (n_hashes): instead of tokens, an engine's hashes
                               of leading whole blocks within n_tokens; NULL =
                               none; borrowed for the call */
    size_t n_hashes;
    bool ids;       /* tokens are the engine's token ids */
    bool several;   /* tokens are only those of the first of several prompts */
    bool prompt;    /* for inference: its path takes a prompt */
    bool pairs;     /* a prefill and a decode engine may share the request */
    bool ticket;    /* for another gateway (ticket/gateway.h); method, path,
                       headers and body are unused */
    bool apart;     /* the answer has a usage for each prompt */
    bool keeps;     /* the engine may keep the answer under an id */
    uint64_t owner; /* tenant that owns kept answers, if keys are required; else
                       0 */
    const char *kept; /* (n_kept): id of the kept answer in the request; n 0 =
                         none; borrowed for the call only */
    size_t n_kept;
    bool looks; /* no inference, only about a kept answer: no SLO applies, and
                   after a 404 other engines are tried */
};

/* One prompt with its options. Borrowed until submit returns. */
struct service_request_params {
    const uint32_t *tokens; /* (n_tokens), every id < vocab */
    size_t n_tokens;        /* 1 .. window_tokens - max_tokens; 0 = unknown */
    uint32_t max_tokens;    /* 1 .. window_tokens - n_tokens */
    int64_t arrived_us;     /* start of its TTFT, by loop_now_us() */
    int64_t slo_ttft_us;    /* 0 = the configuration's default */
    int64_t slo_tbt_us;     /* 0 = the configuration's default */
    const char *salt;       /* isolates a tenant's cache; NULL = none */
    uint64_t session;       /* hash of the session; 0 = none */
    /* The client's ids of session and request, its traceparent and its API key;
     * n 0 = none. */
    struct http_slice session_id, client_id, trace, tenant;
    const char *operation; /* OpenTelemetry's name of the operation; static;
                              NULL = none fits */
    int32_t priority;      /* lowest first, among the tenant's */
    const char *adapter;   /* LoRA, at most 255 bytes; NULL = none */
    const char *model;     /* name in the request; NULL = the model's own */
    /* NULL = for native workers. If set, there may be any number of tokens, and
     * max_tokens may be a guess. */
    const struct service_forward *forward;
};

/* The instances chosen for a request. Strings are borrowed for the callback
 * only. */
struct service_decision {
    const char *request_id; /* at most 63 bytes, no spaces */
    const char *model;
    const char *prefill;       /* instance name, at most 63 bytes */
    const char *decode;        /* instance name; NULL = no decode */
    int64_t predicted_ttft_us; /* 0 = no prediction */
};

/* The source of a number of tokens. */
enum service_known_by {
    SERVICE_BY_NOTHING, /* unknown */
    SERVICE_BY_TOLD,    /* a worker's or an engine's report */
    SERVICE_BY_TOKENS,  /* the prompt's token ids */
    SERVICE_BY_HASHES,  /* hashes of the prompt's blocks, from a gateway */
    SERVICE_BY_BYTES,   /* guessed from the prompt's bytes */
    SERVICE_BY_INDEX,   /* the index, at the choice of the instance */
};

/* Returns the name of a value, static; "" for SERVICE_BY_NOTHING. */
const char *service_known_name(enum service_known_by by);

/* The result of a completed request. The tokens by source and computed_tokens
 * add up to prompt_tokens. */
struct service_result {
    uint32_t prompt_tokens; /* 0 = no prefill has ended */
    enum service_known_by prompt_by, cached_by;
    uint32_t local_tokens;    /* KV found on the prefill instance */
    uint32_t fetched_tokens;  /* KV loaded from another instance */
    uint32_t disk_tokens;     /* KV loaded from the instance's own disk */
    uint32_t shared_tokens;   /* KV loaded from the workers' shared store */
    uint32_t computed_tokens; /* prompt tokens that were prefilled */
    uint32_t output_tokens;   /* tokens handed to `token` */
    uint32_t retries;         /* times it was scheduled again */
    int64_t queue_us;         /* waited on the prefill instance */
    int64_t prefill_us;       /* from its start to its first token */
};

/* A failed or rejected request. Strings are borrowed for the callback only. */
struct service_failure {
    const char *request_id; /* at most 63 bytes, no spaces */
    int http_status;        /* 400 .. 599; 400 blames the prompt */
    const char *code;       /* short, stable, as in "slo_miss" */
    const char *message;    /* one sentence for people */
    int64_t retry_after_us; /* earliest useful retry, from now; 0 = unknown; -1
                               = never */
};

/*
 * A request's callbacks; all for its kind must be set. They come from the event
 * loop, never from inside service_submit or service_cancel. Each may call
 * service_submit, and service_cancel on any live request: its own (except in
 * done and failed, after which it is dead) and others, as one failed prompt of
 * a batch cancels the rest. So after a callback the service must assume that
 * any request may be gone.
 */
struct service_reply_ops {
    /* Called when instances were chosen: once, and again after each retry. */
    void (*scheduled)(void *arg, const struct service_decision *decision);
    /* The next output token. */
    void (*token)(void *arg, uint32_t token);
    /* Forwarded: the head of the engine's answer; no retry follows. Borrowed.
     */
    void (*answer)(void *arg, const struct http_head *head);
    /* Forwarded: the next n bytes of its body. Borrowed. */
    void (*bytes)(void *arg, const char *bytes, size_t n);
    /* Called when the instances failed. Returns true if the client has seen no
     * token: the tokens so far are withdrawn, and another attempt sends all of
     * them again. NULL = never. */
    bool (*take_back)(void *arg);
    /* All tokens were handed over; the request ends. */
    void (*done)(void *arg, const struct service_result *result);
    /* The request ends with an error. */
    void (*failed)(void *arg, const struct service_failure *failure);
};

/* Another name of a model. */
struct service_name {
    char name[SERVICE_MODEL_BYTES];
    bool adapter;       /* of a LoRA adapter, so part of its blocks' keys */
    uint32_t n_engines; /* engines that have the name now */
};

/* The served model. Strings live as long as the service. vocab and window are 0
 * until the first worker has registered, or an engine has reported its window.
 */
struct service_model_info {
    const char *name;
    uint32_t vocab;         /* ids are < vocab */
    uint32_t window_tokens; /* prompt and output together */
    uint32_t widest_tokens; /* widest of an instance; 0 = one is unknown */
    uint32_t block_tokens;  /* tokens in one KV block */
    const char *policy;     /* how prefill instances are chosen */
    int64_t created_s;      /* Unix time, for /v1/models */
    int64_t n_engines;      /* engines that have it; -1 = native workers */
};

/*
 * Starts a request.
 *   params  borrowed until return
 *   ops     borrowed until the request is dead
 *   arg     handed to every callback
 * Returns the request, owned by the service: the caller drops its pointer when
 * done or failed comes, or gives it to service_cancel. NULL with errno
 * ENOMEM, EAGAIN (too many in flight) or EDQUOT (too many tickets). Never calls
 * back before it returns. O(n_tokens).
 */
[[nodiscard]] struct service_request *
service_submit(struct service *service,
               const struct service_request_params *params,
               const struct service_reply_ops *ops, void *arg);

/* A reason for service_cancel(). */
#define SERVICE_CLIENT_LEFT "its client left"

/*
 * Cancels a request: its work stops on every worker, and no further callback
 * comes. The handle is dead afterwards. The log tells why. NULL is a no-op.
 */
void service_cancel(struct service_request *request, const char *why);

/* Pauses or resumes a forwarded request's answer. `bytes` may come once more
 * after a pause. */
void service_pause(struct service_request *request, bool pause);

/* Return the first and the next service of all models, or NULL. */
struct service *models_first(const struct models *models);

/* Returns the number of engines that have not told their model yet. */
size_t models_untold(const struct models *models);
struct service *service_next(const struct service *service);

/* Returns the service of a model, alias or adapter by its name of n bytes, or
 * NULL. Prefers a service whose engines have the name now to one whose engines
 * once had it. */
struct service *models_find(const struct models *models, const char *name,
                            size_t n);

/* Returns the model's i-th alias or adapter, sorted by name, even if no engine
 * has it now; NULL = no more. */
const struct service_name *service_name_at(const struct service *service,
                                           size_t i);

/* Returns whether `name` is a LoRA adapter of the model. */
bool service_has_adapter(const struct service *service, const char *name);

/* Returns the service of the native workers, or NULL. */
struct service *models_native(const struct models *models);

/* Returns whether requests of any model are forwarded to engines, or may be
 * once engines are added. */
bool models_forward(const struct models *models);

/* Returns the widest window of all models in tokens; 0 = one is unknown.
 * O(models). */
uint32_t models_widest(const struct models *models);

/* Returns whether an engine keeps an answer of `owner` (see service_forward)
 * under this id of n bytes, as far as known here. Cost: SHA-256 of the id. */
bool service_keeps(const struct service *service, uint64_t owner,
                   const char *id, size_t n);

/* Returns whether engines are asked for the tokens of texts: one can answer,
 * and one has published KV events to compare with. */
bool service_tokenizes(const struct service *service);

/* Returns the served model; borrowed, lives as long as the service. */
const struct service_model_info *service_model(const struct service *service);

/* Returns whether at least one prefill and one decode instance of this model
 * take requests. */
bool service_ready(const struct service *service);

#define SERVICE_DRAINED_BYTES 40

/* Returns NULL if the service is ready; else the role without a ready instance,
 * "prefill" or "decode", or "" for both; static. `drained` becomes
 * ": all 2 are drained" if operators drained all instances of that role, else
 * "". O(instances). */
const char *service_lacks(const struct service *service,
                          char drained[SERVICE_DRAINED_BYTES]);

/*
 * The metrics of all models in Prometheus's text format, piece by piece.
 *   _new   begins; borrows the models. Returns it owned, or NULL: no memory.
 *   _next  appends the next piece to `out` (borrowed): about 250 us of work.
 *          Returns 1 = more follow, 0 = this was the last, or -ENOMEM.
 *   _free  at any time, also before the last piece. NULL is a no-op.
 */
struct models_report;
[[nodiscard]] struct models_report *
models_report_new(const struct models *models);
[[nodiscard]] int models_report_next(struct models_report *report,
                                     struct text_buf *out);
void models_report_free(struct models_report *report);

/* Returns whether requests need a key of tenants_file (api_keys). */
bool models_need_keys(const struct models *models);

/* Returns whether a request with this key is allowed; see tenants_enter(). */
enum tenant_refusal models_enter(struct models *models, const char *key,
                                 size_t n, enum tenant_step step,
                                 struct tenant_terms *terms, int64_t *retry_us);

/* A request that was refused before it had an id. Borrowed for the call; n 0 =
 * none. */
struct service_refusal {
    int64_t arrived_us;
    int status;
    const char *code, *client; /* reason; client's address and port */
    struct http_slice method, path, key, client_id, trace;
};

/* Writes a refused request to the access log, if there is one. */
void models_refused(const struct models *models,
                    const struct service_refusal *refusal);

/* Appends as JSON the decision on a request, and how the request ended. Returns
 * 0, -ENOENT (unknown or forgotten) or -ENOMEM. */
[[nodiscard]] int models_explain(const struct models *models, const char *id,
                                 struct text_buf *out);

/* Appends as JSON the prefills and decodes on all instances, from all
 * conductors, as known here. Returns 0 or -ENOMEM. O(prefills + decodes). */
[[nodiscard]] int models_bookings(const struct models *models,
                                  struct text_buf *out);

/* Appends as JSON the last copies of hot blocks ahead of demand, with their
 * reasons. Returns 0 or -ENOMEM. */
[[nodiscard]] int models_copies(const struct models *models,
                                struct text_buf *out);

/*
 * Orders copies or drops, so that `copies` native workers, at least 1, hold a
 * prompt's leading blocks, as far as any worker has them. Appends as JSON the
 * number of holders now and the orders; /admin/copies shows when copies end.
 *   tokens  (n), borrowed.
 * Returns 0; -ENOENT: no native workers are served, or none has a block of it;
 * -EBUSY: another conductor leads, and only its orders count; -ENOMEM.
 */
[[nodiscard]] int models_replicas(struct models *models, const uint32_t *tokens,
                                  size_t n, uint32_t copies,
                                  struct text_buf *out);

/*
 * Appends as JSON which native workers hold blocks, and in which tiers: the
 * block `key`, or, with key 0, the blocks of a prompt.
 *   tokens  (n), borrowed.
 * Returns 0, -ENOENT (no native workers are served) or -ENOMEM. O(blocks *
 * instances).
 */
[[nodiscard]] int models_blocks(const struct models *models, uint64_t key,
                                const uint32_t *tokens, size_t n,
                                struct text_buf *out);

/*
 * Appends the services' status, and instances by health, as a JSON object to
 * `out` (borrowed). Returns 0 or -ENOMEM. O(instances).
 */
[[nodiscard]] int models_health(const struct models *models,
                                struct text_buf *out);

/* Appends as JSON at most `most` instances of all models, and the number
 * omitted. Returns 0 or -ENOMEM. O(instances). */
[[nodiscard]] int models_instances(const struct models *models, size_t most,
                                   struct text_buf *out);

/* Appends all models together as JSON: counts since the start, the pools and
 * the last minute. Returns 0 or -ENOMEM. O(instances). */
[[nodiscard]] int models_overview(const struct models *models,
                                  struct text_buf *out);

/* Appends a span of the history as JSON (history/history.h). Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int models_history(const struct models *models,
                                 enum history_span span, struct text_buf *out);

/* Returns the number of decisions, retries included. */
uint64_t models_decided(const struct models *models);

/* Appends as JSON the last n decisions (at most 16 of a model), and the last 4
 * refused requests, newest first, each as by models_explain(). Returns 0 or
 * -ENOMEM. O(n * models). */
[[nodiscard]] int models_decisions(const struct models *models, unsigned n,
                                   struct text_buf *out);

/*
 * Adds an engine, from n bytes of JSON as in the configuration's `engines`.
 *   may_name_files  the entry may name files on this machine
 *   name            written: its name
 * Returns 0; -EBADMSG: not JSON; -EINVAL: not usable; -EEXIST: the name is
 * taken; -EPERM: it names a file; with a message, "FIELD: VALUE: why" if a
 * field is wrong.
 */
[[nodiscard]] int models_add(struct models *models, const char *json, size_t n,
                             bool may_name_files, char name[SERVICE_NAME_BYTES],
                             char err[SERVICE_ERROR_BYTES]);

/* Removes an entry's engine, or all engines of its host name: they get no more
 * requests, and end after their last one. Returns 0; -ENOENT: no such entry;
 * -EPERM: the entry is from engines_file; with a message. */
[[nodiscard]] int models_remove(struct models *models, const char *name,
                                char err[SERVICE_ERROR_BYTES]);

/*
 * Drains an instance, or all engines of an entry (on: they get no more
 * requests), or ends the drain. The drain holds for the name until the daemon
 * ends, also for a worker that reconnects.
 *   limit_us  time limit of the present requests; 0 = unlimited
 *   state     written: its state, static; "gone" = no such instance now
 * Returns 0, also without a change; -ENOENT: no such name; -ENOSPC: too many
 * names are drained; -ENOMEM; with a message.
 */
[[nodiscard]] int models_drain(struct models *models, const char *name, bool on,
                               int64_t limit_us, const char **state,
                               char err[SERVICE_ERROR_BYTES]);

/*
 * Switches the role of a native worker: it gets no more work, ends its
 * requests, and takes the role. Naming its present role calls a switch off.
 *   role   "prefill" or "decode"
 *   state  written: its state, static
 * Returns 0, also without a change; -ENOENT: no such instance; -EINVAL: it
 * cannot take the role; -EBUSY: it is the last instance of its role; -ESTALE:
 * another conductor leads, and only its orders count; with a message.
 */
[[nodiscard]] int models_switch(struct models *models, const char *name,
                                const char *role, const char **state,
                                char err[SERVICE_ERROR_BYTES]);

#endif

/*
 * What the HTTP front may ask of the service, and what it hears back.
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
 * A request that is forwarded to an engine as it is hears answer and bytes,
 * bytes, ... in place of tokens.
 */
#ifndef CONDUCTOR_SERVICE_SERVICE_H
#define CONDUCTOR_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/service/tenant/terms.h"

#define SERVICE_NAME_BYTES 64   /* of an instance */
#define SERVICE_MODEL_BYTES 256 /* of a name of a model */
#define SERVICE_ERROR_BYTES 512 /* of a message */

struct evbuffer;
struct http_head;
struct models;
struct service;
struct service_request;

/* A request that an engine gets as it is. All of it is borrowed until the
 * request is dead. */
struct service_forward {
    const char *method;
    const char *path;          /* with its query */
    const char *headers;       /* whole lines with their CR LF, as
                                  upstream_request demands */
    const char *authorization; /* such a line, or "" */
    const char *body;          /* (n) */
    size_t n;
    bool stream; /* the first byte of the answer's body is the first token */
    const char *tokenize; /* (n_tokenize): vLLM's question for its tokens; NULL:
                             they are known, or cannot be asked for */
    size_t n_tokenize;
    const char *cache_salt; /* with the tokens; borrowed for the call only */
    const uint64_t *hashes; /* (n_hashes): in place of tokens an engine's names
                               of the leading whole blocks, at most those of
                               n_tokens; NULL: none; borrowed for the call */
    size_t n_hashes;
    bool ids;     /* tokens are token ids, as the engine knows them */
    bool several; /* those of the first of several prompts of such ids */
    bool prompt;  /* its path asks a model to answer a prompt */
    bool pairs;   /* two engines may share it */
    bool ticket;  /* another gateway sends it (gateway/gateway.h): method, path,
                     headers and body are not used */
    bool apart;   /* the answer tells the tokens of each prompt apart */
    bool keeps;   /* an engine may keep its answer, and be asked for it by id */
    uint64_t owner;   /* where keys are required, the tenant whose is what
                         engines keep of it; 0: they are not */
    const char *kept; /* (n_kept): the id of such an answer, which it is about;
                         n 0: of none; borrowed for the call only */
    size_t n_kept;
    bool looks; /* asks for what an engine keeps, and for no work: no SLO
                   applies, and an engine that has it not is not the last */
};

/* What one prompt asks for. Everything is borrowed until submit returns. */
struct service_request_params {
    const uint32_t *tokens; /* (n_tokens), every id < vocab */
    size_t n_tokens;        /* 1 .. window_tokens - max_tokens; for engines 0:
                               not known */
    uint32_t max_tokens;    /* 1 .. window_tokens - n_tokens */
    int64_t arrived_us;     /* its TTFT counts from then, as clock_now_us() */
    int64_t slo_ttft_us;    /* 0: the configuration's default */
    int64_t slo_tbt_us;     /* 0: the configuration's default */
    const char *salt;       /* isolates a tenant's cache; NULL: none */
    uint64_t session;       /* a number of it; 0: none */
    const char *session_id; /* (n_session_id): what the client calls it */
    size_t n_session_id;
    const char *client_id; /* (n_client_id): what the client calls the request;
                              n 0: nothing */
    size_t n_client_id;
    const char *trace; /* (n_trace): its traceparent; n 0: none */
    size_t n_trace;
    const char *operation; /* what it asks for, in the words of OpenTelemetry's
                              conventions; static; NULL: none of them fits */
    const char *tenant;    /* (n_tenant): the key of who asks; n 0: none */
    size_t n_tenant;
    int32_t priority;    /* the lowest of its tenant's comes first */
    const char *adapter; /* LoRA, at most 255 bytes; NULL: none */
    const char *model;   /* the name that the request uses; NULL: the model's */
    /* For engines: tokens are what its blocks are known by, any
     * number of them, and max_tokens is a guess if it is not said. */
    const struct service_forward *forward;
};

/* Where a request goes. Strings are borrowed for the callback only. */
struct service_decision {
    const char *request_id; /* at most 63 bytes, no spaces */
    const char *model;
    const char *prefill;       /* instance name, at most 63 bytes */
    const char *decode;        /* instance name, NULL when none takes part */
    int64_t predicted_ttft_us; /* 0: nothing predicts */
};

/* What a number of tokens is known by. */
enum service_known_by {
    SERVICE_BY_NOTHING, /* it is not known */
    SERVICE_BY_TOLD,    /* a worker or an engine told it */
    SERVICE_BY_TOKENS,  /* the prompt's token ids */
    SERVICE_BY_HASHES,  /* a gateway's names of the prompt's blocks */
    SERVICE_BY_BYTES,   /* a guess: the prompt's bytes */
    SERVICE_BY_INDEX,   /* what the index had when the instance was chosen */
};

/* Its name, static; "" of SERVICE_BY_NOTHING. */
const char *service_known_name(enum service_known_by by);

/* A request that was completed. The tokens by source, with those computed, add
 * up to prompt_tokens. */
struct service_result {
    uint32_t prompt_tokens; /* 0: no prefill has ended */
    enum service_known_by prompt_by, cached_by;
    uint32_t local_tokens;    /* KV found on the prefill instance */
    uint32_t fetched_tokens;  /* KV loaded from another instance */
    uint32_t disk_tokens;     /* KV loaded from the instance's own disk */
    uint32_t shared_tokens;   /* from the store that workers share */
    uint32_t computed_tokens; /* prompt tokens that were prefilled */
    uint32_t output_tokens;   /* tokens handed to `token` */
    uint32_t retries;         /* times it was scheduled again */
    int64_t queue_us;         /* waited on the prefill instance */
    int64_t prefill_us;       /* from its turn to its first token */
};

/* A request that failed or was rejected. Strings are borrowed for the callback
 * only. */
struct service_failure {
    const char *request_id; /* at most 63 bytes, no spaces */
    int http_status;        /* 400 .. 599; 400 blames the prompt */
    const char *code;       /* short, stable, as in "slo_miss" */
    const char *message;    /* one sentence for people */
    int64_t retry_after_us; /* 0: unknown; -1: never; else the earliest
                               useful time */
};

/*
 * A request's callbacks. All that its kind of request hears are set. They come
 * from the event loop, never from inside service_submit or service_cancel. Each
 * may call service_submit, and service_cancel on any request that is alive: on
 * its own (except done and failed, after which it is dead) and on others, as
 * one failed prompt of a batch cancels the rest. So the service must expect
 * that any request but the one it is at is gone after a callback, and its own
 * too.
 */
struct service_reply_ops {
    /* A choice was made. Comes once, and again after each retry. */
    void (*scheduled)(void *arg, const struct service_decision *decision);
    /* The next output token. */
    void (*token)(void *arg, uint32_t token);
    /* Forwarded: the head of the engine's answer, which is tried nowhere else
     * from now on. Borrowed. */
    void (*answer)(void *arg, const struct http_head *head);
    /* Forwarded: the next n bytes of its body. Borrowed. */
    void (*bytes)(void *arg, const char *bytes, size_t n);
    /* The instances failed: returns whether the tokens that were handed over
     * are taken back, as no client has seen one of them. Then they come anew,
     * from another choice. NULL: they never are. */
    bool (*take_back)(void *arg);
    /* All tokens were handed over; ends the request. */
    void (*done)(void *arg, const struct service_result *result);
    /* The request ends with an error. */
    void (*failed)(void *arg, const struct service_failure *failure);
};

/* Another name of a model. */
struct service_name {
    char name[SERVICE_MODEL_BYTES];
    bool adapter; /* a LoRA adapter's, which is part of its blocks' keys */
    uint32_t n_engines; /* that have it now */
};

/* The served model. Strings live as long as the service. vocab and window are 0
 * until the first worker has registered; of engines, the window until one has
 * told its own. */
struct service_model_info {
    const char *name;
    uint32_t vocab;         /* ids are < vocab */
    uint32_t window_tokens; /* prompt and output together */
    uint32_t widest_tokens; /* the widest of its instances; 0: one has
                               not told it */
    uint32_t block_tokens;  /* tokens in one KV block */
    const char *policy;     /* how prefill instances are chosen */
    int64_t created_s;      /* Unix time, for /v1/models */
    int64_t n_engines;      /* that have it; -1: native workers do */
};

/*
 * Start a request.
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

/*
 * Cancel a request: its work stops on every worker, and no further callback
 * comes. The handle is dead afterwards. NULL is a no-op.
 */
void service_cancel(struct service_request *request);

/* A forwarded request's client takes nothing more for now, or takes more
 * again. `bytes` may come once more after a pause. */
void service_pause(struct service_request *request, bool pause);

/* The services of the models, one after the other; NULL: no more. */
struct service *models_first(const struct models *models);
struct service *service_next(const struct service *service);

/* The service of the model with that name or alias, or of an adapter of that
 * name, of n bytes; rather one whose engines have it now than one of which some
 * had it; NULL: there is none. */
struct service *models_find(const struct models *models, const char *name,
                            size_t n);

/* The i-th other name of the model, in their order; NULL behind the last. The
 * list includes names that no engine has now. */
const struct service_name *service_name_at(const struct service *service,
                                           size_t i);

/* Whether that is the name of a LoRA adapter of the model. */
bool service_has_adapter(const struct service *service, const char *name);

/* The service of the native workers; NULL: none are served. */
struct service *models_native(const struct models *models);

/* Whether the requests of some model are, or could be, forwarded to engines. */
bool models_forward(const struct models *models);

/* The widest window of all models; 0: one of them is not known. O(models). */
uint32_t models_widest(const struct models *models);

/* Whether an answer of that id (n bytes, borrowed), which an engine keeps, is
 * known here as one of the tenant's: see service_forward.owner. Cost: SHA-256
 * of the id. */
bool service_keeps(const struct service *service, uint64_t owner,
                   const char *id, size_t n);

/* Whether engines are asked for the tokens of texts: one can be, and events of
 * one have come that they would be compared with. */
bool service_tokenizes(const struct service *service);

/* The served model; borrowed, lives as long as the service. */
const struct service_model_info *service_model(const struct service *service);

/* Whether at least one prefill and one decode instance of this model take
 * requests. */
bool service_ready(const struct service *service);

/* What the service lacks to be ready: "prefill" or "decode" if no instance of
 * that role takes requests, "" if none takes any; NULL if it is ready. Static.
 */
const char *service_lacks(const struct service *service);

/*
 * The metrics of all models in Prometheus's text format, piece by piece.
 *   _new   begins; borrows the models. Returns it owned, or NULL: no memory.
 *   _next  appends the next piece to `out` (borrowed): about 250 us of work.
 *          Returns 1: there are more; 0: this was the last; -ENOMEM.
 *   _free  at any time, also before the last piece. NULL is a no-op.
 */
struct models_report;
[[nodiscard]] struct models_report *
models_report_new(const struct models *models);
[[nodiscard]] int models_report_next(struct models_report *report,
                                     struct evbuffer *out);
void models_report_free(struct models_report *report);

/* Whether only keys of tenants_file may ask (api_keys). */
bool models_need_keys(const struct models *models);

/* Whether who has the key may ask now: see tenants_enter(). */
enum tenant_refusal models_enter(struct models *models, const char *key,
                                 size_t n, enum tenant_step step,
                                 struct tenant_terms *terms, int64_t *retry_us);

/* What is told of a request that was refused before it had an id. Borrowed for
 * the call; slices as of a head, n 0: there is none. */
struct service_refusal {
    int64_t arrived_us;
    int status;
    const char *code, *client; /* why; address and port of who asked */
    const char *method, *path, *key, *client_id, *trace;
    size_t n_method, n_path, n_key, n_client_id, n_trace;
};

/* The access log gets a line of it, if there is a log. */
void models_refused(const struct models *models,
                    const struct service_refusal *refusal);

/* Append, as JSON, why the request with that id went where it went, and how it
 * ended. Returns 0; -ENOENT: it is not known, or no longer; -ENOMEM. */
[[nodiscard]] int models_explain(const struct models *models, const char *id,
                                 struct evbuffer *out);

/* Append, as JSON, the prefills and decodes that instances have, of all
 * conductors, as this one believes. Returns 0 or -ENOMEM. O(these). */
[[nodiscard]] int models_bookings(const struct models *models,
                                  struct evbuffer *out);

/* Append, as JSON, where the last hot blocks were copied ahead of demand, and
 * why. Returns 0 or -ENOMEM. */
[[nodiscard]] int models_copies(const struct models *models,
                                struct evbuffer *out);

/*
 * Have `copies` native workers, at least 1, hold the blocks of a prompt: as
 * many leading ones as any of them has. Appends, as JSON, who holds them now,
 * and what was ordered: copies end later, as /admin/copies shows.
 *   tokens  (n), borrowed.
 * Returns 0; -ENOENT: there is no service of native workers, or none of its
 * workers has a block of it; -EBUSY: another conductor leads, and workers take
 * such orders of that one; -ENOMEM.
 */
[[nodiscard]] int models_replicas(struct models *models, const uint32_t *tokens,
                                  size_t n, uint32_t copies,
                                  struct evbuffer *out);

/*
 * Append, as JSON, which instances hold blocks of native workers, and in which
 * tiers: the one under `key`, or, with key 0, those of a prompt.
 *   tokens  (n), borrowed.
 * Returns 0; -ENOENT: there is no service of native workers; -ENOMEM.
 * O(blocks * instances).
 */
[[nodiscard]] int models_blocks(const struct models *models, uint64_t key,
                                const uint32_t *tokens, size_t n,
                                struct evbuffer *out);

/*
 * Append one JSON object that says how the services are (status, instances by
 * health) to `out` (borrowed). Returns 0 or -ENOMEM. O(instances).
 */
[[nodiscard]] int models_health(const struct models *models,
                                struct evbuffer *out);

/* Append at most so many instances of all models as JSON to `out`, and how many
 * are left out. Returns 0 or -ENOMEM. O(instances). */
[[nodiscard]] int models_instances(const struct models *models, size_t most,
                                   struct evbuffer *out);

/* Append all models together as JSON: counts since the start, the pools and
 * the last minute. Returns 0 or -ENOMEM. O(instances). */
[[nodiscard]] int models_overview(const struct models *models,
                                  struct evbuffer *out);

/* Append the last hour as JSON (history/history.h). Returns 0 or -ENOMEM. */
[[nodiscard]] int models_history(const struct models *models,
                                 struct evbuffer *out);

/* How many decisions there were. One that is made again counts again. */
uint64_t models_decided(const struct models *models);

/* Append the last n decisions (16 of a model at most) as JSON, the newest
 * first, each as models_explain() has it. Returns 0 or -ENOMEM.
 * O(n * models). */
[[nodiscard]] int models_decisions(const struct models *models, unsigned n,
                                   struct evbuffer *out);

/*
 * Add an engine, by the n bytes of an entry of the configuration's engines.
 *   may_name_files  the entry may name files on this machine
 *   name            written: what it is called
 * Returns 0; -EBADMSG: it is no JSON; -EINVAL: it cannot be used; -EEXIST:
 * there is one of that name; -EPERM: it names a file; with a message, which is
 * "FIELD: VALUE: why" where a field is to blame.
 */
[[nodiscard]] int models_add(struct models *models, const char *json, size_t n,
                             bool may_name_files, char name[SERVICE_NAME_BYTES],
                             char err[SERVICE_ERROR_BYTES]);

/* Have an engine, or all that are found under its host's name, get no more
 * requests, and go when they have none. Returns 0; -ENOENT: there is none of
 * that name; -EPERM: a file wants it; with a message. */
[[nodiscard]] int models_remove(struct models *models, const char *name,
                                char err[SERVICE_ERROR_BYTES]);

/*
 * Have the instance of that name, or all engines of an entry of that name, get
 * no more requests (on), until they may again. It holds for what has the name:
 * also for a worker that comes back, until the daemon ends.
 *   limit_us  how long the requests that it has may go on; 0: as they like
 *   state     written: what it is then; static; "gone": there is none now
 * Returns 0, also where it was so; -ENOENT: there is none of that name;
 * -ENOSPC: too many are drained; -ENOMEM; with a message.
 */
[[nodiscard]] int models_drain(struct models *models, const char *name, bool on,
                               int64_t limit_us, const char **state,
                               char err[SERVICE_ERROR_BYTES]);

/*
 * Have the native worker of that name prefill, or decode: it gets no more work,
 * ends what it has, and takes the role. The one that it has calls off a switch.
 *   role   "prefill" or "decode"
 *   state  written: what it is then; static
 * Returns 0, also where it was so; -ENOENT: there is no instance of that name;
 * -EINVAL: it cannot take the role; -EBUSY: it is the only one of its own;
 * -ESTALE: another conductor leads, and workers take such orders of that one;
 * with a message.
 */
[[nodiscard]] int models_switch(struct models *models, const char *name,
                                const char *role, const char **state,
                                char err[SERVICE_ERROR_BYTES]);

#endif

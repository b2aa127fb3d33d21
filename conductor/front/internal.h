/* Shared by the files of the front. */
#ifndef CONDUCTOR_FRONT_INTERNAL_H
#define CONDUCTOR_FRONT_INTERNAL_H

#include <sys/queue.h>

#include "base/loop/loop.h"
#include "conductor/front/front.h"
#include "conductor/front/openai/body/body.h"

/* Where requests come in. */
struct front_door {
    struct front *front;
    struct http_server *server; /* NULL = there is no such door */
    unsigned serves;            /* its routes: bits of enum front_doors */
};

enum front_doors {
    DOOR_PUBLIC = 1,
    DOOR_ADMIN = 2,
    DOOR_BOTH = 3,
    DOOR_ALONE = 4, /* the admin door, if it is a separate one */
};

/* Clients that read /metrics. */
struct scrapes {
    TAILQ_HEAD(, scrape) list; /* the next one to write first */
    struct loop_timer turn;    /* pending while there is one */
    size_t n;                  /* with those that wait for their client */
};

struct front {
    struct models *models;
    struct service *native; /* of native workers; NULL = none */
    struct front_door door, admin;
    struct front_options options;
    struct loop *loop;
    struct scrapes scrapes;
    size_t in_flight;
    uint64_t paths_refused;                     /* requests for paths that no
                                                   engine may get */
    int64_t clients_expire_s, workers_expire_s; /* 0 = no certificate */
    struct watch *watch; /* owned; NULL = no viewer yet */
    bool unready;        /* front_unready was called */
    bool draining;       /* front_stop was called */
};

/* A request from a client. */
struct front_call {
    struct front *front;
    struct http_conn *conn;
    const struct http_head *head;
    const char *body; /* (n) */
    size_t n;
    const struct route *route; /* NULL = there is none */
    struct tenant_terms terms; /* of its key; name NULL = no key is required */
};

/* Serves one request; answers now or later. Borrows the call, its head and body
 * until it returns. */
typedef void front_serve_fn(const struct front_call *call);

/* GET. Paths that end in '/' are followed by an id or name. */
#define VIEW_EXPLAIN_PATH "/admin/explain/"
#define VIEW_MODEL_PATH "/v1/models/"
#define ADMIN_INSTANCE_PATH "/admin/instances/"
front_serve_fn view_models, view_ready;
/* Writers of the spans of /admin/history, as of a route. */
int view_history(const struct models *models, struct text_buf *out);
int view_history_5m(const struct models *models, struct text_buf *out);
int view_history_24h(const struct models *models, struct text_buf *out);
front_serve_fn view_written;    /* the output of route->write */
front_serve_fn view_metrics;    /* scrape.c */
front_serve_fn view_explain;    /* a request, by its id */
front_serve_fn view_blocks;     /* where blocks lie, by key or prompt */
front_serve_fn change_replicas; /* how many hold a prompt */
front_serve_fn view_model;      /* a model, by its name */

/* scrape.c: call it before view_metrics(). Returns 0 or -ENOMEM. */
void metrics_init_scrapes(struct front *front);

/* views.c: answers with a 500 "out_of_memory". */
void view_no_memory(struct http_conn *conn);

/* POST. */
front_serve_fn completion_serve;
#define SCHEDULE_DONE_PATH FORWARD_SCHEDULE_PATH "/done"
front_serve_fn schedule_serve; /* where another gateway is to send a request */
front_serve_fn schedule_done;  /* how that request ended */
front_serve_fn admin_add;      /* an engine */
front_serve_fn admin_reload;   /* the configuration, read again */
front_serve_fn admin_instance; /* drains an instance, undrains it, or switches
                                  its role */

/* gateway/: the KV-indexer API. They read JSON and msgpack. */
front_serve_fn index_query, index_query_by_hash, index_register,
    index_unregister;
front_serve_fn index_workers, index_services, index_view;

/* client.c: returns whether the client may ask; writes its tenant's terms to
 * the call. On false it was answered. */
bool client_may_ask(struct front_call *call, enum tenant_step step);

/* client.c: writes an access log line for a client that got this error. head
 * NULL = it could not be read. */
void client_refused(const struct front *front, struct http_conn *conn,
                    const struct http_head *head,
                    const struct openai_error *error);

/* Finds the client's key, "" if there is none. Borrows the head. Returns 0;
 * -EINVAL with *error set: its header comes twice. */
[[nodiscard]] int endpoint_key(const struct front_call *call,
                               struct http_slice *key,
                               struct openai_error *error);

/* Returns the key in a header's value, without a leading "Bearer". Borrows the
 * value. */
struct http_slice endpoint_key_of(struct http_slice value);

/* admin.c: returns whether the client may change instances; on false it was
 * answered. */
bool admin_may_change(const struct front_call *call);

/* DELETE. */
front_serve_fn admin_remove; /* an engine, by its name */

/* passthrough/refuse.c: returns whether engines may get this request, by its
 * head; on false it was answered. */
bool forward_may_pass(const struct front_call *call);

/* Answers, now or later, prompts and requests for paths that this server does
 * not have, if the request names a model of engines, or if there are no others.
 * Returns false, with nothing done, if it does not. */
bool forward_serve(const struct front_call *call);

/* Returns whether the client gets this header of an engine's answer: it is
 * about more than this connection, and not about more than this answer. */
bool forward_tells(const struct http_head *head, struct http_slice name);

/* Copies the forwarded parts of a request's head into one allocation, owned by
 * the caller, and points method, path, headers and authorization into it.
 * Leaves out what only Conductor may say (openai/body/steer.h) and the
 * tenant's key. NULL: out of memory. */
[[nodiscard]] char *forward_copy_head(const struct front_call *call,
                                      struct service_forward *f);

/* Reads the SLOs in the headers x-slo-ttft-ms and x-slo-tpot-ms; 0 = not there.
 * Returns 0, or -EINVAL with *error set. */
[[nodiscard]] int endpoint_slos(const struct http_head *head,
                                struct service_request_params *params,
                                struct openai_error *error);

/* The part of a decision that an answer has in headers; "" = none yet, or no
 * such instance. endpoint_note(): keeps it. endpoint_tell(): adds the headers;
 * with `name`, x-request-id, too. */
struct told {
    char request_id[64], prefill[64], decode[64];
    int64_t predicted_ttft_us;
};
void endpoint_note(struct told *told, const struct service_decision *decision);
void endpoint_tell(struct http_conn *conn, const struct told *told, bool name);

/*
 * Reads the values that the request's headers set in its body, as the options
 * say.
 *   rules  points into text[ENDPOINT_RULES_BYTES], borrowed.
 * Returns 0, or -EINVAL with *error set.
 */
#define ENDPOINT_RULES_BYTES 256
[[nodiscard]] int endpoint_rules(const struct front_call *call,
                                 char text[ENDPOINT_RULES_BYTES],
                                 struct forward_rules *rules,
                                 struct openai_error *error);

/* Reads the model in the header x-conductor-model; "" = none. Returns 0, or
 * -EINVAL with *error set and *model "". */
[[nodiscard]] int endpoint_model(const struct http_head *head,
                                 char model[FORWARD_MODEL_BYTES],
                                 struct openai_error *error);

/* Returns the priority among requests of one tenant: the header's, or else the
 * body's. */
int32_t endpoint_priority(const struct forward_rules *rules, int32_t of_body);

/* Sets the tenant, from the header that the options name, and its key's SLOs
 * where the request has none. Borrows the head. Returns 0; -EINVAL with *error
 * set: the header comes twice. */
[[nodiscard]] int endpoint_tenant(const struct front_call *call,
                                  struct service_request_params *params,
                                  struct openai_error *error);

/* Sets the ids of session, request and trace from the client's headers. Borrows
 * the head. */
void endpoint_names(const struct http_head *head,
                    struct service_request_params *params);

/* Returns the request's Content-Type; empty = none. */
struct http_slice endpoint_type(const struct http_head *head);

/* Returns whether the Content-Type is JSON, or missing. */
bool endpoint_is_json(const struct http_head *head);

/* Sets *error to a 415: the Content-Type must be `must`. Returns -EINVAL. */
int endpoint_set_type(const struct http_head *head, const char *must,
                      struct openai_error *error);

/* Sets *error to a 500 "out_of_memory". */
void endpoint_set_no_memory(struct openai_error *error);

/* Sets *error to a 503 that names the role without a ready instance. Returns
 * -EINVAL. */
int endpoint_set_unready(const struct front *front, struct openai_error *error);

/* Sets *error to how the service failed a request. */
void endpoint_set_failure(const struct service_failure *failure,
                          const char *param, struct openai_error *error);

/* Returns 0 if requests are taken, or -EINVAL with *error set: the server
 * is shutting down. */
[[nodiscard]] int endpoint_open(const struct front_call *call,
                                struct openai_error *error);

/* Answers a request that was not taken. rc: -ENOMEM, -EAGAIN (too many in
 * flight), -EDQUOT (too many tickets), or another error, with *error set; 0 =
 * does nothing. */
void endpoint_refuse(const struct front_call *call, int rc,
                     struct openai_error *error);

/*
 * Answers with an error.
 *   retry_us  > 0: sent as Retry-After, rounded up to seconds; 0 = unknown: 1 s
 *             for 429 and 503; < 0: never, sent as x-should-retry: false
 */
void endpoint_reply_error(struct http_conn *conn,
                          const struct openai_error *error, int64_t retry_us);

/* front_models(models, text, size): writes the names of the models, then their
 * other names, as far as there is room, or "and others". */
void front_models(const struct models *models, char *text, size_t size);

#endif

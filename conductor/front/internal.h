/* What the files of the front share. */
#ifndef CONDUCTOR_FRONT_INTERNAL_H
#define CONDUCTOR_FRONT_INTERNAL_H

#include <sys/queue.h>

#include "conductor/front/front.h"
#include "conductor/front/openai/forward/forward.h"

/* Where requests come in. */
struct front_door {
    struct front *front;
    struct http_server *server; /* NULL: there is no such door */
    unsigned serves;            /* which routes: enum front_doors */
};

enum front_doors {
    DOOR_PUBLIC = 1,
    DOOR_ADMIN = 2,
    DOOR_BOTH = 3,
    DOOR_ALONE = 4, /* that for admin, where it is one of its own */
};

/* Those who read /metrics. */
struct scrapes {
    TAILQ_HEAD(, scrape) list; /* the next one first */
    struct event *turn;        /* pending while there is one */
    size_t n;                  /* those that wait for their client, too */
};

struct front {
    struct models *models;
    struct service *native; /* the one that does not forward; NULL: none */
    struct front_door door, admin;
    struct front_options options;
    struct event_base *base;
    struct scrapes scrapes;
    size_t in_flight;
    uint64_t paths_refused;                     /* that no engine may get */
    int64_t clients_expire_s, workers_expire_s; /* 0: no certificate */
    struct watch *watch; /* owned; NULL: nobody has watched yet */
    bool unready;        /* front_unready was called */
    bool draining;       /* front_stop was called */
};

/* A request that has come. */
struct front_call {
    struct front *front;
    struct http_conn *conn;
    const struct http_head *head;
    const char *body; /* (n) */
    size_t n;
    enum openai_kind kind;     /* of a completion */
    struct tenant_terms terms; /* of its key; name NULL: none is required */
};

/* Serves one request; answers now or later. Borrows the call, its head and body
 * until it returns. */
typedef void front_serve_fn(const struct front_call *call);

/* GET, with what the paths of the open ones end in. */
#define VIEW_EXPLAIN_PATH "/admin/explain/"
#define VIEW_MODEL_PATH "/v1/models/"
#define ADMIN_INSTANCE_PATH "/admin/instances/"
front_serve_fn view_models, view_health, view_ready;
front_serve_fn view_metrics;    /* metrics.c */
front_serve_fn view_instances;  /* all of them */
front_serve_fn view_explain;    /* a request, by its id */
front_serve_fn view_blocks;     /* where blocks lie, by key or prompt */
front_serve_fn change_replicas; /* how many hold a prompt */
front_serve_fn view_bookings;   /* what instances have of all conductors */
front_serve_fn view_copies;     /* what was copied ahead of demand */
front_serve_fn view_model;      /* a model, by its name */
front_serve_fn view_overview;   /* counts, pools, the last minute */
front_serve_fn view_history;    /* the last hour */
front_serve_fn view_decisions;  /* the last ones */

/* metrics.c: before view_metrics() is called. Returns 0 or -ENOMEM. */
[[nodiscard]] int metrics_init_scrapes(struct front *front);

struct evbuffer;

/* views.c: answers with what was written; takes buf, which may be NULL. rc: 0
 * or why it was not. */
void view_reply(struct http_conn *conn, const char *type, struct evbuffer *buf,
                int rc);

/* POST. */
front_serve_fn completion_serve;
#define SCHEDULE_DONE_PATH FORWARD_SCHEDULE_PATH "/done"
front_serve_fn schedule_serve; /* where another gateway is to send a request */
front_serve_fn schedule_done;  /* what became of it */
front_serve_fn admin_add;      /* an engine */
front_serve_fn admin_reload;   /* the configuration, read again */
front_serve_fn admin_instance; /* drains one, or lets it go again */

/* gateway/: the KV-indexer API. They read JSON and msgpack. */
front_serve_fn index_query, index_query_by_hash, index_register,
    index_unregister;
front_serve_fn index_workers, index_services, index_view;

/* client.c: whether the client may ask, and on what terms (written to the
 * call); else it was answered. */
bool client_may_ask(struct front_call *call, enum tenant_step step);

/* client.c: a client got this error instead of what it asked for; the access
 * log says so. head NULL: it could not be read. */
void client_refused(const struct front *front, struct http_conn *conn,
                    const struct http_head *head,
                    const struct openai_error *error);

/* The key of who asks, "" if there is none. Borrows the head. Returns 0;
 * -EINVAL with *error set: its header comes twice. */
[[nodiscard]] int endpoint_key(const struct front_call *call,
                               struct http_slice *key,
                               struct openai_error *error);

/* A key in a header's value, without the word Bearer in front of it. Borrows
 * the value. */
struct http_slice endpoint_key_of(struct http_slice value);

/* admin.c: whether the client may change instances; else it was answered. */
bool admin_may_change(const struct front_call *call);

/* DELETE. */
front_serve_fn admin_remove; /* an engine, by its name */

/* forward/refuse.c: whether engines may get such a head; else it is answered.
 */
bool forward_may_pass(const struct front_call *call);

/* What this server has no path for, and prompts: answers now or later, if the
 * request names a model whose requests are forwarded, or if there is no other
 * kind. Returns whether it does; else nothing has happened. */
bool forward_serve(const struct front_call *call);

/* Whether the client gets a header of an engine's answer: it concerns more than
 * this connection, and no more than this answer. */
bool forward_tells(const struct http_head *head, struct http_slice name);

/* Copies what of a request's head is forwarded into one allocation, owned by
 * the caller, and points method, path, headers and authorization into it: not
 * what only Conductor may say (openai/forward/steer.h), and not the key of a
 * tenant. NULL: out of memory. */
[[nodiscard]] char *forward_copy_head(const struct front_call *call,
                                      struct service_forward *f);

/*
 * The SLO that a request header asks for, in microseconds.
 *   name   lower case, e.g. "x-slo-ttft-ms"
 *   us     set to 0 if the header isn't there
 * Returns 0, or -EINVAL with *error set and *us untouched.
 */
[[nodiscard]] int endpoint_slo_header(const struct http_head *head,
                                      const char *name, int64_t *us,
                                      struct openai_error *error);

/*
 * What the request's headers set in its body, as the options say.
 *   rules  points into text[ENDPOINT_RULES_BYTES], borrowed.
 * Returns 0, or -EINVAL with *error set.
 */
#define ENDPOINT_RULES_BYTES 256
[[nodiscard]] int endpoint_rules(const struct front_call *call,
                                 char text[ENDPOINT_RULES_BYTES],
                                 struct forward_rules *rules,
                                 struct openai_error *error);

/* The model that the header x-conductor-model names; "": none. Returns 0, or
 * -EINVAL with *error set and *model "". */
[[nodiscard]] int endpoint_model(const struct http_head *head,
                                 char model[FORWARD_MODEL_BYTES],
                                 struct openai_error *error);

/* What orders requests of one tenant: the header's, or else the body's. */
int32_t endpoint_priority(const struct forward_rules *rules, int32_t of_body);

/* Sets who asks, by the header that the options name, and the SLOs of its key
 * where the request has none. Borrows the head. Returns 0; -EINVAL with *error
 * set: the header comes twice. */
[[nodiscard]] int endpoint_tenant(const struct front_call *call,
                                  struct service_request_params *params,
                                  struct openai_error *error);

/* Sets what the client's headers call its session, its request and its trace.
 * Borrows the head. */
void endpoint_names(const struct http_head *head,
                    struct service_request_params *params);

/* The request's Content-Type; empty: none. */
struct http_slice endpoint_type(const struct http_head *head);

/* Whether it is JSON, or nothing is said. */
bool endpoint_is_json(const struct http_head *head);

/* Set *error to a 415 that says that the Content-Type must be `must`. */
void endpoint_set_type(const struct http_head *head, const char *must,
                       struct openai_error *error);

/* Set *error to a 500 that says so. */
void endpoint_set_no_memory(struct openai_error *error);

/* Set *error to a 503 that says which instances are missing, as the service
 * is not ready. */
void endpoint_set_unready(const struct front *front,
                          struct openai_error *error);

/*
 * Answer with an error.
 *   retry_us  > 0: told as Retry-After, rounded up to seconds; 0: unknown, so
 *             that 429 and 503 tell 1 s; < 0: never, and nothing is told
 */
void endpoint_reply_error(struct http_conn *conn,
                          const struct openai_error *error, int64_t retry_us);

/* front_models(models, text, size): the names of the models, then their other
 * names, as far as there is room, and whether there are more. */
void front_models(const struct models *models, char *text, size_t size);

#endif

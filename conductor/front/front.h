/*
 * The OpenAI-compatible HTTP front: routes, requests, answers.
 *
 *   POST /v1/completions  /v1/chat/completions     GET /v1/models
 *   POST /v1/schedule  /v1/schedule/done
 *   POST /query  /query_by_hash  /register  /unregister
 *   GET  /workers  /services  /global_view
 *   GET  /health  /ready  /metrics  /admin/instances  /admin/overview
 *   GET  /admin  /admin/events  /admin/history[/5m|/24h]  /admin/decisions
 *   POST /admin/reload
 *   POST /admin/instances           DELETE /admin/instances/NAME
 */
#ifndef CONDUCTOR_FRONT_FRONT_H
#define CONDUCTOR_FRONT_FRONT_H

#include <stdbool.h>

#include "conductor/front/openai/request.h"
#include "conductor/front/server/http.h"
#include "conductor/service/service.h"

struct front;
struct loop;
struct secret;

struct front_options {
    struct http_options http;
    struct openai_limits limits;
    int64_t events_us;    /* between events of /admin/events */
    int64_t keepalive_us; /* between comments in a waiting stream; 0 = none */
    /* Headers whose values are set in the bodies of engines' requests, and
     * count for native models, too. Lower case, borrowed; "" or NULL = none. */
    const char *cache_salt_header, *priority_header;
    const char *tenant_header;      /* likewise; its value names the tenant */
    const char *cors_origins;       /* origins whose pages may ask; "" or NULL =
                                       none. Borrowed while the front lives */
    const struct secret *admin_key; /* needed for changes; NULL = none. Borrowed
                                       while the front lives */
    /* POST /admin/reload: appends the result as JSON. Returns 0, or a negative
     * errno with the reason in err[SERVICE_ERROR_BYTES]. NULL = nothing to
     * reload. */
    int (*reload)(void *arg, struct text_buf *out, char *err);
    void *reload_arg;
};

/* Connections beyond max_connections, for /health, /ready and operators' paths
 * only. */
#define FRONT_RESERVE 16

/* 127.0.0.1:8080, 1,024 connections, bodies of 16 MiB and 1 GiB together,
 * heads of 16 KiB, 1 MiB unsent per client, 64 prompts a batch, 2,048 texts a
 * chat, 64 KiB beside the prompt; 75 s idle, 60 s to receive, 30 s to write;
 * events each second. */
void front_options_default(struct front_options *options);

/*
 * Start to listen and serve.
 *   loop     borrowed, outlives the front; all work happens on its loop
 *   models   borrowed, outlive the front
 *   options  borrowed until return
 * Returns 0 with *out owned by the caller; -EADDRINUSE, -EADDRNOTAVAIL,
 * -EACCES or another negative errno when it can't listen; -ENOMEM.
 */
[[nodiscard]] int front_new(struct loop *loop, struct models *models,
                            const struct front_options *options,
                            struct front **out);

/* Limit on connections to the listener for admin. */
#define FRONT_ADMIN_CONNECTIONS 64

/*
 * Also listens at host:port (port 0 = any free one), for all but prompts:
 * /admin, /metrics, the KV-indexer API, /health and /ready, which stay
 * reachable however many clients fill the first listener. From then on that one
 * has only /v1, /health and /ready. `socket`: as in struct http_options. Call
 * it once. Returns as front_new().
 */
[[nodiscard]] int front_admin(struct front *front, const char *host,
                              uint16_t port, int socket);

/* Returns the admin listener's port; 0 = none. */
uint16_t front_admin_port(const struct front *front);

/* Cancel every request, close every connection, free. NULL is a no-op. */
void front_free(struct front *front);

/* Changes these options; the old admin_key is used no more. */
void front_take(struct front *front, int64_t keepalive_us,
                const struct secret *admin_key);

/* Sets the certificate for new connections to the first listener and, with
 * `admin`, to the other one. NULL = no TLS. The front takes a reference. */
struct ssl_ctx_st;
void front_tls(struct front *front, struct ssl_ctx_st *certificate, bool admin);

/* front_expiry(front, clients_s, workers_s): sets when the certificates for
 * clients and workers expire, Unix time, for /metrics; 0 = no certificate. */
void front_expiry(struct front *front, int64_t clients_s, int64_t workers_s);

/* On true, lets new clients wait at the first listener; on false, accepts
 * them. */
void front_hold(struct front *front, bool on);

/* From now on /ready is 503; all else goes on. For load balancers that poll it
 * before front_stop(). */
void front_unready(struct front *front);

/*
 * Stops taking requests: accepts no connection, closes idle ones now and the
 * others after their next answer. Requests in flight go on; further completions
 * are answered 503 "shutting_down", and /ready is 503. A separate admin
 * listener stays open.
 *   handed_over  another process serves the same socket from now on: clients
 *                that connected to this one are served, not refused
 */
void front_stop(struct front *front, bool handed_over);

/* Returns whether nothing is left to do: no request is in flight, and every
 * answer was handed to the system. O(connections). */
bool front_drained(const struct front *front);

/* Returns the completion requests in flight. */
size_t front_in_flight(const struct front *front);

/* Returns the first listener's port. */
uint16_t front_port(const struct front *front);

#endif

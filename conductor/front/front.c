/* Checks of a request, and the front's life. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/front/cors.h"
#include "conductor/front/internal.h"
#include "conductor/front/routes.h"
#include "conductor/front/watch/watch.h"

/* After a hand-over: how long a connection without a request is kept. */
#define FRESH_US 1000000
/* Limit on all bodies together at the door for admin. */
#define ADMIN_BODY_BYTES (64 << 20)

/* Whether engines may get the request: this server has no such path, or answers
 * it for native models only. An OPTIONS for a path of prompts is a browser's
 * question whether it may POST there. */
static bool may_forward(const struct front_door *door,
                        const struct front_call *call, const char *allowed)
{
    const struct route *route = call->route;
    bool asks =
        http_is(call->head->method, "OPTIONS") && strcmp(allowed, "POST") == 0;

    return (door->serves & DOOR_PUBLIC) &&
           models_forward(door->front->models) &&
           (route ? route->serve == completion_serve : asks || !*allowed);
}

/* A slice's length for "%.*s", cut at `most`. */
static int shown(struct http_slice s, int most)
{
    return s.n < (size_t)most ? (int)s.n : most;
}

/* Adds the client's names of the request to its answer. */
static void echo_names(struct http_conn *conn, const struct http_head *head)
{
    static const char *const names[] = {"x-request-id", "traceparent"};

    for (size_t i = 0; i < 2; i++) {
        const struct http_slice *value = http_find(head, names[i]);

        if (value)
            http_pass_header(conn, &(struct http_header){
                                       {names[i], strlen(names[i])}, *value});
    }
}

/* Whether the client may have what it asks for; on false it was answered. Where
 * keys are required, prompts and other requests for engines need one. Then, and
 * at a separate admin door, /admin needs its key even to look. */
static bool may_have(const struct front_door *door, struct front_call *call,
                     enum tenant_step step)
{
    const struct route *route = call->route;
    struct http_slice path = call->head->path;
    bool keyed = models_need_keys(door->front->models);

    if (route && route->serve == watch_page)
        return true; /* its events need the key */
    if (door->serves == DOOR_ADMIN)
        return !door->front->options.admin_key ||
               !http_begins(path, "/admin/") || admin_may_change(call);
    if (keyed && route && route->doors == DOOR_ADMIN)
        return admin_may_change(call);
    if (route && route->doors != DOOR_PUBLIC && !http_begins(path, "/v1/"))
        return true;
    /* Reports of an end are not limited: they make room for others. */
    if (!http_is(call->head->method, "POST") ||
        (route && route->serve == schedule_done))
        step = TENANT_LOOKS;
    return client_may_ask(call, step);
}

/* Whether the route's handler takes the request; on false it was answered.
 * `allowed`: as routes_find() says. */
static bool may_serve(const struct front_call *call, const char *allowed)
{
    const struct http_head *head = call->head;
    const struct route *route = call->route;
    struct openai_error error;

    if (!route && !*allowed) {
        routes_set_unknown(call, "", &error);
    } else if (!route) {
        http_add_header(call->conn, "Allow", allowed);
        openai_error_set(&error, 405, "method_not_allowed", NULL,
                         "method: \"%.*s\": must be one of %s for \"%.*s\"",
                         shown(head->method, 20), head->method.at, allowed,
                         shown(head->path, 100), head->path.at);
    } else if (http_is(head->method, "POST") && !route->types &&
               !endpoint_is_json(head)) {
        endpoint_set_type(head, "application/json, or left out", &error);
    } else {
        return true;
    }
    http_reply_error(call->conn, &error);
    return false;
}

/* Before a body is read: checks the client and the path. */
static bool on_head(void *arg, struct http_conn *conn,
                    const struct http_head *head)
{
    char allowed[32];
    const struct front_door *door = arg;
    const struct route *route = routes_find(head, door->serves, allowed);
    struct front_call call = {
        .front = door->front, .conn = conn, .head = head, .route = route};

    http_note(conn, route);
    echo_names(conn, head);
    if ((door->serves & DOOR_PUBLIC) && routes_public(head->path) &&
        cors_answer(&call))
        return false;
    if (!may_have(door, &call, TENANT_BEGINS))
        return false;
    return may_forward(door, &call, allowed) ? forward_may_pass(&call)
                                             : may_serve(&call, allowed);
}

/* Lets pages read the server's own refusals, too. */
static void on_early(void *arg, struct http_conn *conn,
                     const struct http_head *known)
{
    const struct front_door *door = arg;
    struct front_call call = {
        .front = door->front, .conn = conn, .head = known};

    if ((door->serves & DOOR_PUBLIC) && routes_public(known->path))
        cors_tell_early(&call);
}

/* Whether a JSON body begins with a byte order mark; then it was answered. No
 * JSON does (RFC 8259, 8.1), and its model cannot be read. */
static bool has_mark(const struct front_call *call)
{
    struct http_slice body = {call->body, call->n};

    if (!http_begins(body, "\xef\xbb\xbf") || !endpoint_is_json(call->head))
        return false;
    http_refuse(call->conn, 400, "invalid_json", NULL,
                "the body isn't valid JSON at byte 0: a byte order mark: "
                "must be left out");
    return true;
}

static void on_request(void *arg, struct http_conn *conn,
                       const struct http_head *head, const char *body, size_t n)
{
    char allowed[32] = "";
    const struct front_door *door = arg;
    struct front_call call = {
        .front = door->front,
        .conn = conn,
        .head = head,
        .body = body,
        .n = n,
        .route = http_noted(conn), /* as on_head() has found it */
    };

    if (!call.route)
        (void)routes_find(head, door->serves, allowed);
    /* Checked again: since on_head() there may have been a reload, or other
     * requests of the tenant. */
    if (!may_have(door, &call, TENANT_GOES_ON) || has_mark(&call) ||
        (may_forward(door, &call, allowed) && forward_serve(&call)))
        return;
    if (may_serve(&call, allowed))
        call.route->serve(&call);
}

static bool on_urgent(void *arg, const struct http_head *head)
{
    char allowed[32];
    const struct front_door *door = arg;
    const struct route *route = routes_find(head, door->serves, allowed);

    return route && route->doors != DOOR_PUBLIC &&
           !http_begins(head->path, "/v1/");
}

/* The access log has requests to models, not requests of operators. */
static void on_refused(void *arg, struct http_conn *conn,
                       const struct http_head *head,
                       const struct openai_error *error)
{
    char allowed[32];
    const struct front_door *door = arg;
    const struct route *route =
        head ? routes_find(head, DOOR_BOTH, allowed) : NULL;

    if (!route || route->doors != DOOR_ADMIN)
        client_refused(door->front, conn, head, error);
}

static const struct http_handlers handlers = {on_head, on_early, on_request,
                                              on_urgent, on_refused};

void front_options_default(struct front_options *options)
{
    *options = (struct front_options){
        .http = {.host = "127.0.0.1",
                 .port = 8080,
                 .max_connections = 1024,
                 .reserve = FRONT_RESERVE,
                 .max_head_bytes = 16384,
                 .max_body_bytes = 16 << 20,
                 .max_body_total_bytes = 1 << 30,
                 .max_output_bytes = 1 << 20,
                 .max_output_total_bytes = 256 << 20,
                 .idle_us = 75000000,
                 .receive_us = 60000000,
                 .write_us = 30000000},
        .limits = {.max_prompts = 64,
                   .max_messages = 2048,
                   .max_rest_bytes = 64 << 10,
                   .max_rest_values = 8192},
        .events_us = 1000000,
    };
}

/* Opens a listener for the doors in `serves`. Returns 0 or a negative errno. */
static int open_door(struct front *front, struct front_door *door,
                     const struct http_options *options, unsigned serves)
{
    door->front = front;
    door->serves = serves;
    return http_server_new(front->loop, options, &handlers, door,
                           &door->server);
}

int front_new(struct loop *loop, struct models *models,
              const struct front_options *options, struct front **out)
{
    struct front *front = calloc(1, sizeof(*front));
    int rc;

    if (!front)
        return -ENOMEM;
    front->models = models;
    front->native = models_native(models);
    front->options = *options;
    front->loop = loop;
    metrics_init_scrapes(front);
    rc = open_door(front, &front->door, &options->http, DOOR_BOTH);
    if (rc) {
        free(front);
        return rc;
    }
    *out = front;
    return 0;
}

int front_admin(struct front *front, const char *host, uint16_t port,
                int socket)
{
    struct http_options options = front->options.http;
    int rc;

    options.host = host;
    options.port = port;
    options.socket = socket;
    options.max_connections = FRONT_ADMIN_CONNECTIONS;
    options.reserve = 0;
    options.max_body_total_bytes = ADMIN_BODY_BYTES;
    rc = open_door(front, &front->admin, &options, DOOR_ADMIN);
    if (rc == 0)
        front->door.serves = DOOR_PUBLIC;
    return rc;
}

void front_free(struct front *front)
{
    if (!front)
        return;
    /* The gone callbacks of the connections end every completion. */
    http_server_free(front->admin.server);
    http_server_free(front->door.server);
    loop_timer_stop(&front->scrapes.turn);
    watch_free(front->watch);
    free(front);
}

void front_take(struct front *front, int64_t keepalive_us,
                const struct secret *admin_key)
{
    front->options.keepalive_us = keepalive_us;
    front->options.admin_key = admin_key;
}

void front_tls(struct front *front, struct ssl_ctx_st *certificate, bool admin)
{
    http_server_tls(front->door.server, certificate);
    if (front->admin.server)
        http_server_tls(front->admin.server, admin ? certificate : NULL);
}

void front_expiry(struct front *front, int64_t clients_s, int64_t workers_s)
{
    front->clients_expire_s = clients_s;
    front->workers_expire_s = workers_s;
}

void front_hold(struct front *front, bool on)
{
    http_server_hold(front->door.server, on);
}

void front_unready(struct front *front)
{
    front->unready = true;
}

void front_stop(struct front *front, bool handed_over)
{
    front->unready = true;
    front->draining = !handed_over;
    if (!front->admin.server)
        watch_close_all(front->watch);
    http_server_drain(front->door.server, handed_over ? FRESH_US : 0);
}

bool front_drained(const struct front *front)
{
    return front->in_flight == 0 && !http_server_busy(front->door.server);
}

size_t front_in_flight(const struct front *front)
{
    return front->in_flight;
}

uint16_t front_port(const struct front *front)
{
    return http_server_port(front->door.server);
}

uint16_t front_admin_port(const struct front *front)
{
    return front->admin.server ? http_server_port(front->admin.server) : 0;
}

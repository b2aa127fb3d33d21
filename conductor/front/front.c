/* Routes, and the front's life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/internal.h"

/* JSON, or nothing said about the type. */
static bool is_json(const struct http_head *head)
{
    const struct http_slice *type = http_find(head, "content-type");
    struct http_slice media;
    const char *semicolon;

    if (!type)
        return true;
    media = *type;
    semicolon = memchr(media.at, ';', media.n);
    if (semicolon)
        media.n = (size_t)(semicolon - media.at);
    while (media.n &&
           (media.at[media.n - 1] == ' ' || media.at[media.n - 1] == '\t'))
        media.n--;
    return http_is_fold(media, "application/json");
}

static const struct route {
    const char *path; /* the whole, or up to its last '/' */
    bool post;        /* else GET, and with it HEAD */
    front_serve_fn *serve;
    enum openai_kind kind;
} routes[] = {
    {VIEW_EXPLAIN_PATH, false, view_explain, 0},
    {"/v1/completions", true, completion_serve, OPENAI_COMPLETION},
    {"/v1/chat/completions", true, completion_serve, OPENAI_CHAT},
    {"/v1/models", false, view_models, 0},
    {VIEW_MODEL_PATH, false, view_model, 0},
    {"/health", false, view_health, 0},
    {"/ready", false, view_ready, 0},
    {"/metrics", false, view_metrics, 0},
};

static const struct route *find_route(struct http_slice path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        size_t n = strlen(routes[i].path);
        bool open = routes[i].path[n - 1] == '/';

        if (http_is(path, routes[i].path) ||
            (open && path.n > n && memcmp(path.at, routes[i].path, n) == 0))
            return &routes[i];
    }
    return NULL;
}

/* A slice's length for "%.*s", cut at `most`. */
static int shown(struct http_slice s, int most)
{
    return s.n < (size_t)most ? (int)s.n : most;
}

static void on_request(void *arg, struct http_conn *conn,
                       const struct http_head *head, const char *body, size_t n)
{
    const struct route *route = find_route(head->path);
    const struct front *front = arg;
    const struct front_call call = {
        arg, conn, head, body, n, route ? route->kind : OPENAI_COMPLETION};
    struct openai_error error;
    bool allowed = route && (route->post ? http_is(head->method, "POST")
                                         : http_is(head->method, "GET") ||
                                               http_is(head->method, "HEAD"));

    if (models_forward(front->models) && http_is(head->method, "POST") &&
        is_json(head) && (!route || route->post) && forward_serve(&call))
        return;
    if (!route) {
        openai_error_set(&error, 404, "unknown_path", NULL,
                         "there is nothing at '%.*s'", shown(head->path, 100),
                         head->path.at);
    } else if (!allowed) {
        http_add_header(conn, "Allow", route->post ? "POST" : "GET, HEAD");
        openai_error_set(&error, 405, "method_not_allowed", NULL,
                         "'%.*s' is not a method of '%s'",
                         shown(head->method, 20), head->method.at, route->path);
    } else if (route->post && !is_json(head)) {
        const struct http_slice *type = http_find(head, "content-type");

        openai_error_set(&error, 415, "unsupported_media_type", NULL,
                         "header 'Content-Type' is '%.*s': it must be "
                         "application/json, or left out",
                         shown(*type, 100), type->at);
    } else {
        route->serve(&call);
        return;
    }
    http_reply_error(conn, &error);
}

void front_options_default(struct front_options *options)
{
    *options = (struct front_options){
        .http = {.host = "127.0.0.1",
                 .port = 8080,
                 .max_connections = 1024,
                 .max_head_bytes = 16384,
                 .max_body_bytes = 16 << 20,
                 .max_body_total_bytes = 1 << 30,
                 .max_output_bytes = 1 << 20,
                 .idle_us = 75000000,
                 .receive_us = 60000000,
                 .write_us = 30000000},
        .limits = {.max_prompts = 64,
                   .max_messages = 2048,
                   .max_rest_bytes = 64 << 10},
    };
}

int front_new(struct event_base *base, struct models *models,
              const struct front_options *options, struct front **out)
{
    struct front *front = calloc(1, sizeof(*front));
    int rc;

    if (!front)
        return -ENOMEM;
    front->models = models;
    front->native = models_native(models);
    front->options = *options;
    rc = http_server_new(base, &options->http, on_request, front,
                         &front->server);
    if (rc) {
        free(front);
        return rc;
    }
    *out = front;
    return 0;
}

void front_free(struct front *front)
{
    if (!front)
        return;
    /* The gone callbacks of the connections end every completion. */
    http_server_free(front->server);
    free(front);
}

void front_stop(struct front *front)
{
    front->draining = true;
    http_server_drain(front->server);
}

bool front_drained(const struct front *front)
{
    return front->in_flight == 0 && !http_server_busy(front->server);
}

size_t front_in_flight(const struct front *front)
{
    return front->in_flight;
}

uint16_t front_port(const struct front *front)
{
    return http_server_port(front->server);
}

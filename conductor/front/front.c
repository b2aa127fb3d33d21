/* Routes and the small endpoints. */
#include "conductor/front/front_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>

#include "conductor/front/openai_reply.h"

#define MAX_SLO_MS 86400000.0
#define DEFAULT_RETRY_US 1000000

typedef void route_fn(struct front *front, struct http_conn *conn,
                      const struct http_head *head, const char *body, size_t n);

void front_reply_error(struct http_conn *conn, const struct openai_error *error,
                       int64_t retry_us)
{
    char seconds[24];

    if (retry_us == 0 &&
        (error->http_status == 429 || error->http_status == 503))
        retry_us = DEFAULT_RETRY_US;
    if (retry_us > 0) {
        snprintf(seconds, sizeof(seconds), "%" PRId64,
                 (retry_us - 1) / 1000000 + 1);
        http_add_header(conn, "Retry-After", seconds);
    }
    http_reply_error(conn, error);
}

int front_slo_header(const struct http_head *head, const char *name,
                     int64_t *us, struct openai_error *error)
{
    const struct http_slice *value = http_find(head, name);
    char text[32], *end = text;
    double ms = 0;

    if (!value) {
        *us = 0;
        return 0;
    }
    if (value->n < sizeof(text)) {
        memcpy(text, value->at, value->n);
        text[value->n] = '\0';
        if (strspn(text, "0123456789.") == value->n)
            ms = strtod(text, &end);
    }
    if (value->n >= sizeof(text) || end == text || *end ||
        !(ms >= 0.001 && ms <= MAX_SLO_MS)) {
        openai_error_set(error, 400, "invalid_value", name,
                         "header '%s' is '%.*s': it must be a number of "
                         "milliseconds from 0.001 to 86400000",
                         name, value->n < 40 ? (int)value->n : 40, value->at);
        return -EINVAL;
    }
    *us = (int64_t)(ms * 1000.0 + 0.5);
    return 0;
}

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

static void completions(struct front *front, struct http_conn *conn,
                        const struct http_head *head, const char *body,
                        size_t n)
{
    completion_start(front, conn, OPENAI_COMPLETION, head, body, n);
}

static void chat_completions(struct front *front, struct http_conn *conn,
                             const struct http_head *head, const char *body,
                             size_t n)
{
    completion_start(front, conn, OPENAI_CHAT, head, body, n);
}

static void reply_buf(struct http_conn *conn, int status, const char *type,
                      struct text_buf *buf)
{
    struct openai_error error;

    if (buf->error) {
        openai_error_set(&error, 500, "out_of_memory", NULL, "out of memory");
        http_reply_error(conn, &error);
    } else {
        http_reply(conn, status, type, buf->data, buf->len);
    }
    text_buf_fini(buf);
}

static void models(struct front *front, struct http_conn *conn,
                   const struct http_head *head, const char *body, size_t n)
{
    const struct service_model_info *info = service_model(front->service);
    const struct openai_model_card card = {.name = info->name,
                                           .created_s = info->created_s,
                                           .vocab = info->vocab,
                                           .window_tokens = info->window_tokens,
                                           .block_tokens = info->block_tokens,
                                           .policy = info->policy};
    struct text_buf buf;

    (void)head;
    (void)body;
    (void)n;
    text_buf_init(&buf, 65536);
    openai_models_write(&card, &buf);
    reply_buf(conn, 200, "application/json", &buf);
}

static void ready(struct front *front, struct http_conn *conn,
                  const struct http_head *head, const char *body, size_t n)
{
    bool yes = service_ready(front->service) && !front->draining;
    const char *text = yes ? "{\"ready\":true}\n" : "{\"ready\":false}\n";

    (void)head;
    (void)body;
    (void)n;
    http_reply(conn, yes ? 200 : 503, "application/json", text, strlen(text));
}

/* Answer with what `write` appends to an evbuffer. */
static void reply_written(struct front *front, struct http_conn *conn,
                          const char *type,
                          int (*write)(struct front *, struct evbuffer *))
{
    struct evbuffer *buf = evbuffer_new();
    struct openai_error error;
    const unsigned char *bytes;

    if (!buf || write(front, buf)) {
        openai_error_set(&error, 500, "out_of_memory", NULL, "out of memory");
        http_reply_error(conn, &error);
    } else {
        bytes = evbuffer_pullup(buf, -1);
        http_reply(conn, 200, type, bytes, evbuffer_get_length(buf));
    }
    if (buf)
        evbuffer_free(buf);
}

static int write_health(struct front *front, struct evbuffer *out)
{
    return service_health(front->service, out);
}

static int write_metrics(struct front *front, struct evbuffer *out)
{
    const struct http_stats *s = http_server_stats(front->server);
    int rc = service_metrics(front->service, out);

    if (rc)
        return rc;
    evbuffer_add_printf(
        out,
        "# HELP conductor_http_connections Client connections open.\n"
        "# TYPE conductor_http_connections gauge\n"
        "conductor_http_connections %zu\n"
        "# HELP conductor_http_in_flight Completion requests in work.\n"
        "# TYPE conductor_http_in_flight gauge\n"
        "conductor_http_in_flight %zu\n"
        "# HELP conductor_http_connections_total Connections accepted.\n"
        "# TYPE conductor_http_connections_total counter\n"
        "conductor_http_connections_total %" PRIu64 "\n"
        "# HELP conductor_http_refused_total Connections over the limit.\n"
        "# TYPE conductor_http_refused_total counter\n"
        "conductor_http_refused_total %" PRIu64 "\n",
        s->connections, front->in_flight, s->accepted, s->refused);
    evbuffer_add_printf(
        out,
        "# HELP conductor_http_gone_total Clients that left before their "
        "answer.\n"
        "# TYPE conductor_http_gone_total counter\n"
        "conductor_http_gone_total %" PRIu64 "\n"
        "# HELP conductor_http_slow_total Clients cut off for reading too "
        "slowly.\n"
        "# TYPE conductor_http_slow_total counter\n"
        "conductor_http_slow_total %" PRIu64 "\n"
        "# HELP conductor_http_body_bytes Bodies being received.\n"
        "# TYPE conductor_http_body_bytes gauge\n"
        "conductor_http_body_bytes %zu\n"
        "# HELP conductor_http_bodies_refused_total Bodies refused as all "
        "together were too large.\n"
        "# TYPE conductor_http_bodies_refused_total counter\n"
        "conductor_http_bodies_refused_total %" PRIu64 "\n"
        "# HELP conductor_http_responses_total Answers by class of status.\n"
        "# TYPE conductor_http_responses_total counter\n",
        s->gone, s->slow, s->body_bytes, s->bodies_refused);
    for (int i = 2; i <= 5; i++)
        evbuffer_add_printf(out,
                            "conductor_http_responses_total{class=\"%dxx\"} "
                            "%" PRIu64 "\n",
                            i, s->by_class[i]);
    return 0;
}

static void health(struct front *front, struct http_conn *conn,
                   const struct http_head *head, const char *body, size_t n)
{
    (void)head;
    (void)body;
    (void)n;
    reply_written(front, conn, "application/json", write_health);
}

static void metrics(struct front *front, struct http_conn *conn,
                    const struct http_head *head, const char *body, size_t n)
{
    (void)head;
    (void)body;
    (void)n;
    reply_written(front, conn, "text/plain; version=0.0.4; charset=utf-8",
                  write_metrics);
}

#define EXPLAIN_PATH "/admin/explain/"

/* Why a request went where it went: the path ends in its id. */
static void explain(struct front *front, struct http_conn *conn,
                    const struct http_head *head, const char *body, size_t n)
{
    char id[64] = "";
    size_t id_bytes = head->path.n - strlen(EXPLAIN_PATH);
    struct evbuffer *buf = evbuffer_new();
    struct openai_error error;
    int rc = -ENOENT;

    (void)body;
    (void)n;
    if (id_bytes < sizeof(id))
        memcpy(id, head->path.at + strlen(EXPLAIN_PATH), id_bytes);
    if (!buf)
        rc = -ENOMEM;
    else if (id[0])
        rc = service_explain(front->service, id, buf);
    if (rc == 0) {
        http_reply(conn, 200, "application/json", evbuffer_pullup(buf, -1),
                   evbuffer_get_length(buf));
    } else {
        if (rc == -ENOENT)
            openai_error_set(&error, 404, "unknown_request", NULL,
                             "nothing is known of request '%.*s', or not any "
                             "more",
                             id_bytes < 40 ? (int)id_bytes : 40,
                             head->path.at + strlen(EXPLAIN_PATH));
        else
            openai_error_set(&error, 500, "out_of_memory", NULL,
                             "out of memory");
        http_reply_error(conn, &error);
    }
    if (buf)
        evbuffer_free(buf);
}

static const struct route {
    const char *path; /* the whole, or up to its last '/' */
    bool post;        /* else GET, and with it HEAD */
    route_fn *serve;
} routes[] = {
    {EXPLAIN_PATH, false, explain},
    {"/v1/completions", true, completions},
    {"/v1/chat/completions", true, chat_completions},
    {"/v1/models", false, models},
    {"/health", false, health},
    {"/ready", false, ready},
    {"/metrics", false, metrics},
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
    struct openai_error error;
    bool allowed = route && (route->post ? http_is(head->method, "POST")
                                         : http_is(head->method, "GET") ||
                                               http_is(head->method, "HEAD"));

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
        openai_error_set(&error, 415, "unsupported_media_type", NULL,
                         "the body must be application/json");
    } else {
        route->serve(arg, conn, head, body, n);
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
                   .max_messages = 8192,
                   .max_rest_bytes = 1 << 20},
    };
}

int front_new(struct event_base *base, struct service *service,
              const struct front_options *options, struct front **out)
{
    struct front *front = calloc(1, sizeof(*front));
    int rc;

    if (!front)
        return -ENOMEM;
    front->service = service;
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

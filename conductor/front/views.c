/* What can be looked at: the model, health, readiness, metrics, and why a
 * request went where it went. */
#include <errno.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <string.h>

#include "conductor/front/internal.h"
#include "conductor/front/openai/reply.h"

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

static struct openai_model_card card_of(const struct front *front)
{
    const struct service_model_info *info = service_model(front->service);

    return (struct openai_model_card){.name = info->name,
                                      .created_s = info->created_s,
                                      .vocab = info->vocab,
                                      .window_tokens = info->window_tokens,
                                      .block_tokens = info->block_tokens,
                                      .policy = info->policy};
}

void view_models(struct front *front, struct http_conn *conn,
                 const struct http_head *head, const char *body, size_t n)
{
    const struct openai_model_card card = card_of(front);
    struct text_buf buf;

    (void)head;
    (void)body;
    (void)n;
    text_buf_init(&buf, 65536);
    openai_models_write(&card, &buf);
    reply_buf(conn, 200, "application/json", &buf);
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Whether part of a path, where bytes may stand as "%2F", names `text`. */
static bool names(const char *at, size_t n, const char *text)
{
    size_t i = 0;

    for (; i < n && *text; i++, text++) {
        int high = at[i] == '%' && n - i > 2 ? hex_of(at[i + 1]) : -1;
        int low = high >= 0 ? hex_of(at[i + 2]) : -1;
        int byte = low >= 0 ? high * 16 + low : (unsigned char)at[i];

        if (byte != (unsigned char)*text)
            return false;
        i += low >= 0 ? 2 : 0;
    }
    return i == n && !*text;
}

void view_model(struct front *front, struct http_conn *conn,
                const struct http_head *head, const char *body, size_t n)
{
    const struct openai_model_card card = card_of(front);
    const char *name = head->path.at + strlen(VIEW_MODEL_PATH);
    size_t name_bytes = head->path.n - strlen(VIEW_MODEL_PATH);
    struct openai_error error;
    struct text_buf buf;

    (void)body;
    (void)n;
    if (!names(name, name_bytes, card.name)) {
        openai_error_set(&error, 404, "model_not_found", "model",
                         "model '%.*s' does not exist; this server has '%s'",
                         name_bytes < 100 ? (int)name_bytes : 100, name,
                         card.name);
        http_reply_error(conn, &error);
        return;
    }
    text_buf_init(&buf, 65536);
    openai_model_write(&card, &buf);
    reply_buf(conn, 200, "application/json", &buf);
}

void view_ready(struct front *front, struct http_conn *conn,
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

void view_health(struct front *front, struct http_conn *conn,
                 const struct http_head *head, const char *body, size_t n)
{
    (void)head;
    (void)body;
    (void)n;
    reply_written(front, conn, "application/json", write_health);
}

void view_metrics(struct front *front, struct http_conn *conn,
                  const struct http_head *head, const char *body, size_t n)
{
    (void)head;
    (void)body;
    (void)n;
    reply_written(front, conn, "text/plain; version=0.0.4; charset=utf-8",
                  write_metrics);
}

/* Why a request went where it went: the path ends in its id. */
void view_explain(struct front *front, struct http_conn *conn,
                  const struct http_head *head, const char *body, size_t n)
{
    char id[64] = "";
    size_t id_bytes = head->path.n - strlen(VIEW_EXPLAIN_PATH);
    struct evbuffer *buf = evbuffer_new();
    struct openai_error error;
    int rc = -ENOENT;

    (void)body;
    (void)n;
    if (id_bytes < sizeof(id))
        memcpy(id, head->path.at + strlen(VIEW_EXPLAIN_PATH), id_bytes);
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
                             head->path.at + strlen(VIEW_EXPLAIN_PATH));
        else
            openai_error_set(&error, 500, "out_of_memory", NULL,
                             "out of memory");
        http_reply_error(conn, &error);
    }
    if (buf)
        evbuffer_free(buf);
}

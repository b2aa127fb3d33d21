/* What the server itself refuses: the connection ends, as nobody knows where
 * the request does. */
#include "base/clock.h"
#include "conductor/front/http/internal.h"

/* The headers of any answer, if the handler has not set them. Of a head that is
 * not whole, or wrong, the lines before count. */
static void add_early(struct http_conn *conn)
{
    const struct http_server *server = conn->server;
    struct http_head known;
    struct http_fault fault;
    size_t n;
    const char *in = stream_input(conn->stream, &n);

    if (conn->told)
        return;
    if (conn->has_head) {
        server->handlers->early(server->arg, conn, &conn->head);
        return;
    }
    if (n > server->options.max_head_bytes)
        n = server->options.max_head_bytes;
    (void)!http_parse_head(in, n, &known, &fault);
    server->handlers->early(server->arg, conn, &known);
}

void http_conn_refuse(struct http_conn *conn, int status, const char *code,
                      const char *message)
{
    struct openai_error error;

    http_turn_request(conn);
    add_early(conn);
    conn->head_only = false;
    if (status == 501 || status == 505) /* else a client might try again */
        http_add_header(conn, "x-should-retry", "false");
    openai_error_set(&error, status, code, NULL, "%s", message);
    conn->close = true;
    http_conn_set_state(conn, HTTP_HANDLING);
    http_reply_error(conn, &error);
}

void http_conn_refuse_body(struct http_conn *conn)
{
    struct openai_error error;

    openai_error_set(&error, 413, "body_too_large", NULL,
                     "the body is larger than %zu bytes",
                     conn->server->options.max_body_bytes);
    add_early(conn);
    conn->close = true;
    http_conn_set_state(conn, HTTP_HANDLING);
    http_reply_error(conn, &error);
}

/* The client may come again in a second. */
static void refuse_for_now(struct http_conn *conn, const char *code,
                           const char *message)
{
    http_add_header(conn, "Retry-After", "1");
    http_add_header(conn, "retry-after-ms", "1000");
    http_conn_refuse(conn, 503, code, message);
}

void http_conn_refuse_for_now(struct http_conn *conn)
{
    conn->server->stats.bodies_refused++;
    refuse_for_now(
        conn, "too_many_body_bytes",
        "the bodies of the requests being received take all the memory "
        "that is there for them");
}

void http_conn_refuse_crowded(struct http_conn *conn)
{
    conn->server->stats.refused++;
    refuse_for_now(conn, "too_many_connections", "too many connections");
}

void http_conn_refuse_stopping(struct http_conn *conn)
{
    if (conn->state == HTTP_HEAD && !conn->receiving) {
        http_conn_begin(conn);
        conn->read_us = clock_now_us();
    }
    refuse_for_now(
        conn, "shutting_down",
        "the server is shutting down, and the request had not come whole");
}

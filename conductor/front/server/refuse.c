/* The server's own refusals: the connection ends, as nobody knows where the
 * request does. */
#include <stdio.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "conductor/front/server/internal.h"

#define TAKEN_BYTES 2048
/* Bytes of headers: an Origin from the request, and a little more. */
#define EARLY_BYTES 4096

/* Adds the headers of every answer, unless the handler did. Of an incomplete or
 * wrong head the lines before the fault count. */
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
    /* Members of a faulty head are known up to the fault. */
    (void)!http_parse_head(in, n, &known, &fault);
    server->handlers->early(server->arg, conn, &known);
}

void http_conn_refuse(struct http_conn *conn, int status, const char *code,
                      const char *message)
{
    http_turn_request(conn);
    add_early(conn);
    if (!conn->has_head) /* it is the last request's */
        conn->head_only = false;
    if (status == 501 || status == 505) /* else a client might try again */
        http_add_header(conn, "x-should-retry", "false");
    conn->close = true;
    http_conn_set_state(conn, HTTP_HANDLING);
    http_refuse(conn, status, code, NULL, "%s", message);
}

void http_conn_refuse_body(struct http_conn *conn)
{
    char text[64];

    snprintf(text, sizeof(text), "the body is larger than %zu bytes",
             conn->server->options.max_body_bytes);
    http_conn_refuse(conn, 413, "body_too_large", text);
}

void http_conn_refuse_for_now(struct http_conn *conn, const char *code,
                              const char *message)
{
    http_add_header(conn, "Retry-After", "1");
    http_add_header(conn, "retry-after-ms", "1000");
    http_conn_refuse(conn, 503, code, message);
}

/* Reads what has come of the first request: a socket that is closed with unread
 * bytes is reset, and its answer may be lost. */
static void take_head(struct loop *loop, int fd, char in[TAKEN_BYTES],
                      struct http_head *known)
{
    ssize_t n = net_read(loop, fd, in, TAKEN_BYTES);
    struct http_fault fault;

    /* The head may have come in part. */
    (void)!http_parse_head(in, n > 0 ? (size_t)n : 0, known, &fault);
}

void http_turn_away(struct http_server *server, int fd)
{
    static const char form[] =
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/json\r\n"
        "Content-Length: 109\r\n"
        "Retry-After: 1\r\n"
        "retry-after-ms: 1000\r\n"
        "Connection: close\r\n"
        "%.*s\r\n"
        "{\"error\":{\"message\":\"too many connections\","
        "\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"too_many_connections\"}}";
    struct http_conn conn = {.server = server}; /* only for its headers */
    char in[TAKEN_BYTES], reply[sizeof(form) + EARLY_BYTES];
    struct http_head known;

    server->stats.refused++;
    if (server->certificate) { /* a client that speaks TLS cannot read it */
        net_close(server->loop, fd);
        return;
    }
    text_buf_init(&conn.extra, EARLY_BYTES);
    take_head(server->loop, fd, in, &known);
    server->handlers->early(server->arg, &conn, &known);
    int n = snprintf(reply, sizeof(reply), form, (int)conn.extra.len,
                     conn.extra.len ? conn.extra.data : "");
    text_buf_fini(&conn.extra);
    /* A new socket's buffer has room; if not, closing says enough. */
    (void)!net_write(server->loop, fd, &(struct iovec){reply, (size_t)n}, 1);
    net_shut(server->loop, fd);
    net_close(server->loop, fd);
}

void http_conn_refuse_stopping(struct http_conn *conn)
{
    if (conn->state == HTTP_HEAD && !conn->receiving) {
        http_conn_begin(conn);
        conn->read_us = loop_now_us(conn->server->loop);
    }
    http_conn_refuse_for_now(
        conn, "shutting_down",
        "the server is shutting down, and the request had not arrived "
        "completely");
}

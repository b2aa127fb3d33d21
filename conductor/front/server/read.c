/* Drives a connection: reads heads and bodies, hands requests over, and goes on
 * with the next one when the answer has left. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/certificate.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "conductor/front/server/internal.h"

/* An engine's whole head, and our own headers. */
#define MAX_EXTRA_BYTES 131072
#define READ_AHEAD_BYTES 65536
/* A connection of the reserve is for one short question. */
#define RESERVE_US 5000000

/* The time limit us, or less for a connection of the reserve. */
static int64_t patience(const struct http_conn *conn, int64_t us)
{
    return conn->client == &conn->server->reserve && us > RESERVE_US
               ? RESERVE_US
               : us;
}

int64_t http_arrived_us(const struct http_conn *conn)
{
    return conn->read_us;
}

/* Hands over a whole request. Its body is freed when the handler returns,
 * unless kept, since the answer may take minutes. */
static void handle(struct http_conn *conn)
{
    http_conn_set_state(conn, HTTP_HANDLING);
    conn->used = true;
    conn->keep_body = false;
    http_conn_arm(conn, 0);
    conn->server->stats.requests++;
    http_turn_request(conn);
    conn->server->handlers->request(conn->server->arg, conn, &conn->head,
                                    conn->body.len ? conn->body.data : "",
                                    conn->body.len);
    if (!conn->keep_body || conn->state != HTTP_HANDLING)
        http_conn_drop_body(conn);
}

/* Keeps the head's bytes while its request lasts, and points into them. */
static int keep_head(struct http_conn *conn, size_t n)
{
    size_t have;
    const char *in = stream_input(conn->stream, &have);

    if (n > conn->head_room) {
        free(conn->head_bytes);
        conn->head_bytes = malloc(n);
        conn->head_room = conn->head_bytes ? n : 0;
    }
    if (!conn->head_bytes)
        return -ENOMEM;
    memcpy(conn->head_bytes, in, n);
    http_head_move(&conn->head, in, n, conn->head_bytes);
    stream_use(conn->stream, n);
    return 0;
}

/* Asks the handler whether a request may go on after its head. If not it was
 * answered, and its body is never read as another request: it is dropped if all
 * of it is here, else the connection ends. */
static bool may_go_on(struct http_conn *conn)
{
    const struct http_server *server = conn->server;
    size_t n =
        conn->head.content_length > 0 ? (size_t)conn->head.content_length : 0;
    bool here = !conn->head.chunked && n <= stream_unused(conn->stream);
    bool close = conn->close;

    http_conn_set_state(conn, HTTP_HANDLING);
    conn->told = true;
    conn->close = close || !here;
    if (server->handlers->head(server->arg, conn, &conn->head)) {
        http_conn_set_state(conn, HTTP_BODY);
        conn->close = close;
        return true;
    }
    if (here)
        stream_use(conn->stream, n);
    http_turn_request(conn);
    return false;
}

/* Returns whether there may be more to do. */
static bool read_head(struct http_conn *conn)
{
    const struct http_options *options = &conn->server->options;
    size_t have;
    const char *in = stream_input(conn->stream, &have);
    size_t look =
        have < options->max_head_bytes ? have : options->max_head_bytes;
    struct http_fault fault;
    long n;

    if (have == 0)
        return false;
    if (!conn->receiving)
        http_conn_begin(conn);
    http_turn_look(conn, look);
    n = http_parse_head(in, look, &conn->head, &fault);
    if (n == 0 && have > look)
        http_conn_refuse(conn, 431, "head_too_large",
                         "the request's head is too large");
    else if (n < 0)
        http_conn_refuse(conn, fault.status, "invalid_http", fault.message);
    if (n <= 0)
        return false;
    if (keep_head(conn, (size_t)n)) {
        http_conn_die(conn);
        return false;
    }
    conn->receiving = false;
    conn->has_head = true;
    conn->head_only = http_is(conn->head.method, "HEAD");
    conn->close = !conn->head.keep_alive;
    conn->chunked = (struct http_chunked){0};
    text_buf_clear(&conn->body);
    http_conn_set_state(conn, HTTP_BODY);
    if (conn->head.content_length > (int64_t)options->max_body_bytes) {
        http_conn_refuse_body(conn);
        return false;
    }
    if (conn->client == &conn->server->reserve) {
        conn->close = true;
        if (!conn->server->handlers->urgent(conn->server->arg, &conn->head)) {
            conn->server->stats.refused++;
            http_conn_refuse_for_now(conn, "too_many_connections",
                                     "too many connections");
            return false;
        }
    }
    if (!may_go_on(conn))
        return false;
    if (conn->head.expect_continue && have == (size_t)n &&
        stream_write(conn->stream, "HTTP/1.1 100 Continue\r\n\r\n", 25)) {
        http_conn_die(conn);
        return false;
    }
    return true;
}

static void read_body(struct http_conn *conn)
{
    int rc = http_body_read(conn);

    if (rc == -ENOBUFS)
        http_conn_refuse_body(conn);
    else if (rc == -EDQUOT) {
        conn->server->stats.bodies_refused++;
        http_conn_refuse_for_now(
            conn, "too_many_body_bytes",
            "the request bodies being received use all of their memory "
            "(max_body_total_bytes)");
    } else if (rc == -EBADMSG)
        http_conn_refuse(conn, 400, "invalid_http",
                         "the chunked body is malformed");
    else if (rc < 0)
        http_conn_die(conn);
    else if (rc > 0)
        handle(conn);
}

/* Discards input after the last answer. */
static void discard(struct http_conn *conn)
{
    size_t n = stream_unused(conn->stream);

    stream_use(conn->stream, n);
    conn->discarded += n;
    http_turn_look(conn, n);
    if (conn->state == HTTP_LINGER &&
        conn->discarded > conn->server->options.max_body_bytes)
        http_conn_free(conn);
}

static void on_read(void *arg)
{
    struct http_conn *conn = arg;

    if (conn->state != HTTP_HANDLING && conn->state != HTTP_SENDING &&
        http_turn_is_over(conn)) {
        http_turn_put_off(conn);
        return;
    }
    if (conn->state == HTTP_LINGER || conn->state == HTTP_DEAD) {
        discard(conn);
        return;
    }
    if (conn->state == HTTP_HEAD || conn->state == HTTP_BODY)
        conn->read_us = loop_now_us(conn->server->loop);
    if (conn->state == HTTP_HEAD && read_head(conn))
        read_body(conn);
    else if (conn->state == HTTP_BODY)
        read_body(conn);
    /* Set only now: most requests come whole and need no timer. */
    if (conn->begins && (conn->state == HTTP_HEAD || conn->state == HTTP_BODY))
        http_conn_arm(conn, patience(conn, conn->server->options.receive_us));
    conn->begins = false;
}

/* All that was written is sent. Requests sent ahead are read at the next turn
 * of the loop: else a client whose requests are answered at once would keep all
 * others waiting. */
static void on_sent(void *arg)
{
    struct http_conn *conn = arg;

    http_conn_count_held(conn);
    if (conn->state == HTTP_HANDLING && conn->taken)
        conn->taken(conn->taken_arg);
    if (conn->state != HTTP_SENDING)
        return;
    if (conn->close || conn->server->draining) {
        http_conn_linger(conn);
        return;
    }
    http_conn_set_state(conn, HTTP_HEAD);
    http_conn_arm(conn, conn->server->options.idle_us);
    stream_again(conn->stream);
}

static void on_opened(void *arg)
{
    struct http_conn *conn = arg;

    http_opening_end(conn, true);
    if (conn->state == HTTP_HEAD)
        http_conn_arm(conn, conn->server->options.idle_us);
}

static void on_ended(void *arg, int error)
{
    struct http_conn *conn = arg;

    if (error == -EPROTO && stream_is_plain_http(conn->stream)) {
        http_opening_end(conn, false);
        conn->read_us =
            loop_now_us(conn->server->loop); /* nothing was read as a request */
        http_conn_refuse(conn, 400, "https_expected",
                         "this port speaks TLS: the URL must begin with "
                         "https://");
        return;
    }
    if (error == 0 && conn->state == HTTP_SENDING) {
        conn->close = true; /* the client may still read the whole answer */
        return;
    }
    if (error == -ETIMEDOUT)
        conn->server->stats.slow++;
    http_conn_free(conn);
}

static const struct stream_ops stream_ops = {
    .opened = on_opened,
    .readable = on_read,
    .sent = on_sent,
    .ended = on_ended,
};

static void on_timer(void *arg)
{
    struct http_conn *conn = arg;

    if ((conn->state == HTTP_HEAD && conn->receiving) ||
        conn->state == HTTP_BODY)
        http_conn_refuse(conn, 408, "request_timeout",
                         "the request took too long to arrive");
    else if (conn->state != HTTP_HANDLING && conn->state != HTTP_SENDING)
        http_conn_free(conn);
}

int http_conn_open(struct http_server *server, struct http_client *client,
                   int fd)
{
    const struct http_options *options = &server->options;
    /* max_input bounds what a client sends ahead of its turn. */
    struct stream_options stream = {
        .max_input = options->max_head_bytes + READ_AHEAD_BYTES,
        .write_us = options->write_us,
    };
    struct http_conn *conn = calloc(1, sizeof(*conn));

    if (conn)
        loop_timer_init(server->loop, &conn->timer, on_timer, conn);
    if (!conn || certificate_show(server->certificate, &stream.ssl))
        net_close(server->loop, fd);
    else
        conn->stream =
            stream_new(server->streams, fd, &stream, &stream_ops, conn);
    if (!conn || !conn->stream) {
        free(conn);
        return -ENOMEM;
    }
    conn->server = server;
    text_buf_init(&conn->body, options->max_body_bytes);
    text_buf_init(&conn->extra, MAX_EXTRA_BYTES);
    LIST_INSERT_HEAD(&server->conns, conn, link);
    server->stats.connections++;
    http_conn_join(conn, client);
    http_conn_set_state(conn, HTTP_HEAD);
    http_conn_arm(conn, patience(conn, options->idle_us));
    if (stream.ssl)
        http_opening_begin(conn);
    return 0;
}

/* Drives a connection: reads heads and bodies, hands requests over, and goes on
 * with the next when the answer has left. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "conductor/front/http/internal.h"

/* An engine's whole head, and our own headers. */
#define MAX_EXTRA_BYTES 131072
#define READ_AHEAD_BYTES 65536
/* From here on a body is read by read_large(). */
#define LARGE_BODY_BYTES 2048
#define READS_PER_TURN 16

int64_t http_arrived_us(const struct http_conn *conn)
{
    return conn->read_us;
}

/* The request is whole. Its body isn't needed once the handler is back, while
 * the answer may take minutes. */
static void handle(struct http_conn *conn)
{
    conn->state = HTTP_HANDLING;
    conn->used = true;
    conn->expected = false;
    conn->keep_body = false;
    http_conn_arm(conn, 0);
    conn->server->stats.requests++;
    conn->server->handlers->request(conn->server->arg, conn, &conn->head,
                                    conn->body.len ? conn->body.data : "",
                                    conn->body.len);
    if (!conn->keep_body || conn->state != HTTP_HANDLING)
        http_conn_drop_body(conn);
}

/* Make room for n more bytes of body: 0, -EDQUOT over max_body_total_bytes,
 * -ENOBUFS over max_body_bytes, -ENOMEM. */
static int reserve_body(struct http_conn *conn, size_t n)
{
    const struct http_server *server = conn->server;

    /* A body that was replaced may be a little over. */
    if (server->stats.body_bytes + n > server->options.max_body_total_bytes)
        return -EDQUOT;
    return text_buf_reserve(&conn->body, n);
}

/* Keep the head's bytes while its request lasts, and point into them. */
static int keep_head(struct http_conn *conn, size_t n)
{
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    struct http_fault fault;

    free(conn->head_bytes);
    conn->head_bytes = malloc(n);
    if (!conn->head_bytes)
        return -ENOMEM;
    evbuffer_remove(in, conn->head_bytes, n);
    return http_parse_head(conn->head_bytes, n, &conn->head, &fault) > 0
               ? 0
               : -EBADMSG;
}

/* Whether the request whose head has come may go on. Else it is answered, and
 * nothing of its body is ever read as another request: it is dropped if all of
 * it is here, or the connection ends. */
static bool may_go_on(struct http_conn *conn)
{
    const struct http_server *server = conn->server;
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    size_t n =
        conn->head.content_length > 0 ? (size_t)conn->head.content_length : 0;
    bool here = !conn->head.chunked && n <= evbuffer_get_length(in);
    bool close = conn->close;

    conn->state = HTTP_HANDLING;
    conn->close = close || !here;
    if (server->handlers->head(server->arg, conn, &conn->head)) {
        conn->state = HTTP_BODY;
        conn->close = close;
        return true;
    }
    if (here)
        evbuffer_drain(in, n);
    return false;
}

/* Returns whether there may be more to do. */
static bool read_head(struct http_conn *conn)
{
    const struct http_options *options = &conn->server->options;
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    size_t have = evbuffer_get_length(in);
    size_t look =
        have < options->max_head_bytes ? have : options->max_head_bytes;
    struct http_fault fault;
    long n;

    if (have == 0)
        return false;
    if (!conn->receiving) {
        conn->receiving = true;
        conn->has_head = conn->recorded = false;
        http_conn_arm(conn, options->receive_us);
    }
    n = http_parse_head((const char *)evbuffer_pullup(in, (ev_ssize_t)look),
                        look, &conn->head, &fault);
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
    conn->state = HTTP_BODY;
    if (conn->head.content_length > (int64_t)options->max_body_bytes) {
        http_conn_refuse_body(conn);
        return false;
    }
    if (!may_go_on(conn))
        return false;
    if (conn->head.expect_continue && evbuffer_get_length(in) == 0) {
        bufferevent_write(conn->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        http_conn_flush(conn);
    }
    return true;
}

static void add_to_body(struct http_conn *conn, size_t n)
{
    conn->body.len += n;
    conn->server->stats.body_bytes += n;
}

/* Reads on from the socket into the body, at most `want` bytes: a bufferevent
 * reads 4 KB in a turn of the loop. No more room is made than for as much as
 * has come. What it leaves, an end or an error too, the bufferevent meets.
 * Returns 0 or -ENOMEM. */
static int read_large(struct http_conn *conn, size_t want)
{
    for (unsigned i = 0; i < READS_PER_TURN; i++) {
        size_t most = conn->body.len < want ? conn->body.len : want;
        int rc = most < LARGE_BODY_BYTES ? -EDQUOT : reserve_body(conn, most);
        ssize_t n;

        if (rc)
            return rc == -EDQUOT ? 0 : rc;
        n = recv(bufferevent_getfd(conn->bev), conn->body.data + conn->body.len,
                 most, MSG_DONTWAIT);
        if (n <= 0)
            return 0;
        add_to_body(conn, (size_t)n);
        want -= (size_t)n;
    }
    return 0;
}

/* The body's next piece by Content-Length. Whether the body is whole, < 0 as
 * reserve_body. */
static int read_sized(struct http_conn *conn)
{
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    size_t length =
        conn->head.content_length > 0 ? (size_t)conn->head.content_length : 0;
    size_t want = length - conn->body.len, have = evbuffer_get_length(in);
    size_t take = have < want ? have : want;
    int rc = take ? reserve_body(conn, take) : 0;

    if (rc)
        return rc;
    if (take) {
        evbuffer_remove(in, conn->body.data + conn->body.len, take);
        add_to_body(conn, take);
    }
    rc = read_large(conn, want - take);
    return rc ? rc : conn->body.len == length;
}

/* The same for a chunked body; also -EBADMSG. */
static int read_chunked(struct http_conn *conn)
{
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    struct evbuffer_iovec run;

    while (evbuffer_peek(in, -1, NULL, &run, 1) > 0 && run.iov_len > 0) {
        struct http_piece piece;
        size_t used;
        bool done;
        int rc = http_chunked_next(&conn->chunked, run.iov_base, run.iov_len,
                                   &used, &piece);

        if (rc < 0)
            return rc;
        done = rc > 0;
        rc = reserve_body(conn, piece.n);
        if (rc)
            return rc;
        text_buf_add(&conn->body, piece.at, piece.n);
        conn->server->stats.body_bytes += piece.n;
        evbuffer_drain(in, used);
        if (done)
            return 1;
    }
    return 0;
}

static void read_body(struct http_conn *conn)
{
    int rc = conn->head.chunked ? read_chunked(conn) : read_sized(conn);

    if (rc == -ENOBUFS)
        http_conn_refuse_body(conn);
    else if (rc == -EDQUOT)
        http_conn_refuse_for_now(conn);
    else if (rc == -EBADMSG)
        http_conn_refuse(conn, 400, "invalid_http",
                         "the chunked body is malformed");
    else if (rc < 0)
        http_conn_die(conn);
    else if (rc > 0)
        handle(conn);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct http_conn *conn = arg;
    struct evbuffer *in = bufferevent_get_input(bev);

    if (conn->state == HTTP_LINGER || conn->state == HTTP_DEAD) {
        conn->discarded += evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        if (conn->state == HTTP_LINGER &&
            conn->discarded > conn->server->options.max_body_bytes)
            http_conn_free(conn);
        return;
    }
    if (conn->state == HTTP_HEAD || conn->state == HTTP_BODY)
        conn->read_us = clock_now_us();
    if (conn->state == HTTP_HEAD && !read_head(conn))
        return;
    if (conn->state == HTTP_BODY)
        read_body(conn);
}

/* What was sent ahead is read now, or at the next turn of the loop, as libevent
 * runs only some callbacks that were put off in a turn: else one client, whose
 * requests are answered at once, keeps all others waiting. */
static void read_ahead(struct http_conn *conn)
{
    if (evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0)
        bufferevent_trigger(conn->bev, EV_READ,
                            BEV_TRIG_IGNORE_WATERMARKS |
                                BEV_TRIG_DEFER_CALLBACKS);
}

/* All that was written is sent. */
static void sent(struct http_conn *conn)
{
    if (conn->state == HTTP_HANDLING && conn->taken)
        conn->taken(conn->taken_arg);
    if (conn->state != HTTP_SENDING)
        return;
    if (conn->close || conn->server->draining) {
        http_conn_linger(conn);
        return;
    }
    conn->state = HTTP_HEAD;
    http_conn_arm(conn, conn->server->options.idle_us);
    read_ahead(conn);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    if (evbuffer_get_length(bufferevent_get_output(bev)) > 0)
        return;
    bufferevent_disable(bev, EV_WRITE);
    sent(arg);
}

static void on_flush(evutil_socket_t, short, void *arg)
{
    struct http_conn *conn = arg;

    if (conn->state != HTTP_DEAD &&
        !(bufferevent_get_enabled(conn->bev) & EV_WRITE) &&
        event_loop_send(conn->bev))
        sent(conn);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_conn *conn = arg;

    if ((what & BEV_EVENT_EOF) && conn->state == HTTP_SENDING) {
        /* The answer is whole: it may well be waited for. */
        conn->close = true;
        bufferevent_disable(bev, EV_READ);
        return;
    }
    if ((what & BEV_EVENT_TIMEOUT) && (what & BEV_EVENT_WRITING))
        conn->server->stats.slow++;
    http_conn_free(conn);
}

static void on_timer(evutil_socket_t, short, void *arg)
{
    struct http_conn *conn = arg;

    if ((conn->state == HTTP_HEAD && conn->receiving) ||
        conn->state == HTTP_BODY)
        http_conn_refuse(conn, 408, "request_timeout",
                         "the request took too long to arrive");
    else if (conn->state != HTTP_HANDLING && conn->state != HTTP_SENDING)
        http_conn_free(conn);
}

int http_conn_open(struct http_server *server, evutil_socket_t fd)
{
    const struct http_options *options = &server->options;
    struct timeval write = {options->write_us / 1000000,
                            options->write_us % 1000000};
    struct http_conn *conn = calloc(1, sizeof(*conn));

    if (conn)
        conn->bev =
            bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (conn && conn->bev)
        conn->timer = evtimer_new(server->base, on_timer, conn);
    if (conn && conn->timer)
        conn->flush = event_new(server->base, -1, 0, on_flush, conn);
    if (!conn || !conn->flush)
        goto fail;
    conn->server = server;
    text_buf_init(&conn->body, options->max_body_bytes);
    text_buf_init(&conn->extra, MAX_EXTRA_BYTES);
    LIST_INSERT_HEAD(&server->conns, conn, link);
    server->stats.connections++;
    bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
    /* What a client sends ahead of its turn stops here. */
    bufferevent_setwatermark(conn->bev, EV_READ, 0,
                             options->max_head_bytes + READ_AHEAD_BYTES);
    bufferevent_set_max_single_read(conn->bev, READ_AHEAD_BYTES);
    bufferevent_set_timeouts(conn->bev, NULL, &write);
    bufferevent_disable(conn->bev, EV_WRITE);
    bufferevent_enable(conn->bev, EV_READ);
    http_conn_arm(conn, options->idle_us);
    return 0;
fail:
    if (conn && conn->timer)
        event_free(conn->timer);
    if (conn && conn->bev)
        bufferevent_free(conn->bev);
    else
        evutil_closesocket(fd);
    free(conn);
    return -ENOMEM;
}

/* A connection that speaks frames over a libevent bufferevent. */
#include "base/frame_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/message.h"

#define IO_CHUNK_BYTES (1u << 20)

struct frame_conn {
    struct bufferevent *bev;
    struct event *deferred; /* fires to end the connection */
    const struct frame_conn_ops *ops;
    void *arg;
    struct frame_conn_limits limits;
    char peer[MSG_HOST_MAX + 8];
    char reason[MSG_TEXT_MAX];
    int in_callback; /* depth of calls into the owner */
    bool ending;     /* `deferred` is pending: no more frames */
    bool flushing;   /* closes when the output is written */
    bool freed;      /* frame_conn_free() inside a callback */
};

/* A host that vanished without a word is noticed within this time, whether
 * there is something to send to it or not. */
#define DEAD_AFTER_MS 10000
#define PROBE_IDLE_S 4
#define PROBE_INTERVAL_S 2

/* Failing to set an option is no reason to refuse a connection. */
static void tune_socket(evutil_socket_t fd)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT,
         (DEAD_AFTER_MS / 1000 - PROBE_IDLE_S) / PROBE_INTERVAL_S},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, DEAD_AFTER_MS},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].option,
                         &options[i].value, sizeof(options[i].value));
}

static void conn_destroy(struct frame_conn *c)
{
    if (c->bev)
        bufferevent_free(c->bev);
    if (c->deferred)
        event_free(c->deferred);
    free(c);
}

/* Brackets a call into the owner: returns false if c is gone. */
static bool conn_leave(struct frame_conn *c)
{
    c->in_callback--;
    if (c->freed && c->in_callback == 0) {
        conn_destroy(c);
        return false;
    }
    return !c->freed;
}

static void on_deferred(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct frame_conn *c = arg;
    bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    c->in_callback++;
    c->ops->closed(c->arg, c->reason);
    (void)conn_leave(c);
}

void frame_conn_fail(struct frame_conn *c, const char *reason)
{
    if (c->ending)
        return;
    c->ending = true;
    if (!c->flushing)
        snprintf(c->reason, sizeof(c->reason), "%s", reason);
    struct timeval now = {0, 0};
    event_add(c->deferred, &now);
}

void frame_conn_refuse(struct frame_conn *c, uint16_t code, const char *text)
{
    if (c->ending || c->flushing)
        return;
    struct wire_buf buf;
    wire_buf_init(&buf, 4096);
    msg_error_like_pack(&buf, FRAME_ERROR, 0, code, text);
    frame_conn_send(c, &buf);
    wire_buf_fini(&buf);
    if (c->ending)
        return;
    snprintf(c->reason, sizeof(c->reason), "%s", text);
    c->flushing = true;
    bufferevent_disable(c->bev, EV_READ);
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
    struct timeval patience = {2, 0};
    event_add(c->deferred, &patience);
}

/* One frame if a whole one is there. Returns true if there may be more. */
static bool conn_read_frame(struct frame_conn *c, struct evbuffer *in)
{
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct frame_header h;
    size_t have = evbuffer_get_length(in);

    if (have < FRAME_HEADER_BYTES) {
        bufferevent_setwatermark(c->bev, EV_READ, FRAME_HEADER_BYTES, 0);
        return false;
    }
    evbuffer_copyout(in, bytes, sizeof(bytes));
    int rc = frame_header_decode(bytes, c->limits.payload_bytes, &h);
    if (rc) {
        char text[MSG_TEXT_MAX];

        if (rc == -EMSGSIZE)
            snprintf(text, sizeof(text),
                     "frame %s (type %u): length %u is over the limit of %u",
                     frame_type_name(h.type), h.type, h.length,
                     c->limits.payload_bytes);
        else
            snprintf(text, sizeof(text),
                     "frame type %u: reserved header field is not zero",
                     h.type);
        frame_conn_refuse(c, PROTO_E_BAD_FRAME, text);
        return false;
    }
    size_t whole = FRAME_HEADER_BYTES + h.length;
    if (have < whole) {
        bufferevent_setwatermark(c->bev, EV_READ, whole, 0);
        return false;
    }
    const uint8_t *p = evbuffer_pullup(in, (ev_ssize_t)whole);
    if (!p) {
        frame_conn_fail(c, "out of memory for a frame");
        return false;
    }
    c->in_callback++;
    c->ops->frame(c->arg, &h, p + FRAME_HEADER_BYTES);
    if (!conn_leave(c))
        return false;
    evbuffer_drain(in, whole);
    return !c->ending && !c->flushing;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct frame_conn *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);

    if (c->ending || c->flushing)
        return;
    while (conn_read_frame(c, in))
        ;
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct frame_conn *c = arg;

    if (c->flushing) {
        if (evbuffer_get_length(bufferevent_get_output(bev)) == 0)
            frame_conn_fail(c, c->reason);
        return;
    }
    if (c->ending || !c->ops->writable)
        return;
    c->in_callback++;
    c->ops->writable(c->arg);
    (void)conn_leave(c);
}

/* The socket has no error of its own then. */
static void fail_lookup(struct frame_conn *c, int error)
{
    char text[MSG_TEXT_MAX];

    snprintf(text, sizeof(text), "cannot look up the host: %s",
             evutil_gai_strerror(error));
    frame_conn_fail(c, text);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct frame_conn *c = arg;
    int lookup = bufferevent_socket_get_dns_error(bev);

    if (what & BEV_EVENT_CONNECTED) {
        tune_socket(bufferevent_getfd(c->bev));
        if (c->ops->connected) {
            c->in_callback++;
            c->ops->connected(c->arg);
            (void)conn_leave(c);
        }
        return;
    }
    if (what & BEV_EVENT_EOF)
        frame_conn_fail(c, "closed by the other side");
    else if (lookup)
        fail_lookup(c, lookup);
    else
        frame_conn_fail(c, evutil_socket_error_to_string(
                               evutil_socket_geterror(bufferevent_getfd(bev))));
}

static struct frame_conn *conn_alloc(struct event_base *base,
                                     evutil_socket_t fd,
                                     const struct frame_conn_limits *limits,
                                     const struct frame_conn_ops *ops,
                                     void *arg)
{
    struct frame_conn *c = calloc(1, sizeof(*c));

    if (!c) {
        if (fd >= 0)
            evutil_closesocket(fd);
        return NULL;
    }
    c->ops = ops;
    c->arg = arg;
    c->limits = *limits;
    c->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    c->deferred = event_new(base, -1, 0, on_deferred, c);
    if (!c->bev || !c->deferred) {
        if (!c->bev && fd >= 0)
            evutil_closesocket(fd);
        conn_destroy(c);
        return NULL;
    }
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_set_max_single_read(c->bev, IO_CHUNK_BYTES);
    bufferevent_set_max_single_write(c->bev, IO_CHUNK_BYTES);
    bufferevent_setwatermark(c->bev, EV_WRITE,
                             limits->output_watermark_bytes / 2, 0);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    return c;
}

int frame_conn_peer_host(const struct frame_conn *c, char *out, size_t cap)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    struct sockaddr *sa = (struct sockaddr *)&ss;

    if (getpeername(bufferevent_getfd(c->bev), sa, &len) ||
        getnameinfo(sa, len, out, (socklen_t)cap, NULL, 0, NI_NUMERICHOST))
        return -ENOTCONN;
    return 0;
}

struct frame_conn *frame_conn_new(struct event_base *base, evutil_socket_t fd,
                                  const struct frame_conn_limits *limits,
                                  const struct frame_conn_ops *ops, void *arg)
{
    evutil_make_socket_nonblocking(fd);
    tune_socket(fd);
    struct frame_conn *c = conn_alloc(base, fd, limits, ops, arg);
    if (!c)
        return NULL;
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    struct sockaddr *sa = (struct sockaddr *)&ss;
    char host[MSG_HOST_MAX] = "?", port[8] = "?";
    if (getpeername(fd, sa, &len) == 0 &&
        getnameinfo(sa, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        host[0] = '?';
    snprintf(c->peer, sizeof(c->peer), "%s:%s", host, port);
    return c;
}

struct frame_conn *frame_conn_connect(struct event_base *base, const char *host,
                                      uint16_t port,
                                      const struct frame_conn_limits *limits,
                                      const struct frame_conn_ops *ops,
                                      void *arg)
{
    struct frame_conn *c = conn_alloc(base, -1, limits, ops, arg);

    if (!c)
        return NULL;
    snprintf(c->peer, sizeof(c->peer), "%s:%u", host, port);
    if (bufferevent_socket_connect_hostname(c->bev, NULL, AF_UNSPEC, host,
                                            port))
        frame_conn_fail(c, "cannot connect or resolve the host");
    return c;
}

void frame_conn_free(struct frame_conn *c)
{
    if (!c)
        return;
    if (c->in_callback) {
        c->freed = true;
        c->ending = true;
        bufferevent_disable(c->bev, EV_READ | EV_WRITE);
        event_del(c->deferred);
        return;
    }
    conn_destroy(c);
}

void frame_conn_send_bytes(struct frame_conn *c, const void *data, size_t n)
{
    if (c->ending || c->flushing)
        return;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (evbuffer_get_length(out) + n > c->limits.output_limit_bytes) {
        frame_conn_fail(c, "output limit reached: the other side reads too "
                           "slowly");
        return;
    }
    if (evbuffer_add(out, data, n))
        frame_conn_fail(c, "out of memory for output");
}

void frame_conn_send(struct frame_conn *c, const struct wire_buf *buf)
{
    if (buf->failed) {
        frame_conn_fail(c, "a message could not be encoded");
        return;
    }
    frame_conn_send_bytes(c, buf->data, buf->len);
}

int frame_conn_full(const struct frame_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev)) >=
           c->limits.output_watermark_bytes;
}

const char *frame_conn_peer(const struct frame_conn *c)
{
    return c->peer;
}

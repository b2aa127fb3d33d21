/* Opens frame connections, accepted or connecting. */
#include <errno.h>
#include <event2/dns.h>
#include <event2/util.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/frame_conn_internal.h"
#include "base/loop/dns.h"
#include "base/loop/libevent.h"
#include "base/loop/net.h"
#include "base/socket.h"
#include "base/stream/stream.h"

static struct frame_conn *conn_alloc(struct stream_loop *streams,
                                     const struct frame_conn_limits *limits,
                                     const struct frame_conn_ops *ops,
                                     void *arg)
{
    struct frame_conn *c = calloc(1, sizeof(*c));

    if (!c) {
        SSL_free(limits->ssl);
        return NULL;
    }
    c->streams = streams;
    c->fd = -1;
    c->ops = ops;
    c->arg = arg;
    c->limits = *limits;
    c->tls = limits->ssl;
    c->ssl = limits->ssl;
    c->limits.ssl = NULL;
    loop_timer_init(stream_loop_base(streams), &c->deferred,
                    frame_conn_on_deferred, c);
    frame_reader_init(&c->reader);
    return c;
}

int frame_conn_peer_host(const struct frame_conn *c, char *out, size_t cap)
{
    char port[8];

    return c->stream
               ? socket_peer(stream_loop_base(c->streams), stream_fd(c->stream),
                             out, cap, port, sizeof(port))
               : -ENOTCONN;
}

struct frame_conn *frame_conn_new(struct stream_loop *streams, int fd,
                                  const struct frame_conn_limits *limits,
                                  const struct frame_conn_ops *ops, void *arg)
{
    struct loop *loop = stream_loop_base(streams);
    char host[MSG_HOST_MAX], port[8];
    struct frame_conn *c = conn_alloc(streams, limits, ops, arg);

    if (!c) {
        net_close(loop, fd);
        return NULL;
    }
    if (socket_peer(loop, fd, host, sizeof(host), port, sizeof(port)) < 0)
        snprintf(host, sizeof(host), "?");
    snprintf(c->peer, sizeof(c->peer), "%s:%s", host, port);
    if (frame_conn_start(c, fd) < 0) {
        frame_conn_destroy(c);
        return NULL;
    }
    return c;
}

void frame_conn_abandon(struct frame_conn *c)
{
    if (c->look_up)
        evdns_getaddrinfo_cancel(c->look_up);
    c->look_up = NULL;
    loop_watch_stop(&c->connecting);
    if (c->fd >= 0)
        net_close(stream_loop_base(c->streams), c->fd);
    c->fd = -1;
}

static void on_connected(void *arg, unsigned)
{
    struct frame_conn *c = arg;
    int fd = c->fd, error = net_error(stream_loop_base(c->streams), fd);

    if (error) {
        frame_conn_fail(c, strerror(error));
        return;
    }
    c->fd = -1;
    if (frame_conn_start(c, fd) < 0)
        frame_conn_fail(c, "out of memory");
}

static void connect_to(struct frame_conn *c, struct sockaddr *to, socklen_t n)
{
    /* The port is at the same place in both kinds of addresses. */
    ((struct sockaddr_in *)to)->sin_port = htons(c->port);
    int fd = net_connect(stream_loop_base(c->streams), to, n);

    if (fd < 0) {
        frame_conn_fail(c, strerror(-fd));
        return;
    }
    c->fd = fd;
    loop_watch_init(stream_loop_base(c->streams), &c->connecting, fd,
                    LOOP_WRITE | LOOP_ONCE, on_connected, c);
    if (loop_watch_start(&c->connecting, 0))
        frame_conn_fail(c, "out of memory");
}

static void look_up_failed(struct frame_conn *c, const char *why)
{
    char text[MSG_TEXT_MAX];

    snprintf(text, sizeof(text), "cannot look up the host: %s", why);
    frame_conn_fail(c, text);
}

/* A cancelled look-up's connection may be gone. */
static void on_resolved(int rc, struct evutil_addrinfo *found, void *arg)
{
    struct frame_conn *c = arg;

    if (rc != EVUTIL_EAI_CANCEL) {
        c->look_up = NULL;
        if (rc)
            look_up_failed(c, evutil_gai_strerror(rc));
        else
            connect_to(c, found->ai_addr, (socklen_t)found->ai_addrlen);
    }
    if (found)
        evutil_freeaddrinfo(found);
}

static void connect_numeric(struct frame_conn *c, const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found;
    int rc = getaddrinfo(host, NULL, &hints, &found);

    if (rc) {
        look_up_failed(c, gai_strerror(rc));
        return;
    }
    connect_to(c, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
}

struct frame_conn *frame_conn_connect(struct stream_loop *streams,
                                      struct loop_dns *dns, const char *host,
                                      uint16_t port,
                                      const struct frame_conn_limits *limits,
                                      const struct frame_conn_ops *ops,
                                      void *arg)
{
    const struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC,
                                          .ai_socktype = SOCK_STREAM};
    struct frame_conn *c = conn_alloc(streams, limits, ops, arg);

    if (!c)
        return NULL;
    c->port = port;
    snprintf(c->peer, sizeof(c->peer), "%s:%u", host, port);
    if (!dns) {
        connect_numeric(c, host);
        return c;
    }
    struct evdns_getaddrinfo_request *look_up = evdns_getaddrinfo(
        loop_dns_base(dns), host, NULL, &hints, on_resolved, c);
    if (look_up && c->fd < 0 && !c->ending) /* else it has ended already */
        c->look_up = look_up;
    return c;
}

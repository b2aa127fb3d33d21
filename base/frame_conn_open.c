/* Opens frame connections, accepted or connecting. */
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/frame_conn_internal.h"
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

static void on_dialled(void *arg, int fd, const char *why_not)
{
    struct frame_conn *c = arg;

    if (fd < 0)
        frame_conn_fail(c, why_not);
    else if (frame_conn_start(c, fd) < 0)
        frame_conn_fail(c, "out of memory");
}

struct frame_conn *frame_conn_connect(struct stream_loop *streams,
                                      struct dns *dns, const char *host,
                                      uint16_t port,
                                      const struct frame_conn_limits *limits,
                                      const struct frame_conn_ops *ops,
                                      void *arg)
{
    struct frame_conn *c = conn_alloc(streams, limits, ops, arg);

    if (!c)
        return NULL;
    snprintf(c->peer, sizeof(c->peer), "%s:%u", host, port);
    if (dial_start(&c->dial, stream_loop_base(streams), dns, host, port,
                   on_dialled, c))
        frame_conn_fail(c, "out of memory");
    return c;
}

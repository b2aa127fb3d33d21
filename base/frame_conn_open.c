/* Opens frame connections, accepted or connecting. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/frame_conn_internal.h"
#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "base/socket.h"

#define IO_CHUNK_BYTES (1u << 20)

/* Makes the bufferevent, with TLS if ssl is set. Takes ssl. */
static struct bufferevent *new_bev(struct loop *loop, int fd, SSL *ssl)
{
    struct bufferevent *bev;

    if (!ssl)
        return bufferevent_socket_new(loop_event_base(loop), fd,
                                      BEV_OPT_CLOSE_ON_FREE);
    SSL_set_read_ahead(ssl,
                       0); /* the bufferevent would not see buffered records */
    bev = bufferevent_openssl_socket_new(loop_event_base(loop), fd, ssl,
                                         SSL_is_server(ssl)
                                             ? BUFFEREVENT_SSL_ACCEPTING
                                             : BUFFEREVENT_SSL_CONNECTING,
                                         BEV_OPT_CLOSE_ON_FREE);
    if (bev) { /* report an end without TLS's close as an error */
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
        bufferevent_setwatermark(bev, EV_READ, 0, IO_CHUNK_BYTES);
    }
    return bev;
}

static struct frame_conn *conn_alloc(struct loop *loop, int fd,
                                     const struct frame_conn_limits *limits,
                                     const struct frame_conn_ops *ops,
                                     void *arg)
{
    struct frame_conn *c = calloc(1, sizeof(*c));

    if (c) {
        c->loop = loop;
        c->ops = ops;
        c->arg = arg;
        c->limits = *limits;
        c->tls = limits->ssl;
        c->limits.ssl = NULL;
        c->bev = new_bev(loop, fd, limits->ssl);
        loop_timer_init(loop, &c->deferred, frame_conn_on_deferred, c);
    }
    if (!c)
        SSL_free(limits->ssl);
    if (!c || !c->bev) {
        if (fd >= 0)
            close(fd);
        if (c)
            frame_conn_destroy(c);
        return NULL;
    }
    frame_reader_init(&c->reader);
    bufferevent_setcb(c->bev, c->tls ? frame_conn_on_tls_read : NULL,
                      frame_conn_on_write, frame_conn_on_event, c);
    bufferevent_set_max_single_write(c->bev, IO_CHUNK_BYTES);
    bufferevent_setwatermark(c->bev, EV_WRITE,
                             limits->output_watermark_bytes / 2, 0);
    bufferevent_enable(c->bev, EV_WRITE);
    return c;
}

int frame_conn_peer_host(const struct frame_conn *c, char *out, size_t cap)
{
    char port[8];

    return socket_peer(bufferevent_getfd(c->bev), out, cap, port, sizeof(port));
}

struct frame_conn *frame_conn_new(struct loop *loop, int fd,
                                  const struct frame_conn_limits *limits,
                                  const struct frame_conn_ops *ops, void *arg)
{
    evutil_make_socket_nonblocking(fd);
    socket_tune(fd);
    struct frame_conn *c = conn_alloc(loop, fd, limits, ops, arg);
    if (!c || frame_conn_start(c) < 0) {
        if (c)
            frame_conn_destroy(c);
        return NULL;
    }
    char host[MSG_HOST_MAX], port[8];
    if (socket_peer(fd, host, sizeof(host), port, sizeof(port)) < 0)
        snprintf(host, sizeof(host), "?");
    snprintf(c->peer, sizeof(c->peer), "%s:%s", host, port);
    return c;
}

struct frame_conn *frame_conn_connect(struct loop *loop, struct loop_dns *dns,
                                      const char *host, uint16_t port,
                                      const struct frame_conn_limits *limits,
                                      const struct frame_conn_ops *ops,
                                      void *arg)
{
    struct frame_conn *c = conn_alloc(loop, -1, limits, ops, arg);

    if (!c)
        return NULL;
    snprintf(c->peer, sizeof(c->peer), "%s:%u", host, port);
    if (bufferevent_socket_connect_hostname(c->bev, loop_dns_base(dns),
                                            AF_UNSPEC, host, port))
        frame_conn_fail(c, "cannot connect or resolve the host");
    return c;
}

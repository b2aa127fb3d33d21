/* The connections of exchanges: opening them, the request, what breaks off. */
#include <errno.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "conductor/link/engine/tls.h"
#include "conductor/link/engine/upstream/internal.h"

#define READ_BYTES 65536

int upstream_write(struct exchange *x)
{
    struct evbuffer *out = bufferevent_get_output(x->bev);
    const struct upstream_request *r = &x->request;
    const struct engine_url *url = &x->upstream->url;

    struct evbuffer_iovec room;
    size_t most = strlen(r->method) + strlen(url->prefix) + strlen(r->path) +
                  strlen(url->authority) + strlen(r->headers) + 96;
    char *at;

    if (evbuffer_reserve_space(out, (ev_ssize_t)most, &room, 1) < 1)
        return -ENOMEM;
    at = stpcpy(stpcpy(room.iov_base, r->method), " ");
    at = stpcpy(stpcpy(stpcpy(at, url->prefix), r->path), " HTTP/1.1\r\n");
    at = stpcpy(stpcpy(stpcpy(at, "Host: "), url->authority), "\r\n");
    at = stpcpy(at, r->headers);
    if (x->use && x->upstream->anonymous)
        at = stpcpy(at, "Connection: close\r\n");
    at += sprintf(at, "Content-Length: %zu\r\n\r\n", r->n);
    room.iov_len = (size_t)(at - (char *)room.iov_base);
    if (evbuffer_commit_space(out, &room, 1))
        return -ENOMEM;
    if (r->n && evbuffer_add_reference(out, r->body, r->n, NULL, NULL))
        return -ENOMEM;
    return 0;
}

bool upstream_send_again(struct exchange *x)
{
    bufferevent_free(x->bev);
    x->bev = NULL;
    x->reused = x->open = x->any = false;
    x->part = PART_HEAD;
    return upstream_open(x) == 0;
}

/* There is no connection, or none any more. A failed look-up leaves no error in
 * errno, and TLS one of its own: then somebody listens, and may well have his
 * cache. */
static void fail_connect(struct exchange *x)
{
    int error = errno, lookup = bufferevent_socket_get_dns_error(x->bev);
    char text[160];

    if (x->upstream->tls && tls_explain(x->bev, text, sizeof(text))) {
        upstream_fail(x, UPSTREAM_BROKEN, text);
        return;
    }
    snprintf(text, sizeof(text), "%s%s",
             lookup ? "cannot look up the host: " : "",
             lookup ? evutil_gai_strerror(lookup) : strerror(error));
    upstream_fail(x, x->open ? UPSTREAM_RESET : UPSTREAM_UNREACHABLE, text);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct exchange *x = arg;

    if (what & BEV_EVENT_CONNECTED) {
        x->open = true;
        socket_tune(bufferevent_getfd(bev));
        bufferevent_set_timeouts(bev, NULL, NULL);
        return;
    }
    if (!x->ops) {
        upstream_drop_kept(x);
        return;
    }
    if ((what & BEV_EVENT_EOF) && x->part == PART_TO_END) {
        upstream_end(x);
        return;
    }
    if (x->reused && !x->any) { /* it was closed before it saw the request */
        if (!upstream_send_again(x))
            upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
        return;
    }
    if (x->any)
        upstream_fail(x, UPSTREAM_BROKEN, "the connection broke off");
    else if (what & BEV_EVENT_TIMEOUT)
        upstream_fail(x, UPSTREAM_TIMEOUT, "no connection in time");
    else if (what & BEV_EVENT_EOF)
        upstream_fail(x, UPSTREAM_BROKEN,
                      "it closed the connection without an answer");
    else
        fail_connect(x);
}

const char *upstream_late(const struct exchange *x)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof(peer);
    int fd = bufferevent_getfd(x->bev);

    if (x->open)
        return "it does not answer";
    if (fd < 0)
        return "its host is not looked up in time";
    if (getpeername(fd, (struct sockaddr *)&peer, &n))
        return "no connection in time";
    return x->upstream->tls ? "TLS: no handshake in time; does it speak https?"
                            : "it does not answer";
}

static struct bufferevent *new_connection(const struct upstream *u)
{
    const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;

    return u->tls ? tls_connection(u->tls, u->base, u->url.name, options)
                  : bufferevent_socket_new(u->base, -1, options);
}

int upstream_open(struct exchange *x)
{
    const struct upstream *u = x->upstream;
    struct timeval connect = {u->options.connect_us / 1000000,
                              u->options.connect_us % 1000000};

    x->bev = new_connection(u);
    if (!x->bev)
        return -ENOMEM;
    bufferevent_setcb(x->bev, upstream_on_read, NULL, on_event, x);
    /* No watermark: it costs three calls an event of a stream, and only a head
     * stays in the buffer, which upstream_on_read() bounds. */
    bufferevent_set_max_single_read(x->bev, READ_BYTES);
    bufferevent_set_timeouts(x->bev, NULL, &connect);
    if (upstream_write(x) || bufferevent_enable(x->bev, EV_READ | EV_WRITE) ||
        bufferevent_socket_connect_hostname(x->bev, u->dns, AF_UNSPEC,
                                            u->url.at.host, u->url.at.port))
        return -ENOMEM;
    return 0;
}

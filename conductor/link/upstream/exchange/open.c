/* Opens connections, and writes requests. */
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/util.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/dns.h"
#include "base/event_loop.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/tls.h"
#include "conductor/link/upstream/exchange/internal.h"

#define READ_BYTES 65536

int upstream_write(struct exchange *x)
{
    const struct upstream_request *r = &x->request;
    const struct engine_url *url = &x->upstream->url;
    size_t most = strlen(r->method) + strlen(url->prefix) + strlen(r->path) +
                  strlen(url->authority) + strlen(r->headers) + 96;
    char *begin = stream_room(x->stream, most), *at;

    if (!begin)
        return -ENOMEM;
    at = stpcpy(stpcpy(begin, r->method), " ");
    at = stpcpy(stpcpy(stpcpy(at, url->prefix), r->path), " HTTP/1.1\r\n");
    at = stpcpy(stpcpy(stpcpy(at, "Host: "), url->authority), "\r\n");
    at = stpcpy(at, r->headers);
    if (x->use && x->upstream->anonymous)
        at = stpcpy(at, "Connection: close\r\n");
    at = text_number(stpcpy(at, "Content-Length: "), r->n);
    at = mempcpy(at, "\r\n\r\n", 4);
    stream_wrote(x->stream, (size_t)(at - begin));
    if (r->n)
        stream_lend(x->stream, r->body, r->n);
    return 0;
}

bool upstream_send_again(struct exchange *x)
{
    upstream_close(x);
    x->reused = x->open = x->any = x->over = false;
    x->part = PART_HEAD;
    return upstream_open(x) == 0;
}

void upstream_fail_connect(struct exchange *x, int error)
{
    char text[160];

    if (x->stream && x->upstream->tls &&
        tls_explain(stream_ssl(x->stream), stream_tls_fault(x->stream), text,
                    sizeof(text))) {
        upstream_fail(x, UPSTREAM_BROKEN, text);
        return;
    }
    snprintf(text, sizeof(text), "%s", strerror(error));
    upstream_fail(x, x->open ? UPSTREAM_RESET : UPSTREAM_UNREACHABLE, text);
}

static void on_opened(void *arg)
{
    struct exchange *x = arg;

    x->open = true;
    event_del(&x->patience);
}

/* The whole request has left. */
static void on_sent(void *)
{
}

static const struct stream_ops stream_ops = {
    .opened = on_opened,
    .readable = upstream_on_read,
    .sent = on_sent,
    .ended = upstream_on_ended,
};

/* Begins TLS, if any, on a connected socket, and writes the request. Returns 0
 * or -ENOMEM. */
static int speak(struct exchange *x, int fd)
{
    const struct upstream *u = x->upstream;
    struct stream_options options = {
        .ssl = u->tls ? tls_ssl(u->tls, u->url.name) : NULL,
        .max_input = u->options.max_head_bytes + READ_BYTES,
    };

    socket_tune(fd);
    if (u->tls && !options.ssl) {
        evutil_closesocket(fd);
        return -ENOMEM;
    }
    x->stream = stream_new(u->streams, fd, &options, &stream_ops, x);
    if (!x->stream)
        return -ENOMEM;
    if (!u->tls)
        on_opened(x);
    return upstream_write(x);
}

static void on_connect(struct bufferevent *bev, short what, void *arg)
{
    struct exchange *x = arg;
    int error = errno;
    int fd = bufferevent_getfd(bev);

    if (!(what & BEV_EVENT_CONNECTED)) {
        upstream_fail_connect(x, error);
        return;
    }
    bufferevent_setfd(bev, -1); /* the socket is the stream's */
    bufferevent_free(bev);
    x->connecting = NULL;
    if (speak(x, fd))
        upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
}

static bool is_connected(const struct exchange *x)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof(peer);

    return getpeername(bufferevent_getfd(x->connecting),
                       (struct sockaddr *)&peer, &n) == 0;
}

const char *upstream_late(const struct exchange *x)
{
    if (x->open)
        return "it does not answer";
    if (x->lookup)
        return "its host was not looked up in time";
    if (!x->stream && !is_connected(x))
        return "no connection in time";
    return x->upstream->tls ? "TLS: no handshake in time; does it speak https?"
                            : "it does not answer";
}

/* Handles the connect timeout, TLS included. If the loop was late and the
 * socket has connected, libevent reports that right after this: waits. */
static void on_patience(evutil_socket_t, short, void *arg)
{
    struct exchange *x = arg;

    if (x->connecting && is_connected(x))
        event_loop_wait(&x->patience, 0);
    else
        upstream_fail(x, UPSTREAM_TIMEOUT, upstream_late(x));
}

static int connect_to(struct exchange *x, const struct dns_address *address)
{
    const struct upstream *u = x->upstream;
    struct sockaddr_storage at;
    socklen_t n = dns_sockaddr(address, u->url.at.port, &at);

    x->connecting = bufferevent_socket_new(
        u->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (!x->connecting)
        return -ENOMEM;
    bufferevent_setcb(x->connecting, NULL, NULL, on_connect, x);
    bufferevent_disable(x->connecting, EV_READ);
    if (bufferevent_socket_connect(x->connecting, (struct sockaddr *)&at,
                                   (int)n))
        bufferevent_trigger_event(x->connecting, BEV_EVENT_ERROR, 0);
    return 0;
}

static void on_looked_up(void *arg, const struct dns_answer *answer)
{
    struct exchange *x = arg;
    const struct dns_address *first = dns_first(answer);
    const char *why = dns_why_not(answer);
    char text[160];

    x->lookup = NULL;
    if (first) {
        if (connect_to(x, first))
            upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
        return;
    }
    snprintf(text, sizeof(text), "cannot look up the host: %s",
             why ? why : "it has no address");
    upstream_fail(x, UPSTREAM_UNREACHABLE, text);
}

int upstream_open(struct exchange *x)
{
    const struct upstream *u = x->upstream;
    struct dns_address address;

    event_assign(&x->patience, u->base, -1, 0, on_patience, x);
    if (event_loop_wait(&x->patience, u->options.connect_us))
        return -ENOMEM;
    if (dns_numeric(u->url.at.host, &address))
        return connect_to(x, &address);
    x->lookup = dns_look_up(u->dns, u->url.at.host, on_looked_up, x);
    return x->lookup ? 0 : -ENOMEM;
}

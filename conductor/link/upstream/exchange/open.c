/* Opens connections, and writes requests. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/dns.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
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
    loop_timer_stop(&x->patience);
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

    socket_tune(u->loop, fd);
    if (u->tls && !options.ssl) {
        net_close(u->loop, fd);
        return -ENOMEM;
    }
    x->stream = stream_new(u->streams, fd, &options, &stream_ops, x);
    if (!x->stream)
        return -ENOMEM;
    if (!u->tls)
        on_opened(x);
    return upstream_write(x);
}

static void on_connect(void *arg, unsigned)
{
    struct exchange *x = arg;
    int error = x->fd < 0 ? -x->fd : net_error(x->upstream->loop, x->fd);

    if (error) {
        upstream_fail_connect(x, error);
        return;
    }
    x->connecting = false; /* the socket is the stream's */
    if (speak(x, x->fd))
        upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
}

static bool is_connected(const struct exchange *x)
{
    struct sockaddr_storage peer;

    return net_address(x->upstream->loop, x->fd, true, &peer) >= 0;
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
 * socket has connected, on_connect() comes right after this: waits. */
static void on_patience(void *arg)
{
    struct exchange *x = arg;

    if (x->connecting && is_connected(x))
        loop_timer_start(&x->patience, 0);
    else
        upstream_fail(x, UPSTREAM_TIMEOUT, upstream_late(x));
}

/* Begins to connect. on_connect() tells how it went, never from in here. */
static int connect_to(struct exchange *x, const struct dns_address *address)
{
    const struct upstream *u = x->upstream;
    struct sockaddr_storage at;
    socklen_t n = dns_sockaddr(address, u->url.at.port, &at);

    x->connecting = true;
    x->fd = net_connect(u->loop, (struct sockaddr *)&at, n);
    loop_watch_init(u->loop, &x->connected, x->fd < 0 ? -1 : x->fd,
                    LOOP_WRITE | LOOP_ONCE, on_connect, x);
    if (x->fd >= 0)
        return loop_watch_start(&x->connected, 0);
    loop_watch_report(&x->connected, LOOP_WRITE);
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

    loop_timer_init(u->loop, &x->patience, on_patience, x);
    if (loop_timer_start(&x->patience, u->options.connect_us))
        return -ENOMEM;
    if (dns_numeric(u->url.at.host, &address))
        return connect_to(x, &address);
    x->lookup = dns_look_up(u->dns, u->url.at.host, on_looked_up, x);
    return x->lookup ? 0 : -ENOMEM;
}

/* Opens connections, and writes requests. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

static void on_dialled(void *arg, int fd, const char *why_not)
{
    struct exchange *x = arg;

    if (fd < 0)
        upstream_fail(x, UPSTREAM_UNREACHABLE, why_not);
    else if (speak(x, fd))
        upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
}

const char *upstream_late(const struct exchange *x)
{
    if (x->open)
        return "it does not answer";
    if (dial_looks_up(&x->dial))
        return "its host was not looked up in time";
    if (!x->stream && !dial_connected(&x->dial))
        return "no connection in time";
    return x->upstream->tls ? "TLS: no handshake in time; does it speak https?"
                            : "it does not answer";
}

/* Handles the connect timeout, TLS included. If the loop was late and the
 * socket has connected, on_dialled() comes right after this: waits. */
static void on_patience(void *arg)
{
    struct exchange *x = arg;

    if (dial_connected(&x->dial))
        loop_timer_start(&x->patience, 0);
    else
        upstream_fail(x, UPSTREAM_TIMEOUT, upstream_late(x));
}

int upstream_open(struct exchange *x)
{
    const struct upstream *u = x->upstream;

    loop_timer_init(u->loop, &x->patience, on_patience, x);
    if (loop_timer_start(&x->patience, u->options.connect_us))
        return -ENOMEM;
    return dial_start(&x->dial, u->loop, u->dns, u->url.at.host, u->url.at.port,
                      on_dialled, x);
}

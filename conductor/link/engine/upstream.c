/*
 * Connections to one engine and the exchanges on them.
 *
 *   busy: has an exchange;  idle: has none, is open, and owes nothing
 *   n_busy, n_idle  count the two lists; n_idle <= options.max_idle
 *   a connection whose exchange ended early, or whose end was not seen, is
 *   closed, never kept
 */
#include "conductor/link/engine/upstream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/socket.h"

#define READ_BYTES 65536

enum exchange_part {
    PART_HEAD,
    PART_SIZED, /* so many bytes as Content-Length says */
    PART_CHUNKED,
    PART_TO_END, /* until the engine closes */
    PART_DONE,
};

struct exchange {
    TAILQ_ENTRY(exchange) entry;
    struct upstream *upstream;
    struct bufferevent *bev;
    struct upstream_request request;
    const struct upstream_ops *ops; /* NULL: cancelled inside a callback, or a
                                       kept connection */
    void *arg;
    enum exchange_part part;
    bool reused;   /* the connection had an exchange before */
    bool any;      /* bytes of an answer have come */
    bool keep;     /* the answer leaves the connection open */
    bool in_call;  /* a callback runs: it is freed behind it */
    uint64_t left; /* PART_SIZED */
    struct http_chunked chunked;
};

TAILQ_HEAD(exchange_list, exchange);

struct upstream {
    struct event_base *base;
    struct evdns_base *dns;
    struct engine_url url;
    struct upstream_options options;
    struct exchange_list busy, idle; /* idle: the last used first */
    size_t n_busy, n_idle;
};

static void drop(struct exchange *x, struct exchange_list *list, size_t *n)
{
    TAILQ_REMOVE(list, x, entry);
    --*n;
    bufferevent_free(x->bev);
    free(x);
}

static void drop_busy(struct exchange *x)
{
    drop(x, &x->upstream->busy, &x->upstream->n_busy);
}

static void drop_idle(struct exchange *x)
{
    drop(x, &x->upstream->idle, &x->upstream->n_idle);
}

/* The connection has no exchange any more: it is kept, or closed. */
static void release(struct exchange *x)
{
    struct upstream *u = x->upstream;
    struct timeval idle = {u->options.idle_us / 1000000,
                           u->options.idle_us % 1000000};

    if (!x->keep || u->options.max_idle == 0 ||
        evbuffer_get_length(bufferevent_get_output(x->bev)) > 0 ||
        evbuffer_get_length(bufferevent_get_input(x->bev)) > 0) {
        drop_busy(x);
        return;
    }
    if (u->n_idle == u->options.max_idle)
        drop_idle(TAILQ_LAST(&u->idle, exchange_list));
    TAILQ_REMOVE(&u->busy, x, entry);
    u->n_busy--;
    TAILQ_INSERT_HEAD(&u->idle, x, entry);
    u->n_idle++;
    x->ops = NULL;
    bufferevent_set_timeouts(x->bev, &idle, NULL);
    bufferevent_enable(x->bev, EV_READ);
}

/* Whether the callee cancelled it meanwhile; then it is gone. */
static bool was_cancelled(struct exchange *x)
{
    x->in_call = false;
    if (x->ops)
        return false;
    drop_busy(x);
    return true;
}

static void fail(struct exchange *x, enum upstream_fault fault, const char *why)
{
    const struct upstream_ops *ops = x->ops;
    void *arg = x->arg;

    drop_busy(x);
    ops->failed(arg, fault, why);
}

static void end(struct exchange *x)
{
    const struct upstream_ops *ops = x->ops;
    void *arg = x->arg;

    release(x);
    ops->ended(arg);
}

/* Hands n bytes over; false: the exchange is gone. */
static bool hand_over(struct exchange *x, const char *bytes, size_t n)
{
    if (n == 0)
        return true;
    x->in_call = true;
    x->ops->bytes(x->arg, bytes, n);
    return !was_cancelled(x);
}

/* How the body ends (RFC 9112, 6.3). */
static void frame_body(struct exchange *x, const struct http_head *head)
{
    x->keep = head->keep_alive;
    x->chunked = (struct http_chunked){0};
    x->left = 0;
    if (head->status == 204 || head->status == 304 ||
        strcmp(x->request.method, "HEAD") == 0) {
        x->part = PART_DONE;
    } else if (head->chunked) {
        x->part = PART_CHUNKED;
    } else if (head->content_length >= 0) {
        x->left = (uint64_t)head->content_length;
        x->part = x->left ? PART_SIZED : PART_DONE;
    } else {
        x->part = PART_TO_END;
        x->keep = false;
    }
}

/* Reads heads up to that of the final answer. True: it was handed over. */
static bool read_head(struct exchange *x)
{
    struct evbuffer *in = bufferevent_get_input(x->bev);
    size_t most = x->upstream->options.max_head_bytes;

    for (;;) {
        size_t have = evbuffer_get_length(in), look = have < most ? have : most;
        struct http_fault fault;
        struct http_head head;
        long n;

        if (have == 0)
            return false;
        n = http_parse_answer(
            (const char *)evbuffer_pullup(in, (ev_ssize_t)look), look, &head,
            &fault);
        if (n < 0 || (n == 0 && have > look)) {
            fail(x, UPSTREAM_INVALID,
                 n < 0 ? fault.message : "the answer's head is too large");
            return false;
        }
        if (n == 0)
            return false;
        if (head.status >= 200) {
            frame_body(x, &head);
            x->in_call = true;
            x->ops->answer(x->arg, &head);
            if (was_cancelled(x))
                return false;
            evbuffer_drain(in, (size_t)n);
            return true;
        }
        if (head.status == 101) {
            fail(x, UPSTREAM_INVALID, "the engine switches protocols");
            return false;
        }
        evbuffer_drain(in, (size_t)n);
    }
}

/* The next piece of the body in run[0 .. n): its bytes. Returns those used; 0
 * with the exchange gone. */
static size_t read_piece(struct exchange *x, const char *run, size_t n)
{
    struct http_piece piece = {run, n};
    size_t used = n;
    int rc;

    if (x->part == PART_SIZED) {
        piece.n = used = n < x->left ? n : (size_t)x->left;
        x->left -= used;
        if (x->left == 0)
            x->part = PART_DONE;
    } else if (x->part == PART_CHUNKED) {
        rc = http_chunked_next(&x->chunked, run, n, &used, &piece);
        if (rc < 0) {
            fail(x, UPSTREAM_INVALID, "the chunked body is malformed");
            return 0;
        }
        if (rc > 0)
            x->part = PART_DONE;
    }
    return hand_over(x, piece.at, piece.n) ? used : 0;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct evbuffer *in = bufferevent_get_input(bev);
    struct exchange *x = arg;
    struct evbuffer_iovec run;

    if (!x->ops) { /* kept: what comes belongs to no request */
        drop_idle(x);
        return;
    }
    if (evbuffer_get_length(in) > 0)
        x->any = true;
    if (x->part == PART_HEAD && !read_head(x))
        return;
    while (x->part != PART_DONE && evbuffer_peek(in, -1, NULL, &run, 1) > 0 &&
           run.iov_len > 0) {
        size_t used = read_piece(x, run.iov_base, run.iov_len);

        if (used == 0)
            return;
        evbuffer_drain(in, used);
    }
    if (x->part == PART_DONE)
        end(x);
}

static int send_on(struct exchange *x);

/* The engine closed a kept connection before it saw the request: once more, on
 * a new one. False: out of memory. */
static bool send_again(struct exchange *x)
{
    bufferevent_free(x->bev);
    x->bev = NULL;
    x->reused = false;
    return send_on(x) == 0;
}

/* A failed look-up leaves no error in errno. */
static void fail_connect(struct exchange *x)
{
    int error = errno, lookup = bufferevent_socket_get_dns_error(x->bev);
    char text[128];

    snprintf(text, sizeof(text), "%s%s",
             lookup ? "cannot look up the host: " : "",
             lookup ? evutil_gai_strerror(lookup) : strerror(error));
    fail(x, UPSTREAM_UNREACHABLE, text);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct exchange *x = arg;

    if (what & BEV_EVENT_CONNECTED) {
        socket_tune(bufferevent_getfd(bev));
        bufferevent_set_timeouts(bev, NULL, NULL);
        return;
    }
    if (!x->ops) {
        drop_idle(x);
        return;
    }
    if ((what & BEV_EVENT_EOF) && x->part == PART_TO_END) {
        end(x);
        return;
    }
    if (x->reused && !x->any) {
        if (send_again(x))
            return;
        what = BEV_EVENT_ERROR;
    }
    if (x->any || x->reused)
        fail(x, UPSTREAM_BROKEN, "the connection broke off");
    else if (what & BEV_EVENT_TIMEOUT)
        fail(x, UPSTREAM_TIMEOUT, "no connection in time");
    else if (what & BEV_EVENT_EOF)
        fail(x, UPSTREAM_BROKEN, "it closed the connection without an answer");
    else
        fail_connect(x);
}

/* Writes the request; the body is only referenced. */
static int write_request(struct exchange *x)
{
    struct evbuffer *out = bufferevent_get_output(x->bev);
    const struct upstream_request *r = &x->request;
    const struct engine_url *url = &x->upstream->url;

    if (evbuffer_add_printf(out,
                            "%s %s%s HTTP/1.1\r\nHost: %s\r\n%s"
                            "Content-Length: %zu\r\n\r\n",
                            r->method, url->prefix, r->path, url->authority,
                            r->headers, r->n) < 0)
        return -ENOMEM;
    if (r->n && evbuffer_add_reference(out, r->body, r->n, NULL, NULL))
        return -ENOMEM;
    return 0;
}

/* Opens a connection for an exchange that is in the busy list. */
static int send_on(struct exchange *x)
{
    const struct upstream *u = x->upstream;
    struct timeval connect = {u->options.connect_us / 1000000,
                              u->options.connect_us % 1000000};

    x->bev = bufferevent_socket_new(
        u->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (!x->bev)
        return -ENOMEM;
    bufferevent_setcb(x->bev, on_read, NULL, on_event, x);
    bufferevent_setwatermark(x->bev, EV_READ, 0, READ_BYTES);
    bufferevent_set_max_single_read(x->bev, READ_BYTES);
    bufferevent_set_timeouts(x->bev, NULL, &connect);
    if (write_request(x) || bufferevent_enable(x->bev, EV_READ | EV_WRITE) ||
        bufferevent_socket_connect_hostname(x->bev, u->dns, AF_UNSPEC,
                                            u->url.at.host, u->url.at.port))
        return -ENOMEM;
    return 0;
}

/* A kept connection, taken out of its list, or a fresh exchange. */
static struct exchange *take(struct upstream *u)
{
    struct exchange *x = TAILQ_FIRST(&u->idle);

    if (!x) {
        x = calloc(1, sizeof(*x));
        if (x)
            x->upstream = u;
        return x;
    }
    TAILQ_REMOVE(&u->idle, x, entry);
    u->n_idle--;
    x->reused = true;
    x->any = false;
    bufferevent_set_timeouts(x->bev, NULL, NULL);
    return x;
}

struct exchange *upstream_send(struct upstream *upstream,
                               const struct upstream_request *request,
                               const struct upstream_ops *ops, void *arg)
{
    struct exchange *x = take(upstream);

    if (!x)
        return NULL;
    x->request = *request;
    x->ops = ops;
    x->arg = arg;
    x->part = PART_HEAD;
    x->keep = false;
    TAILQ_INSERT_TAIL(&upstream->busy, x, entry);
    upstream->n_busy++;
    if (x->reused ? write_request(x) : send_on(x)) {
        if (x->bev) {
            drop_busy(x);
            return NULL;
        }
        TAILQ_REMOVE(&upstream->busy, x, entry);
        upstream->n_busy--;
        free(x);
        return NULL;
    }
    return x;
}

void upstream_cancel(struct exchange *exchange)
{
    if (!exchange)
        return;
    exchange->ops = NULL;
    if (!exchange->in_call)
        drop_busy(exchange);
}

void upstream_pause(struct exchange *exchange, bool pause)
{
    if (pause) {
        bufferevent_disable(exchange->bev, EV_READ);
        return;
    }
    bufferevent_enable(exchange->bev, EV_READ);
    bufferevent_trigger(exchange->bev, EV_READ,
                        BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

struct upstream *upstream_new(struct event_base *base, struct evdns_base *dns,
                              const struct engine_url *url,
                              const struct upstream_options *options)
{
    struct upstream *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->base = base;
    u->dns = dns;
    u->url = *url;
    u->options = *options;
    TAILQ_INIT(&u->busy);
    TAILQ_INIT(&u->idle);
    return u;
}

void upstream_free(struct upstream *upstream)
{
    if (!upstream)
        return;
    while (!TAILQ_EMPTY(&upstream->idle))
        drop_idle(TAILQ_FIRST(&upstream->idle));
    while (!TAILQ_EMPTY(&upstream->busy))
        drop_busy(TAILQ_FIRST(&upstream->busy));
    free(upstream);
}

size_t upstream_busy(const struct upstream *upstream)
{
    return upstream->n_busy;
}

size_t upstream_idle(const struct upstream *upstream)
{
    return upstream->n_idle;
}

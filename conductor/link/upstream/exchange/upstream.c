/*
 * Connections to one engine and the exchanges on them.
 *
 *   busy: has an exchange;  idle: has none, is open, and owes nothing
 *   n_busy, n_idle  count the two lists; n_idle <= options.max_idle
 *   a connection whose exchange ended early, or whose answer's end was not
 *   seen, is closed, never kept
 */
#include "conductor/link/upstream/exchange/upstream.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/tls.h"
#include "conductor/link/upstream/exchange/internal.h"

/* Whether a kept connection has no unread bytes: a late answer, or a close,
 * would be taken for the next request's. Under TLS unread bytes need not be an
 * answer, so the socket is not checked. */
static bool is_silent(const struct exchange *x)
{
    const struct upstream *u = x->upstream;

    return stream_unused(x->stream) == 0 &&
           (u->tls || net_peek(u->loop, stream_fd(x->stream)) == -EAGAIN);
}

/* Requests with equal use share connections: 0 = all without an id; else a hash
 * of the path, since answers of one path name requests in the same way. */
static uint64_t use_of(const struct upstream_request *r, struct http_slice *id)
{
    uint64_t h = 0xcbf29ce484222325u;

    if (!whose_id(r->headers, id))
        return 0;
    for (const char *at = r->path; *at && *at != '?'; at++)
        h = (h ^ (unsigned char)*at) * 0x100000001b3u;
    return h ? h : 1;
}

/* The most recently used kept connection of this use; NULL = none. A late
 * answer on it cannot harm a request that `repeats`: the answer's id differs,
 * so the request is sent again. */
static struct exchange *kept_for(struct upstream *u, uint64_t use,
                                 const struct upstream_request *request)
{
    struct exchange *x, *next;

    for (x = TAILQ_FIRST(&u->idle); x; x = next) {
        next = TAILQ_NEXT(x, entry);
        if (x->use != use)
            continue;
        if ((use && request->repeats) || is_silent(x))
            return x;
        upstream_drop_kept(x);
    }
    return NULL;
}

/* Returns a kept connection, out of its list, or a fresh exchange. */
static struct exchange *take(struct upstream *u, uint64_t use,
                             struct http_slice id,
                             const struct upstream_request *request)
{
    struct exchange *x = use && id.n == 0 ? NULL : kept_for(u, use, request);

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
    return x;
}

struct exchange *upstream_send(struct upstream *upstream,
                               const struct upstream_request *request,
                               const struct upstream_ops *ops, void *arg)
{
    struct http_slice id = {NULL, 0};
    uint64_t use = use_of(request, &id);
    struct exchange *x = take(upstream, use, id, request);

    if (!x)
        return NULL;
    x->use = use;
    x->id = id;
    x->request = *request;
    x->ops = ops;
    x->arg = arg;
    x->part = PART_HEAD;
    x->keep = false;
    TAILQ_INSERT_TAIL(&upstream->busy, x, entry);
    upstream->n_busy++;
    if (x->reused ? upstream_write(x) : upstream_open(x)) {
        upstream_drop(x);
        return NULL;
    }
    if (x->reused)
        stream_push(x->stream);
    return x;
}

void upstream_cancel(struct exchange *exchange)
{
    if (!exchange)
        return;
    exchange->ops = NULL;
    if (!exchange->in_call)
        upstream_drop(exchange);
}

bool upstream_unsent(const struct exchange *exchange)
{
    return !exchange->open || stream_unsent(exchange->stream) > 0;
}

void upstream_pause(struct exchange *exchange, bool pause)
{
    if (exchange->stream)
        stream_pause(exchange->stream, pause);
}

struct upstream *upstream_new(struct loop *loop, struct dns *dns,
                              const struct engine_url *url, struct tls *tls,
                              const struct upstream_options *options)
{
    struct upstream *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->streams = stream_loop_new(loop);
    loop_timer_init(loop, &u->old, upstream_on_old, u);
    if (!u->streams) {
        free(u);
        return NULL;
    }
    u->loop = loop;
    u->dns = dns;
    u->url = *url;
    u->tls = tls ? tls_ref(tls) : NULL;
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
        upstream_drop_kept(TAILQ_FIRST(&upstream->idle));
    while (!TAILQ_EMPTY(&upstream->busy))
        upstream_drop(TAILQ_FIRST(&upstream->busy));
    tls_free(upstream->tls);
    loop_timer_stop(&upstream->old);
    stream_loop_free(upstream->streams);
    free(upstream);
}

size_t upstream_busy(const struct upstream *upstream)
{
    return upstream ? upstream->n_busy : 0;
}

size_t upstream_idle(const struct upstream *upstream)
{
    return upstream ? upstream->n_idle : 0;
}

/* The end of exchanges, and of connections: kept for the next one, or closed.
 */
#include <event2/event.h>
#include <stdlib.h>

#include "conductor/link/engine/upstream/internal.h"

static void drop(struct exchange *x, struct exchange_list *list, size_t *n)
{
    TAILQ_REMOVE(list, x, entry);
    --*n;
    if (x->bev)
        bufferevent_free(x->bev);
    free(x);
}

void upstream_drop(struct exchange *x)
{
    drop(x, &x->upstream->busy, &x->upstream->n_busy);
}

void upstream_drop_kept(struct exchange *x)
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
        upstream_drop(x);
        return;
    }
    if (u->n_idle == u->options.max_idle)
        upstream_drop_kept(TAILQ_LAST(&u->idle, exchange_list));
    TAILQ_REMOVE(&u->busy, x, entry);
    u->n_busy--;
    TAILQ_INSERT_HEAD(&u->idle, x, entry);
    u->n_idle++;
    x->ops = NULL;
    if (!u->tls)
        bufferevent_disable(x->bev, EV_WRITE); /* as upstream_send() has it */
    bufferevent_set_timeouts(x->bev, &idle, NULL);
    bufferevent_enable(x->bev, EV_READ);
}

void upstream_fail(struct exchange *x, enum upstream_fault fault,
                   const char *why)
{
    const struct upstream_ops *ops = x->ops;
    void *arg = x->arg;

    upstream_drop(x);
    ops->failed(arg, fault, why);
}

void upstream_end(struct exchange *x)
{
    const struct upstream_ops *ops = x->ops;
    void *arg = x->arg;

    release(x);
    ops->ended(arg);
}

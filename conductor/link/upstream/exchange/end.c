/* Ends exchanges; keeps their connections for the next one, or closes them. */
#include <stdlib.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "conductor/link/upstream/exchange/internal.h"

void upstream_close(struct exchange *x)
{
    loop_timer_stop(&x->patience);
    dial_stop(&x->dial);
    stream_free(x->stream);
    x->stream = NULL;
}

static void drop(struct exchange *x, struct exchange_list *list, size_t *n)
{
    TAILQ_REMOVE(list, x, entry);
    --*n;
    upstream_close(x);
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

/* Keeps or closes the connection of an exchange that has ended. */
static void release(struct exchange *x)
{
    struct upstream *u = x->upstream;

    if (!x->keep || u->options.max_idle == 0 || stream_unused(x->stream) > 0 ||
        stream_unsent(x->stream) > 0) {
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
    x->idle_since_us = loop_now_us(u->loop);
    if (u->n_idle == 1)
        loop_timer_start(&u->old, u->options.idle_us);
    stream_pause(x->stream, false);
}

/* Connections idle for the longest time are at the list's end. */
void upstream_on_old(void *arg)
{
    struct upstream *u = arg;
    int64_t now_us = loop_now_us(u->loop), left_us;
    struct exchange *x;

    while ((x = TAILQ_LAST(&u->idle, exchange_list))) {
        left_us = x->idle_since_us + u->options.idle_us - now_us;
        if (left_us > 0) {
            loop_timer_start(&u->old, left_us);
            return;
        }
        upstream_drop_kept(x);
    }
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

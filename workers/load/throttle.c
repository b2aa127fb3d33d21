/* Wraps sources, so that they share one link of a given rate. The wrapped
 * source is asked for a piece when the link would have brought it. */
#include <errno.h>

#include "workers/load/internal.h"

/* Most time (us) of waiting pieces, so that no time overflows. */
#define BEHIND_MAX_US 1e15

static int throttle_read(void *, void *, struct loader_piece *p)
{
    struct loader *l = p->source->loader;
    struct throttle *t = &l->throttle;
    int64_t now_us = loader_now_us(l);

    if (TAILQ_EMPTY(&t->waiting) || t->free_us < now_us)
        t->free_us = now_us;
    double behind_us =
        (double)(t->free_us - now_us) + (double)p->bytes / t->bytes_per_s * 1e6;
    t->free_us = now_us + (int64_t)(behind_us < BEHIND_MAX_US ? behind_us
                                                              : BEHIND_MAX_US);
    p->due_us = t->free_us;
    TAILQ_INSERT_TAIL(&t->waiting, p, link);
    loader_wake_at(l, p->due_us);
    return 0;
}

static void take_out(struct loader_piece *p)
{
    TAILQ_REMOVE(&p->source->loader->throttle.waiting, p, link);
    p->due_us = 0;
}

static void throttle_cancel(void *arg, struct loader_piece *p)
{
    const struct loader_source_ops *behind = p->source->behind;

    if (p->due_us > 0) {
        take_out(p);
        loader_done(p, -ECANCELED);
    } else if (behind->cancel) {
        behind->cancel(arg, p);
    }
}

void throttle_wrap(struct loader_source *s)
{
    s->ops.read = throttle_read;
    s->ops.cancel = throttle_cancel;
}

void throttle_tick(struct loader *l)
{
    struct loader_piece *p;

    while ((p = TAILQ_FIRST(&l->throttle.waiting)) &&
           p->due_us <= loader_now_us(l)) {
        const struct loader_source *s = p->source;

        take_out(p);
        int rc = s->behind->read(s->arg, p->session, p);
        if (rc < 0)
            loader_done(p, rc);
    }
    if (p)
        loader_wake_at(l, p->due_us);
}

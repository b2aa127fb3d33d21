/* The loop's functions, each a call into the implementation's table. */
#include "base/loop/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/loop/ops.h"

void loop_free(struct loop *loop)
{
    if (loop)
        loop->ops->free(loop);
}

int loop_run(struct loop *loop)
{
    return loop->ops->run(loop);
}

void loop_stop(struct loop *loop)
{
    loop->ops->stop(loop);
}

int loop_turn(struct loop *loop, int64_t wait_us)
{
    return loop->ops->turn(loop, wait_us);
}

int64_t loop_now_us(const struct loop *loop)
{
    return loop->ops->now_us(loop);
}

int64_t loop_wall_us(const struct loop *loop)
{
    return loop->ops->wall_us(loop);
}

uint64_t loop_random(struct loop *loop)
{
    return loop->ops->random(loop);
}

void loop_random_bytes(struct loop *loop, uint8_t *out, size_t n)
{
    while (n > 0) {
        uint64_t number = loop_random(loop);
        size_t part = n < sizeof(number) ? n : sizeof(number);

        memcpy(out, &number, part);
        out += part;
        n -= part;
    }
}

int64_t loop_turn_us(const struct loop *loop)
{
    return loop->ops->turn_us(loop);
}

int64_t loop_away_us(int64_t *last_us, int64_t now_us, int64_t every_us)
{
    int64_t late_us = *last_us ? now_us - *last_us - every_us : 0;

    *last_us = now_us;
    return late_us > every_us ? late_us : 0;
}

void loop_timer_init(struct loop *loop, struct loop_timer *t,
                     void (*run)(void *arg), void *arg)
{
    t->loop = loop;
    t->run = run;
    t->arg = arg;
    t->repeats = false;
    loop->ops->timer_init(t);
}

static int start(struct loop_timer *t, int64_t us, bool repeats)
{
    if (t->repeats != repeats) {
        t->loop->ops->timer_stop(t);
        t->repeats = repeats;
        t->loop->ops->timer_init(t);
    }
    return t->loop->ops->timer_start(t, us);
}

int loop_timer_start(struct loop_timer *t, int64_t us)
{
    return start(t, us, false);
}

int loop_timer_repeat(struct loop_timer *t, int64_t us)
{
    return start(t, us, true);
}

void loop_defer(struct loop_timer *t)
{
    t->loop->ops->timer_defer(t);
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->loop)
        t->loop->ops->timer_stop(t);
}

bool loop_timer_pending(const struct loop_timer *t)
{
    return t->loop && t->loop->ops->timer_pending(t);
}

static void watch_init(struct loop *loop, struct loop_watch *w,
                       struct loop_watch with, bool signal, bool first)
{
    w->loop = loop;
    w->run = with.run;
    w->arg = with.arg;
    w->fd = with.fd;
    w->what = with.what;
    loop->ops->watch_init(w, signal, first);
}

void loop_watch_init(struct loop *loop, struct loop_watch *w, int fd,
                     unsigned what, void (*run)(void *arg, unsigned what),
                     void *arg)
{
    watch_init(
        loop, w,
        (struct loop_watch){.fd = fd, .what = what, .run = run, .arg = arg},
        false, false);
}

void loop_signal_init(struct loop *loop, struct loop_watch *w, int number,
                      void (*run)(void *arg, unsigned what), void *arg)
{
    watch_init(loop, w,
               (struct loop_watch){.fd = number, .run = run, .arg = arg}, true,
               false);
}

int loop_watch_start(struct loop_watch *w, int64_t patience_us)
{
    return w->loop->ops->watch_start(w, patience_us);
}

void loop_watch_stop(struct loop_watch *w)
{
    if (w->loop)
        w->loop->ops->watch_stop(w);
}

bool loop_watch_pending(const struct loop_watch *w)
{
    return w->loop && w->loop->ops->watch_pending(w);
}

void loop_watch_report(struct loop_watch *w, unsigned what)
{
    w->loop->ops->watch_report(w, what);
}

static void on_ring(void *arg, unsigned)
{
    struct loop_bell *b = arg;
    uint64_t count;

    if (b->watch.fd >= 0) /* fails only if the counter was read already */
        (void)!read(b->watch.fd, &count, sizeof(count));
    b->heard(b->arg);
}

bool loop_has_threads(const struct loop *loop)
{
    return loop->ops->has_threads;
}

int loop_bell_init(struct loop *loop, struct loop_bell *b, bool first,
                   void (*heard)(void *arg), void *arg)
{
    bool threads = loop_has_threads(loop);
    int fd = threads ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;

    if (threads && fd < 0)
        return -errno;
    b->heard = heard;
    b->arg = arg;
    watch_init(loop, &b->watch,
               (struct loop_watch){
                   .fd = fd, .what = LOOP_READ, .run = on_ring, .arg = b},
               false, first);
    int rc = loop_watch_start(&b->watch, 0);
    if (rc)
        loop_bell_fini(b);
    return rc;
}

void loop_bell_fini(struct loop_bell *b)
{
    if (!b->watch.loop)
        return;
    loop_watch_stop(&b->watch);
    if (b->watch.fd >= 0)
        close(b->watch.fd);
    b->watch.loop = NULL;
}

void loop_ring(struct loop_bell *b)
{
    uint64_t one = 1;

    if (b->watch.fd < 0)
        loop_watch_report(&b->watch, LOOP_READ);
    else /* fails only if the counter is full: it is ringing */
        (void)!write(b->watch.fd, &one, sizeof(one));
}

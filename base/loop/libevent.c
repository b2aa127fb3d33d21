/* Implements the loop with libevent, for every program. */
#include "base/loop/libevent.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/loop/ops.h"

/* libevent runs what is more urgent first; the default is the lower one. */
#define N_PRIORITIES 2

static_assert(sizeof(struct event) <= sizeof(struct loop_private));
static_assert(LOOP_LATE == EV_TIMEOUT && LOOP_READ == EV_READ &&
              LOOP_WRITE == EV_WRITE);

struct libevent {
    struct loop loop;
    struct event_base *base;
    struct event limit; /* of loop_turn() */
    struct entropy_store random;
};

static struct libevent *libevent_of(const struct loop *loop)
{
    return (struct libevent *)loop;
}

static struct event *event_of(const struct loop_private *own)
{
    return (struct event *)own->words;
}

static int add(struct event *e, int64_t us)
{
    struct timeval tv = {us / 1000000, us % 1000000};

    return event_add(e, &tv) ? -ENOMEM : 0;
}

static void on_timer(evutil_socket_t, short, void *arg)
{
    struct loop_timer *t = arg;

    t->run(t->arg);
}

static void timer_init(struct loop_timer *t)
{
    event_assign(event_of(&t->own), libevent_of(t->loop)->base, -1,
                 t->repeats ? EV_PERSIST : 0, on_timer, t);
}

static int timer_start(struct loop_timer *t, int64_t us)
{
    /* libevent takes an interval of 0 for none. */
    return add(event_of(&t->own), t->repeats && us < 1 ? 1 : us);
}

/* Not as EV_TIMEOUT: libevent would count the next interval from when the timer
 * was due, not from now, and add one with each call. */
static void timer_defer(struct loop_timer *t)
{
    event_active(event_of(&t->own), EV_READ, 1);
}

static void timer_stop(struct loop_timer *t)
{
    event_del(event_of(&t->own));
}

static bool timer_pending(const struct loop_timer *t)
{
    return event_pending(event_of(&t->own), EV_TIMEOUT | EV_READ, NULL);
}

static void on_watch(evutil_socket_t, short what, void *arg)
{
    struct loop_watch *w = arg;

    w->run(w->arg, (unsigned)what & (LOOP_LATE | LOOP_READ | LOOP_WRITE));
}

static void on_signal(evutil_socket_t number, short, void *arg)
{
    struct loop_watch *w = arg;

    w->run(w->arg, (unsigned)number);
}

static void watch_init(struct loop_watch *w, bool signal, bool first)
{
    struct event *e = event_of(&w->own);
    unsigned what = w->what & (LOOP_READ | LOOP_WRITE);

    if (signal)
        what = EV_SIGNAL;
    if (!(w->what & LOOP_ONCE))
        what |= EV_PERSIST;
    event_assign(e, libevent_of(w->loop)->base, w->fd, (short)what,
                 signal ? on_signal : on_watch, w);
    if (first)
        event_priority_set(e, 0);
}

static int watch_start(struct loop_watch *w, int64_t patience_us)
{
    struct event *e = event_of(&w->own);

    if (patience_us)
        return add(e, patience_us);
    event_remove_timer(e); /* else the last patience goes on */
    return event_add(e, NULL) ? -ENOMEM : 0;
}

static void watch_stop(struct loop_watch *w)
{
    event_remove_timer(event_of(&w->own)); /* event_del() keeps its interval */
    event_del(event_of(&w->own));
}

static bool watch_pending(const struct loop_watch *w)
{
    return event_pending(event_of(&w->own), EV_READ | EV_WRITE | EV_SIGNAL,
                         NULL);
}

static void watch_report(struct loop_watch *w, unsigned what)
{
    event_active(event_of(&w->own), (int)what, 1);
}

static int run(struct loop *loop)
{
    return event_base_dispatch(libevent_of(loop)->base) < 0 ? -EIO : 0;
}

static void stop(struct loop *loop)
{
    event_base_loopbreak(libevent_of(loop)->base);
}

static void on_limit(evutil_socket_t, short, void *)
{
}

static int turn(struct loop *loop, int64_t wait_us)
{
    struct libevent *l = libevent_of(loop);

    if (wait_us > 0)
        add(&l->limit, wait_us);
    int rc = event_base_loop(l->base, wait_us ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
    event_del(&l->limit);
    return rc < 0 ? -EIO : 0;
}

static int64_t now_us(const struct loop *)
{
    return clock_now_us();
}

static int64_t wall_us(const struct loop *)
{
    return clock_wall_us();
}

static uint64_t random_number(struct loop *loop)
{
    return entropy_next(&libevent_of(loop)->random);
}

static int64_t turn_us(const struct loop *loop)
{
    struct timeval now;

    /* Cannot fail: the clock is there. */
    (void)!event_base_gettimeofday_cached(libevent_of(loop)->base, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_usec;
}

static void free_loop(struct loop *loop)
{
    struct libevent *l = libevent_of(loop);

    if (l->base)
        event_base_free(l->base);
    free(l);
}

static const struct loop_ops libevent_ops = {
    .has_threads = true,
    .free = free_loop,
    .run = run,
    .stop = stop,
    .turn = turn,
    .now_us = now_us,
    .wall_us = wall_us,
    .random = random_number,
    .turn_us = turn_us,
    .timer_init = timer_init,
    .timer_start = timer_start,
    .timer_defer = timer_defer,
    .timer_stop = timer_stop,
    .timer_pending = timer_pending,
    .watch_init = watch_init,
    .watch_start = watch_start,
    .watch_stop = watch_stop,
    .watch_pending = watch_pending,
    .watch_report = watch_report,
};

/* Logs libevent's messages. */
static void on_message(int severity, const char *text)
{
    log_line(severity >= EVENT_LOG_ERR     ? LOG_ERROR
             : severity >= EVENT_LOG_WARN  ? LOG_WARN
             : severity == EVENT_LOG_DEBUG ? LOG_DEBUG
                                           : LOG_INFO,
             "libevent: %s", text);
}

struct loop *loop_new(void)
{
    struct libevent *l = calloc(1, sizeof(*l));
    struct event_config *config = event_config_new();

    event_set_log_callback(on_message);
    if (l && config &&
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) == 0)
        l->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    if (!l || !l->base || event_base_priority_init(l->base, N_PRIORITIES)) {
        if (l)
            free_loop(&l->loop);
        return NULL;
    }
    l->loop.ops = &libevent_ops;
    l->loop.net = &kernel_net_ops;
    event_assign(&l->limit, l->base, -1, 0, on_limit, NULL);
    return &l->loop;
}

struct event_base *loop_event_base(struct loop *loop)
{
    return libevent_of(loop)->base;
}

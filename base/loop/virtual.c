/* One queue of calls for all loops of a time. */
#include "base/loop/virtual.h"

#include <errno.h>
#include <stdlib.h>

#include "base/heap.h"
#include "base/loop/virtual_internal.h"

/* A call that waits: of a timer, or of a watch. Its number is its index; the
 * timer or watch holds that number plus one, or 0. */
struct call {
    struct virtual_loop *loop; /* NULL = free */
    struct loop_timer *timer;  /* or */
    struct loop_watch *watch;
    unsigned what;  /* ready for the watch; 0 = late, if due */
    bool by_net;    /* `what` is what the socket was ready for */
    int64_t due_us; /* without the pause of its loop */
    int64_t every_us;
    uint32_t next_free; /* as first_free */
};

struct virtual_time {
    int64_t now_us;
    uint32_t (*tie)(void *arg);
    void *arg;
    struct heap queue;
    struct call *calls; /* (size) */
    uint32_t size;
    uint32_t first_free; /* number of a free call, plus one; 0 = none */
    uint64_t seed; /* of random numbers, drawn when the first one is asked for;
                      0 = not yet */
    unsigned n_loops; /* made so far */
};

static struct virtual_loop *loop_of(const struct loop *loop)
{
    return virtual_loop_of(loop);
}

static struct call *call_of(const struct loop *loop,
                            const struct loop_private *own)
{
    return own->words[0] ? &loop_of(loop)->time->calls[own->words[0] - 1]
                         : NULL;
}

static uint32_t number_of(const struct call *c)
{
    return (uint32_t)(c - c->loop->time->calls);
}

/* Returns the time in `us`; INT64_MAX, which never comes, where it would be
 * later than that. */
static int64_t time_in(const struct virtual_time *t, int64_t us)
{
    return us > 0 && t->now_us > INT64_MAX - us ? INT64_MAX : t->now_us + us;
}

/* Puts the call into the queue at its time, or at the end of the pause. */
static void queue(struct call *c)
{
    struct virtual_time *t = c->loop->time;
    int64_t until_us = c->loop->paused_until_us;

    heap_set(&t->queue, number_of(c), t->tie(t->arg),
             c->due_us > until_us ? c->due_us : until_us);
}

static int grow(struct virtual_time *t)
{
    uint32_t size = t->size ? 2 * t->size : 64;
    struct call *calls = realloc(t->calls, size * sizeof(*calls));

    if (!calls)
        return -ENOMEM;
    t->calls = calls;
    if (heap_reserve(&t->queue, size))
        return -ENOMEM;
    for (uint32_t i = size; i > t->size; i--) {
        t->calls[i - 1] = (struct call){.next_free = t->first_free};
        t->first_free = i;
    }
    t->size = size;
    return 0;
}

/* Returns the call of a timer or watch, a free one if it has none; NULL: out of
 * memory. */
static struct call *take(struct loop *loop, struct loop_private *own)
{
    struct virtual_time *t = loop_of(loop)->time;

    if (own->words[0])
        return call_of(loop, own);
    if (!t->first_free && grow(t))
        return NULL;
    own->words[0] = t->first_free;
    struct call *c = call_of(loop, own);
    t->first_free = c->next_free;
    *c = (struct call){.loop = loop_of(loop)};
    return c;
}

static void drop(const struct loop *loop, struct loop_private *own)
{
    struct call *c = call_of(loop, own);

    if (!c)
        return;
    struct virtual_time *t = c->loop->time;
    heap_remove(&t->queue, number_of(c));
    *c = (struct call){.next_free = t->first_free};
    t->first_free = (uint32_t)own->words[0];
    own->words[0] = 0;
}

static void timer_init(struct loop_timer *timer)
{
    timer->own.words[0] = 0;
}

static int timer_start(struct loop_timer *timer, int64_t us)
{
    struct call *c = take(timer->loop, &timer->own);

    if (!c)
        return -ENOMEM;
    if (us < 1)
        us = 1;
    c->timer = timer;
    c->every_us = timer->repeats ? us : 0;
    c->due_us = time_in(c->loop->time, us);
    queue(c);
    return 0;
}

static void timer_defer(struct loop_timer *timer)
{
    struct call *c = take(timer->loop, &timer->own);

    if (!c)
        return;
    c->timer = timer;
    c->due_us = c->loop->time->now_us;
    queue(c);
}

static void timer_stop(struct loop_timer *timer)
{
    drop(timer->loop, &timer->own);
}

static bool timer_pending(const struct loop_timer *timer)
{
    return call_of(timer->loop, &timer->own);
}

static void watch_init(struct loop_watch *w, bool, bool)
{
    w->own.words[0] = 0;
}

static bool watch_pending(const struct loop_watch *w)
{
    return call_of(w->loop, &w->own);
}

/* Waits until the socket is ready or for virtual_ready(), as long as the watch
 * has patience. A turn takes a microsecond: what is ready now comes after it.
 */
static void await(struct call *c)
{
    c->what = virtual_socket_ready(c->watch);
    c->by_net = c->what;
    if (c->what)
        c->due_us = time_in(c->loop->time, 1);
    else
        c->due_us =
            c->every_us ? time_in(c->loop->time, c->every_us) : INT64_MAX;
    queue(c);
}

static int watch_start(struct loop_watch *w, int64_t patience_us)
{
    struct call *c = take(w->loop, &w->own);

    if (!c)
        return -ENOMEM;
    if (!c->watch)
        virtual_socket_watch(w);
    c->watch = w;
    c->every_us = patience_us;
    if (!c->what)
        await(c);
    return 0;
}

static void watch_stop(struct loop_watch *w)
{
    if (watch_pending(w))
        virtual_socket_unwatch(w);
    drop(w->loop, &w->own);
}

static void report(struct call *c, unsigned what)
{
    c->what |= what;
    c->by_net = false;
    c->due_us = c->loop->time->now_us;
    queue(c);
}

static void watch_report(struct loop_watch *w, unsigned what)
{
    bool waits = watch_pending(w);
    struct call *c = take(w->loop, &w->own);

    if (!c)
        return;
    if (!waits)
        virtual_socket_watch(w);
    c->watch = w;
    if (!waits)
        c->every_us = -1; /* it was not started: this report is the only one */
    report(c, what);
}

void virtual_watch_ready(struct loop_watch *w, unsigned what)
{
    struct call *c = call_of(w->loop, &w->own);

    if (c->what) /* it is reported already */
        return;
    c->what = what;
    c->by_net = true;
    c->due_us = c->loop->time->now_us;
    queue(c);
}

uint32_t virtual_draw(struct virtual_time *time)
{
    return time->tie(time->arg);
}

void virtual_ready(struct loop *loop, int fd, unsigned what)
{
    struct virtual_time *t = loop_of(loop)->time;

    for (uint32_t i = 0; i < t->size; i++) {
        struct call *c = &t->calls[i];

        if (c->loop == loop_of(loop) && c->watch && c->watch->fd == fd &&
            c->watch->what & what)
            report(c, c->watch->what & what);
    }
}

void virtual_loop_pause(struct loop *loop, int64_t until_us)
{
    struct virtual_loop *l = loop_of(loop);

    l->paused_until_us = until_us;
    for (uint32_t i = 0; i < l->time->size; i++)
        if (l->time->calls[i].loop == l)
            queue(&l->time->calls[i]);
}

static void run_timer(struct call *c)
{
    struct loop_timer *timer = c->timer;

    if (timer->repeats) {
        c->due_us = time_in(c->loop->time, c->every_us);
        queue(c);
    } else {
        timer_stop(timer);
    }
    timer->run(timer->arg);
}

static void run_watch(struct call *c)
{
    struct loop_watch *w = c->watch;
    unsigned what = c->by_net ? virtual_socket_ready(w) : c->what;

    if (!what && c->by_net) { /* another call has used what came */
        await(c);
        return;
    }
    if (!what)
        what = LOOP_LATE;
    if (w->what & LOOP_ONCE || c->every_us < 0)
        watch_stop(w);
    else
        await(c);
    w->run(w->arg, what);
}

bool virtual_time_step(struct virtual_time *t, int64_t until_us)
{
    const struct heap_entry *first = heap_first(&t->queue);
    struct call *c;

    if (!first || first->at == INT64_MAX || first->at > until_us) {
        if (t->now_us < until_us && until_us < INT64_MAX)
            t->now_us = until_us;
        return false;
    }
    if (t->now_us < first->at)
        t->now_us = first->at;
    c = &t->calls[first->id];
    if (c->timer)
        run_timer(c);
    else
        run_watch(c);
    return true;
}

static int run(struct loop *loop)
{
    struct virtual_loop *l = loop_of(loop);

    l->stopped = false;
    while (!l->stopped && virtual_time_step(l->time, INT64_MAX))
        ;
    return 0;
}

static void stop(struct loop *loop)
{
    loop_of(loop)->stopped = true;
}

/* All that is due now; else what comes first within wait_us. */
static int turn(struct loop *loop, int64_t wait_us)
{
    struct virtual_time *t = loop_of(loop)->time;
    int64_t now_us = t->now_us;

    if (!virtual_time_step(t, now_us))
        virtual_time_step(t, wait_us < 0 ? INT64_MAX : time_in(t, wait_us));
    while (virtual_time_step(t, t->now_us))
        ;
    return 0;
}

static int64_t now_us(const struct loop *loop)
{
    return loop_of(loop)->time->now_us;
}

static int64_t wall_us(const struct loop *loop)
{
    return loop_of(loop)->wall_ahead_us + now_us(loop);
}

/* splitmix64 (Steele, Lea, Flood, 2014) */
static uint64_t random_number(struct loop *loop)
{
    struct virtual_time *t = loop_of(loop)->time;

    if (!t->seed) {
        t->seed = (uint64_t)t->tie(t->arg) << 32 | 1;
        t->seed |= t->tie(t->arg);
    }
    uint64_t z = t->seed + (loop_of(loop)->random += 0x9e3779b97f4a7c15u);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void free_loop(struct loop *loop)
{
    virtual_process_free(loop_of(loop)->process);
    free(loop);
}

static const struct loop_ops virtual_ops = {
    .free = free_loop,
    .run = run,
    .stop = stop,
    .turn = turn,
    .now_us = now_us,
    .wall_us = wall_us,
    .random = random_number,
    .turn_us = now_us,
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

struct virtual_time *virtual_time_new(int64_t now_us,
                                      uint32_t (*tie)(void *arg), void *arg)
{
    struct virtual_time *t = calloc(1, sizeof(*t));

    if (t)
        *t = (struct virtual_time){.now_us = now_us, .tie = tie, .arg = arg};
    return t;
}

void virtual_time_free(struct virtual_time *t)
{
    if (!t)
        return;
    heap_fini(&t->queue);
    free(t->calls);
    free(t);
}

int64_t virtual_time_us(const struct virtual_time *t)
{
    return t->now_us;
}

struct loop *virtual_loop_new(struct virtual_time *t)
{
    struct virtual_loop *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->loop.ops = &virtual_ops;
    l->loop.net = &virtual_net_ops;
    l->time = t;
    l->wall_ahead_us = VIRTUAL_WALL_US;
    l->random = ++t->n_loops * 0xd1342543de82ef95u;
    return &l->loop;
}

void virtual_loop_set_wall(struct loop *loop, int64_t to_us)
{
    loop_of(loop)->wall_ahead_us = to_us - now_us(loop);
}

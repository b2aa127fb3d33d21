/* A connection's steps, losses and retries. */
#include "base/dns.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/redis/internal.h"
#include "base/text.h"

#define LONGEST_PAUSE_US 2000000
#define DIRECTED_PAUSE_US 10000 /* to an address named by a server */

void redis_deadline(struct redis *r, int64_t us)
{
    r->due_us = loop_now_us(r->loop) + us;
    if (loop_timer_start(&r->timer, us))
        log_error("%s: out of memory", r->what);
}

static void tell(struct redis *r, bool up)
{
    if (r->told_up == up || r->freeing)
        return;
    r->told_up = up;
    if (up)
        log_info("%s: redis %s:%u is connected", r->what, r->to.host,
                 r->to.port);
    else
        log_warn("%s: redis %s:%u is lost: %s", r->what, r->to.host, r->to.port,
                 r->why);
    if (r->watch.fn)
        r->watch.fn(r->watch.arg, up);
}

/* Schedules another try; logs the first of several failures. */
static void rest(struct redis *r)
{
    bool was_up = r->told_up;

    if (r->step == RESTING)
        return;
    r->step = RESTING;
    r->counts.losses += was_up;
    if (!was_up && !r->complained && !r->directed && !r->freeing) {
        log_warn("%s: redis %s:%u cannot be used: %s", r->what, r->to.host,
                 r->to.port, r->why);
        r->complained = true;
    }
    redis_deadline(r, r->directed
                          ? DIRECTED_PAUSE_US
                          : r->pause_us / 2 + (int64_t)(loop_random(r->loop) %
                                                        (uint64_t)r->pause_us));
    r->pause_us *= 2;
    if (r->pause_us > LONGEST_PAUSE_US)
        r->pause_us = LONGEST_PAUSE_US;
    tell(r, false);
}

void redis_drop(struct redis *r)
{
    redisAsyncContext *ac = r->ac;

    dns_cancel(r->lookup);
    r->lookup = NULL;
    r->ac = NULL;
    r->ssl = NULL;
    if (ac)
        redisAsyncFree(ac);
    rest(r);
}

void redis_leave(struct redis *r, const char *why)
{
    if (r->step == RESTING || loop_timer_pending(&r->leave))
        return;
    text_copy(r->why, sizeof(r->why), why);
    loop_defer(&r->leave);
}

void redis_come_up(struct redis *r)
{
    r->step = UP;
    r->directed = false;
    r->complained = false;
    r->pause_us = REDIS_FIRST_PAUSE_US;
    r->why[0] = '\0';
    r->counts.connects++;
    loop_timer_stop(&r->timer);
    if (r->oldest) /* any command left gets a deadline */
        redis_deadline(r, r->options.timeout_us);
    tell(r, true);
}

/* See redis.h. */
#include "base/redis/redis.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/loop/loop.h"
#include "base/redis/internal.h"
#include "base/text.h"

#define LATE_US 100000 /* if the timer is later, this process did not run */

static void on_leave(void *arg)
{
    redis_drop(arg);
}

int redis_command(struct redis *r, struct redis_done done, int argc,
                  const char *const argv[], const size_t lens[])
{
    size_t bytes = redis_size_of(argc, argv, lens);
    int rc = -ENOTCONN;

    if (redis_is_up(r)) {
        rc = r->counts.in_flight >= r->options.max_flight ||
                     bytes > r->options.max_bytes - r->counts.bytes_in_flight
                 ? -ENOBUFS
                 : redis_send(r, done, argc, argv, lens);
    }
    r->counts.refused += rc != 0;
    return rc;
}

/* Handles the deadline of the oldest answer, or of a step. A process that did
 * not run for a while first reads waiting answers. */
static void on_timer(void *arg)
{
    struct redis *r = arg;
    int64_t now_us = loop_now_us(r->loop);

    if (r->step == RESTING) {
        redis_connect(r);
        return;
    }
    if (r->step == UP && !r->oldest)
        return;
    if (now_us > r->due_us + LATE_US) {
        redis_deadline(r, LATE_US);
        return;
    }
    int64_t left_us =
        r->step == UP ? r->oldest->sent_us + r->options.timeout_us - now_us : 0;
    if (left_us > 0)
        redis_deadline(r, left_us);
    else
        redis_leave(r, r->step == UP ? "no answer in time"
                       : r->step == RESOLVING
                           ? "its host was not looked up in time"
                           : "no connection in time");
}

struct redis *redis_new(struct loop *loop, struct dns *dns,
                        const struct redis_url *url,
                        const struct redis_options *options,
                        struct redis_watch watch)
{
    struct redis *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->loop = loop;
    r->dns = dns;
    r->url = *url;
    r->options = *options;
    r->watch = watch;
    r->newest = &r->oldest;
    r->pause_us = REDIS_FIRST_PAUSE_US;
    text_copy(r->what, sizeof(r->what), options->what);
    text_copy(r->why, sizeof(r->why), "not connected yet");
    loop_timer_init(loop, &r->timer, on_timer, r);
    loop_timer_init(loop, &r->leave, on_leave, r);
    if (loop_timer_start(&r->timer, 0)) {
        redis_free(r);
        return NULL;
    }
    return r;
}

bool redis_is_up(const struct redis *r)
{
    return r->step == UP && r->ac && !loop_timer_pending(&r->leave);
}

struct redis_counts redis_counts(const struct redis *r)
{
    return r->counts;
}

const char *redis_why(const struct redis *r)
{
    return redis_is_up(r) ? "" : r->why;
}

int redis_local_host(const struct redis *r, char *host, size_t bytes)
{
    struct sockaddr_storage ss;
    socklen_t n = sizeof(ss);

    if (!redis_is_up(r) ||
        getsockname(r->ac->c.fd, (struct sockaddr *)&ss, &n) ||
        getnameinfo((struct sockaddr *)&ss, n, host, (socklen_t)bytes, NULL, 0,
                    NI_NUMERICHOST))
        return -ENOTCONN;
    return 0;
}

void redis_free(struct redis *r)
{
    if (!r)
        return;
    r->freeing = true;
    redis_drop(r);
    loop_timer_stop(&r->timer);
    loop_timer_stop(&r->leave);
    free(r);
}

/* Comments in a stream that waits. */
#include "conductor/front/keepalive.h"

#include "base/loop/loop.h"
#include "conductor/front/internal.h"

static void on_time(void *arg)
{
    static const char comment[] = ": keep-alive\n\n";
    struct keepalive *k = arg;

    if (!k->began) {
        k->began = true;
        k->begin(k->arg);
    }
    /* A client with unread output gets no further comment. */
    if (http_unsent(k->conn) > 0 ||
        http_write(k->conn, comment, sizeof(comment) - 1))
        return;
}

void keepalive_start(struct keepalive *k, const struct front *front,
                     struct http_conn *conn, void (*begin)(void *arg),
                     void *arg)
{
    int64_t us = front->options.keepalive_us;

    *k = (struct keepalive){.conn = conn, .begin = begin, .arg = arg};
    loop_timer_init(front->loop, &k->timer, on_time, k);
    if (us > 0)
        loop_timer_repeat(&k->timer, us);
}

void keepalive_stop(struct keepalive *k)
{
    loop_timer_stop(&k->timer);
}

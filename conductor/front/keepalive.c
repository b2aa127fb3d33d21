/* Comments in a stream that waits. */
#include "conductor/front/keepalive.h"

#include "base/event_loop.h"
#include "conductor/front/internal.h"

static void on_time(evutil_socket_t, short, void *arg)
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
    if (us > 0)
        k->timer = event_new(front->base, -1, EV_PERSIST, on_time, k);
    if (k->timer)
        (void)!event_loop_wait(k->timer, us); /* no comments are sent, then */
}

void keepalive_stop(struct keepalive *k)
{
    event_loop_drop(k->timer);
    k->timer = NULL;
}

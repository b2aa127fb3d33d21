/*
 * Comments in a stream of events while it waits for its first bytes, so that
 * proxies and clients do not give up. The first comment sends the answer's
 * head: a later error can no longer set the status.
 */
#ifndef CONDUCTOR_FRONT_KEEPALIVE_H
#define CONDUCTOR_FRONT_KEEPALIVE_H

#include <stdbool.h>

#include "base/loop/loop.h"

struct front;
struct http_conn;

struct keepalive {
    struct loop_timer timer; /* pending while comments are sent */
    struct http_conn *conn;
    void (*begin)(void *arg); /* sends the head */
    void *arg;
    bool began;
};

/* Sends a comment every options.keepalive_us until keepalive_stop(); none if
 * that is 0 or memory is short. Calls begin(arg) before the first. */
void keepalive_start(struct keepalive *k, const struct front *front,
                     struct http_conn *conn, void (*begin)(void *arg),
                     void *arg);

/* Stops the comments. A zeroed struct is fine. */
void keepalive_stop(struct keepalive *k);

#endif

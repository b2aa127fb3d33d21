/*
 * Comments in a stream of events while nothing has come yet, so that proxies
 * and clients do not give up. The first of them sends the answer's head: an
 * error that comes behind it can no longer be a status.
 */
#ifndef CONDUCTOR_FRONT_KEEPALIVE_H
#define CONDUCTOR_FRONT_KEEPALIVE_H

#include <stdbool.h>

struct event;
struct front;
struct http_conn;

struct keepalive {
    struct event *timer; /* owned; NULL: none are sent any more */
    struct http_conn *conn;
    void (*begin)(void *arg); /* sends the head */
    void *arg;
    bool began;
};

/* Sends a comment every options.keepalive_us until keepalive_stop(); none if
 * that is 0, or without memory. `begin(arg)` comes before the first. */
void keepalive_start(struct keepalive *k, const struct front *front,
                     struct http_conn *conn, void (*begin)(void *arg),
                     void *arg);

/* Sends none any more. A zeroed one is fine. */
void keepalive_stop(struct keepalive *k);

#endif

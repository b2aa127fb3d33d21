/* Connections that have served a request and wait for the next one. All 0 is
 * none. */
#ifndef TOOLS_REPLAY_LIVE_IDLE_H
#define TOOLS_REPLAY_LIVE_IDLE_H

#include <stddef.h>
#include <stdint.h>

struct evhttp_connection;

struct replay_idle {
    struct {
        struct evhttp_connection *connection;
        int64_t since_us;
    } * last; /* (count), the last used one at the end */
    size_t count, capacity;
};

/* Returns the connection that was used last, now the caller's, or NULL if that
 * was too long ago; then all are closed. Its server may just have closed it. */
struct evhttp_connection *replay_idle_take(struct replay_idle *idle);

/* Takes a connection whose answer is whole. Returns NULL, or without memory the
 * connection, which is then still the caller's. */
struct evhttp_connection *replay_idle_keep(struct replay_idle *idle,
                                           struct evhttp_connection *one);

/* Closes them. */
void replay_idle_fini(struct replay_idle *idle);

#endif

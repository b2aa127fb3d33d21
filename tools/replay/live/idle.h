/* Idle connections, kept for the next request. {0} is an empty list. */
#ifndef TOOLS_REPLAY_LIVE_IDLE_H
#define TOOLS_REPLAY_LIVE_IDLE_H

#include <stddef.h>
#include <stdint.h>

struct evhttp_connection;

struct replay_idle {
    struct {
        struct evhttp_connection *connection;
        int64_t since_us;
    } * last; /* (count), most recently used last */
    size_t count, capacity;
};

/* Returns the most recently used connection, now the caller's; or NULL, with
 * all connections closed, if it has been idle too long. The server may still
 * have closed it. */
struct evhttp_connection *replay_idle_take(struct replay_idle *idle);

/* Keeps a connection whose answer is complete. Returns NULL, or the connection,
 * still the caller's, when out of memory. */
struct evhttp_connection *replay_idle_keep(struct replay_idle *idle,
                                           struct evhttp_connection *one);

/* Closes all connections. */
void replay_idle_fini(struct replay_idle *idle);

#endif

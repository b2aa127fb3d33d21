/*
 * The requests in flight of a command, and the signals that end it.
 */
#ifndef TOOLS_REPLAY_LIVE_FLIGHT_H
#define TOOLS_REPLAY_LIVE_FLIGHT_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/replay/live/http_request.h"

struct replay_flight {
    /* For each request, except record and idle. When `done` is called, the
     * request is no longer in flight. */
    struct replay_request_params params;
    struct replay_record *records; /* borrowed, [count] */
    /* Internal. */
    struct replay_request **requests; /* [count], NULL = not in flight */
    size_t count, in_flight;
    struct replay_idle idle;
    struct event *signals[2];
    bool interrupted; /* SIGINT or SIGTERM came and broke the loop */
};

/* Allocates `count` requests, and handles SIGINT and SIGTERM from here on.
 * Returns 0 or -ENOMEM; call replay_flight_fini() either way. */
[[nodiscard]] int replay_flight_init(struct replay_flight *f, size_t count);

/* Sends `body` (taken over) as request i. Returns 0, or -ENOMEM, also if `body`
 * is NULL. */
[[nodiscard]] int replay_flight_send(struct replay_flight *f, size_t i,
                                     struct evbuffer *body);

/* Cancels the requests in flight; their records become REPLAY_PENDING. */
void replay_flight_drop(struct replay_flight *f);

/* Cancels the requests in flight and frees everything. */
void replay_flight_fini(struct replay_flight *f);

#endif

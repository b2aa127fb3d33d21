/*
 * The requests of a command that are in flight, and the signals that end it.
 */
#ifndef TOOLS_REPLAY_LIVE_FLIGHT_H
#define TOOLS_REPLAY_LIVE_FLIGHT_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/replay/live/http_request.h"

struct replay_flight {
    /* Of each, but for record and idle. When `done` comes, the request is not
     * in flight any more. */
    struct replay_request_params params;
    struct replay_record *records; /* borrowed, [count] */
    /* Its own. */
    struct replay_request **requests; /* [count], NULL: not in flight */
    size_t count, in_flight;
    struct replay_idle idle;
    struct event *signals[2];
    bool interrupted; /* by SIGINT or SIGTERM, which break the loop */
};

/* Room for `count` requests; SIGINT and SIGTERM are taken from here on.
 * Returns 0 or -ENOMEM; replay_flight_fini() either way. */
[[nodiscard]] int replay_flight_init(struct replay_flight *f, size_t count);

/* Sends `body` (taken over; NULL: -ENOMEM) as request i. 0 or -ENOMEM. */
[[nodiscard]] int replay_flight_send(struct replay_flight *f, size_t i,
                                     struct evbuffer *body);

/* Drops what is in flight: we stopped it, so its records are REPLAY_PENDING. */
void replay_flight_drop(struct replay_flight *f);

/* Drops what is in flight and frees what init made. */
void replay_flight_fini(struct replay_flight *f);

#endif

/*
 * HTTP to the server under test, on libevent: streamed completions.
 * Requests never wait for each other: each has a connection, one
 * that an earlier request is done with or a new one, as clients of the OpenAI
 * API do.
 */
#ifndef TOOLS_REPLAY_LIVE_HTTP_REQUEST_H
#define TOOLS_REPLAY_LIVE_HTTP_REQUEST_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/idle.h"
#include "tools/replay/live/server.h"
#include "tools/replay/report/record.h"

struct replay_request;

/* The request is over and its record filled; it is freed afterwards. */
typedef void replay_request_cb(void *arg, struct replay_record *record);

struct replay_request_params {
    struct event_base *base;            /* borrowed */
    const struct replay_server *server; /* borrowed until the end */
    struct replay_idle *idle;           /* likewise, of this server alone */
    struct replay_record *record;       /* borrowed until the end */
    int64_t start_us;   /* clock time that the record's times count from */
    int64_t timeout_us; /* for the whole answer */
    replay_request_cb *done;
    void *arg;
};

/*
 * Posts `body`, as the record's tenant, if it has one and the server needs no
 * key: the key is "tenant-N" then. The body (taken over, also on error) goes to
 * /v1/completions, and the stream is read into the record. `done` comes from
 * the event loop, never from inside this function. Returns 0 with *request
 * valid until `done` returns, or -ENOMEM.
 */
[[nodiscard]] int
replay_request_start(const struct replay_request_params *params,
                     struct evbuffer *body, struct replay_request **request);

/* Drops the connection and frees the request; `done` does not come. Not to be
 * called from inside `done`. The record becomes a failure for `reason`. */
void replay_request_cancel(struct replay_request *request, const char *reason);

#endif

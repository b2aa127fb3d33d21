/*
 * HTTP to the server under test, on libevent: streamed completions. Requests
 * never wait for each other: each has a connection of its own, reused from a
 * finished request or new, as clients of the OpenAI API do.
 */
#ifndef TOOLS_REPLAY_LIVE_HTTP_REQUEST_H
#define TOOLS_REPLAY_LIVE_HTTP_REQUEST_H

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop/loop.h"
#include "tools/replay/live/server.h"
#include "tools/replay/report/record.h"

struct evhttp_connection;
struct replay_request;

/* Idle connections, kept for the next request. {0} is an empty list. */
struct replay_idle {
    struct {
        struct evhttp_connection *connection;
        int64_t since_us;
    } * last; /* (count), most recently used last */
    size_t count, capacity;
};

/* Closes all connections. */
void replay_idle_fini(struct replay_idle *idle);

/* The request has ended and filled its record; it is freed after this call. */
typedef void replay_request_cb(void *arg, struct replay_record *record);

struct replay_request_params {
    struct loop *loop;                  /* borrowed */
    const struct replay_server *server; /* borrowed until the end */
    struct replay_idle *idle;           /* borrowed until the end; for this
                                           server only */
    struct replay_record *record;       /* borrowed until the end */
    int64_t start_us;   /* clock time at which the record's times begin */
    int64_t timeout_us; /* for the whole answer */
    replay_request_cb *done;
    void *arg;
};

/*
 * POSTs `body` to /v1/completions and reads the stream into the record. A
 * record's tenant is sent as the key "tenant-N", unless the server needs a key.
 * Takes over the body, also on error. Calls `done` from the event loop, never
 * from inside this function. Returns 0 with *request valid until `done`
 * returns, or -ENOMEM.
 */
[[nodiscard]] int
replay_request_start(const struct replay_request_params *params,
                     struct evbuffer *body, struct replay_request **request);

/* Closes the connection and frees the request without calling `done`; the
 * record becomes a failure for `reason`. Must not be called inside `done`. */
void replay_request_cancel(struct replay_request *request, const char *reason);

/* The requests in flight of a command, and the signals that end it. */
struct replay_flight {
    /* For each request, except record and idle. When `done` is called, the
     * request is no longer in flight. */
    struct replay_request_params params;
    struct replay_record *records; /* borrowed, [count] */
    /* Internal. */
    struct replay_request **requests; /* [count], NULL = not in flight */
    size_t count, in_flight;
    struct replay_idle idle;
    struct loop_watch signals[2];
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

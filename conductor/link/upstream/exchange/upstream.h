/*
 * HTTP/1.1 exchanges with one engine: over a bounded number of connections,
 * kept for later requests. The request's bytes are sent unchanged; the answer's
 * head and body are handed over as they arrive.
 *
 *   upstream_send -> answer -> bytes, bytes, ... -> ended    the exchange is
 *                -> failed (at any time)                     dead afterwards
 *   upstream_cancel at any time before that: silence, its connection closes
 *
 * An exchange on a kept connection that the engine has closed is sent again on
 * a new one: the engine cannot have begun it.
 *
 * A request with an X-Request-Id gets a kept connection only if the last answer
 * named its request (whose.h), and there accepts only an answer that names its
 * own: an engine may send a second answer late. After any other answer it is
 * sent again on a new connection if `repeats` is set, else it fails. Requests
 * without an id use separate connections, and accept the first answer.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_EXCHANGE_UPSTREAM_H
#define CONDUCTOR_LINK_UPSTREAM_EXCHANGE_UPSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/http/parse.h"
#include "conductor/http/url.h"

struct dns;
struct exchange;
struct loop;
struct tls;
struct upstream;

struct upstream_options {
    size_t max_idle;       /* connections kept without a request */
    size_t max_head_bytes; /* of an answer, with the empty line */
    int64_t connect_us;    /* limit for a connection to open */
    int64_t idle_us;       /* kept connections close after this */
};

enum upstream_fault {
    UPSTREAM_UNREACHABLE, /* no connection: no listener, or no such host */
    UPSTREAM_RESET,       /* an open connection was reset before an answer */
    UPSTREAM_BROKEN,      /* the engine closed or reset it, or TLS failed */
    UPSTREAM_INVALID,     /* the answer is not HTTP, or over a bound */
    UPSTREAM_TIMEOUT,     /* the connection did not open in time */
};

/* Returns whether the engine's process is probably gone. */
static inline bool upstream_gone(enum upstream_fault fault)
{
    return fault == UPSTREAM_UNREACHABLE || fault == UPSTREAM_RESET;
}

/* A request; all of it is borrowed until the exchange is dead. */
struct upstream_request {
    const char *method;
    const char *path;    /* with its query, without the URL's prefix */
    const char *headers; /* whole lines with CR LF; without Host,
                            Content-Length, Connection and Transfer-Encoding.
                            X-Request-Id is unique */
    const char *body;    /* (n) */
    size_t n;
    bool holds_head; /* hand over a head of status 200 only with bytes of the
                        body; without any the exchange fails */
    bool repeats; /* may be sent again even if the engine may have begun it */
};

/* The loop calls these, never upstream_send() or upstream_cancel(). `answer`
 * and `bytes` may cancel the exchange. Arguments are borrowed for the call. */
struct upstream_ops {
    /* The final answer's head; 1xx answers are skipped. */
    void (*answer)(void *arg, const struct http_head *head);
    /* The next n bytes of the body, without its framing. */
    void (*bytes)(void *arg, const char *bytes, size_t n);
    /* The whole body has come. */
    void (*ended)(void *arg);
    void (*failed)(void *arg, enum upstream_fault fault, const char *why);
};

/*
 * Makes an upstream; opens no connection yet.
 *   dns      looks up names; borrowed, like loop; NULL = url has an address.
 *   url      copied.
 *   tls      for https, else NULL; the upstream takes a reference.
 *   options  copied.
 * Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct upstream *
upstream_new(struct loop *loop, struct dns *dns, const struct engine_url *url,
             struct tls *tls, const struct upstream_options *options);

/* Closes all connections; every exchange must have ended or been cancelled.
 * NULL is a no-op. */
void upstream_free(struct upstream *upstream);

/*
 * Sends a request.
 *   ops  borrowed until the exchange is dead; arg is handed to each.
 * Returns the exchange, owned by the upstream: the caller drops its pointer in
 * `ended` and `failed`, or passes it to upstream_cancel(). NULL: out of memory.
 */
[[nodiscard]] struct exchange *
upstream_send(struct upstream *upstream, const struct upstream_request *request,
              const struct upstream_ops *ops, void *arg);

/* Ends an exchange by closing its connection, so that the engine stops its
 * work. NULL is a no-op. */
void upstream_cancel(struct exchange *exchange);

/* Returns the event that a late exchange still waits for, in words; static. */
const char *upstream_late(const struct exchange *exchange);

/* Returns whether the engine cannot have the whole request yet. */
bool upstream_unsent(const struct exchange *exchange);

/* Stops reading the answer, or resumes: TCP then slows the engine down. `bytes`
 * may still come once after a pause. */
void upstream_pause(struct exchange *exchange, bool pause);

/* Return the numbers of connections with an exchange, and of kept ones; 0 for
 * NULL. */
size_t upstream_busy(const struct upstream *upstream);
size_t upstream_idle(const struct upstream *upstream);

#endif

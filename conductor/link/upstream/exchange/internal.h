/* Exchanges. Private to the files of this folder. */
#ifndef CONDUCTOR_LINK_UPSTREAM_EXCHANGE_INTERNAL_H
#define CONDUCTOR_LINK_UPSTREAM_EXCHANGE_INTERNAL_H

#include <sys/queue.h>

#include "base/dial.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "conductor/link/upstream/exchange/upstream.h"
#include "conductor/link/upstream/exchange/whose.h"

enum exchange_part {
    PART_HEAD,
    PART_SIZED, /* Content-Length bytes */
    PART_CHUNKED,
    PART_TO_END, /* until the engine closes */
    PART_DONE,
};

struct exchange {
    TAILQ_ENTRY(exchange) entry;
    struct upstream *upstream;
    struct dial dial;
    struct stream *stream;      /* NULL = not connected */
    struct loop_timer patience; /* connect timeout; pending until open */
    int64_t idle_since_us;      /* of a kept connection */
    struct upstream_request request;
    const struct upstream_ops *ops; /* NULL = cancelled inside a callback, or a
                                       kept connection */
    void *arg;
    enum exchange_part part;
    bool open;            /* connected, TLS included */
    bool reused;          /* the connection had an earlier exchange */
    bool any;             /* some bytes of an answer have come */
    bool over;            /* the engine sends no more */
    bool keep;            /* the answer leaves the connection open */
    bool in_call;         /* a callback runs: free it only afterwards */
    struct http_slice id; /* of the request, see whose.h; n 0 = none usable */
    uint64_t use;         /* requests of one `use` may share it; see use_of() */
    uint64_t left;        /* bytes of a PART_SIZED body to come */
    struct http_chunked chunked;
};

TAILQ_HEAD(exchange_list, exchange);

struct upstream {
    struct loop *loop;
    struct dns *dns;
    struct engine_url url;
    struct tls *tls; /* NULL = http */
    struct upstream_options options;
    struct stream_loop *streams;
    struct loop_timer old;           /* closes kept connections after idle_us */
    struct exchange_list busy, idle; /* idle: most recently used first */
    size_t n_busy, n_idle;
    bool anonymous; /* the last good answer did not name its request */
};

/* Stream callback: reads the answer; arg is the exchange. */
void upstream_on_read(void *arg);

/* Stream callback: the connection broke with `error`, a negative errno, or the
 * engine closed it (0); arg is the exchange. */
void upstream_on_ended(void *arg, int error);

/* Fails an exchange whose connection did not open, or was reset, with `error`,
 * an errno. A TLS error is not UPSTREAM_UNREACHABLE: the engine still runs,
 * perhaps with its cache. */
void upstream_fail_connect(struct exchange *x, int error);

/* Closes the connection of an exchange, if there is one. */
void upstream_close(struct exchange *x);

/* Opens a connection for an exchange that is in the busy list, and writes its
 * request. Returns 0 or -ENOMEM. */
[[nodiscard]] int upstream_open(struct exchange *x);

/* Writes the request; the body is only referenced. Returns 0 or -ENOMEM. */
[[nodiscard]] int upstream_write(struct exchange *x);

/* Sends the request again, on a new connection. Returns false: out of
 * memory. */
[[nodiscard]] bool upstream_send_again(struct exchange *x);

/* Ends the exchange: keeps or closes its connection, then calls `ended`;
 * upstream_fail() closes it, then calls `failed`. */
void upstream_end(struct exchange *x);
void upstream_fail(struct exchange *x, enum upstream_fault fault,
                   const char *why);

/* Timer callback: closes connections kept for idle_us; arg is the upstream. */
void upstream_on_old(void *arg);

/* Close a busy connection, without a callback; or a kept one. */
void upstream_drop(struct exchange *x);
void upstream_drop_kept(struct exchange *x);

#endif
